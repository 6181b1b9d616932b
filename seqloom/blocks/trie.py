"""Runs of words, each known by a number: find a run's number from that of the run without its last word."""

import torch
from torch import Tensor, nn


class Trie(nn.Module):
    """Runs of 1 … order words. The number of a word alone is the word; that of a run of k is the place of its key in
    keys k, which are sorted, and a key is (number of its first k − 1 words) × V + (its last word). −1: not in it."""

    def __init__(self, order: int, vocab_size: int):
        super().__init__()
        self.order, self.vocab_size = order, vocab_size
        for k in range(2, order + 1):
            self.register_buffer(f"keys{k}", torch.empty(0, dtype=torch.long))

    def keys(self, k: int) -> Tensor:
        return self.get_buffer(f"keys{k}")

    def size(self, k: int) -> int:
        """How many runs of k words there are; the empty run is one."""
        return (1, self.vocab_size)[k] if k < 2 else self.keys(k).shape[0]

    def find(self, k: int, before: Tensor, word: Tensor) -> Tensor:
        """(T,) the numbers of the runs of k words that go on from the runs `before` (T,) with `word` (T,)."""
        if k == 1:
            return word
        keys = self.keys(k)
        if keys.shape[0] == 0:
            return torch.full_like(word, -1)
        wanted = before * self.vocab_size + word  # negative where `before` is unknown: less than every key
        place = torch.searchsorted(keys, wanted).clamp_(max=keys.shape[0] - 1)
        return torch.where(keys[place] == wanted, place, -1)

    def following(self, k: int, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """All runs of k words that go on from the runs `before` (T,): which of these, their numbers, their last words."""
        keys = self.keys(k)
        low = torch.searchsorted(keys, before * self.vocab_size)
        count = torch.searchsorted(keys, (before + 1) * self.vocab_size) - low
        row = torch.arange(before.shape[0], device=before.device).repeat_interleave(count)
        first = count.cumsum(0) - count
        number = torch.arange(row.shape[0], device=before.device) + (low - first)[row]
        return row, number, keys[number] % self.vocab_size

    def check(self) -> None:
        """ValueError where the keys cannot be what they should: nothing that is found later lies out of range."""
        for k in range(2, self.order + 1):
            keys = self.keys(k)
            if keys.shape[0] and not 0 <= int(keys[0]) <= int(keys[-1]) < self.size(k - 1) * self.vocab_size:
                raise ValueError(f"a {k}-gram lies outside the {k - 1}-grams")
            if not bool((keys[1:] > keys[:-1]).all()):
                raise ValueError(f"the {k}-grams are not in order")
