"""Models whose two directions never meet: each is a left-to-right model of its own, on embeddings that both share.

hidden (T, 2 D) = [what has read up to here ; what has read from the end down to here]
"""

from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import HeadStyle, Ragged
from seqloom.blocks.recurrent import Apart, RecurrentStack
from seqloom.blocks.stack import BidirectionalBackbone, Stack, StackedBackbone


class Doubled(nn.Module):
    """An embedding beside itself, (T, 2 D): what each direction reads, and a layer as wide as those above it."""

    def __init__(self, single: nn.Module):
        super().__init__()
        self.single: Any = single

    @property
    def characters(self) -> int:
        return getattr(self.single, "characters", 0)

    def forward(self, batch: Ragged) -> Tensor:
        x = self.single(batch)
        return torch.cat((x, x), 1)


class TwoDirections(BidirectionalBackbone):
    """An embedding under layers of two parts that stay apart. As a whole it reads whole texts and has no state; each direction
    alone is a left-to-right model with one (`direction`)."""

    head_style = HeadStyle(pooling="mean")

    def __init__(self, embedding: nn.Module, layers: list[Apart], dim: int, dropout: float = 0.0):
        """dim: of both directions together."""
        super().__init__(Doubled(embedding), Stack(layers, top=nn.Dropout(dropout)), dim)

    def direction(self, backward: bool) -> "OneDirection":
        """One half as a model of its own, with the same weights; the backward one reads mirrored texts."""
        return OneDirection(self, backward)


class OneDirection(StackedBackbone):
    recurrent = carries = True

    def __init__(self, both: TwoDirections, backward: bool):
        layers: list[Any] = list(both.stack.layers)
        stack = RecurrentStack([each.back if backward else each.ahead for each in layers], top=both.stack.top)
        super().__init__(both.embedding.single, stack, both.dim // 2)
        self.size = both.vocab_size
        self.train(both.training)

    @property
    def vocab_size(self) -> int:
        return self.size

    def init_weights(self) -> None:
        """Its weights are those of the whole."""
