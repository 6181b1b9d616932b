"""Several benchmarks on one GPU at once: they build and compile side by side, and measure one after the other.

    SEQLOOM_TURN=/tmp/turn python benchmarks/train_memory.py & SEQLOOM_TURN=/tmp/turn python benchmarks/pictures_gpu.py

Without the variable nothing waits.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def alone() -> Iterator[None]:
    """While no other benchmark with the same file measures."""
    path = os.environ.get("SEQLOOM_TURN")
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
