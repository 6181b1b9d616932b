"""A mixer and a feed-forward network, each around a residual connection: where the norm stands is the whole difference.

heads: gates on the attention heads of the mixer, where somebody asks for them (batch.Edit).
"""

from typing import Any

from torch import Tensor, nn

from seqloom.batch import Context, MapRows, Ragged

# what a mixer or a layer returns: x, state, weights, and where experts add to the loss what they add
Mixed = tuple[Any, ...]


class ResidualLayer(nn.Module):
    def __init__(self, mixer: nn.Module, ffn: nn.Module, dim: int, dropout: float, eps: float = 1e-5):
        super().__init__()
        self.mixer: Any = mixer
        self.ffn = ffn
        self.mixer_norm, self.ffn_norm = nn.LayerNorm(dim, eps=eps), nn.LayerNorm(dim, eps=eps)
        self.dropout = nn.Dropout(dropout)

        self.has_experts = getattr(ffn, "has_penalty", False)

    def feed(self, x: Tensor, batch: Ragged) -> Any:
        """What the feed-forward network makes of x, and where it has experts what they add to the loss."""
        return self.ffn(x, batch) if self.has_experts else (self.ffn(x),)

    def start(self, n: int, max_len: int) -> Any:
        return self.mixer.start(n, max_len)

    def value_norms(self, x: Tensor) -> Tensor:
        """As those of its attention, for what the layer reads."""
        return self.mixer.value_norms(x)


class PostNormLayer(ResidualLayer):
    """norm(x + f(x)), as published in 2017."""

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Any,
        context: Context | None,
        maps: bool | MapRows,
        heads: Tensor | None = None,
    ) -> Mixed:
        mixed, state, weights = self.mixer(x, batch, state, context, maps, heads)
        x = self.mixer_norm(x + self.dropout(mixed))
        y, *penalty = self.feed(x, batch)
        x = self.ffn_norm(x + self.dropout(y))
        return x, state, weights, *penalty


class PreNormLayer(ResidualLayer):
    """x + f(norm(x)): the residual path stays untouched from the embedding to the top."""

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Any,
        context: Context | None,
        maps: bool | MapRows,
        heads: Tensor | None = None,
    ) -> Mixed:
        mixed, state, weights = self.mixer(self.mixer_norm(x), batch, state, context, maps, heads)
        x = x + self.dropout(mixed)
        y, *penalty = self.feed(self.ffn_norm(x), batch)
        x = x + self.dropout(y)
        return x, state, weights, *penalty

    def value_norms(self, x: Tensor) -> Tensor:
        return self.mixer.value_norms(self.mixer_norm(x))


class DecoderLayer(ResidualLayer):
    """Between the two stands a look at what the encoder has read. Its weights are two: on the own sequence, and across."""

    def __init__(self, mixer: nn.Module, cross: nn.Module, ffn: nn.Module, dim: int, dropout: float, eps: float = 1e-5):
        super().__init__(mixer, ffn, dim, dropout, eps)
        self.cross: Any = cross
        self.cross_norm = nn.LayerNorm(dim, eps=eps)


class PostNormDecoderLayer(DecoderLayer):
    def forward(
        self, x: Tensor, batch: Ragged, state: Any, context: Any, maps: bool | MapRows, heads: Tensor | None = None
    ) -> Mixed:
        mixed, state, own = self.mixer(x, batch, state, None, maps if state is None else False, heads)
        x = self.mixer_norm(x + self.dropout(mixed))
        looked, across = self.cross(x, batch, context, maps)
        x = self.cross_norm(x + self.dropout(looked))
        y, *penalty = self.feed(x, batch)
        x = self.ffn_norm(x + self.dropout(y))
        return x, state, (own, across), *penalty


class PreNormDecoderLayer(DecoderLayer):
    def forward(
        self, x: Tensor, batch: Ragged, state: Any, context: Any, maps: bool | MapRows, heads: Tensor | None = None
    ) -> Mixed:
        mixed, state, own = self.mixer(self.mixer_norm(x), batch, state, None, maps if state is None else False, heads)
        x = x + self.dropout(mixed)
        looked, across = self.cross(self.cross_norm(x), batch, context, maps)
        x = x + self.dropout(looked)
        y, *penalty = self.feed(self.ffn_norm(x), batch)
        x = x + self.dropout(y)
        return x, state, (own, across), *penalty

    def value_norms(self, x: Tensor) -> Tensor:
        return self.mixer.value_norms(self.mixer_norm(x))


def init_normal(model: nn.Module) -> None:
    """Normal, std 0.02, for every matrix; zero for every bias."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
