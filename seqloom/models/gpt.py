"""GPT: a Transformer decoder as a language model. Radford et al., 2018.

Departures from the paper: attention dropout defaults to 0 (a non-zero value leaves the fastest kernel); the
transfer inputs (start, delimiter, extract) belong to the tasks.
"""

from typing import Any, ClassVar

from pydantic import model_validator
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.attention import (
    GLOBAL_EVERY,
    HEAD_DIM,
    WINDOW,
    SelfAttention,
    heads_divide_dim,
    window_of,
    windows_fit,
)
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.experts import BALANCE, EXPERT_DIM, EXPERTS, EXPERTS_K, experts_fit, feed_forward, init_experts
from seqloom.blocks.layers import PostNormLayer, ResidualLayer, init_normal
from seqloom.blocks.positions import LearnedPositions
from seqloom.blocks.stack import Stack, StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import AttentionDropout, Dim, Dropout, FfnDim, MaxLen, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import decoder_recipe


class Gpt(StackedBackbone):
    """Learned positions, post-norm layers, GELU, tied output embedding."""

    lineage = Lineage(
        "Radford et al., Improving language understanding by generative pre-training", 2018, parent="transformer"
    )
    layer: ClassVar[type[ResidualLayer]] = PostNormLayer
    has_final_norm: ClassVar[bool] = False

    class Config(BaseConfig):
        vocab_size: VocabSize = 40478
        dim: Dim = 768
        num_layers: NumLayers = 12
        num_heads: NumHeads = 12
        ffn_dim: FfnDim = None
        max_len: MaxLen = 512
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0
        head_dim: int | None = HEAD_DIM
        window: int | None = WINDOW
        global_every: int | None = GLOBAL_EVERY
        experts: int = EXPERTS
        experts_k: int = EXPERTS_K
        expert_dim: int | None = EXPERT_DIM
        balance: float = BALANCE

        whole_heads = model_validator(mode="after")(heads_divide_dim)
        some_windows = model_validator(mode="after")(windows_fit)
        enough_experts = model_validator(mode="after")(experts_fit)

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "max_len": 128, "dropout": 0.0},
        "small": {"dim": 384, "num_layers": 6, "num_heads": 6, "max_len": 256},
        "base": {"vocab_size": 40478, "dim": 768, "num_layers": 12, "num_heads": 12, "max_len": 512},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return decoder_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        layers = [
            self.layer(
                mixer=SelfAttention(
                    config.dim,
                    config.num_heads,
                    causal=True,
                    dropout=config.attention_dropout,
                    head_dim=config.head_dim,
                    window=window_of(config, i),
                ),
                ffn=feed_forward(config, "gelu_tanh", config.ffn_dim or 4 * config.dim),
                dim=config.dim,
                dropout=config.dropout,
            )
            for i in range(config.num_layers)
        ]
        positions = LearnedPositions(config.max_len, config.dim)
        embedding = TokenEmbedding(config.vocab_size, config.dim, config.dropout, positions)
        final_norm = nn.LayerNorm(config.dim) if self.has_final_norm else None
        super().__init__(embedding, Stack(layers, top=final_norm), config.dim)
        self.max_len = config.max_len

    def init_weights(self) -> None:
        init_normal(self)
        init_experts(self, lambda matrix: nn.init.normal_(matrix, std=0.02))
