"""Skip-gram: the words around each word are predicted from it. Mikolov et al., 2013 (arXiv 1310.4546).

−log σ(v′_o · v_i) − Σ_n log σ(−v′_n · v_i)   for each word i, each word o in its window, and its negatives n
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import Loss, State
from seqloom.blocks.block_product import BlockProduct
from seqloom.blocks.huffman import HuffmanTree
from seqloom.models.word2vec import Word2vec
from seqloom.objectives.windows import BLOCK, Windowed, Windows, against, in_blocks


class SkipGram(Windows):
    def __init__(self, backbone: Word2vec, config: Windows.Config):
        super().__init__(backbone, config)
        if self.tree is None:
            self.scores = BlockProduct(backbone.dim, BLOCK + 2 * config.window)

    @property
    def inputs_of_a_word(self) -> int:
        return 2 * self.window + 1

    def forward(self, example: Windowed, carry: State | None = None) -> Loss:
        if self.tree is not None:
            return self.by_tree(self.tree, example)
        assert self.context is not None
        words = in_blocks(self.backbone(example.batch).hidden)
        around = self.context(example.batch.ids[example.near])
        pairs = example.seen.sum(2)
        scores = self.scores(
            words, around.transpose(1, 2)
        )  # of each word of a block with all that its windows can reach
        right = torch.where(example.seen, against(scores, True), 0.0).sum()
        return Loss(right + self.wrong(words, example.negatives, pairs).sum(), pairs.sum())

    def wrong(self, words: Tensor, negatives: Tensor, pairs: Tensor) -> Tensor:
        """The negatives of a word are the same for all in its window: they are computed once, and count so often."""
        return self.against_negatives(words, negatives) * pairs

    def by_tree(self, tree: HuffmanTree, example: Windowed) -> Loss:
        """Each word from those around it, as the program has it: so the way to a word is looked up once."""
        near, seen = self.around_each(example)
        losses = tree.losses(example.batch.ids, F.embedding(near, self.backbone(example.batch).hidden))
        return Loss(torch.where(seen, losses, 0.0).sum(), seen.sum())
