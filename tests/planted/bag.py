"""A body of a fourth kind, neither recurrent nor attentive nor counting: each place is the mean of the words around it."""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, HeadStyle, Lineage, Output, Ragged, State
from seqloom.blocks.grid import from_grid, lengths, to_grid
from seqloom.config import Config as BaseConfig


class Bag(Backbone):
    lineage = Lineage("planted", 2026, "bag of words")
    causal, head_style = False, HeadStyle(pooling="mean")

    class Config(BaseConfig):
        vocab_size: int = Field(gt=0)
        dim: int = Field(16, gt=0)
        width: int = Field(2, gt=0)

    presets = {"tiny": {"dim": 16}}  # noqa: RUF012

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return {"objective": {"name": "middle-word"}, "budget": {"steps": 5}}

    def __init__(self, config: Config):
        super().__init__()
        self.dim, self.width = config.dim, config.width
        self.token = nn.Embedding(config.vocab_size, config.dim)

    @property
    def table(self) -> nn.Embedding:
        return self.token

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        x = to_grid(self.token(batch.ids), batch)
        there = torch.arange(batch.max_len, device=x.device) < lengths(batch)[:, None]
        near = band(batch.max_len, self.width, x) * there[:, None, :]
        hidden = from_grid(near @ x / near.sum(2, keepdim=True).clamp(min=1), batch)
        return Output(hidden, layers=(self.token(batch.ids), hidden) if layers else ())


def band(length: int, width: int, like: Tensor) -> Tensor:
    place = torch.arange(length, device=like.device)
    apart = (place[:, None] - place[None, :]).abs()
    return ((apart <= width) & (apart > 0)).to(like.dtype)
