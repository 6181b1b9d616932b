"""How a process that computes should wait, keep memory and do without: decided before torch is loaded.

Threads: between two operations OpenMP's threads spin: each keeps its core busy until the others are there, about a millisecond
long. Beside any other process that takes one of the cores they spin for a thread that does not run, and training falls to a
fraction of its speed. Threads that sleep at once cost a third of it on an idle machine. So they spin shortly, as long as OpenMP
itself has them spin where it knows of more threads than cores, and then sleep (docs/results, benchmarks/busy.py).

Memory: glibc gives large blocks back to the system as soon as they are free, and gets every page of the next one anew, filled
with zeros. A step of a small model asks for the same few megabytes again and again; on a virtual machine the pages cost up to
half of its time (docs/decisions/training.md). So freed blocks of up to 32 MB are kept, and up to 128 MB of what is free.

Apple GPUs lack some operations; with FALLBACK torch computes those on the CPU instead of failing.
"""

import sys
from collections.abc import MutableMapping

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # by which a user may have decided it
SPINS = "1000"
ALLOCATORS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
MALLOPT = {-3: 32 << 20, -1: 128 << 20}  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's malloc.h
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"


def prepare_process(environment: MutableMapping[str, str]) -> None:
    wait_briefly(environment)
    keep_freed_memory(environment)
    fall_back_to_cpu(environment)


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Let threads sleep after a short spin, unless the user has decided how they wait."""
    if not any(name in environment for name in CHOICES):
        environment["GOMP_SPINCOUNT"] = SPINS


def keep_freed_memory(environment: MutableMapping[str, str]) -> None:
    """Let malloc use freed blocks again, unless the user has decided about them; on systems without glibc nothing happens."""
    if not sys.platform.startswith("linux") or any(name in environment for name in ALLOCATORS):
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, size in MALLOPT.items():
            mallopt(option, size)


def fall_back_to_cpu(environment: MutableMapping[str, str]) -> None:
    """Let the CPU compute what an Apple GPU cannot, unless the user has decided against it."""
    environment.setdefault(FALLBACK, "1")
