"""GloVe: vectors whose products are the logarithms of how often words stand near each other. Pennington et al., 2014.

It has a second table, of the words around a word, and is read as the sum of both, which is what the paper publishes. How it is
learnt is the objective's business.
"""

from typing import Any

from torch import Tensor, nn

from seqloom.batch import Lineage
from seqloom.models.word2vec import Word2vec


class Glove(Word2vec):
    """Two tables of vectors, which are added."""

    lineage = Lineage("Pennington et al., GloVe: Global vectors for word representation", 2014, "static", "word2vec")
    learns_from = "cells"

    class Config(Word2vec.Config):
        pass

    presets = {  # noqa: RUF012
        "tiny": {"dim": 50},
        "small": {"dim": 100},
        "6b": {"dim": 300, "vocab_size": 400_000},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        learnt = {"tiny": {"passes": 25, "x_max": 10}, "small": {"passes": 50, "x_max": 10}}
        return {
            "objective": {"name": "glove"} | learnt.get(preset, {"passes": 100}),
            "batches": {"kind": "cells", "budget": 8192},
            "train": {
                "optim": {"name": "adagrad", "lr": 0.05, "clip": 0.0, "gradient": "sum", "accumulator": 1.0},
                "schedule": {"name": "constant", "warmup": 0},
                "save_every": 5000,
            },
            "budget": {"epochs": 1},
        }

    def __init__(self, config: Config):
        super().__init__(config)
        self.context = nn.Embedding(config.vocab_size, config.dim)
        self.init_weights()

    def embed(self, ids: Tensor) -> Tensor:
        return self.token(ids) + self.context(ids)

    def word_vectors(self) -> Tensor:
        return self.token.weight + self.context.weight
