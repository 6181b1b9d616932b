"""A conditional random field on hand-made features: the linear taggers of the time before networks. Lafferty et al., 2001; Sha &
Pereira, 2003.

Scores of a word's tags are sums over its hashed features; moves between tags are the block's that networks use, too. Learnt by
AdaGrad over sentences in a random order; how often they are gone through is chosen on the valid files.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batch import Words
from seqloom.blocks.crf import Crf
from seqloom.progress import say

PASSES = 12
SENTENCES = 16  # of a batch
RATE = 0.2


class FeatureCrf(nn.Module):
    """rows: a sparse matrix with the features of all words, sentence by sentence; sizes: words of each sentence."""

    def __init__(self, features: int, labels: Sequence[str]):
        super().__init__()
        self.names = list(labels)
        self.weights = nn.EmbeddingBag(features, len(labels), mode="sum", sparse=True)
        self.bias = nn.Parameter(torch.zeros(len(labels)))
        self.crf = Crf(len(labels))
        nn.init.zeros_(self.weights.weight)

    def scores(self, rows: Any) -> Tensor:
        """(words, labels)"""
        index, borders = torch.from_numpy(rows.indices).long(), torch.from_numpy(rows.indptr[:-1]).long()
        return self.weights(index, borders, per_sample_weights=torch.from_numpy(rows.data).float()) + self.bias

    def fit(self, rows: Any, sizes: Sequence[int], labels: Sequence[str], score: Callable[[], float], seed: int) -> int:
        """Learns, keeps what scores best, and returns how often the sentences were gone through for it."""
        known = {name: i for i, name in enumerate(self.names)}
        tags = torch.tensor([known[label] for label in labels])
        ends = np.cumsum(sizes)
        torch.sparse.check_sparse_tensor_invariants.disable()  # said here, so that torch does not warn of it
        optimizer = torch.optim.Adagrad(self.parameters(), lr=RATE)
        rng, best, kept = np.random.default_rng(seed), (-1.0, 0), {}
        for number in range(1, PASSES + 1):
            order = rng.permutation(np.flatnonzero(np.asarray(sizes)))
            for begin in range(0, len(order), SENTENCES):
                chosen = order[begin : begin + SENTENCES]
                words = np.concatenate([np.arange(ends[i] - sizes[i], ends[i]) for i in chosen])
                batch = borders_of([sizes[i] for i in chosen])
                loss = self.crf(self.scores(rows[words]), tags[words], batch).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            found = score()
            say(f"pass {number}: {found:.4f} on the valid files")
            if found > best[0]:
                best = found, number
                kept = {name: value.clone() for name, value in self.state_dict().items()}
        self.load_state_dict(kept)
        return best[1]

    @torch.no_grad()
    def predict(self, rows: Any, sizes: Sequence[int]) -> list[str]:
        """The likeliest tags, 256 sentences at a time."""
        found, begin = list[str](), 0
        for first in range(0, len(sizes), 256):
            some = sizes[first : first + 256]
            count = sum(some)
            if count:
                best, _ = self.crf.decode(self.scores(rows[begin : begin + count]), borders_of(some))
                found += [self.names[i] for i in best.tolist()]
            begin += count
        return found


def borders_of(sizes: Sequence[int]) -> Words:
    lengths = torch.tensor(sizes)
    offsets = torch.cat((torch.zeros(1, dtype=torch.long), lengths.cumsum(0)))
    return Words(torch.arange(len(sizes)).repeat_interleave(lengths), offsets.int(), int(lengths.max()))
