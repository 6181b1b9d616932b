"""Which words are frequent: what makes an output layer over a large vocabulary cheap."""

import math

import torch
from torch import Tensor, nn

from seqloom.errors import UsageError


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


def default_cutoffs(vocab_size: int) -> tuple[int, ...]:
    """Two clusters, from V^⅔ and V^⅚ on: of 8,192 words 406 are in the head, of 800,000 8,618."""
    cutoffs = {round(vocab_size ** (2 / 3)), round(vocab_size ** (5 / 6))}
    return tuple(sorted(cut for cut in cutoffs if 0 < cut < vocab_size))


def clusters(name: str, cutoffs: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """The ranks at which clusters begin, where the setting of this name leaves them open or is right. Else raises UsageError."""
    found = cutoffs or default_cutoffs(vocab_size)
    if not found or any(a >= b for a, b in zip((0, *found), (*found, vocab_size), strict=True)):
        raise UsageError(
            f"{name!r} = {list(found)}: clusters begin at rising ranks above 0 and below the vocabulary's {vocab_size:,}"
        )
    return found
