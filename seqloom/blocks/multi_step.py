"""A decoder layer of convolutions with attention of its own, and what keeps many of them in scale. Gehring et al., 2017
(arXiv 1705.03122).

Every sum of two is multiplied by √½, and what attention gives by √m (m tokens of the source), so that variances stay as they are;
weights have a length and a direction apart (Salimans & Kingma, 2016, arXiv 1602.07868).
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from seqloom.batch import Context, Ragged
from seqloom.blocks import kernels
from seqloom.blocks.convolution import Convolution
from seqloom.blocks.grid import from_grid, lengths, to_grid
from seqloom.blocks.layers import Mixed

HALF = 0.5**0.5


class Seen(NamedTuple):
    """What a decoder layer looks at: the source, and from where."""

    target: Tensor  # (T, E) the embeddings of the target's tokens
    source: Any  # Context: keys and values side by side, (S, 2 E); or what `read` has made of it


class Memory(NamedTuple):
    kept: Tensor  # (N, S, 2, 1, E) keys and values
    sizes: Tensor  # (N,) tokens of each source


def read(context: Context) -> Memory:
    """The source made ready, once for all layers and steps."""
    return Memory(to_grid(context.hidden.unflatten(1, (2, 1, -1)), context), lengths(context))


class GatedConvolution(nn.Module):
    """(GLU(convolution(x)) + x) √½, a GLU being a half of the filters gated by the other half; x made as wide as they are."""

    gates = ("filters",)

    def __init__(self, dim: int, out_dim: int, width: int, causal: bool, dropout: float):
        super().__init__()
        self.convolution = Convolution(dim, 2 * out_dim, width, causal=causal)
        self.project = nn.Linear(dim, out_dim) if dim != out_dim else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, batch: Ragged, state: Any = None, context: Any = None, maps: bool = False) -> Mixed:
        found, state = self.convolution(self.dropout(x), batch, state)
        found = F.glu(found, 1)
        return (found + self.project(x)) * HALF, state, found[:, None]

    def start(self, n: int, max_len: int) -> Tensor:
        return self.convolution.start(n)


class MultiStepAttention(nn.Module):
    """One head without matrices of its own for keys and values: those are the encoder's states, and they with the embeddings."""

    def __init__(self, dim: int, embedding_dim: int):
        super().__init__()
        self.embedding_dim = embedding_dim
        self.query, self.out = nn.Linear(dim, embedding_dim), nn.Linear(embedding_dim, dim)

    def forward(self, x: Tensor, batch: Ragged, seen: Seen, maps: bool) -> tuple[Tensor, Tensor | None]:
        """What is seen, (T, dim), and with maps=True the weights (T, 1, S)."""
        query = (self.query(x) + seen.target) * HALF
        query = query[:, None] * self.embedding_dim**0.5  # kernels divide by it
        if isinstance(seen.source, Memory):
            mixed, weights = kernels.cross_attend_cached(query, batch, *seen.source, maps)
            sizes = seen.source.sizes.repeat_interleave(batch.num_sequences // seen.source.sizes.shape[0])
        else:
            keys, values = seen.source.hidden.unflatten(1, (2, 1, -1)).unbind(1)
            mixed, weights = kernels.attend(query, keys, values, batch, causal=False, maps=maps, keys=seen.source)
            weights = None if weights is None else from_grid(weights.transpose(1, 2), batch)
            sizes = lengths(seen.source)
        scale = sizes[batch.owner][:, None].to(mixed.dtype).sqrt()
        return self.out(mixed.flatten(1) * scale), weights


class MultiStepLayer(GatedConvolution):
    """A look at the source between the gated convolution and the residual connection."""

    def __init__(self, dim: int, out_dim: int, width: int, embedding_dim: int, dropout: float):
        super().__init__(dim, out_dim, width, True, dropout)
        self.attention = MultiStepAttention(out_dim, embedding_dim)

    def forward(self, x: Tensor, batch: Ragged, state: Any = None, context: Any = None, maps: bool = False) -> Mixed:
        found, state = self.convolution(self.dropout(x), batch, state)
        found = F.glu(found, 1)
        looked, weights = self.attention(found, batch, context, maps)
        found = (found + looked) * HALF
        return (found + self.project(x)) * HALF, state, weights


class ScaledGradient(torch.autograd.Function):
    """x, whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.scale, None


def normalise_weights(module: nn.Module) -> None:
    """Every matrix from now on has the lengths of its rows apart from their directions."""
    for part in list(module.modules()):
        if isinstance(part, nn.Linear):
            weight_norm(part)


def init_in_scale(module: nn.Module, keep: float) -> None:
    """Matrices with std √(p/n), n being what a unit reads and p the share that dropout keeps; four times the variance before a
    GLU, whose gates let half of it through; no biases; embeddings with std 0.1."""
    gated = {part.convolution.filters for part in module.modules() if isinstance(part, GatedConvolution)}
    for part in module.modules():
        if isinstance(part, nn.Linear):
            variance = (4 if part in gated else 1) * keep / part.in_features
            part.weight = nn.init.normal_(torch.empty_like(part.weight), std=variance**0.5)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=0.1)
