"""Attention among tokens that a random hash puts into one bucket. Kitaev et al., 2020 (arXiv 2001.04451).

A token has one vector for query and key, the key of unit length; a token sees itself only if it sees nothing else. The hash is
the direction, among those of some random rotations and their opposites, that the vector is nearest to. Tokens are sorted by
(bucket, position) and cut into chunks, each of which looks at itself and at the one before it; several rounds with other
rotations are mixed by how much each has found (the sums under their softmax).

order "published"   a token sees the two chunks, whichever bucket their tokens are in. Where chunks begin depends on the whole
                    text: a later token moves what earlier ones see, even if they do not see itself.
order "causal"      a token sees the last `chunk` tokens of its own bucket. Those are the same whatever comes later.

Letters beside those of `batch`: R rounds, B chunks of m tokens in a sequence, P = B · m.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import Borders, Cache, Context, MapRows, Ragged, wide
from seqloom.blocks.attention import value_norms
from seqloom.blocks.grid import FullGrid, from_grid, lengths, to_grid
from seqloom.randomness import derive_seed

Order = Literal["causal", "published"]
SELF = -1e5  # the score of a token with itself: lower than any other, and higher than none
CELLS = 1 << 24  # of a block of scores over what is kept


class Hashed(NamedTuple):
    """What is kept of every token that was read."""

    kv: Cache  # (n, capacity, 2, H, E) keys and values
    buckets: Cache  # (n, capacity, H, R)


class Permuted(torch.autograd.Function):
    """x (…, P, E) in another order. Its gradient is a lookup too, not a sum in an order that nobody knows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return x.gather(-2, order[..., None].expand_as(x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        (inverse,) = ctx.saved_tensors
        return gradient.gather(-2, inverse[..., None].expand_as(gradient)), None, None


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1, nearly: those of length 0 stay what they are."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) / x.shape[-1] ** 0.5


def nearest(q: Tensor, rotations: Tensor, buckets: tuple[int, ...]) -> Tensor:
    """The bucket of each vector (T, H, E) in each round: (T, H, R). rotations (H, E, R, ·): half as many directions as there are
    buckets, one factor of their number after the other."""
    found = torch.zeros(*q.shape[:2], rotations.shape[2], dtype=torch.long, device=q.device)
    begin, times = 0, 1
    for factor in buckets:
        along = torch.einsum("the,herb->thrb", q, rotations[..., begin : begin + factor // 2])
        if factor > 1:
            found += times * torch.cat((along, -along), -1).argmax(-1)
        begin, times = begin + factor // 2, times * factor
    return found.to(torch.int16)


class Chunks:
    """The tokens of a batch sorted by bucket and cut: which chunk is where, and who sees whom in it."""

    def __init__(self, buckets: Tensor, batch: Borders, size: int, order: Order, causal: bool):
        self.batch, self.size, self.in_bucket = batch, size, order == "causal"
        count = -(-batch.max_len // size)
        self.length, self.rounds = count * size, buckets.shape[2]
        place = torch.arange(self.length, device=buckets.device)
        real = place < lengths(batch)[:, None]  # (N, P)
        grid = self.on_grid(buckets)  # (N, H, P, R)
        grid = grid.transpose(-1, -2).masked_fill(~real[:, None, None], torch.iinfo(torch.int64).max)  # behind the text
        sort = grid.sort(dim=-1, stable=True)
        self.order, self.inverse = sort.indices, sort.indices.argsort(-1)
        query = self.order.unflatten(-1, (count, size))  # (N, H, R, B, m) where each stands in its sequence
        self.previous = None if self.in_bucket else self.last_is_before_first(count)
        key = self.with_previous(query)  # (…, 2m)
        self.key = key
        self.own = query[..., None] == key[..., None, :]
        if self.in_bucket:
            named = sort.values.unflatten(-1, (count, size))
            beside = torch.cat((named.roll(1, -2), named), -1)
            beside[..., 0, :size] = -1  # nothing stands before the first chunk
            back = torch.arange(size, device=place.device)[:, None] - torch.arange(-size, size, device=place.device)
            self.seen = (named[..., None] == beside[..., None, :]) & (back >= 0) & (back <= size)
        else:
            inside = (key < lengths(batch)[:, None, None, None, None])[..., None, :]
            self.seen = inside & (query[..., None] >= key[..., None, :]) if causal else inside.expand_as(self.own)

    def on_grid(self, x: Tensor) -> Tensor:
        """(T, H, …) → (N, H, P, …)"""
        grid = to_grid(x, self.batch)
        return F.pad(grid, (0, 0, 0, 0, 0, self.length - self.batch.max_len)).transpose(1, 2)

    def last_is_before_first(self, count: int) -> Tensor:
        """(N, R · B) the chunk before each, all rounds in a row: before the first of a round stands the last of the round before,
        and before the very first the very last. A sequence has chunks of its own, however long others are."""
        device = self.batch.owner.device
        last = (lengths(self.batch) - 1).clamp(min=0) // self.size
        number = torch.arange(self.rounds * count, device=device)
        first = (number // count - 1) % self.rounds * count + last[:, None]
        return torch.where(number % count == 0, first, number - 1)

    def with_previous(self, x: Tensor) -> Tensor:
        """(N, H, R, B, m, …) → (N, H, R, B, 2m, …): each chunk behind the one before it."""
        if self.previous is None:
            return torch.cat((x.roll(1, 3), x), 4)
        row = x.flatten(2, 3)
        n, heads = (torch.arange(size, device=x.device) for size in row.shape[:2])
        before = row[n[:, None, None], heads[None, :, None], self.previous[:, None]]
        return torch.cat((before.view_as(x), x), 4)

    def sorted(self, x: Tensor) -> Tensor:
        """(T, H, E) → (N, H, R, B, m, E)"""
        grid = self.on_grid(x)[:, :, None].expand(-1, -1, self.rounds, -1, -1)
        return Permuted.apply(grid, self.order, self.inverse).unflatten(3, (-1, self.size))

    def in_place(self, x: Tensor) -> Tensor:
        """(N, H, R, B, m, E) → (N, H, R, P, E), each token where it stands in its sequence"""
        return Permuted.apply(x.flatten(3, 4), self.inverse, self.order)

    def attend(self, q: Tensor, v: Tensor, dropout: float, maps: bool) -> tuple[Tensor, Tensor | None]:
        """(T, H, E), and the weights (N, H, L, L) with maps=True."""
        query = self.sorted(q)
        key, value = self.with_previous(unit(query)), self.with_previous(self.sorted(v))
        scores = wide(query @ key.transpose(-1, -2)).masked_fill(self.own, SELF).masked_fill(~self.seen, float("-inf"))
        found, weights = scores.logsumexp(-1, keepdim=True), scores.softmax(-1)
        mixed = self.in_place(F.dropout(weights, dropout).to(value.dtype) @ value)
        share = self.in_place(found).softmax(2)  # of each round
        out = (share.to(mixed.dtype) * mixed).sum(2)[:, :, : self.batch.max_len].transpose(1, 2)
        return from_grid(out, self.batch), self.as_map(weights, share) if maps else None

    def as_map(self, weights: Tensor, share: Tensor) -> Tensor:
        shape = (*weights.shape[:-1], self.length)
        each = weights.new_zeros(shape).scatter_add(-1, self.key[..., None, :].expand_as(weights), weights)
        longest = self.batch.max_len
        return (self.in_place(each) * share).sum(2)[:, :, :longest, :longest]


class LshAttention(nn.Module):
    """number: of the layer; its rotations are its own. chunk: m. buckets: their number is the product of these. In training
    rotations follow from the seed of the step, in evaluation they are always the same; `eval_rounds` of them, `rounds` unless
    given."""

    fixed: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        head_dim: int,
        number: int,
        buckets: tuple[int, ...],
        chunk: int,
        rounds: int,
        eval_rounds: int | None = None,
        order: Order = "causal",
        causal: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.num_heads, self.head_dim, self.number = num_heads, head_dim, number
        self.buckets, self.chunk, self.order, self.causal, self.dropout = buckets, chunk, order, causal, dropout
        self.rounds, self.eval_rounds = rounds, eval_rounds or rounds
        width = num_heads * head_dim
        self.qk, self.value = nn.Linear(dim, width, bias=False), nn.Linear(dim, width, bias=False)
        self.out = nn.Linear(width, dim, bias=False)
        self.register_buffer("fixed", self.draw(self.eval_rounds, 0), persistent=False)

    @property
    def directions(self) -> int:
        """Directions of a round: the other half are their opposites."""
        return sum(factor // 2 for factor in self.buckets)

    def draw(self, rounds: int, seed: int) -> Tensor:
        """Rotations (H, E, R, ·). Those of a round do not depend on how many there are. Drawn on the host, so that all devices
        have the same; no other random number moves."""
        shape, each = (self.num_heads, self.head_dim, self.directions), []
        for i in range(rounds):
            rng = torch.Generator("cpu").manual_seed(derive_seed(seed, self.number, i))
            each.append(torch.randn(shape, generator=rng, device="cpu", dtype=torch.float32))
        drawn = torch.stack(each, 2)
        return torch.empty(drawn.shape).copy_(drawn)

    def rotations(self, like: Tensor) -> Tensor:
        drawn = self.draw(self.rounds, torch.initial_seed()) if self.training else self.fixed
        return drawn.to(like.device, like.dtype)

    @torch.no_grad()
    def hash(self, q: Tensor) -> Tensor:
        q = wide(q)
        with torch.autocast(q.device.type, enabled=False):  # half precision would put more vectors on a border
            return nearest(q, self.rotations(q), self.buckets)

    def look(
        self,
        x: Tensor,
        batch: Ragged,
        buckets: Tensor | None = None,
        maps: bool | MapRows = False,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """What tokens find, weights where they are asked for, and the buckets (T, H, R). buckets: known from another pass."""
        q, v = self.queries(x), self.values(x)
        buckets = self.hash(q) if buckets is None else buckets
        named: Tensor = buckets.long()
        borders: Borders = batch
        size = min(self.chunk, max(batch.max_len, 1))  # longer chunks see nothing more
        if self.order == "causal" and not (
            maps or batch.is_full
        ):  # one row without filler: no bucket has two sequences
            named = named + batch.owner[:, None, None] * math.prod(self.buckets)
            borders = FullGrid.of(1, x.shape[0], x.device)
        chunks = Chunks(named, borders, size, self.order, self.causal)
        mixed, weights = chunks.attend(q, v, self.dropout if self.training else 0.0, bool(maps))
        if isinstance(maps, MapRows) and weights is not None:
            weights = from_grid(weights.transpose(1, 2), batch)[maps.tokens]
        return self.project(mixed, heads), weights, buckets

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Hashed | None = None,
        context: Context | None = None,
        maps: bool | MapRows = False,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, Hashed | None, Tensor | None]:
        """heads (H,) or (T, H): what each head's output is multiplied by."""
        if state is None:
            mixed, weights, _ = self.look(x, batch, None, maps, heads)
            return mixed, None, weights
        q, v = self.queries(x), self.values(x)
        kv, buckets = state.kv.kept, state.buckets.kept
        kv[batch.owner, batch.positions] = torch.stack((unit(q), v), 1).to(kv.dtype)
        buckets[batch.owner, batch.positions] = self.hash(q)
        read = kv.shape[1] if batch.max_position is None or maps else batch.max_position + 1
        found, weights = self.over_kept(q, kv[:, :read], buckets[:, :read], batch, bool(maps))
        return self.project(found, heads), state, weights

    def over_kept(
        self, q: Tensor, kv: Tensor, buckets: Tensor, batch: Ragged, maps: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Queries (T, H, E) over all that is kept (N, K, …): (T, H, E), and the weights (T, H, K) with maps=True."""
        query, position = to_grid(q, batch), to_grid(batch.positions, batch)
        n, length = position.shape
        size = max(1, CELLS // (kv.shape[1] * n * buckets.shape[2] * buckets.shape[3]))
        out, weights = [], []
        for begin in range(0, length, size):
            some = slice(begin, begin + size)
            each = self.weights_over_kept(query[:, some], position[:, some], kv[:, :, 0], buckets)
            out.append((each.to(kv.dtype) @ kv[:, :, 1].transpose(1, 2)).transpose(1, 2))
            weights += [each.transpose(1, 2)] if maps else []
        return from_grid(torch.cat(out, 1), batch), from_grid(torch.cat(weights, 1), batch) if maps else None

    def weights_over_kept(self, query: Tensor, position: Tensor, key: Tensor, buckets: Tensor) -> Tensor:
        """(N, H, L, K): of the queries (N, L, H, E) at these positions, whose own keys and buckets are among those kept."""
        place = torch.arange(key.shape[1], device=key.device)
        kept = buckets.permute(0, 2, 3, 1)  # (N, H, R, K)
        row = torch.arange(position.shape[0], device=key.device)[:, None]
        asked = buckets[row, position].permute(0, 2, 3, 1)  # (N, H, R, L)
        past = (place <= position[:, :, None])[:, None, None]
        same = past & (asked[..., None] == kept[..., None, :])  # (N, H, R, L, K)
        rank = same.flip(-1).cumsum(-1).flip(-1)  # how many of the bucket stand from there up to the query
        own = (place == position[:, :, None])[:, None, None]
        scores = wide(query.transpose(1, 2) @ key.permute(0, 2, 3, 1).to(query.dtype))[:, :, None]
        scores = scores.masked_fill(~(same & (rank <= self.chunk + 1)), float("-inf")).masked_fill(own, SELF)
        return (scores.softmax(-1) * scores.logsumexp(-1, keepdim=True).softmax(2)).sum(2)

    def queries(self, x: Tensor) -> Tensor:
        return self.qk(x).view(-1, self.num_heads, self.head_dim)

    def values(self, x: Tensor) -> Tensor:
        return self.value(x).view(-1, self.num_heads, self.head_dim)

    def project(self, mixed: Tensor, heads: Tensor | None) -> Tensor:
        if heads is not None:
            mixed = mixed * heads[..., None].to(mixed.dtype)
        return self.out(mixed.flatten(1))

    def value_norms(self, x: Tensor) -> Tensor:
        """(T, H) how long the vectors are that tokens hand on through each head."""
        return value_norms(self.values(x), self.out)

    def start(self, n: int, max_len: int) -> Hashed:
        """Room for max_len tokens."""
        weight, rounds = self.out.weight, self.rounds if self.training else self.eval_rounds
        kv = weight.new_zeros(n, max_len, 2, self.num_heads, self.head_dim)
        return Hashed(Cache(kv), Cache(kv.new_zeros(n, max_len, self.num_heads, rounds, dtype=torch.int16)))
