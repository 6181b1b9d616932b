"""Attention with a learned vector for every distance, by skewing. Huang et al., 2018, Music Transformer (arXiv 1809.04281).

What a query at place i gives to the key at place j ≤ i is

    q_i · (k_j + r_{i − j})        over √E, r_d learned for each head; distances from max_distance on share the last vector

All q_i · r_d are one product, (L, D), with distances in a row from the largest to 0; the skew (`relative.shift`) moves each
row so that its entries stand under their keys. Nothing of size L × L × E is made. Where it moves entries of other rows in, above
the diagonal, stands garbage: the mask is applied after the skew.
"""

from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import MapRows, Ragged
from seqloom.blocks import kernels
from seqloom.blocks.attention import SelfAttention
from seqloom.blocks.grid import FullGrid, from_grid, to_grid
from seqloom.blocks.relative import shift


class SkewedAttention(SelfAttention):
    """Causal. max_distance: of how many distances, 0 among them, there is a vector of its own."""

    def __init__(self, dim: int, num_heads: int, max_distance: int, dropout: float = 0.0, head_dim: int | None = None):
        super().__init__(dim, num_heads, causal=True, dropout=dropout, head_dim=head_dim)
        self.distance = nn.Parameter(torch.empty(num_heads, max_distance, self.head_dim))

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Any = None,
        context: Any = None,
        maps: bool | MapRows = False,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, Any, Tensor | None]:
        """heads (H,) or (T, H): what each head's output is multiplied by."""
        qkv = self.qkv(x).view(x.shape[0], 3, self.num_heads, self.head_dim)
        if state is None:
            q, k, v = qkv.unbind(1)
            bias = skewed_scores(to_grid(q, batch), self.distance)
            dropout = self.dropout if self.training else 0.0
            mixed, weights = kernels.attend(q, k, v, batch, causal=True, dropout=dropout, maps=maps, bias=bias)
        else:
            mixed, weights = self.over_cache(qkv, batch, state.kept, bool(maps))
        if heads is not None:
            mixed = mixed * heads[..., None].to(mixed.dtype)
        return self.out(mixed.flatten(1)), state, weights

    def over_cache(self, qkv: Tensor, batch: Ragged, past: Tensor, maps: bool) -> tuple[Tensor, Tensor | None]:
        """New tokens over everything up to their position. past (N, capacity, 2, H, E) is extended in place."""
        past[batch.owner, batch.positions] = qkv[:, 1:].to(past.dtype)
        read = past if batch.max_position is None or maps else past[:, : batch.max_position + 1]
        query, place = to_grid(qkv[:, 0], batch), to_grid(batch.positions, batch)
        n, length, keys = query.shape[0], query.shape[1], read.shape[1]
        mixed, weights = kernels.attend(
            query.flatten(0, 1),
            read[:, :, 0].flatten(0, 1).to(query.dtype),
            read[:, :, 1].flatten(0, 1).to(query.dtype),
            FullGrid.of(n, length, query.device),
            causal=False,
            maps=maps,
            keys=FullGrid.of(n, keys, query.device),
            bias=gathered_scores(query, self.distance, place, keys),
            visible=lambda row, q, k: k <= place[row, q],
        )
        mixed = from_grid(mixed.view(n, length, self.num_heads, self.head_dim), batch)
        return mixed, None if weights is None else from_grid(weights.transpose(1, 2), batch)

    def keep_heads(self, heads: Tensor) -> None:
        super().keep_heads(heads)
        self.distance = nn.Parameter(self.distance.detach()[heads.to(self.distance.device)])


def skewed_scores(query: Tensor, distance: Tensor) -> Tensor:
    """Queries (N, L, H, E) and vectors of distances (H, D, E) → (N, H, L, L) what each query gives to each key by their distance,
    over √E. Above the diagonal it is garbage."""
    length, count = query.shape[1], distance.shape[1]
    back = torch.arange(length - 1, -1, -1, device=query.device).clamp(max=count - 1)
    vectors = distance.to(query.dtype)[:, back]  # (H, L, E), the largest distance first
    return shift(torch.einsum("nlhe,hde->nhld", query, vectors) / query.shape[-1] ** 0.5)


def gathered_scores(query: Tensor, distance: Tensor, place: Tensor, keys: int) -> Tensor:
    """The same (N, H, L, K) for queries anywhere in their sequence: at place (N, L), with keys at 0, 1 and so on."""
    scores = torch.einsum("nlhe,hde->nhld", query, distance.to(query.dtype)) / query.shape[-1] ** 0.5
    back = place[:, :, None] - torch.arange(keys, device=query.device)
    back = back.clamp(min=0, max=distance.shape[1] - 1)[:, None]
    return scores.gather(-1, back.expand(-1, scores.shape[1], -1, -1))
