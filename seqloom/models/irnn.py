"""The IRNN: an RNN of ReLUs whose recurrent matrix starts as the identity. Le, Jaitly & Hinton, 2015 (arXiv 1504.00941).

Departures: several layers, with dropout between them, as in rnn.py. What is read enters through matrices of standard
deviation 0.1, not 0.001, which under Adam and in several layers is long not heard; where more than a hundred numbers are
read it is 1/√ of how many, or a wide model would start far worse than a guess. The presets scale the identity by 0.9, as
the paper does (by 0.01) where memory need not be long: carried on through a whole corpus, a sum that nothing forgets grows
until the run diverges, at every rate that was tried (3e-4 to 4e-3).
"""

from typing import Any

from pydantic import Field
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.cells import ElmanCell
from seqloom.blocks.connections import Connection, recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.recurrent import init_recurrent
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, NumLayers, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe


class Irnn(StackedBackbone):
    """h(t) = max(0, W x(t) + U h(t−1) + b) with U = scale · 1 and b = 0 at first: with scale 1 a sum that forgets nothing."""

    lineage = Lineage(
        "Le et al., A simple way to initialize recurrent networks of rectified linear units", 2015, parent="rnn"
    )
    recurrent = carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 256
        num_layers: NumLayers = 2
        scale: float = Field(
            1.0,
            ge=0,
            le=1,
            description="Factor of the identity matrix that the recurrent weights start with; below 1 the state fades.",
        )
        dropout: Dropout = 0.0
        connection: Connection = "none"

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 2, "scale": 0.9},
        "small": {"dim": 650, "num_layers": 2, "scale": 0.9},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        self.scale = config.scale
        stack = recurrent_stack(
            lambda width: ElmanCell(width, config.dim, "relu"),
            config.dim,
            config.num_layers,
            config.dropout,
            config.connection,
        )
        super().__init__(TokenEmbedding(config.vocab_size, config.dim, dropout=0.0), stack, config.dim)

    def init_weights(self) -> None:
        init_recurrent(self, spread=0.1)
        for name, weight in self.named_parameters():
            if name.endswith("weight_hh_l0"):
                weight.data.zero_().fill_diagonal_(self.scale)
            elif name.endswith("weight_ih_l0"):
                nn.init.normal_(weight, std=min(0.1, weight.shape[1] ** -0.5))
            elif name.endswith(("bias_ih_l0", "bias_hh_l0")):
                nn.init.zeros_(weight)
