"""ALBERT: BERT with one set of weights for all layers and narrow embeddings. Lan et al., 2020 (arXiv 1909.11942)."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.stack import Stack
from seqloom.models.bert import Bert
from seqloom.models.fields import VocabSize
from seqloom.models.shared_recipes import encoder_recipe


class Albert(Bert):
    lineage = Lineage("Lan et al., ALBERT: A lite BERT for self-supervised learning", 2020, parent="bert")

    class Config(Bert.Config):
        vocab_size: VocabSize = 30000
        embedding_dim: int = Field(128, gt=0, description="Width of the token embeddings, which are projected to dim.")
        activation: Literal["gelu", "gelu_tanh", "relu"] = Field(
            "gelu_tanh", description="Activation function of the feed-forward layers."
        )

        @model_validator(mode="after")
        def layers_are_alike(self) -> Self:
            if self.global_every is not None:
                raise ValueError(f"global_every {self.global_every}: all layers have one set of weights: leave it out")
            return self

    presets = {  # noqa: RUF012
        "tiny": {"dim": 128, "embedding_dim": 64, "num_layers": 4, "num_heads": 4, "max_len": 128, "dropout": 0.0},
        "small": {"dim": 512, "num_layers": 6, "num_heads": 8, "max_len": 256},
        "base": {"vocab_size": 30000, "dim": 768, "num_layers": 12, "num_heads": 12, "max_len": 512},
        "large": {"vocab_size": 30000, "dim": 1024, "num_layers": 24, "num_heads": 16, "max_len": 512},
        "xlarge": {"vocab_size": 30000, "dim": 2048, "num_layers": 24, "num_heads": 16, "max_len": 512},
        "xxlarge": {
            "vocab_size": 30000, "dim": 4096, "num_layers": 12, "num_heads": 64, "max_len": 512, "dropout": 0.0,
        },
    }  # fmt: skip

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return encoder_recipe(preset, cls.presets[preset], {"name": "sentence-order"})

    @staticmethod
    def embed(config: Config) -> nn.Module:  # type: ignore[override]
        return Bert.embed(config, config.embedding_dim)

    @classmethod
    def layers(cls, config: Config) -> Stack:  # type: ignore[override]
        return Stack([cls.layer(config, config.window)], repeat=config.num_layers)
