"""Music Transformer: a Transformer decoder that attends by learned distances. Huang et al., 2018 (arXiv 1809.04281).

What repeats in music repeats at a distance, not at a place: a motif, a bar, a phrase. So every head of every layer has a vector
for each distance, which queries are compared with as they are with keys.

Departures from the paper: no absolute positions beside the relative ones, so that songs longer than those of training can be
read; no relative pitch and time, which the paper tries on chorales; no local attention in blocks; AdamW. `published` has the
length and width of the paper's account of memory (2,048 tokens, width 512) with the depth, heads and feed-forward width of the
Transformer's base model: the sizes of the authors' own runs are not reproduced.
"""

from typing import Any

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.attention import HEAD_DIM, heads_divide_dim
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import PreNormLayer, init_normal
from seqloom.blocks.skewed import SkewedAttention
from seqloom.blocks.stack import Stack, StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import AttentionDropout, Dim, Dropout, FfnDim, MaxLen, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import decoder_recipe


class MusicTransformer(StackedBackbone):
    """Learned distances in every head, pre-norm layers, ReLU, tied output embedding."""

    lineage = Lineage("Huang et al., Music Transformer: generating music with long-term structure", 2018, parent="gpt")

    class Config(BaseConfig):
        vocab_size: VocabSize = 390
        dim: Dim = 512
        num_layers: NumLayers = 6
        num_heads: NumHeads = 8
        head_dim: int | None = HEAD_DIM
        ffn_dim: FfnDim = None
        max_distance: int = Field(
            1024,
            gt=0,
            le=1_000_000,
            description="Number of distances with a vector of their own; larger ones share the last.",
        )
        max_len: MaxLen = 2048
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0

        whole_heads = model_validator(mode="after")(heads_divide_dim)

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "max_distance": 128, "max_len": 128, "dropout": 0.0},
        "small": {"dim": 256, "num_layers": 4, "num_heads": 4, "max_distance": 512, "max_len": 1024},
        "published": {"dim": 512, "num_layers": 6, "num_heads": 8, "max_distance": 1024, "max_len": 2048},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return decoder_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        layers = [
            PreNormLayer(
                mixer=SkewedAttention(
                    config.dim,
                    config.num_heads,
                    max_distance=config.max_distance,
                    dropout=config.attention_dropout,
                    head_dim=config.head_dim,
                ),
                ffn=FeedForward(config.dim, config.ffn_dim or 4 * config.dim, "relu"),
                dim=config.dim,
                dropout=config.dropout,
            )
            for _ in range(config.num_layers)
        ]
        embedding = TokenEmbedding(config.vocab_size, config.dim, config.dropout)
        super().__init__(embedding, Stack(layers, top=nn.LayerNorm(config.dim)), config.dim)
        self.max_len = config.max_len

    def init_weights(self) -> None:
        """Normal, std 0.02, for every matrix and distance; zero for every bias."""
        init_normal(self)
        for module in self.modules():
            if isinstance(module, SkewedAttention):
                nn.init.normal_(module.distance, std=0.02)
