"""ELECTRA: a BERT that learns to detect replaced tokens. Clark et al., 2020 (arXiv 2003.10555).

Both of its halves are this body: the discriminator, which is kept, and a narrower generator, which proposes the tokens.
"""

from typing import Any

from pydantic import Field
from torch import nn

from seqloom.batch import HeadStyle, Lineage
from seqloom.models.bert import Bert
from seqloom.models.shared_recipes import encoder_recipe


class Electra(Bert):
    lineage = Lineage("Clark et al., ELECTRA: Pre-training text encoders as discriminators", 2020, parent="bert")
    head_style = HeadStyle(pooling="first", hidden_activation="gelu")

    class Config(Bert.Config):
        embedding_dim: int | None = Field(
            None, gt=0, description="Width of the token embeddings; dim unless it is given."
        )
        pooler: bool = Field(False, description="Put a dense layer with tanh over the first token.")

    presets = {  # noqa: RUF012
        "tiny": {
            "dim": 80, "embedding_dim": 64, "num_layers": 3, "num_heads": 5, "max_len": 128, "dropout": 0.0,
        },
        "small": {
            "vocab_size": 30522, "dim": 256, "embedding_dim": 128, "num_layers": 12, "num_heads": 4, "max_len": 512,
        },
        "base": Bert.presets["base"],
        "large": Bert.presets["large"],
    }  # fmt: skip

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return encoder_recipe(preset, cls.presets[preset], {"name": "replaced-token"})

    @staticmethod
    def embed(config: Config) -> nn.Module:  # type: ignore[override]
        width = config.embedding_dim or config.dim
        return Bert.embed(config, None if width == config.dim else width)

    def __init__(self, config: Config):
        super().__init__(config)
        self.config = config

    def smaller(self, share: float) -> "Electra":
        """A generator: as deep, `share` as wide, with the embeddings of this one. Heads keep their width."""
        whole = self.config
        heads = max(round(whole.num_heads * share), 1)
        dim = max(heads * whole.dim // whole.num_heads, 1)
        ffn_dim = max(round((whole.ffn_dim or 4 * whole.dim) * share), 1)
        sizes = {"dim": dim, "num_heads": heads, "ffn_dim": ffn_dim, "embedding_dim": whole.embedding_dim or whole.dim}
        generator = Electra(whole.model_copy(update=sizes))
        for part in ("token", "positions", "segments"):
            setattr(generator.embedding, part, getattr(self.embedding, part))
        return generator
