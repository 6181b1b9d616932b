"""Word vectors that are narrower the rarer a word is. Baevski & Auli, 2019 (arXiv 1809.10853); Dai et al., 2019, as `div_val`.

The most frequent words have D numbers, those of the next cluster D/4, D/16 and so on; a matrix for each cluster widens them to D.
A large vocabulary, most of which is rare, then costs little.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import Vocabulary
from seqloom.blocks.ranks import Ranks
from seqloom.blocks.softmax import Softmax


class NarrowedTable(nn.Module):
    """ids (T,) → (T, D), in the place of an nn.Embedding. cutoffs: the ranks at which the clusters begin."""

    def __init__(self, vocab_size: int, dim: int, cutoffs: tuple[int, ...], narrow: int):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.cutoffs = vocab_size, dim, cutoffs
        self.borders = (0, *cutoffs, vocab_size)
        self.ranks = Ranks(vocab_size)
        widths = [max(1, dim // narrow**i) for i in range(len(cutoffs) + 1)]
        sizes = [end - begin for begin, end in zip(self.borders, self.borders[1:], strict=False)]
        self.rows = nn.ModuleList(nn.Embedding(*each) for each in zip(sizes, widths, strict=True))
        self.widen = nn.ModuleList(nn.Linear(width, dim, bias=False) for width in widths)

    def forward(self, ids: Tensor) -> Tensor:
        """Every cluster is asked for every word, so that shapes do not depend on the words; all but one answer zero."""
        rank = self.ranks.rank[ids]
        found = torch.zeros((), device=rank.device)
        for begin, end, rows, widen in zip(self.borders, self.borders[1:], self.rows, self.widen, strict=False):
            inside = (rank >= begin) & (rank < end)
            found = found + widen(rows((rank - begin).where(inside, 0)) * inside[..., None])
        return found

    @property
    def weight(self) -> Tensor:
        """(V, D) the vectors of all words."""
        by_rank = torch.cat([widen(rows.weight) for rows, widen in zip(self.rows, self.widen, strict=True)])
        return by_rank[self.ranks.rank]

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        if vocabulary.has_counts:  # else ids stand for ranks, which they nearly are
            self.ranks.set_vocabulary(vocabulary.counts())


class SharedRows(Softmax):
    """A softmax over some words whose vectors are those of the input embeddings, and `more` entries of its own. share: of all
    targets that are among them."""

    def __init__(self, shared: Tensor, words: int, width: int, more: int, share: float):
        nn.Module.__init__(self)
        self.shared, self.share = shared, share
        self.own = nn.Parameter(torch.empty(more, width)) if more else None
        self.bias = nn.Parameter(torch.empty(words + more))

    @property
    def device(self) -> torch.device:
        return self.shared.device

    def with_own(self, rows: Tensor) -> Tensor:
        return rows if self.own is None else torch.cat((rows, self.own))

    def init_weights(self, std: float, tied: bool = False) -> None:
        assert self.bias is not None
        if self.own is not None:
            nn.init.normal_(self.own, std=std)
        nn.init.zeros_(self.bias)


class NarrowRows(SharedRows):
    """Those of one cluster of such a table. What makes hidden states narrow is shared, too, but for the first cluster, as
    published."""

    def __init__(self, table: NarrowedTable, cluster: int, more: int = 0, share: float = 1.0):
        rows, widen = table.rows[cluster], table.widen[cluster]
        assert isinstance(rows, nn.Embedding) and isinstance(widen, nn.Linear)
        super().__init__(rows.weight, rows.num_embeddings, rows.embedding_dim, more, share)
        self.widen = nn.Parameter(torch.empty_like(widen.weight)) if cluster == 0 else widen.weight

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.with_own(self.shared)

    @property
    def multiplied(self) -> int:
        assert self.bias is not None
        return round(self.share * (self.bias.numel() * self.shared.shape[1] + self.widen.numel()))

    def init_weights(self, std: float, tied: bool = False) -> None:
        super().init_weights(std)
        if self.own is not None:  # the first cluster
            nn.init.normal_(self.widen, std=self.widen.shape[0] ** -0.5)

    def forward(self, hidden: Tensor, *others: Any) -> Tensor:
        return super().forward(F.linear(hidden, self.widen.t()), *others)
