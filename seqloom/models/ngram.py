"""The n-gram language model. Kneser & Ney, 1995; Chen & Goodman, 1998 (TR-10-98): interpolated, modified Kneser–Ney.

As a backbone it remembers which runs of its last words it knows; what follows them is the business of the objective
`counts`. Nothing is trained: `pretrain` counts. Departures: no start symbols but the end token before each document.
"""

from typing import Any

import torch
from pydantic import Field

from seqloom.batch import Backbone, Context, Lineage, Output, Ragged, State
from seqloom.blocks.trie import Trie
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import VocabSize


class Ngram(Backbone):
    """hidden (T, order): column j is the number of the run of the last j words, −1 where it is unknown."""

    lineage = Lineage(
        "Chen & Goodman, An empirical study of smoothing techniques (after Kneser & Ney, 1995)", 1998, "counts"
    )
    carries = True
    learns_from = "counts"

    class Config(BaseConfig):
        vocab_size: VocabSize
        order: int = Field(5, ge=1, le=5, description="Order of the longest n-grams that are counted.")

    presets = {  # noqa: RUF012
        "tiny": {"order": 3},
        "small": {"order": 5},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """All of the training text, once: nothing else decides what is counted."""
        return {"objective": {"name": "counts"}, "budget": {"epochs": 1}}

    def __init__(self, config: Config):
        super().__init__()
        self.dim = self.order = config.order
        self.trie = Trie(config.order, config.vocab_size)

    @property
    def table(self) -> None:
        return None

    @property
    def vocab_size(self) -> int:
        return self.trie.vocab_size

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        ids, owner = batch.ids, batch.owner
        (known,) = self.start(batch.num_sequences, 0).own if state is None else state.own
        known = known.to(ids.device)
        first = torch.arange(ids.shape[0], device=ids.device) == batch.offsets[:-1].long()[owner]
        runs = [torch.zeros_like(ids), ids][: self.order]
        for k in range(2, self.order):  # one word longer than the run that ends at the token before
            before = torch.where(first, known[owner, k - 2], runs[-1].roll(1))
            runs.append(self.trie.find(k, before, ids))
        hidden = torch.stack(runs, 1)
        last = batch.offsets[1:].long() - 1
        after = torch.where((batch.offsets.diff() > 0)[:, None], hidden[last, 1:], known)
        return Output(hidden, State((after,)))

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        return State((torch.full((n, self.order - 1), -1),))

    def init_weights(self) -> None:
        """It knows nothing until it has counted."""
