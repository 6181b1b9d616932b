"""Dropout for recurrent models: one mask for a whole sequence, a whole call or a whole word, never one a step.

Masks come from torch's own generator and are made on the device: nothing here asks the host, so that a step can be
recorded. Outside training nothing is dropped.
"""

import copy
from typing import Self

import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import Ragged
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.recurrent import RecurrentLayer


class LockedDropout(nn.Module):
    """One mask a sequence and feature, the same at all of its steps. Gal & Ghahramani, 2015 (arXiv 1512.05287)."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, batch: Ragged) -> Tensor:
        if not self.training or self.p == 0:
            return x
        mask = F.dropout(x.new_ones(batch.num_sequences, x.shape[1]), self.p)
        if batch.is_full:  # the grid is a view: no mask of the size of x is made
            return (x.view(batch.num_sequences, batch.max_len, -1) * mask[:, None]).view_as(x)
        return x * mask[batch.owner]


class LockedLayer(RecurrentLayer):
    """A recurrent layer with locked dropout on what it reads."""

    def __init__(self, cell: nn.Module, dropout: float):
        super().__init__(cell)
        self.dropout = LockedDropout(dropout)

    def read(self, x: Tensor, batch: Ragged) -> Tensor:
        return self.dropout(x, batch)


class DroppedEmbedding(TokenEmbedding):
    """Drops words, not numbers: all occurrences of one in a batch or none (Gal & Ghahramani, 2015). An output layer that
    shares the table keeps all of it."""

    def __init__(self, vocab_size: int, dim: int, word_dropout: float):
        super().__init__(vocab_size, dim, dropout=0.0)
        self.word_dropout = word_dropout

    def forward(self, batch: Ragged) -> Tensor:
        x = super().forward(batch)
        if not self.training or self.word_dropout == 0:
            return x
        return x * F.dropout(x.new_ones(self.token.num_embeddings, 1), self.word_dropout)[batch.ids]


class WeightDroppedLstm(LstmCell):
    """DropConnect on the recurrent matrix (Wan et al., 2013; Merity et al., 2017, arXiv 1708.02182): one mask for all
    steps and sequences of a call. It is put on the weights and not on what is computed, so the fused kernel stays."""

    def __init__(self, input_dim: int, dim: int, weight_drop: float):
        super().__init__(input_dim, dim)
        self.weight_drop = weight_drop

    def drawn(self) -> Self:
        if not self.training or self.weight_drop == 0:
            return self
        one = copy.copy(self)  # shares all parameters; the mask lives as long as the call
        one.__dict__["matrix"] = F.dropout(self.kernel.weight_hh_l0, self.weight_drop)
        return one

    @property
    def hidden_weight(self) -> Tensor:
        return self.__dict__.get("matrix", self.kernel.weight_hh_l0)

    def weights(self) -> list[Tensor]:
        from_input, _, *biases = super().weights()
        return [from_input, self.hidden_weight, *biases]
