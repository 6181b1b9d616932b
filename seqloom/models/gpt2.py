"""GPT-2: GPT with the norm before each block, and a last one on top. Radford et al., 2019.

Departures from the paper: attention dropout defaults to 0 (a non-zero value leaves the fastest kernel).
"""

from typing import Any

from pydantic import Field
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.attention import SelfAttention
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import PreNormLayer
from seqloom.blocks.positions import LearnedPositions
from seqloom.blocks.stack import Stack, StackedBackbone
from seqloom.models.gpt import Gpt
from seqloom.models.shared_recipes import decoder_recipe


class Gpt2(StackedBackbone):
    """Pre-norm, and what each layer adds to the residual path starts smaller the more layers there are."""

    lineage = Lineage("Radford et al., Language models are unsupervised multitask learners", 2019)

    class Config(Gpt.Config):
        vocab_size: int = Field(50257, gt=0)
        max_len: int = Field(1024, gt=0)

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "max_len": 128, "dropout": 0.0},
        "small": {"vocab_size": 50257, "dim": 768, "num_layers": 12, "num_heads": 12, "max_len": 1024},
        "medium": {"vocab_size": 50257, "dim": 1024, "num_layers": 24, "num_heads": 16, "max_len": 1024},
        "large": {"vocab_size": 50257, "dim": 1280, "num_layers": 36, "num_heads": 20, "max_len": 1024},
        "xl": {"vocab_size": 50257, "dim": 1600, "num_layers": 48, "num_heads": 25, "max_len": 1024},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return decoder_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        layers = [
            PreNormLayer(
                mixer=SelfAttention(
                    config.dim,
                    config.num_heads,
                    causal=True,
                    dropout=config.attention_dropout,
                    head_dim=config.head_dim,
                    window=config.window,
                ),
                ffn=FeedForward(config.dim, config.ffn_dim or 4 * config.dim, "gelu_tanh"),
                dim=config.dim,
                dropout=config.dropout,
            )
            for _ in range(config.num_layers)
        ]
        positions = LearnedPositions(config.max_len, config.dim)
        embedding = TokenEmbedding(config.vocab_size, config.dim, config.dropout, positions)
        super().__init__(embedding, Stack(layers, top=nn.LayerNorm(config.dim)), config.dim)
        self.max_len = config.max_len

    def init_weights(self) -> None:
        """As GPT, but what writes to the residual path is scaled by 1/√(number of residual layers)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        residual = 2 * len(self.stack.layers)
        for name, weight in self.named_parameters():
            if name.endswith((".mixer.out.weight", ".ffn.down.weight")):
                nn.init.normal_(weight, std=0.02 / residual**0.5)
