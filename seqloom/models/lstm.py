"""The LSTM language model. Hochreiter & Schmidhuber, 1997; Sundermeyer et al., 2012; Zaremba et al., 2014 (arXiv 1409.2329).

`experts`: a mixture of experts after every layer but the last, around a residual connection (Shazeer et al., 2017).

Departures: the forget gates start open (bias 1; Józefowicz et al., 2015).
"""

from typing import Any, Self

from pydantic import model_validator
from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.connections import Connection, recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.experts import (
    BALANCE,
    EXPERT_DIM,
    EXPERTS,
    EXPERTS_K,
    Experts,
    ExpertsLayer,
    experts_fit,
    init_experts,
)
from seqloom.blocks.recurrent import init_lstm
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, NumLayers, ProjDim, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe


class Lstm(StackedBackbone):
    """A cell that is written, kept and read through gates. proj_dim: h is projected to that width (Sak et al., 2014)."""

    lineage = Lineage(
        "Zaremba et al., Recurrent neural network regularization (after Hochreiter & Schmidhuber, 1997)",
        2014,
        parent="rnn",
    )
    recurrent = carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 256
        num_layers: NumLayers = 2
        proj_dim: ProjDim = 0
        dropout: Dropout = 0.0
        connection: Connection = "none"
        experts: int = EXPERTS
        experts_k: int = EXPERTS_K
        expert_dim: int | None = EXPERT_DIM
        balance: float = BALANCE

        enough_experts = model_validator(mode="after")(experts_fit)

        @model_validator(mode="after")
        def experts_have_a_place(self) -> Self:
            if self.experts > 1 and (self.num_layers < 2 or self.connection == "dense"):
                why = "dense layers leave none" if self.connection == "dense" else "there is one layer"
                raise ValueError(f"experts {self.experts} stand between layers of one width, and {why}")
            return self

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 2},
        "small": {"dim": 650, "num_layers": 2},
        "zaremba-medium": {"vocab_size": 10000, "dim": 650, "num_layers": 2, "dropout": 0.5},
        "zaremba-large": {"vocab_size": 10000, "dim": 1500, "num_layers": 2, "dropout": 0.65},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        width = config.proj_dim or config.dim  # of h, and so of what is embedded and predicted from
        stack = recurrent_stack(
            lambda reads: LstmCell(reads, config.dim, config.proj_dim),
            width,
            config.num_layers,
            config.dropout,
            config.connection,
        )
        if config.experts > 1:
            *below, top = stack.layers
            stack.layers = nn.ModuleList([part for layer in below for part in (layer, self.between(config))] + [top])
        super().__init__(TokenEmbedding(config.vocab_size, width, dropout=0.0), stack, width)

    @staticmethod
    def between(config: Config) -> ExpertsLayer:
        width = config.proj_dim or config.dim
        inner = config.expert_dim or max(4 * width // config.experts_k, 1)
        experts = Experts(width, inner, "relu", config.experts, config.experts_k, config.balance)
        return ExpertsLayer(experts, config.dropout)

    def init_weights(self) -> None:
        init_lstm(self)
        init_experts(self, lambda matrix: nn.init.normal_(matrix, std=matrix.shape[1] ** -0.5))
