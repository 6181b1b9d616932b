"""The recurrent neural network language model. Elman, 1990; Mikolov et al., 2010.

Departures: several layers, with dropout between them (Zaremba et al., 2014), as the later recurrent models have.
"""

from typing import Any, Literal

from pydantic import Field

from seqloom.batch import Lineage
from seqloom.blocks.cells import ElmanCell
from seqloom.blocks.connections import Connection, recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.recurrent import init_recurrent
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, NumLayers, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe


class Rnn(StackedBackbone):
    """h(t) = f(W x(t) + U h(t−1) + b), num_layers deep."""

    lineage = Lineage(
        "Mikolov et al., Recurrent neural network based language model (after Elman, 1990)", 2010, parent="nnlm"
    )
    recurrent = carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 256
        num_layers: NumLayers = 2
        nonlinearity: Literal["tanh", "sigmoid", "relu"] = Field(
            "tanh", description="Activation function of the recurrent layer."
        )
        dropout: Dropout = 0.0
        connection: Connection = "none"

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 2},
        "small": {"dim": 650, "num_layers": 2},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        stack = recurrent_stack(
            lambda width: ElmanCell(width, config.dim, config.nonlinearity),
            config.dim,
            config.num_layers,
            config.dropout,
            config.connection,
        )
        # a sigmoid's state starts at one half everywhere: a tied output layer of large values would shout
        self.spread = 0.1 if config.nonlinearity == "sigmoid" else 0.5
        super().__init__(TokenEmbedding(config.vocab_size, config.dim, dropout=0.0), stack, config.dim)

    def init_weights(self) -> None:
        init_recurrent(self, self.spread)
