"""XLNet: a language model over orders of the tokens, which reads both sides of a word. Yang et al., 2019 (arXiv 1906.08237).

What it changes in Transformer-XL: tokens see each other in any order, in two streams; distances have a sign; u and v are those
of each layer; whether two tokens are of the same segment is told, not of which; GELU; no factor √dim on the embeddings. The
token that stands for a whole text is the last one. What it learns by, the tokens of a random order, is the objective `permuted`.

Departures: no dropout inside the feed-forward layers, attention dropout defaults to 0 (the authors: that of the layers); base
and large have the batches of this program's other encoders (the authors: 8,192 sequences of 512 tokens, 500,000 steps).
"""

from typing import Any, Literal

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.attention import HEAD_DIM, heads_divide_dim
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import PostNormLayer
from seqloom.blocks.relative import DistanceVectors
from seqloom.blocks.two_streams import TwoStreamAttention, TwoStreamBackbone, TwoStreamStack
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import AttentionDropout, Dim, Dropout, FfnDim, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import WARMUP


class Xlnet(TwoStreamBackbone):
    """Relative positions and segments, post-norm layers, GELU, a memory."""

    lineage = Lineage("Yang et al., XLNet: Generalized autoregressive pretraining", 2019, parent="transformer-xl")

    class Config(BaseConfig):
        vocab_size: VocabSize = 32_000
        dim: Dim = 768
        num_layers: NumLayers = 12
        num_heads: NumHeads = 12
        head_dim: int | None = HEAD_DIM
        ffn_dim: FfnDim = None
        mem_len: int = Field(
            384, ge=0, le=1_000_000, description="Tokens before a segment that are remembered in training; 0: none."
        )
        eval_len: int = Field(
            512,
            gt=0,
            le=1_000_000,
            description="Tokens that each token attends to, itself included, where a text is read from left to right.",
        )
        clamp_len: int | None = Field(
            None, gt=0, description="Largest distance that is told from larger ones; all unless it is given."
        )
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0
        activation: Literal["gelu", "gelu_tanh", "relu"] = Field(
            "gelu", description="Activation function of the feed-forward layers."
        )
        norm_eps: float = Field(1e-12, gt=0, le=0.1, description="Number added to the variance in layer normalisation.")

        whole_heads = model_validator(mode="after")(heads_divide_dim)

        @property
        def window(self) -> int:
            """How many tokens each one sees from left to right."""
            return self.eval_len

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "mem_len": 64, "eval_len": 128, "dropout": 0.0},
        "small": {"dim": 384, "num_layers": 6, "num_heads": 6, "mem_len": 128, "eval_len": 256},
        "base": {"vocab_size": 32_000, "dim": 768, "num_layers": 12, "num_heads": 12, "mem_len": 384, "eval_len": 512},
        "large": {
            "vocab_size": 32_000,
            "dim": 1024,
            "num_layers": 24,
            "num_heads": 16,
            "mem_len": 384,
            "eval_len": 512,
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """Streams with a carried memory. Rates of the small sizes as those of the other encoders."""
        wide = cls.presets[preset]["dim"] >= 768
        shared = {"objective": {"name": "permuted"}, "valid": {"warmup": WARMUP}}
        if preset == "tiny":
            return shared | {
                "batches": {"kind": "streams", "streams": 32, "length": 64, "reset": True},
                "train": {"optim": {"lr": 2e-3, "weight_decay": 0.01}, "schedule": {"warmup": 100}, "eval_every": 200},
                "budget": {"tokens": 2e6},
            }
        return shared | {
            "batches": {"kind": "streams", "streams": 64, "length": 512 if wide else 256, "reset": not wide},
            "train": {
                "optim": {"lr": 1e-4 if wide else 1e-3, "weight_decay": 0.01, "beta2": 0.999 if wide else 0.98},
                "schedule": {"name": "linear", "warmup": 10_000 if wide else 500, "floor": 0.0},
            },
            "budget": {"epochs": 40 if wide else 10},
        }

    def __init__(self, config: Config):
        head_dim = config.head_dim or config.dim // config.num_heads
        layers = [
            PostNormLayer(
                mixer=TwoStreamAttention(
                    config.dim,
                    config.num_heads,
                    head_dim,
                    memory=config.mem_len,
                    window=config.eval_len,
                    dropout=config.attention_dropout,
                ),
                ffn=FeedForward(config.dim, config.ffn_dim or 4 * config.dim, config.activation),
                dim=config.dim,
                dropout=config.dropout,
                eps=config.norm_eps,
            )
            for _ in range(config.num_layers)
        ]
        positions = DistanceVectors(config.dim, config.dropout, config.clamp_len)
        stack = TwoStreamStack(layers, positions, config.dropout)
        super().__init__(TokenEmbedding(config.vocab_size, config.dim, config.dropout), stack, config.dim)
        self.head_style = self.head_style._replace(activation=config.activation, eps=config.norm_eps)

    def init_weights(self) -> None:
        """Normal, std 0.02, for every matrix and vector; zero for every bias of a feed-forward layer."""
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" not in name:
                nn.init.normal_(weight, std=0.02)
