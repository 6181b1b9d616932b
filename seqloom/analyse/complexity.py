"""What one layer of each kind costs as texts grow: table 1 of Vaswani et al., 2017 (arXiv 1706.03762), measured.

operations      of a forward pass, as `cost` counts them (checked against torch's counter)
steps           how many things must be computed one after the other within a layer: the states of a recurrence; 1 otherwise
path            over how many of these, and of layers, a signal from the first token gets to the last. A layer's reach is
                measured: how many tokens back the last output has a gradient. Convolutions of one dilation need
                (n − 1) / (reach − 1) layers; with dilations that grow by the factor k, log_k n
latency         milliseconds of a forward pass over one text, the median of several
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom import cost
from seqloom.batch import Ragged, Sizes, ragged
from seqloom.blocks.attention import SelfAttention
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.convolution import Convolution
from seqloom.blocks.recurrent import RecurrentLayer
from seqloom.errors import UsageError

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
PROBE = 96  # tokens of the text that the reach of a layer is measured on
TIMES = 5  # passes that a latency is the median of
ENOUGH = 2.0  # seconds after which no further pass is made


class Shape(NamedTuple):
    dim: int = 256
    num_heads: int = 4
    width: int = 3  # of filters
    window: int = 64  # of restricted attention


class Layer(NamedTuple):
    name: str
    module: Any
    per_layer: str  # operations in letters, as the paper has them
    steps: Callable[[int], int]
    path: Callable[[int, int], int]  # of n tokens, with the reach of one layer


class Measured(NamedTuple):
    layer: str
    length: int
    operations: int
    steps: int
    path: int
    milliseconds: float


def layers_of(shape: Shape) -> list[Layer]:
    def by_reach(n: int, reach: int) -> int:
        return max(1, math.ceil((n - 1) / max(reach - 1, 1)))

    def one(n: int) -> int:
        return 1

    def dilated(n: int, reach: int) -> int:
        layers = 1
        while reach**layers < n:
            layers += 1
        return layers

    dim, heads = shape.dim, shape.num_heads
    attention, restricted = (SelfAttention(dim, heads, causal=True, window=w) for w in (None, shape.window))
    convolution = Convolution(dim, dim, shape.width)
    return [
        Layer("self-attention", attention, "n² · d", one, by_reach),
        Layer("recurrent (LSTM)", RecurrentLayer(LstmCell(dim, dim)), "n · d²", lambda n: n, lambda n, reach: n),
        Layer(f"convolutional (k = {shape.width})", convolution, "k · n · d²", one, by_reach),
        Layer(f"convolutional, dilated (k = {shape.width})", convolution, "k · n · d²", one, dilated),
        Layer(f"restricted attention (r = {shape.window})", restricted, "r · n · d", one, by_reach),
    ]


def text_of(n: int, device: torch.device) -> Ragged:
    return ragged(torch.zeros(n, dtype=torch.long, device=device), torch.tensor([n], device=device), n)


def reach_of(module: nn.Module, shape: Shape) -> int:
    """How many tokens the last output has a gradient by, itself included; of a text that is longer than that, if it ends."""
    n = max(PROBE, 2 * shape.window, 2 * shape.width)
    parameter = next(module.parameters())
    x = torch.randn(n, shape.dim, dtype=parameter.dtype, device=parameter.device, requires_grad=True)
    output: Tensor = module(x, text_of(n, x.device))[0]
    output[-1].sum().backward()
    assert x.grad is not None
    seen = x.grad.abs().sum(1) > 0
    return int(n - seen.nonzero().min()) if not bool(seen[0]) else 0


@torch.no_grad()
def latency(module: nn.Module, n: int, shape: Shape, device: torch.device) -> float:
    """The median, in milliseconds, after a pass that is not counted."""
    x, batch = torch.randn(n, shape.dim, device=device), text_of(n, device)
    found: list[float] = []
    began = time.perf_counter()
    while len(found) <= TIMES and (len(found) < 2 or time.perf_counter() - began < ENOUGH):
        start = time.perf_counter()
        module(x, batch)
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(1000 * (time.perf_counter() - start))
    return statistics.median(found[1:])


def measure_complexity(shape: Shape, lengths: Sequence[int], device: torch.device) -> list[Measured]:
    if shape.dim % shape.num_heads:
        raise UsageError(f"--dim {shape.dim} must be a multiple of the {shape.num_heads} heads")
    torch.manual_seed(0)
    found: list[Measured] = []
    times: dict[tuple[int, int], float] = {}  # dilations change no time: one module stands for both
    for layer in layers_of(shape):
        module = layer.module.to(device)
        flops, reach = cost.total(module), reach_of(module, shape)
        module.eval()
        for n in lengths:
            # a reach of 0 is one without an end: the first token is a layer away
            path = layer.path(n, reach or n)
            operations = flops.forward(Sizes(n, n * n, n, 0, lengths=(n,)))
            key = id(layer.module), n
            if key not in times:
                times[key] = latency(module, n, shape, device)
            found.append(Measured(layer.name, n, operations, layer.steps(n), path, times[key]))
    return found
