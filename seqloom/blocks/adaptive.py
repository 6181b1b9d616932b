"""Adaptive softmax. Grave et al., 2017, Efficient softmax approximation for GPUs (arXiv 1609.04309).

The most frequent words and one entry for each cluster of rarer ones share a small softmax, the head; inside a cluster a
second one, over narrower vectors, tells the words apart:

    p(w) = p_head(w)   or   p_head(cluster of w) · p_cluster(w)

A target pays for the head and for the cluster that it lies in. Shared with the input embeddings, as Transformer-XL has it (Dai
et al., 2019), every word has its vector there, and clusters are as wide as these. Departures: the entries of the clusters have a
bias that starts at the logarithm of their size, so that at first every word is equally likely.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import IGNORE, Vocabulary, wide
from seqloom.blocks.narrowed import NarrowedTable, NarrowRows, SharedRows
from seqloom.blocks.ranks import Ranks
from seqloom.blocks.softmax import Softmax

SHRINK = 4  # each cluster's vectors have so many times fewer numbers than those before it


class Cluster(Softmax):
    """A softmax over `size` rare words, on hidden states that are made narrower first."""

    def __init__(self, dim: int, narrow: int, size: int, share: float, bias: bool):
        super().__init__(narrow, size, bias=bias)
        self.down = nn.Parameter(torch.empty(narrow, dim))
        self.share = share  # of all targets that are in it

    @property
    def multiplied(self) -> int:
        return round(self.share * (self.weight.numel() + self.down.numel()))

    def init_weights(self, std: float, tied: bool = False) -> None:
        super().init_weights(std)
        nn.init.normal_(self.down, std=self.down.shape[1] ** -0.5)

    def forward(self, hidden: Tensor, *others: Any) -> Tensor:
        return super().forward(F.linear(hidden, self.down), *others)


class TableRows(SharedRows):
    """Those of some ranks, of a table in which all words are equally wide."""

    def __init__(self, table: nn.Embedding, ranks: Ranks, begin: int, end: int, more: int = 0, share: float = 1.0):
        super().__init__(table.weight, end - begin, table.embedding_dim, more, share)
        self.ranks, self.begin, self.end = ranks, begin, end

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        words = self.ranks.rank.argsort()[self.begin : self.end]
        return self.with_own(
            self.shared.index_select(0, words)
        )  # whose gradient, unlike that of [words], sorts nothing

    @property
    def multiplied(self) -> int:
        assert self.bias is not None
        return round(self.share * self.bias.numel() * self.shared.shape[1])


class AdaptiveSoftmax(nn.Module):
    """hidden (T, D) → log-probabilities (T, V). cutoffs: the ranks at which the clusters begin. table: input embeddings to share,
    with a bias for every word."""

    head: Softmax

    def __init__(
        self,
        dim: int,
        vocab_size: int,
        cutoffs: tuple[int, ...],
        bias: bool = False,
        table: nn.Embedding | NarrowedTable | None = None,
    ):
        super().__init__()
        self.borders = (*cutoffs, vocab_size)
        self.ranks = table.ranks if isinstance(table, NarrowedTable) else Ranks(vocab_size)
        if table is None:
            self.head = Softmax(dim, cutoffs[0] + len(cutoffs), bias=True)
        elif isinstance(table, NarrowedTable):
            self.head = NarrowRows(table, 0, more=len(cutoffs))
        else:
            self.head = TableRows(table, self.ranks, 0, cutoffs[0], more=len(cutoffs))
        self.clusters: Any = nn.ModuleList()
        for i, (begin, end) in enumerate(zip(self.borders, self.borders[1:], strict=False)):
            share = math.log((end + 1) / (begin + 1)) / math.log(
                vocab_size + 1
            )  # by Zipf's law, until the counts are known
            if table is None:
                part: Softmax = Cluster(dim, max(1, dim // SHRINK ** (i + 1)), end - begin, share, bias)
            elif isinstance(table, NarrowedTable):
                part = NarrowRows(table, i + 1, share=share)
            else:
                part = TableRows(table, self.ranks, begin, end, share=share)
            self.clusters.append(part)

    @property
    def device(self) -> torch.device:
        return self.head.device

    def init_weights(self, std: float, tied: bool = False) -> None:
        self.head.init_weights(std)
        assert self.head.bias is not None
        for i, cluster in enumerate(self.clusters):
            cluster.init_weights(std)
            size = self.borders[i + 1] - self.borders[i]
            nn.init.constant_(self.head.bias.data[self.borders[0] + i], math.log(size))

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        counts = vocabulary.counts().double()
        self.ranks.set_vocabulary(counts)
        ordered = counts.sort(descending=True).values / counts.sum().clamp(min=1)
        for cluster, begin, end in zip(self.clusters, self.borders, self.borders[1:], strict=False):
            cluster.share = float(ordered[begin:end].sum())

    def validate_loaded(self) -> None:
        self.ranks.validate_loaded()

    def forward(self, hidden: Tensor, targets: Tensor | None = None, each: bool = False) -> Tensor:
        """Without targets log p (T, V); with targets the summed loss; with each=True the loss of every target (T,)."""
        if targets is None:
            return self.distribution(hidden)
        first = self.borders[0]
        rank = self.ranks.rank[targets.clamp(min=0)]
        cluster = torch.bucketize(rank, torch.tensor(self.borders[:-1], device=rank.device), right=True)
        cluster = torch.where(targets == IGNORE, 0, cluster)  # 0: the head alone
        wanted = torch.where(cluster > 0, first - 1 + cluster, torch.where(targets == IGNORE, IGNORE, rank))
        losses = self.head(hidden, wanted, each)
        for i, layer in enumerate(self.clusters):
            rows = (cluster == i + 1).nonzero().squeeze(1)  # their number is asked of the device: no fixed course
            part = layer(hidden[rows], rank[rows] - self.borders[i], each)
            losses = losses.index_add(0, rows, part) if each else losses + part
        return losses

    def distribution(self, hidden: Tensor) -> Tensor:
        head = log_softmax(self.head(hidden))
        first = self.borders[0]
        parts = [head[:, :first]]
        for i, layer in enumerate(self.clusters):
            parts.append(log_softmax(layer(hidden)) + head[:, first + i, None])
        return torch.cat(parts, dim=1)[:, self.ranks.rank]


def log_softmax(scores: Tensor) -> Tensor:
    return wide(scores).log_softmax(1)
