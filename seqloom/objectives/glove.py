"""GloVe's objective: the logarithm of how often two words stand near each other, by weighted least squares.

Pennington et al., 2014:

    ½ f(X_ij) (w_i · w̃_j + b_i + b̃_j − log X_ij)²     f(x) = (x / x_max)^α below x_max, else 1

for each cell of the table X of counts that is not 0, in both directions (batches/cells.py says what is counted).

Departures: AdaGrad steps by the sum of the gradients of a batch of cells, not after each of them, and divides by the root of its
sum of squares with the present gradient in it, where the program leaves that out. An epoch is the text once: its cells are gone
through `passes` times.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Backbone, Loss, Objective, State, Vocabulary
from seqloom.batches.cells import Cells
from seqloom.blocks.block_product import RowProduct
from seqloom.config import Config as BaseConfig
from seqloom.models.glove import Glove


class LogCounts(Objective):
    reads = "cells"
    evaluator = "seqloom.evaluate.cells:CellEvaluator"
    few_rows = True
    chosen_by_loss = False  # in a small text all pairs that occur do so more often than they should
    backbone: Glove
    specials: Tensor  # (V,) which tokens are no words

    class Config(BaseConfig):
        window: int = Field(10, ge=1, le=1000, description="The most words to either side that count as near.")
        x_max: float = Field(100.0, gt=0, description="Count from which on a cell has full weight.")
        alpha: float = Field(0.75, ge=0, le=10, description="Exponent of the weights of cells below x_max.")
        passes: int = Field(50, ge=1, le=100_000, description="Passes over all cells for each pass over the text.")

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return issubclass(model, Backbone) and model.learns_from == "cells"

    def __init__(self, backbone: Glove, config: Config):
        super().__init__()
        self.backbone, self.window, self.x_max, self.alpha = backbone, config.window, config.x_max, config.alpha
        self.row_bias, self.column_bias = (nn.Embedding(backbone.vocab_size, 1) for _ in range(2))
        for bias in (self.row_bias, self.column_bias):
            nn.init.uniform_(bias.weight, -0.5 / backbone.dim, 0.5 / backbone.dim)
        self.scores = RowProduct(backbone.dim)
        self.register_buffer("specials", torch.zeros(backbone.vocab_size, dtype=torch.bool))

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)
        self.specials.zero_()
        self.specials[vocabulary.specials()] = True

    def errors(self, cells: Cells) -> tuple[Tensor, Tensor]:
        """(C,) by how much the model is off, and the weight of each cell; 0 of filler."""
        rows, columns = self.backbone.token(cells.rows), self.backbone.context(cells.columns)
        biases = (self.row_bias(cells.rows) + self.column_bias(cells.columns)).squeeze(1)
        scores = self.scores(rows, columns) + biases
        weights = (cells.values / self.x_max).clamp(max=1.0) ** self.alpha
        there = cells.values > 0
        return scores - cells.values.clamp(min=1e-30).log(), torch.where(there, weights, 0.0)

    def forward(self, cells: Cells, carry: State | None = None) -> Loss:
        errors, weights = self.errors(cells)
        return Loss((weights * errors**2).sum() / 2, (cells.values > 0).sum())
