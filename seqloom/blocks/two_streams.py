"""Attention in any order of the tokens, in two streams, by relative positions and segments. Yang et al., 2019, XLNet (arXiv
1906.08237).

`Ragged.order` numbers the tokens of a sequence in the order in which they are predicted; those that are given have −1, and a
batch without orders is given as a whole. Each token has a content stream, which has read it, and those that are predicted a
query stream as well, which knows its place and not the token:

    content of i    sees the content of j with order(j) ≤ order(i): itself, what comes before it, and all that is given
    query of i      sees the content of j with order(j) < order(i)

What is kept of an earlier segment is seen by all. To attention by content and distance (blocks/relative.py), with u and v of each
layer, it adds whether two tokens are of the same segment: (q_i + w) · s_same or s_different; what is kept is of segment 0.

In the order in which a text is written this is a left-to-right model (`IdentityOrder`): what it gives for token t is the query
stream of the place behind it. Then keys and values are kept, and every token sees a window, as in Transformer-XL's evaluation.

Letters beside those of `batch`: M tokens that are kept, K = M + L keys, Q queries of a sequence.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import Borders, Context, Edit, HeadStyle, MapRows, Output, Ragged, State
from seqloom.blocks import kernels
from seqloom.blocks.grid import FullGrid, from_grid, lengths, to_grid
from seqloom.blocks.relative import BLOCK, Distances, DistanceVectors, RelativeAttention, Remembered, shift
from seqloom.blocks.stack import Stack, StackedBackbone


class Queries(NamedTuple):
    """The places of a batch that have a query stream: Borders, of queries instead of tokens."""

    where: Tensor  # (Q in all,) places in the row
    owner: Tensor  # of each the sequence
    offsets: Tensor  # (N+1,)
    max_len: int  # no sequence has more
    spare: int = 0  # tokens at the end of each sequence that are not kept for the next segment

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        return self.where.shape[0] == self.num_sequences * self.max_len


class Sight(NamedTuple):
    """What the queries of one stream look at."""

    rows: Borders
    seen: Tensor | None  # (N, 1, L or Q, K) which keys; None: all
    differs: Tensor | None  # the same shape: which of them are of another segment; None: there is one segment
    places: Tensor | None = None  # (N, 1, Q, K) of each key its distance, as a row of the vectors; None: by shifting


class Arrangement(NamedTuple):
    """What all layers share."""

    vectors: Tensor  # (K + L − 1, D) of the distances K − 1, …, −(L − 1)
    content: Sight
    query: Sight | None
    spare: int


class TwoStreamAttention(RelativeAttention):
    """A row for each token, and behind them one for each query. What is kept for the next segment is what the layer read."""

    def __init__(self, dim: int, num_heads: int, head_dim: int, memory: int, window: int, dropout: float = 0.0):
        super().__init__(dim, num_heads, head_dim, memory, window, dropout)
        self.content, self.position, self.segment = (  # u, v and w
            nn.Parameter(torch.empty(num_heads, head_dim)) for _ in range(3)
        )
        self.segments = nn.Parameter(torch.empty(2, num_heads, head_dim))  # of the same segment, of another

    def start(self, n: int, max_len: int) -> Remembered:
        weight = self.out.weight
        filled = torch.zeros(n, dtype=torch.long, device=weight.device)
        return Remembered(weight.new_zeros(n, self.memory, weight.shape[0]), filled)

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Remembered | None,
        context: Any,
        maps: bool | MapRows = False,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, Remembered, Tensor | None]:
        """context: an Arrangement, or Distances where tokens are read from left to right. maps: of the content stream."""
        given = batch.ids.shape[0]
        qkv = self.qkv(x[:given]).view(-1, 3, self.num_heads, self.head_dim)
        content, new = to_grid(qkv[:, 0], batch), to_grid(qkv[:, 1:], batch)
        width = self.num_heads * self.head_dim
        # what is predicted has no key: that would show it
        query = F.linear(x[given:], self.qkv.weight[:width]).view(-1, self.num_heads, self.head_dim)
        weights = None
        if isinstance(context, Distances):
            parts = self.in_order(content, to_grid(query, batch), self.with_kept(new, state), state, context)
            mixed = [from_grid(part, batch) for part in parts]
            after = self.remember(to_grid(x[:given], batch) if self.training else new, batch, state)
        else:
            kv = new
            if state is not None:
                kv = torch.cat((self.keys_and_values(state.kept).to(new.dtype), new), 1)
            vectors = self.distance(context.vectors).view(-1, self.num_heads, self.head_dim)
            out, weights = self.of_stream(content, kv, vectors, context.content, bool(maps))
            if isinstance(maps, MapRows):
                assert weights is not None
                weights = from_grid(weights.transpose(1, 2), batch)[maps.tokens]
            mixed = [from_grid(out, batch)]
            if context.query is not None:
                rows = context.query.rows
                out, _ = self.of_stream(to_grid(query, rows), kv, vectors, context.query, False)
                mixed.append(from_grid(out, rows))
            after = self.remember(to_grid(x[:given], batch), batch, state, self.memory, context.spare)
        both = torch.cat(mixed)
        if heads is not None:
            if heads.dim() == 2 and isinstance(context, Arrangement) and context.query is not None:
                where: Any = context.query.rows
                heads = torch.cat((heads, heads[where.where]))  # a query has the gates of the token that it predicts
            both = both * heads[..., None].to(both.dtype)
        return self.out(both.flatten(1)), after, weights

    def in_order(
        self, content: Tensor, query: Tensor, kv: Tensor, state: Remembered | None, context: Distances
    ) -> list[Tensor]:
        """Both streams (N, L, H, E) from left to right. The query stream stands one place further and sees the same keys."""
        filled = None if state is None else state.filled
        found = []
        for rows, vectors in ((content, context.vectors[1:]), (query, context.vectors[:-1])):
            distances = Distances(vectors, self.content, self.position)
            found.append(self.attend(rows, kv, filled, distances, False)[0])
        return found

    def of_stream(
        self, query: Tensor, kv: Tensor, vectors: Tensor, sight: Sight, maps: bool
    ) -> tuple[Tensor, Tensor | None]:
        """(N, L or Q, H, E) over all keys, and the weights (N, H, L or Q, K) with maps=True."""
        n, length, keys = query.shape[0], query.shape[1], kv.shape[1]
        u, v, w = (each.to(query.dtype) for each in (self.content, self.position, self.segment))
        bias = torch.einsum("nlhe,khe->nhlk", query + v, vectors)
        if sight.places is None:
            bias = shift(bias)[..., :keys]
        else:
            bias = bias.gather(-1, sight.places.expand(-1, self.num_heads, -1, -1))
        if sight.differs is not None:
            # the same number on all keys changes no weight: what another segment adds is all that counts
            added = (self.segments[1] - self.segments[0]).to(query.dtype)
            bias = bias + torch.einsum("nlhe,he->nhl", query + w, added)[..., None] * sight.differs
        seen = sight.seen
        mixed, weights = kernels.attend(
            (query + u).flatten(0, 1),
            kv[:, :, 0].flatten(0, 1),
            kv[:, :, 1].flatten(0, 1),
            FullGrid.of(n, length, query.device),
            causal=False,
            dropout=self.dropout if self.training else 0.0,
            maps=maps,
            keys=FullGrid.of(n, keys, query.device),
            bias=bias / self.head_dim**0.5,
            visible=None if seen is None else lambda row, q, k: seen,
        )
        return mixed.view(n, length, self.num_heads, self.head_dim), weights


class TwoStreamStack(Stack):
    """Layers of two streams. `query` is what the query stream of every place begins with."""

    def __init__(self, layers: Iterable[nn.Module], positions: DistanceVectors, dropout: float):
        super().__init__(layers, top=nn.Dropout(dropout))
        self.positions = positions
        self.query = nn.Parameter(torch.empty(positions.dim))
        self.dropout = nn.Dropout(dropout)

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
        """context: the Queries, if there are any."""
        memory = 0 if state is None else state.own[0].kept.shape[1]
        vectors = self.positions.vectors(memory + batch.max_len - 1, 1 - batch.max_len, x)
        arranged = arrange(batch, state, context, vectors)
        if context is not None and edit is not None and edit.layers is not None and edit.layers.dim() == 2:
            # a query has the gates of the token that it predicts
            edit = edit._replace(layers=torch.cat((edit.layers, edit.layers[:, context.where]), 1))
        return self.streams(x, 0 if context is None else len(context.where), batch, state, arranged, layers, maps, edit)

    def in_order(self, x: Tensor, batch: Ragged, state: State | None, layers: bool) -> Output:
        """From left to right, with a query of the place behind every token."""
        first: Any = self.layers[0]
        count = batch.max_len + (0 if state is None else state.own[0].kept.shape[1])
        if not self.training:  # no block has more keys
            count = min(count, int(first.mixer.window) - 1 + BLOCK)
        vectors = self.positions.vectors(count, 0, x)
        distances = Distances(vectors, first.mixer.content, first.mixer.position)
        return self.streams(x, x.shape[0], batch, state, distances, layers, False, None)

    def streams(
        self,
        x: Tensor,
        queries: int,
        batch: Ragged,
        state: State | None,
        context: Any,
        layers: bool,
        maps: bool,
        edit: Edit | None,
    ) -> Output:
        given = x.shape[0]
        if queries:
            x = torch.cat((x, self.dropout(self.query.to(x.dtype).expand(queries, -1))))
        output = super().forward(x, batch, state, context, layers, maps, edit)
        contents = tuple(layer[:given] for layer in output.layers)
        query = output.hidden[given:] if queries else None
        return Output(output.hidden[:given], output.state, contents, output.maps, query=query)

    def begin(self, n: int) -> State:
        """The state of n texts that are read from left to right."""
        layers: list[Any] = list(self.unrolled_layers)
        return State(tuple(RelativeAttention.start(layer.mixer, n, 0) for layer in layers))


def arrange(batch: Ragged, state: State | None, queries: Queries | None, vectors: Tensor) -> Arrangement:
    """Who sees whom, once for all layers."""
    length, device = batch.max_len, batch.ids.device
    memory = 0 if state is None else state.own[0].kept.shape[1]
    key = torch.arange(-memory, length, device=device)  # of the memory negative
    inside = key < lengths(batch)[:, None]  # (N, K)
    if state is not None:
        inside = inside & (key >= -state.own[0].filled[:, None])
    inside = inside[:, None, None]

    def by_key(rows: Tensor, kept: int) -> Tensor:
        """(T,) → (N, 1, 1, K); kept: of what is in the memory."""
        return F.pad(to_grid(rows, batch), (memory, 0), value=kept)[:, None, None]

    def differs(own: Tensor) -> Tensor | None:
        """own: (N, L or Q) segments of queries."""
        return None if batch.segments is None else own[:, None, :, None] != by_key(batch.segments, 0)

    seen: Tensor | None = inside.expand(-1, -1, length, -1)
    if batch.order is not None:
        seen = inside & (by_key(batch.order, -1) <= to_grid(batch.order, batch)[:, None, :, None])
    elif batch.is_full and state is None:
        seen = None
    own = batch.ids if batch.segments is None else batch.segments
    content = Sight(batch, seen, differs(to_grid(own, batch)))
    if queries is None:
        return Arrangement(vectors, content, None, 0)
    assert batch.order is not None, "what is predicted has a place in an order"
    column = to_grid(queries.where - batch.offsets[:-1].long()[queries.owner], queries)  # (N, Q)
    order, segment = to_grid(batch.order[queries.where], queries), to_grid(own[queries.where], queries)
    asked = inside & (by_key(batch.order, -1) < order[:, None, :, None])
    places = length - 1 - column[:, None, :, None] + torch.arange(memory + length, device=device)
    return Arrangement(vectors, content, Sight(queries, asked, differs(segment), places), queries.spare)


class TwoStreamBackbone(StackedBackbone):
    """Reads whole texts, every token seeing all others; or, asked for queries, in the order that the batch has. A state is what
    was kept of the segment before."""

    causal, carries = False, True
    head_style = HeadStyle(pooling="last", hidden_activation="tanh")
    segment_kind = "relative"
    stack: TwoStreamStack

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
        queries: Queries | None = None,
    ) -> Output:
        return self.stack(self.embedding(batch), batch, state, queries, layers, maps, edit)

    def surround(
        self, first: int, separator: int, end: int, extract: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return (), (separator,), (separator, first)

    def in_order(self) -> "IdentityOrder":
        """Itself as a left-to-right model, with the same weights."""
        return IdentityOrder(self)


class IdentityOrder(StackedBackbone):
    """hidden: of each token the query stream of the place behind it."""

    carries = True

    def __init__(self, whole: TwoStreamBackbone):
        super().__init__(whole.embedding, whole.stack, whole.dim)
        self.train(whole.training)

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
    ) -> Output:
        stack: Any = self.stack
        output = stack.in_order(self.embedding(batch), batch, state, layers)
        assert output.query is not None
        return Output(output.query, output.state, output.layers)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        stack: Any = self.stack
        return stack.begin(n)

    def init_weights(self) -> None:
        """Its weights are those of the whole."""
