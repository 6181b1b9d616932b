"""Skip-gram: the words around each word are predicted from it. Mikolov et al., 2013 (arXiv 1310.4546).

    −log σ(v′_o · v_i) − Σ_n log σ(−v′_n · v_i)   for each word i, each word o in its window, and its negatives n
"""

import torch
from torch import Tensor

from seqloom.batch import Loss, State
from seqloom.objectives.windows import Windowed, Windows, against, in_blocks


class SkipGram(Windows):
    def forward(self, example: Windowed, carry: State | None = None) -> Loss:
        words = in_blocks(self.backbone(example.batch).hidden)
        around = self.context(example.batch.ids[example.near])
        others = self.context(example.negatives)
        scores = torch.bmm(words, around.transpose(1, 2))  # of each word of a block with all that its windows can reach
        pairs = example.seen.sum(2)
        right = torch.where(example.seen, against(scores, True), 0.0).sum()
        wrong = self.wrong(words, others, pairs)
        return Loss(right + wrong, pairs.sum())

    def wrong(self, words: Tensor, others: Tensor, pairs: Tensor) -> Tensor:
        """The negatives of a word are the same for all in its window: they are computed once, and count so often."""
        each = against(torch.bmm(words, others.transpose(1, 2)), False).sum(2)
        return (each * pairs).sum() * (self.num_negatives / self.samples)
