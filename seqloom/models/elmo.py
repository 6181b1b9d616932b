"""ELMo, a language model that reads both ways. Peters et al., 2018, Deep contextualized word representations (arXiv 1802.05365).

Words are read by their characters, then by two stacks of LSTMs, one from the left and one from the right, which share nothing
but what stands below them and the output layer. The directions stay apart through every layer: at a token the forward half has
read no later one, and the backward half no earlier one, so that each is a language model of its own. A task gets the layers of
both side by side, the token layer doubled so that all are equally wide, and learns how much each counts (`task.layers = "mix"`).

Departures: characters are bytes, as in the authors' code; words end where they end, and their vectors are normalised, unless
characters = "elmo" (see `blocks.characters`); tiny and small clip neither cells nor outputs, which no kernel does; documents
are packed and begin with no state, where the authors let states run on from batch to batch (the past of the backward half is
the text to come, which a stream cannot carry); forget gates start open by a bias that is learnt, not by 1 added in the cell;
two biases a gate, as kernels have them; whatever optimizer the recipe names (the authors: AdaGrad at 0.2, 10 epochs).
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from seqloom.batch import Lineage, Vocabulary
from seqloom.blocks.cells import ClippedLstmCell, LstmCell
from seqloom.blocks.characters import (
    CharacterCnn,
    CharacterEmbedding,
    ElmoCharacterCnn,
    ElmoCharacterEmbedding,
)
from seqloom.blocks.connections import Residual
from seqloom.blocks.directions import TwoDirections
from seqloom.blocks.recurrent import Apart, RecurrentLayer, init_lstm
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import CharDim, Dropout, Filters, MaxChars, NumHighways, NumLayers, VocabSize


class Elmo(TwoDirections):
    """filters: (width, how many) of the convolutions over max_chars characters."""

    lineage = Lineage(
        "Peters et al., Deep contextualized word representations", 2018, "two LSTMs, one each way", parent="big-lstm"
    )

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: int = Field(256, gt=0, description="Cells of each layer and direction.")
        proj_dim: int = Field(
            128, gt=0, description="Width of each direction: what the output of a layer is projected to."
        )
        num_layers: NumLayers = 2
        residual: bool = Field(True, description="Add what a layer reads to what it gives, from the second layer on.")
        dropout: Dropout = 0.1
        cell_clip: float = Field(0.0, ge=0, description="Largest absolute value of a cell; 0: no limit.")
        proj_clip: float = Field(0.0, ge=0, description="Largest absolute value of a projected output; 0: no limit.")
        characters: Literal["normalised", "elmo"] = Field(
            "normalised",
            description="Character network: with blanks left out and its vectors normalised, or as in the authors' code.",
        )
        max_chars: MaxChars = 50
        char_dim: CharDim = 16
        filters: Filters = ((1, 16), (2, 32), (3, 48), (4, 64))
        num_highways: NumHighways = 2

        @model_validator(mode="after")
        def filters_fit(self) -> Self:
            widest = max(width for width, _ in self.filters)
            if self.characters == "elmo" and widest > self.max_chars:
                raise ValueError(f"filters: one of width {widest} does not fit into max_chars = {self.max_chars}")
            return self

    presets = {  # noqa: RUF012
        "tiny": {
            "dim": 160,
            "proj_dim": 64,
            "max_chars": 16,
            "filters": [[1, 8], [2, 16], [3, 32], [4, 40]],
        },
        "small": {
            "dim": 1024,
            "proj_dim": 256,
            "max_chars": 24,
            "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256]],
        },
        # the sizes of the published weights ("original"), and of the authors' training script
        "original": {
            "vocab_size": 793_471,
            "dim": 4096,
            "proj_dim": 512,
            "cell_clip": 3.0,
            "proj_clip": 3.0,
            "characters": "elmo",
            "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """Rates as those of the recurrent models; the authors' unroll is 20 tokens, and their negatives are 8,192."""
        objective: dict[str, Any] = {"name": "bidirectional", "bias": True}
        if preset == "tiny":
            return {
                "objective": objective,
                "batches": {"budget": 2048, "length": 64},
                "valid": {"warmup": 256},
                "train": {"optim": {"lr": 4e-3}, "schedule": {"warmup": 50}, "eval_every": 200},
                "budget": {"tokens": 1e6},
            }
        if preset == "original":
            objective |= {"softmax": "sampled", "samples": 8192}
        return {
            "objective": objective,
            "batches": {"budget": 8192, "length": 128},
            "valid": {"warmup": 256},
            "train": {"optim": {"lr": 2e-3, "weight_decay": 0.01}, "schedule": {"warmup": 200}},
            "budget": {"epochs": 10},
        }

    def __init__(self, config: Config):
        network = CharacterCnn if config.characters == "normalised" else ElmoCharacterCnn
        spelt = CharacterEmbedding if config.characters == "normalised" else ElmoCharacterEmbedding
        cnn = network(config.char_dim, config.filters, config.num_highways, config.proj_dim, config.max_chars)

        def cell() -> LstmCell:
            sizes = (config.proj_dim, config.dim, config.proj_dim)
            if config.cell_clip or config.proj_clip:
                return ClippedLstmCell(*sizes, config.cell_clip, config.proj_clip)
            return LstmCell(*sizes)

        def layer(i: int) -> RecurrentLayer | Residual:
            plain = RecurrentLayer(cell(), config.dropout)
            return Residual(plain, config.proj_dim) if config.residual and i > 0 else plain

        layers = [Apart(layer(i), layer(i)) for i in range(config.num_layers)]
        super().__init__(spelt(config.vocab_size, cnn), layers, 2 * config.proj_dim, config.dropout)

    @property
    def vocab_size(self) -> int:
        return self.embedding.single.spelling.shape[0]

    def init_weights(self) -> None:
        init_lstm(self)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.embedding.single.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.embedding.single.validate_loaded()
