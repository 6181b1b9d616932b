"""Attention by relative positions, over a memory of what was read before. Dai et al., 2019, Transformer-XL (arXiv 1901.02860).

What a query at place i gives to the key at place j ≤ i is

    (q_i + u) · k_j  +  (q_i + v) · W_r s(i − j)        over √E, s(d) the sinusoids of a distance

so that only distances count, and a token that was read in an earlier segment can be looked at as one of this segment is. In
training a layer keeps what it read last, M tokens, and every token sees all of them and those of its segment up to itself. In
evaluation every token sees the same number of tokens, itself and the window − 1 before it: then nothing depends on how a text
is cut, and the keys and values themselves are kept, so that nothing is computed twice.

Letters beside those of `batch`: M tokens that are kept, K = M + L keys.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import Edit, MapRows, Output, Ragged, State
from seqloom.blocks import kernels
from seqloom.blocks.attention import value_norms
from seqloom.blocks.grid import FullGrid, from_grid, lengths, to_grid
from seqloom.blocks.layers import Mixed, PreNormLayer
from seqloom.blocks.stack import Stack

BLOCK = 128  # tokens of a sequence that look at their windows together, where each has its own


class Remembered(NamedTuple):
    """What a layer keeps of the last M tokens of each sequence."""

    kept: Tensor  # (n, M, D) what it read, in training; (n, M, 2, H, E) keys and values, in evaluation
    filled: Tensor  # (n,) how many of them are tokens: the last ones; the others stand for nothing


class Distances(NamedTuple):
    """What all layers share."""

    vectors: Tensor  # (K, D) the sinusoids of the distances K − 1, …, 0
    content: Tensor  # (H, E) u
    position: Tensor  # (H, E) v


class DistanceVectors(nn.Module):
    """Sinusoids of distances. clamp: larger ones count as this one, in either direction."""

    def __init__(self, dim: int, dropout: float, clamp: int | None):
        super().__init__()
        self.dim, self.clamp = dim, clamp
        self.dropout = nn.Dropout(dropout)

    def vectors(self, first: int, last: int, like: Tensor) -> Tensor:
        """(first − last + 1, D) of all distances from the first down to the last, which may be negative: of later tokens."""
        dtype = torch.float32 if like.device.type == "mps" else torch.float64  # an Apple GPU has no fp64
        distance = torch.arange(first, last - 1, -1, device=like.device, dtype=dtype)
        if self.clamp is not None:
            distance = distance.clamp(min=-self.clamp, max=self.clamp)
        return self.dropout(sinusoids(distance, self.dim).to(like.dtype))


class RelativePositions(DistanceVectors):
    """Sinusoids of distances, and u and v, which all layers share."""

    def __init__(self, dim: int, num_heads: int, head_dim: int, dropout: float, clamp: int | None):
        super().__init__(dim, dropout, clamp)
        self.content = nn.Parameter(torch.empty(num_heads, head_dim))
        self.position = nn.Parameter(torch.empty(num_heads, head_dim))

    def forward(self, count: int, like: Tensor) -> Distances:
        """Of `count` distances, 0 the last of them."""
        return Distances(self.vectors(count - 1, 0, like), self.content, self.position)


def sinusoids(distance: Tensor, dim: int) -> Tensor:
    """(K,) → (K, D): sines in the first half, cosines in the second."""
    rates = 10000.0 ** (-torch.arange(0, dim, 2, device=distance.device, dtype=distance.dtype) / dim)
    angles = distance[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), 1)[:, :dim]


def shift(scores: Tensor) -> Tensor:
    """(…, L, K) by distance, K − 1 first → by key: row i moves L − 1 − i to the left. What moves in from behind is of keys after
    the query. A column of zeros before the first makes one long row of it, in which all rows have moved."""
    *rest, queries, keys = scores.shape
    return F.pad(scores, (1, 0)).view(*rest, keys + 1, queries)[..., 1:, :].reshape(*rest, queries, keys)


class RelativeAttention(nn.Module):
    """memory: M in training. window: how many tokens one sees in evaluation, itself included."""

    once = ("distance",)

    def __init__(self, dim: int, num_heads: int, head_dim: int, memory: int, window: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, head_dim, dropout
        self.memory, self.window = memory, window
        width = num_heads * head_dim
        self.qkv = nn.Linear(dim, 3 * width, bias=False)
        self.distance = nn.Linear(dim, width, bias=False)
        self.out = nn.Linear(width, dim, bias=False)

    @property
    def capacity(self) -> int:
        """How many tokens are kept."""
        return self.memory if self.training else self.window - 1

    def start(self, n: int, max_len: int) -> Remembered:
        weight = self.out.weight
        kept = (weight.shape[0],) if self.training else (2, self.num_heads, self.head_dim)
        filled = torch.zeros(n, dtype=torch.long, device=weight.device)
        return Remembered(weight.new_zeros(n, self.capacity, *kept), filled)

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Remembered | None,
        context: Distances,
        maps: bool | MapRows = False,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, Remembered, Tensor | None]:
        """heads (H,) or (T, H): what each head's output is multiplied by."""
        qkv = self.qkv(x).view(-1, 3, self.num_heads, self.head_dim)
        query, new = to_grid(qkv[:, 0], batch), to_grid(qkv[:, 1:], batch)
        kv = self.with_kept(new, state)
        mixed, weights = self.attend(query, kv, None if state is None else state.filled, context, bool(maps))
        if maps and state is not None:
            weights = from_grid(by_distance(weights, self.capacity + (batch.max_len if self.training else 1)), batch)
        if isinstance(maps, MapRows):
            assert weights is not None
            weights = (from_grid(weights.transpose(1, 2), batch) if state is None else weights)[maps.tokens]
        out = from_grid(mixed, batch)
        if heads is not None:
            out = out * heads[..., None].to(out.dtype)
        after = self.remember(to_grid(x, batch) if self.training else new, batch, state)
        return self.out(out.flatten(1)), after, weights

    def with_kept(self, new: Tensor, state: Remembered | None) -> Tensor:
        """Keys and values of new tokens (N, L, 2, H, E) behind those of what is kept."""
        if state is None:
            return new
        kept = self.keys_and_values(state.kept) if self.training else state.kept
        return torch.cat((kept.to(new.dtype), new), 1)

    def value_norms(self, x: Tensor) -> Tensor:
        return value_norms(self.qkv(x).view(-1, 3, self.num_heads, self.head_dim)[:, 2], self.out)

    def keys_and_values(self, kept: Tensor) -> Tensor:
        """Of what was read before, (N, M, D) → (N, M, 2, H, E)."""
        return F.linear(kept, self.qkv.weight[self.qkv.weight.shape[0] // 3 :]).view(
            *kept.shape[:2], 2, self.num_heads, self.head_dim
        )

    def attend(
        self, query: Tensor, kv: Tensor, filled: Tensor | None, context: Distances, maps: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Queries (N, L, H, E) of the last L of K keys: (N, L, H, E), and the weights (N, H, L, K) with maps=True. Where a window
        limits what is seen, block by block, so that cost and room grow with L, not with its square."""
        vectors = self.distance(context.vectors).view(-1, self.num_heads, self.head_dim)
        length, memory = query.shape[1], kv.shape[1] - query.shape[1]
        block = length if self.training or maps else BLOCK
        found = []
        for begin in range(0, length, block):
            end = min(begin + block, length)
            first = 0 if self.training or maps else max(0, memory + begin - self.window + 1)
            empty = None if filled is None else memory - filled - first  # keys before these are of nothing
            keys = kv[:, first : memory + end]
            found.append(self.of_block(query[:, begin:end], keys, empty, vectors[-keys.shape[1] :], context, maps))
        if len(found) == 1:
            return found[0]
        return torch.cat([mixed for mixed, _ in found], 1), None

    def of_block(
        self, query: Tensor, kv: Tensor, empty: Tensor | None, vectors: Tensor, context: Distances, maps: bool
    ) -> tuple[Tensor, Tensor | None]:
        n, length, keys = query.shape[0], query.shape[1], kv.shape[1]
        before, window = keys - length, None if self.training else self.window
        u, v = context.content.to(query.dtype), context.position.to(query.dtype)
        by_place = torch.einsum("nlhe,khe->nhlk", query + v, vectors) / self.head_dim**0.5

        def visible(row: Tensor, q: Tensor, k: Tensor) -> Tensor:
            seen = k <= q + before
            if window is not None:
                seen = seen & (k > q + before - window)
            return seen if empty is None else seen & (k >= empty[row])

        mixed, weights = kernels.attend(
            (query + u).flatten(0, 1),
            kv[:, :, 0].flatten(0, 1),
            kv[:, :, 1].flatten(0, 1),
            FullGrid.of(n, length, query.device),
            causal=False,
            dropout=self.dropout if self.training else 0.0,
            maps=maps,
            keys=FullGrid.of(n, keys, query.device),
            bias=shift(by_place),
            visible=visible,
        )
        return mixed.view(n, length, self.num_heads, self.head_dim), weights

    def remember(
        self, new: Tensor, batch: Ragged, state: Remembered | None, capacity: int | None = None, spare: int = 0
    ) -> Remembered:
        """The last M of what was kept and what is new (N, L, …), whose last `spare` tokens are left out. capacity: M."""
        capacity = self.capacity if capacity is None else capacity
        n, read = new.shape[0], lengths(batch) - spare
        kept = new.new_zeros(n, capacity, *new.shape[2:]) if state is None else state.kept.to(new.dtype)
        filled = torch.zeros_like(read) if state is None else state.filled
        held = torch.cat((kept, new), 1)
        if batch.is_full:
            kept = held[:, batch.max_len - spare :][:, :capacity]
        else:  # sequences have read less than the grid is long, each its own number of tokens
            place = read[:, None] + torch.arange(capacity, device=new.device)
            kept = held.gather(1, place.view(n, capacity, *[1] * (held.dim() - 2)).expand(-1, -1, *held.shape[2:]))
        return Remembered(kept, (filled + read).clamp(max=capacity))


def by_distance(weights: Tensor | None, reach: int) -> Tensor:
    """(N, H, L, K) by key → (N, L, H, reach) by distance, 0 the last."""
    assert weights is not None
    length, keys = weights.shape[-2:]
    place = torch.arange(length, device=weights.device)[:, None] + torch.arange(reach, device=weights.device)
    place = place + keys - length - reach + 1
    band = weights.gather(-1, place.clamp(min=0, max=keys - 1).expand(*weights.shape[:2], -1, -1))
    return band.masked_fill(place < 0, 0.0).transpose(1, 2)


class RelativeStack(Stack):
    """Layers that all look at the same distances."""

    def __init__(self, layers: Iterable[nn.Module], positions: RelativePositions, top: nn.Module | None = None):
        super().__init__(layers, top)
        self.positions = positions

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
        count = batch.max_len + (0 if state is None else state.own[0].kept.shape[1])
        if not self.training and not maps:  # no block has more keys
            first: Any = self.layers[0]
            count = min(count, int(first.mixer.window) - 1 + BLOCK)
        return super().forward(x, batch, state, self.positions(count, x), layers, maps, edit)


class PreNormMemoryLayer(PreNormLayer):
    """What is kept for training is what the layer read, and it is normed when it is looked at, by the norm of that time."""

    def forward(
        self, x: Tensor, batch: Ragged, state: Any, context: Any, maps: bool | MapRows, heads: Tensor | None = None
    ) -> Mixed:
        if not self.training:
            return super().forward(x, batch, state, context, maps, heads)
        normed = None if state is None else state._replace(kept=self.mixer_norm(state.kept))
        out, _, weights = super().forward(x, batch, normed, context, maps, heads)
        return out, self.mixer.remember(to_grid(x, batch), batch, state), weights
