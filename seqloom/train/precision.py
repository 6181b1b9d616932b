"""Where and in which number format a run computes. Models know nothing of it."""

from contextlib import AbstractContextManager, nullcontext

import torch

from seqloom.errors import UsageError


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
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


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """bf16: matrix products in bfloat16, weights and sums in fp32."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()
