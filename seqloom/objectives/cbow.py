"""CBOW: each word is predicted from the mean of the words around it. Mikolov et al., 2013 (arXiv 1301.3781)."""

import torch
import torch.nn.functional as F

from seqloom.batch import Loss, State
from seqloom.blocks.block_product import BlockProduct
from seqloom.models.word2vec import Word2vec
from seqloom.objectives.windows import BLOCK, Windowed, Windows, against, in_blocks


class Cbow(Windows):
    def __init__(self, backbone: Word2vec, config: Windows.Config):
        super().__init__(backbone, config)
        self.means = BlockProduct(backbone.dim, BLOCK + 2 * config.window, gradients=1)

    @property
    def inputs_of_a_word(self) -> int:
        return 1

    def forward(self, example: Windowed, carry: State | None = None) -> Loss:
        hidden = self.backbone(example.batch).hidden
        around = F.embedding(example.near, hidden)  # its gradient is added up faster than that of an index
        pairs = example.seen.sum(2)
        means = self.means(example.seen.to(hidden.dtype) / pairs.clamp(min=1)[:, :, None], around)
        predicted = pairs > 0  # a word alone in its document has nothing to be predicted from
        if self.tree is not None:
            each = self.tree.losses(example.batch.ids, means.flatten(0, 1)[:, None, :]).view_as(pairs)
        else:
            assert self.context is not None
            scores = (means * in_blocks(self.context(example.batch.ids))).sum(2)
            each = against(scores, True) + self.against_negatives(means, example.negatives)
        return Loss(torch.where(predicted, each, 0.0).sum(), predicted.sum())
