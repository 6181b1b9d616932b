"""Tokens, and where recurrence does not give the order their places, as vectors."""

from typing import Any

from torch import Tensor, nn

from seqloom.batch import Ragged


class TokenEmbedding(nn.Module):
    """(T, dim), or as wide as `project` makes it. segments: one vector for each kind of token (first or second text of a
    pair, a language); a batch without them is all of kind `default_segment`. norm: over the sum, before dropout."""

    default_segment = 0

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        dropout: float,
        positions: nn.Module | None = None,
        scale: float = 1.0,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
        project: nn.Module | None = None,
    ):
        super().__init__()
        self.token: Any = nn.Embedding(vocab_size, dim)
        self.positions, self.scale = positions, scale
        self.segments, self.norm, self.project = segments, norm, project
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Ragged) -> Tensor:
        x = self.token(batch.ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(batch)
        if self.segments is not None:
            x = x + (
                self.segments.weight[self.default_segment] if batch.segments is None else self.segments(batch.segments)
            )
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        return x if self.project is None else self.project(x)
