"""Which words are frequent: what makes an output layer over a large vocabulary cheap."""

import math

import torch
from torch import Tensor, nn


class Ranks(nn.Module):
    """rank (V,): 0 for the most frequent word. Until the counts are known, a word's id is its rank.

    Vocabularies are nearly in this order, but not quite: the end of a document, often the most frequent of all, has one
    of the last ids.
    """

    rank: Tensor

    def __init__(self, vocab_size: int):
        super().__init__()
        self.register_buffer("rank", torch.arange(vocab_size))

    def set_vocabulary(self, counts: Tensor) -> None:
        by_count = torch.sort(counts.cpu(), descending=True, stable=True).indices
        rank = torch.empty_like(by_count)
        rank[by_count] = torch.arange(len(by_count))
        self.rank.copy_(rank)

    def validate_loaded(self) -> None:
        if not torch.equal(self.rank.sort().values, torch.arange(len(self.rank), device=self.rank.device)):
            raise ValueError("the ranks of the words are no order")

    def zipf(self) -> Tensor:
        """(V,) log((r + 2) / (r + 1)) / log(V + 1), the log-uniform distribution over the ranks r; it sums to 1."""
        return torch.log1p(1 / (self.rank + 1).float()) / math.log(len(self.rank) + 1)
