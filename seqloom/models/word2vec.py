"""word2vec: one vector for each word, whatever stands around it. Mikolov et al., 2013 (arXiv 1301.3781 and 1310.4546).

The model is the table W alone: its hidden states are the vectors of the tokens. What it learns by, skip-gram or CBOW, is the
objective, which has the second table W′.

Departures: SGD steps by the sum of the gradients of 8,192 tokens, each word's clipped, not after each pair; `tiny` learns by
AdaGrad (docs/decisions/models.md says why, and what it changes).
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, HeadStyle, Lineage, Output, Ragged, State, Vocabulary
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, VocabSize


class Word2vec(Backbone):
    """A table of vectors. No token sees another one, so there is nothing to remember."""

    lineage = Lineage("Mikolov et al., Efficient estimation of word representations in vector space", 2013, "static")
    learns_from: Literal["windows", "cells"] = "windows"
    head_style = HeadStyle(pooling="mean")
    static = True  # as in Learner: texts of one shape run the same kernels

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 100

    presets = {  # noqa: RUF012
        "tiny": {"dim": 50},
        "small": {"dim": 100},
        "google-news": {"dim": 300, "vocab_size": 3_000_000},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        tiny = preset == "tiny"
        optim = {"name": "sgd", "lr": 0.025, "gradient": "sum", "row_clip": 16.0}
        if (
            tiny
        ):  # for texts of few different words, of each of which a batch has many: there the sum is too long a step
            optim = {"name": "adagrad", "lr": 0.2}
        return {
            "objective": {"name": "skip-gram", "negatives": 5},
            "batches": {"budget": 4096 if tiny else 8192, "length": 1024},
            "train": {
                "optim": optim | {"clip": 0.0},
                "schedule": {"name": "linear", "warmup": 0, "floor": 1e-4},
                "eval_every": 200,
                "save_every": 1000,
            },
            "budget": {"tokens": 2e6} if tiny else {"epochs": 5},
        }

    def __init__(self, config: Config):
        super().__init__()
        self.dim = config.dim
        self.token = nn.Embedding(config.vocab_size, config.dim)
        self.init_weights()

    def init_weights(self) -> None:
        for table in self.tables():
            nn.init.uniform_(table.weight, -self.spread, self.spread)

    @property
    def spread(self) -> float:
        """Of the first values, to either side of 0."""
        return 0.5 / self.dim

    def tables(self) -> list[nn.Embedding]:
        return [module for module in self.modules() if isinstance(module, nn.Embedding)]

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        with torch.no_grad():  # nothing is learnt about what is no word: it has no vector
            for table in self.tables():
                table.weight[vocabulary.specials()] = 0.0

    @property
    def table(self) -> nn.Embedding | None:
        return self.token

    def embed(self, ids: Tensor) -> Tensor:
        return self.token(ids)

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        hidden = self.embed(batch.ids)
        return Output(hidden, state, (hidden, hidden) if layers else ())

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        return State()
