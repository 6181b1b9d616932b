"""Where and in which number format a run computes. Models know nothing of it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch
from torch import Tensor

from seqloom.errors import UsageError
from seqloom.progress import say
from seqloom.training.process import FALLBACK


def choose_device(name: str, count_based: bool = False) -> torch.device:
    """auto: a CUDA GPU, else an Apple GPU (mps), else the CPU. count_based: for a model that computes in fp64, which Apple GPUs
    do not have: the CPU stands in for them."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available() and "LOCAL_RANK" in os.environ:  # one of several processes
        name = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"--device {name}: no CUDA device is usable here; use --device cpu, or see 'seqloom doctor'")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"--device {name}: no Apple GPU is usable here; use --device cpu, or see 'seqloom doctor'")
    if name.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise UsageError(f"--device {name}: give auto, cpu, cuda or mps")
    if name == "mps" and count_based:
        name = "cpu"
    if name == "mps":
        say_fallback(os.environ)
    if name.startswith("cuda"):
        # fp32 is fp32: with 10 bits of mantissa, which cuDNN takes for recurrent layers unless told otherwise, log-probabilities
        # differ by 1e-3 from one number of rows to another, and random texts with them
        torch.backends.cudnn.allow_tf32 = False
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"--device {name}: {error}") from error


@cache
def _say_once(line: str) -> None:
    say(line)


def say_fallback(environment: Mapping[str, str]) -> None:
    """Says what happens with operations that Apple GPUs do not have."""
    if environment.get(FALLBACK) == "1":
        _say_once("mps: operations that this GPU does not have are computed on the CPU, which is slower")
    else:
        _say_once(f"mps: operations that this GPU does not have will fail: set {FALLBACK}=1 to compute them on the CPU")


def choose_precision(name: str, device: torch.device) -> str:
    """auto: what the tensor cores of a GPU can do. Where bf16 would be emulated it is slower than fp32."""
    if name != "auto":
        return name
    if device.type != "cuda":
        return "fp32"
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"


@contextmanager
def deterministic_algorithms(asked: bool, parts: int = 1) -> Iterator[None]:
    """The same bits on a GPU too, if asked; as it was before afterwards. parts: of a step. Where there are several, any number
    of processes may compute them, each with as many threads as are left for it, and threads decide how sums are rounded: each
    has one then."""
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(asked or before)
    if asked and parts > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.set_num_threads(threads)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """bf16, fp16: matrix products in that type, weights and sums in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[precision])


class LossScale:
    """The factor by which fp16 losses are multiplied, so that small gradients do not become zero (Micikevicius et al., 2018,
    arXiv 1710.03740). It halves after a step whose gradient overflows, which is skipped, and doubles after so many good steps.

    Losses are sums over the targets of a batch, thousands of times their mean: the first scale is small. All of it stays on
    the device, and nothing waits for the host. A recorded CUDA graph would replay the first scale: fp16 has none."""

    FIRST, MOST, PATIENCE = 8.0, 2.0**15, 500

    def __init__(self, device: torch.device):
        self.scale = torch.tensor(self.FIRST, device=device)
        self.good = torch.zeros((), device=device)  # steps since it last changed

    def update(self, overflow: Tensor) -> None:
        """overflow: 1.0 where the gradient of this step was not finite."""
        self.good = (self.good + 1) * (1 - overflow)
        doubled = self.good >= self.PATIENCE
        self.scale = torch.where(doubled, self.scale * 2, self.scale * (1 - overflow / 2)).clamp(max=self.MOST)
        self.good = torch.where(doubled, torch.zeros_like(self.good), self.good)

    def state(self) -> dict[str, Tensor]:
        return {"scale": self.scale, "good": self.good}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.scale, self.good = (tensors[name].to(self.scale) for name in ("scale", "good"))
