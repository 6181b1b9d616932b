"""BERT: a Transformer encoder that reads texts, and pairs of texts, in both directions. Devlin et al., 2018 (arXiv 1810.04805).

Departures from the paper: attention dropout defaults to 0 (a non-zero value leaves the fastest kernel). What it learns by,
masked tokens and next sentences, are objectives.
"""

from typing import Any, Literal

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import HeadStyle, Lineage
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
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import PostNormLayer
from seqloom.blocks.positions import LearnedPositions
from seqloom.blocks.stack import BidirectionalBackbone, Stack
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import AttentionDropout, Dim, Dropout, FfnDim, MaxLen, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import encoder_recipe


class Bert(BidirectionalBackbone):
    """Tokens + learned positions + segments, normalised; post-norm layers, GELU; a pooler on the first token."""

    lineage = Lineage("Devlin et al., BERT: Pre-training of deep bidirectional transformers", 2018, parent="gpt")
    head_style = HeadStyle(pooling="first", hidden_activation="tanh")

    class Config(BaseConfig):
        vocab_size: VocabSize = 30522
        dim: Dim = 768
        num_layers: NumLayers = 12
        num_heads: NumHeads = 12
        ffn_dim: FfnDim = None
        max_len: MaxLen = 512
        num_segments: int = Field(2, ge=0, description="Number of segment ids; 0: no segments.")
        pooler: bool = Field(True, description="Put a dense layer with tanh over the first token.")
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0
        activation: Literal["gelu", "gelu_tanh", "relu"] = Field(
            "gelu", description="Activation function of the feed-forward layers."
        )
        norm_eps: float = Field(1e-12, gt=0, le=0.1, description="Number added to the variance in layer normalisation.")
        head_dim: int | None = HEAD_DIM
        window: int | None = WINDOW
        global_every: int | None = GLOBAL_EVERY

        whole_heads = model_validator(mode="after")(heads_divide_dim)
        some_windows = model_validator(mode="after")(windows_fit)

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "max_len": 128, "dropout": 0.0},
        "small": {"dim": 384, "num_layers": 6, "num_heads": 6, "max_len": 256},
        # Turc et al., 2019 (arXiv 1908.08962)
        "turc-tiny": {"vocab_size": 30522, "dim": 128, "num_layers": 2, "num_heads": 2, "max_len": 512},
        "turc-mini": {"vocab_size": 30522, "dim": 256, "num_layers": 4, "num_heads": 4, "max_len": 512},
        "turc-small": {"vocab_size": 30522, "dim": 512, "num_layers": 4, "num_heads": 8, "max_len": 512},
        "turc-medium": {"vocab_size": 30522, "dim": 512, "num_layers": 8, "num_heads": 8, "max_len": 512},
        "base": {"vocab_size": 30522, "dim": 768, "num_layers": 12, "num_heads": 12, "max_len": 512},
        "multilingual": {"vocab_size": 119547, "dim": 768, "num_layers": 12, "num_heads": 12, "max_len": 512},  # mBERT
        "large": {"vocab_size": 30522, "dim": 1024, "num_layers": 24, "num_heads": 16, "max_len": 512},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        smoothing = 0.7 if preset == "multilingual" else None
        return encoder_recipe(preset, cls.presets[preset], {"name": "next-sentence"}, smoothing)

    def __init__(self, config: Config):
        pooler = nn.Linear(config.dim, config.dim) if config.pooler else None
        super().__init__(self.embed(config), self.layers(config), config.dim, pooler)
        self.max_len = config.max_len
        self.head_style = self.head_style._replace(activation=config.activation, eps=config.norm_eps)
        if self.segment_kind != "languages":
            self.segment_kind = "texts" if config.num_segments > 1 else ""

    @staticmethod
    def embed(config: Config, embedding_dim: int | None = None) -> TokenEmbedding:
        """embedding_dim: where tokens have other vectors than hidden states, a matrix leads from the one to the other."""
        width = embedding_dim or config.dim
        return TokenEmbedding(
            config.vocab_size,
            width,
            config.dropout,
            LearnedPositions(config.max_len, width),
            segments=nn.Embedding(config.num_segments, width) if config.num_segments else None,
            norm=nn.LayerNorm(width, eps=config.norm_eps),
            project=None if embedding_dim is None else nn.Linear(width, config.dim),
        )

    @staticmethod
    def layer(config: Config, window: int | None) -> nn.Module:
        return PostNormLayer(
            mixer=SelfAttention(
                config.dim,
                config.num_heads,
                causal=False,
                dropout=config.attention_dropout,
                head_dim=config.head_dim,
                window=window,
            ),
            ffn=FeedForward(config.dim, config.ffn_dim or 4 * config.dim, config.activation),
            dim=config.dim,
            dropout=config.dropout,
            eps=config.norm_eps,
        )

    @classmethod
    def layers(cls, config: Config) -> Stack:
        return Stack([cls.layer(config, window_of(config, i)) for i in range(config.num_layers)])

    def init_weights(self) -> None:
        """Normal, std 0.02, cut off at two of them, for every matrix; zero for every bias."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
