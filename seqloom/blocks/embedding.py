"""Tokens, and where recurrence does not give the order their places, as vectors."""

from torch import Tensor, nn

from seqloom.batch import Ragged


class TokenEmbedding(nn.Module):
    def __init__(
        self, vocab_size: int, dim: int, dropout: float, positions: nn.Module | None = None, scale: float = 1.0
    ):
        super().__init__()
        self.token = nn.Embedding(vocab_size, dim)
        self.positions, self.scale = positions, scale
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Ragged) -> Tensor:
        x = self.token(batch.ids)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.positions(batch)
        return self.dropout(x)
