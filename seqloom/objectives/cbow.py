"""CBOW: each word is predicted from the mean of the words around it. Mikolov et al., 2013 (arXiv 1301.3781)."""

import torch
import torch.nn.functional as F

from seqloom.batch import Loss, State
from seqloom.objectives.windows import Windowed, Windows, against, in_blocks


class Cbow(Windows):
    def forward(self, example: Windowed, carry: State | None = None) -> Loss:
        hidden = self.backbone(example.batch).hidden
        around = F.embedding(example.near, hidden)  # its gradient is added up faster than that of an index
        pairs = example.seen.sum(2)
        shares = example.seen.to(hidden.dtype) / pairs.clamp(min=1)[:, :, None]
        means = torch.bmm(shares, around)
        predicted = pairs > 0  # a word alone in its document has nothing to be predicted from
        scores = (means * in_blocks(self.context(example.batch.ids))).sum(2)
        wrong = against(torch.bmm(means, self.context(example.negatives).transpose(1, 2)), False).sum(2)
        each = against(scores, True) + wrong * (self.num_negatives / self.samples)
        return Loss(torch.where(predicted, each, 0.0).sum(), predicted.sum())
