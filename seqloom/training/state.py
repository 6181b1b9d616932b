"""What ends a run, and everything in it that changes and is no tensor."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from torch import Tensor

from seqloom.training.checkpoint import Checkpoint

StateDict = dict[str, Tensor]
COMPILING_PAYS = 2e15


class Milestone(NamedTuple):
    """A number of words, and of tokens that have about so many."""

    words: int
    tokens: float


class Budget(NamedTuple):
    """What ends a run: whichever comes first."""

    tokens: float = float("inf")
    minutes: float = float("inf")
    steps: float = float("inf")
    flops: float = float("inf")

    def pays_for_compiling(self, size: int) -> bool:
        """Whether a model of so many parameters will learn long enough to make up for what compiling takes: half a minute and
        more, in which a large GPU does COMPILING_PAYS operations uncompiled."""
        return min(self.flops, 6 * size * self.tokens) >= COMPILING_PAYS and self.minutes >= 3 and self.steps >= 500


@dataclass
class TrainState:
    """Everything that changes in a run and is no tensor. It is saved as it is."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    flops: int = 0  # of training, filler apart
    seconds: float = 0.0
    joules: float = 0.0
    energy_method: str = ""  # how they were measured
    device_seconds: float = 0.0  # fewer than seconds where other jobs had the device at the same time
    best: float | None = None  # the best measurement of what is watched, and when
    best_step: int = 0
    best_loss: float | None = None  # the validation loss at that step
    averaged: dict[str, Any] = field(default_factory=dict)  # the measurement of the mean of the last checkpoints
    stale: int = 0  # evaluations since
    drops: int = 0  # of the rate, on a plateau
    since_drop: int = 0
    losses: list[float] = field(default_factory=list)  # of all evaluations, while they decide when averaging begins
    average_from: int | None = None  # the step from which weights are averaged
    skipped: int = 0
    skips: int = 0  # in a row
    first: float | None = None  # the loss at the start
    smooth: float | None = None
    evaluation: dict[str, Any] = field(default_factory=dict)  # the last one
    eval_due: bool = False
    finished: bool = False
    log_bytes: int = 0
    window: list[list[float]] = field(default_factory=list)  # steps not yet logged: total, count, norm, skipped

    def spent(self, budget: Budget) -> float:
        return max(
            self.tokens / budget.tokens,
            self.seconds / 60 / budget.minutes,
            self.step / budget.steps,
            self.flops / budget.flops,
        )


def train_state_of(found: Checkpoint) -> TrainState:
    """What a checkpoint says of a run, checked: a hash that fits does not make it one of ours."""
    # checkpoints of earlier versions know of no other jobs on the device
    state = TrainState(**{"device_seconds": found.state.get("seconds", 0.0)} | found.state)
    TypeAdapter(TrainState).validate_json(json.dumps(found.state), strict=True)
    counters = (state.step, state.epoch, state.batch, state.tokens, state.flops, state.seconds, state.log_bytes)
    if state.step != found.step or not all(0 <= number < 1 << 62 for number in counters):
        raise ValueError("its counters are impossible")
    if any(len(row) != 4 for row in state.window) or (
        state.evaluation and not isinstance(state.evaluation["loss"], float)
    ):
        raise ValueError("its measurements are impossible")
    return state
