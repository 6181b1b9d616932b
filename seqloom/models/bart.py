"""BART: a Transformer that restores noised text, pre-trained as a whole. Lewis et al., 2019 (arXiv 1910.13461).

What it changes in the Transformer: GELU, learned positions, a norm above the embeddings of either half and no factor √dim on
them, weights drawn with std 0.02. Sources and targets stand between the first token and the separator, and a target is
written from the separator on. What it learns by, noise of several kinds, is the objective `denoising`.
Departures: no dropout inside the feed-forward layers, attention dropout defaults to 0 (a non-zero value leaves the fastest
kernel); the two rows before the first position of the published tables, which no text reads, are kept by `import` alone.
"""

from typing import Any, Literal

from pydantic import Field
from torch import nn

from seqloom.batch import HeadStyle, Lineage
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.experts import init_experts
from seqloom.blocks.layers import init_normal
from seqloom.models.fields import Dim, NumHeads, VocabSize
from seqloom.models.shared_recipes import encoder_recipe
from seqloom.models.transformer import Transformer


class Bart(Transformer):
    lineage = Lineage(
        "Lewis et al., BART: Denoising sequence-to-sequence pre-training", 2019, "encoder–decoder", "transformer"
    )
    learns_from, usual_view = "text", "whole"
    head_style = HeadStyle(pooling="last", hidden_activation="tanh")

    class Config(Transformer.Config):
        vocab_size: VocabSize = 50265
        dim: Dim = 768
        num_heads: NumHeads = 12
        max_len: int = Field(1024, gt=0, description="The most tokens of a source, and of a target.")
        positions: Literal["sinusoid", "learned"] = Field("learned", description="Kind of position embeddings.")
        activation: Literal["relu", "gelu", "swish"] = Field(
            "gelu", description="Activation function of the feed-forward layers."
        )

    presets = {  # noqa: RUF012
        "tiny": {"dim": 64, "num_layers": 2, "num_heads": 4, "max_len": 128, "dropout": 0.0},
        "small": {"dim": 384, "num_layers": 3, "num_heads": 6, "max_len": 256},
        "base": {"vocab_size": 50265, "dim": 768, "num_layers": 6, "num_heads": 12, "max_len": 1024},
        "large": {"vocab_size": 50265, "dim": 1024, "num_layers": 12, "num_heads": 16, "max_len": 1024},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """Passages as other models have them that are pre-trained on both sides of a word. Large: 500,000 steps of 8,000
        passages."""
        return encoder_recipe(preset, cls.presets[preset], {"name": "denoising"})

    @staticmethod
    def embed(config: Transformer.Config, entries: int) -> TokenEmbedding:
        places = Transformer.places(config)
        return TokenEmbedding(entries, config.dim, config.dropout, places, norm=nn.LayerNorm(config.dim))

    @staticmethod
    def surround(first: int, separator: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        before = (
            (first,) if first != separator else ()
        )  # one token for both says nothing, and would end a target at once
        return before, (separator, separator), (separator,)

    def init_weights(self) -> None:
        init_normal(self)
        init_experts(self, lambda matrix: nn.init.normal_(matrix, std=0.02))
