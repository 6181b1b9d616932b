"""Layers whose input follows from their output, so that no activations are kept for the gradient. Gomez et al., 2017 (arXiv
1707.04585); Kitaev et al., 2020 (arXiv 2001.04451).

    y1 = x1 + attention(norm(x2))        x2 = y2 − ffn(norm(y1))
    y2 = x2 + ffn(norm(y1))              x1 = y1 − attention(norm(x2))

Two streams of D numbers go through the layers; what is handed from layer to layer is both, (T, 2D). The backward pass computes
each layer once more, with the same random numbers and the same buckets: its input comes back to the last digits only, and a
vector on the border of two buckets would end up in the other one. So the buckets are kept, one or two bytes each, and nothing
else of a layer.
"""

import math
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import Edit, MapRows, Output, Ragged, State
from seqloom.blocks.layers import Mixed, ResidualLayer
from seqloom.blocks.lsh import LshAttention
from seqloom.blocks.stack import Stack


class ReversibleLayer(ResidualLayer):
    """ffn_chunk: tokens that go through the feed-forward network at once; all unless given."""

    mixer: LshAttention

    def __init__(self, mixer: nn.Module, ffn: nn.Module, dim: int, dropout: float, ffn_chunk: int | None = None):
        super().__init__(mixer, ffn, dim, dropout, eps=1e-12)
        self.ffn_chunk = ffn_chunk

    @property
    def is_random(self) -> bool:
        return self.training and (self.dropout.p > 0 or self.mixer.dropout > 0)

    def attend(self, x2: Tensor, batch: Ragged, buckets: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is added to the first stream, and the buckets that were found, or given."""
        mixed, _, buckets = self.mixer.look(self.mixer_norm(x2), batch, buckets)
        return self.dropout(mixed), buckets

    def pieces(self, tokens: int) -> list[slice]:
        size = self.ffn_chunk or max(tokens, 1)
        return [slice(begin, begin + size) for begin in range(0, tokens, size)]

    def feed_piece(self, y1: Tensor) -> Tensor:
        return self.dropout(self.ffn(self.ffn_norm(y1)))

    def feed_all(self, y1: Tensor) -> Tensor:
        """What is added to the second stream."""
        return torch.cat([self.feed_piece(y1[some]) for some in self.pieces(y1.shape[0])] or [y1])

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Any,
        context: Any,
        maps: bool | MapRows,
        heads: Tensor | None = None,
    ) -> Mixed:
        x1, x2 = x.chunk(2, -1)
        mixed, state, weights = self.mixer(self.mixer_norm(x2), batch, state, None, maps, heads)
        y1 = x1 + self.dropout(mixed)
        return torch.cat((y1, x2 + self.feed_all(y1)), -1), state, weights

    def value_norms(self, x: Tensor) -> Tensor:
        return self.mixer.value_norms(self.mixer_norm(x.chunk(2, -1)[1]))


class Repeated:
    """The random numbers and the precision of a computation, for when it is done again."""

    def __init__(self, x: Tensor, is_random: bool):
        self.device = x.device
        self.cpu = torch.get_rng_state() if is_random else None
        self.cuda = torch.cuda.get_rng_state(x.device) if is_random and x.is_cuda else None
        kind = x.device.type
        self.autocast = (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))

    @contextmanager
    def again(self) -> Any:
        enabled, dtype = self.autocast
        with (
            torch.random.fork_rng([self.device] if self.cuda is not None else []),
            torch.autocast(self.device.type, dtype=dtype, enabled=enabled),
            torch.enable_grad(),
        ):
            if self.cpu is not None:
                torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield


class Reversed(torch.autograd.Function):
    """All layers one after the other. Of the forward pass both streams above the last layer are kept, and all buckets."""

    @staticmethod
    def forward(ctx: Any, layers: list[ReversibleLayer], batch: Ragged, x: Tensor, *parameters: Tensor) -> Tensor:
        y1, y2 = x.detach().chunk(2, -1)
        buckets, noise = [], []
        for layer in layers:
            before = Repeated(x, layer.is_random)
            mixed, found = layer.attend(y2, batch)
            y1 = y1 + mixed
            noise.append((before, Repeated(x, layer.is_random)))
            y2 = y2 + layer.feed_all(y1)
            small = found.to(torch.uint8) if math.prod(layer.mixer.buckets) <= 256 else found
            buckets.append(small)
        ctx.layers, ctx.batch, ctx.noise = layers, batch, noise
        top = torch.cat((y1, y2), -1)
        ctx.save_for_backward(top, *buckets)
        return top

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        top, *buckets = ctx.saved_tensors
        (y1, y2), (d1, d2) = top.chunk(2, -1), gradients[0].chunk(2, -1)
        found: list[list[Tensor | None]] = []
        for layer, named, (of_mixer, of_ffn) in zip(
            reversed(ctx.layers), reversed(buckets), reversed(ctx.noise), strict=True
        ):
            learnt = list(layer.parameters())
            with of_ffn.again():
                fed, down, sums = feed_again(layer, y1, d2, learnt)
            x2, d1 = y2 - fed, d1 + down
            with of_mixer.again():
                read = x2.detach().requires_grad_()
                mixed, _ = layer.attend(read.view_as(read), ctx.batch, named.to(torch.int16))
                below, *more = differentiate(mixed, [read, *learnt], d1)
            y1, y2 = y1 - mixed.detach(), x2
            d2 = d2 if below is None else d2 + below
            found.append([plus(a, b) for a, b in zip(sums, more, strict=True)])
        return None, None, torch.cat((d1, d2), -1), *(each for layer_sums in reversed(found) for each in layer_sums)


def feed_again(
    layer: ReversibleLayer, y1: Tensor, d2: Tensor, learnt: list[nn.Parameter]
) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """What the feed-forward network gave, the gradient of what it read, and those of the parameters: piece by piece, so that no
    more than one is ever in memory."""
    outputs, downs = [y1[:0]], [y1[:0]]
    sums: list[Tensor | None] = [None] * len(learnt)
    for some in layer.pieces(y1.shape[0]):
        read = y1[some].detach().requires_grad_()
        piece = layer.feed_piece(read.view_as(read))  # counters of operations want no leaf here
        down, *more = differentiate(piece, [read, *learnt], d2[some])
        outputs.append(piece.detach())
        downs.append(torch.zeros_like(read) if down is None else down)
        sums = [plus(a, b) for a, b in zip(sums, more, strict=True)]
    return torch.cat(outputs), torch.cat(downs), sums


def differentiate(y: Tensor, inputs: list[Any], gradient: Tensor) -> list[Tensor | None]:
    """None for inputs that it does not depend on, or that are not learnt."""
    asked = [each for each in inputs if each.requires_grad]
    found = iter(torch.autograd.grad(y, asked, gradient.to(y.dtype), allow_unused=True))
    return [next(found) if each.requires_grad else None for each in inputs]


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


class ReversibleStack(Stack):
    """Reads one stream, (T, D), and gives both, (T, 2D); so do all of its layers. recompute=False: the same numbers with all
    activations kept."""

    def __init__(self, layers: Iterable[nn.Module], top: nn.Module | None = None, recompute: bool = True):
        super().__init__(layers, top)
        self.recompute = recompute

    @property
    def units(self) -> list[nn.Module]:
        """None: the backward pass computes with the weights of all layers, outside of their calls."""
        return []

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: State | None = None,
        context: Any = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
    ) -> Output:
        both = torch.cat((x, x), -1)
        shown = state is not None or layers or maps or edit is not None
        if not self.recompute or shown or not torch.is_grad_enabled():
            return super().forward(both, batch, state, context, layers, maps, edit)
        parameters = [parameter for layer in self.layers for parameter in layer.parameters()]
        hidden = Reversed.apply(list(self.layers), batch, both, *parameters)
        return Output(hidden if self.top is None else self.top(hidden))
