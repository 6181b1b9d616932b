"""A language model of gated recurrent units. Cho et al., 2014 (arXiv 1406.1078); Chung et al., 2014 (arXiv 1412.3555)."""

from typing import Any, Literal

from pydantic import Field

from seqloom.batch import Lineage
from seqloom.blocks.cells import GruCell, ResetFirstGruCell
from seqloom.blocks.connections import Connection, recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.recurrent import init_recurrent
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, NumLayers, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe


class Gru(StackedBackbone):
    """Two gates decide how much of the old state is read and how much of it is kept."""

    lineage = Lineage("Cho et al., Learning phrase representations using RNN encoder–decoder", 2014, parent="lstm")
    recurrent = carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 256
        num_layers: NumLayers = 2
        dropout: Dropout = 0.0
        connection: Connection = "none"
        reset: Literal["after", "before"] = Field(
            "after",
            description="Where the reset gate stands: after the matrix, as kernels have it, or before it, as published.",
        )

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 2},
        "small": {"dim": 650, "num_layers": 2},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        cell = GruCell if config.reset == "after" else ResetFirstGruCell
        stack = recurrent_stack(
            lambda width: cell(width, config.dim), config.dim, config.num_layers, config.dropout, config.connection
        )
        super().__init__(TokenEmbedding(config.vocab_size, config.dim, dropout=0.0), stack, config.dim)

    def init_weights(self) -> None:
        init_recurrent(self)
