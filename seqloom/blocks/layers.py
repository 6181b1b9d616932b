"""A mixer and a feed-forward network, each around a residual connection: where the norm stands is the whole difference."""

from typing import Any

from torch import Tensor, nn

from seqloom.batch import Context, Ragged

Mixed = tuple[Tensor, Any, Tensor | None]  # what a mixer or a layer returns: x, state, weights


class ResidualLayer(nn.Module):
    def __init__(self, mixer: nn.Module, ffn: nn.Module, dim: int, dropout: float, eps: float = 1e-5):
        super().__init__()
        self.mixer: Any = mixer
        self.ffn = ffn
        self.mixer_norm, self.ffn_norm = nn.LayerNorm(dim, eps=eps), nn.LayerNorm(dim, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def start(self, n: int, max_len: int) -> Any:
        return self.mixer.start(n, max_len)


class PostNormLayer(ResidualLayer):
    """norm(x + f(x)), as published in 2017."""

    def forward(self, x: Tensor, batch: Ragged, state: Any, context: Context | None, maps: bool) -> Mixed:
        mixed, state, weights = self.mixer(x, batch, state, context, maps)
        x = self.mixer_norm(x + self.dropout(mixed))
        x = self.ffn_norm(x + self.dropout(self.ffn(x)))
        return x, state, weights


class PreNormLayer(ResidualLayer):
    """x + f(norm(x)): the residual path stays untouched from the embedding to the top."""

    def forward(self, x: Tensor, batch: Ragged, state: Any, context: Context | None, maps: bool) -> Mixed:
        mixed, state, weights = self.mixer(self.mixer_norm(x), batch, state, context, maps)
        x = x + self.dropout(mixed)
        x = x + self.dropout(self.ffn(self.ffn_norm(x)))
        return x, state, weights
