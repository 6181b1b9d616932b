"""Where and in which number format a run computes. Models know nothing of it."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from seqloom.errors import UsageError


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available() and "LOCAL_RANK" in os.environ:  # one of several processes
        name = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {name}: no CUDA device is usable here; use --device cpu, or see 'seqloom doctor'")
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise UsageError(f"--device {name}: give auto, cpu or cuda")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"--device {name}: {error}") from error


def choose_precision(name: str, device: torch.device) -> str:
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


@contextmanager
def deterministic_algorithms(asked: bool) -> Iterator[None]:
    """The same bits on a GPU too, if asked; as it was before afterwards."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(asked or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """bf16: matrix products in bfloat16, weights and sums in fp32."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
