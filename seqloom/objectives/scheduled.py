"""Scheduled sampling: learning to go on from one's own words. Bengio et al., 2015 (arXiv 1506.03099).

A model that has only ever read true text meets its own mistakes for the first time when it generates. Here each input
token is replaced, with a probability that rises over the run, by one drawn from what the model itself predicts at the
step before. Targets stay the true ones.

The inputs are made first, column by column through the backbone's own state and without a gradient; then the loss is
taken over the mixed text as over any other. That is exact, because no gradient flows through a draw, and it lets the
fused kernels do all that is learnt from. Departures: draws are made without dropout; the first token of each stretch is
the true one, since what predicted it belongs to the batch before.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from seqloom.batch import Backbone, Excerpt, Loss, Ragged, State
from seqloom.blocks.grid import from_grid, to_grid
from seqloom.blocks.uncompiled import uncompiled
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError
from seqloom.objectives.next_token import NextToken

STEEPNESS = 10.0  # of the S-shaped schedule: nine tenths of the way lie in the middle of the run


class OwnWords(BaseConfig):
    """How often a model reads its own words while it learns."""

    start: float = Field(0.0, ge=0, le=1, description="Probability of reading an own word at the start of training.")
    end: float = Field(0.0, ge=0, le=1, description="Probability of reading an own word at the end of the budget.")
    shape: Literal["linear", "inverse_sigmoid"] = Field(
        "linear", description="How the probability moves from start to end."
    )

    @property
    def ever(self) -> bool:
        return max(self.start, self.end) > 0

    def rate(self, spent: float) -> float:
        spent = min(max(spent, 0.0), 1.0)
        if self.shape == "inverse_sigmoid":  # scaled to begin at 0 and end at 1
            spent = 0.5 + 0.5 * math.tanh(STEEPNESS / 2 * (spent - 0.5)) / math.tanh(STEEPNESS / 4)
        return self.start + (self.end - self.start) * spent


# a loop over time with a rate that changes at every step: nothing that a compiler should unroll
@uncompiled
@torch.no_grad()
def own_words(
    decoder: Backbone, softmax: Callable[[Tensor], Tensor], batch: Ragged, state: State, rate: float
) -> Tensor:
    """(T,) the inputs, own words among them. What stands behind the end of a sequence is read, but never written."""
    if rate == 0:
        return batch.ids
    n, device = batch.num_sequences, batch.ids.device
    rows = torch.arange(n + 1, device=device)
    column = Ragged(batch.ids, rows[:-1], rows[:-1], rows.int(), max_len=1)
    columns = list(to_grid(batch.ids, batch).unbind(1))
    own = torch.rand(len(columns), n, device=device) < rate
    decoder.eval()
    for t in range(len(columns) - 1):
        output = decoder(column._replace(ids=columns[t], positions=rows[:-1] * 0 + t), state=state)
        assert output.state is not None
        state = output.state
        drawn = torch.multinomial(softmax(output.hidden).float().softmax(1), 1).squeeze(1)
        columns[t + 1] = torch.where(own[t + 1], drawn, columns[t + 1])
    decoder.train()
    return from_grid(torch.stack(columns, dim=1), batch)


class ScheduledSampling(NextToken):
    static = False  # the rate moves on the host, and draws are made column by column

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return super().fits(model) and model.recurrent

    class Config(NextToken.Config, OwnWords):
        end: float = Field(0.25, ge=0, le=1, description="Probability of reading an own word at the end of the budget.")

    def __init__(self, backbone: Backbone, config: Config):
        if not backbone.recurrent:
            raise UsageError(
                "scheduled sampling reads its own words one by one and needs a model that carries a state: "
                "choose a recurrent one, or the objective next-token"
            )
        super().__init__(backbone, config)
        self.schedule: OwnWords = config
        self.advance(0.0)

    def advance(self, spent: float) -> None:
        self.rate = self.schedule.rate(spent)

    @property
    def extra_forwards(self) -> int:
        return int(self.rate > 0)

    def forward(self, example: Excerpt, carry: State | None = None) -> Loss:
        if self.training:
            # own words are spelt by the vocabulary, and so are all others with them
            mixed = example.batch._replace(
                ids=self.mix_inputs(example.batch, self.state_before(example, carry)), chars=None
            )
            example = example._replace(batch=mixed)
        return super().forward(example, carry)

    def mix_inputs(self, batch: Ragged, state: State | None) -> Tensor:
        state = self.backbone.start(batch.num_sequences, batch.max_len) if state is None else state
        return own_words(self.backbone, self.softmax, batch, state, self.rate)
