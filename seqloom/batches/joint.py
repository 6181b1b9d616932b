"""Batches of several tasks: every step is of one of them.

A task with n examples has steps in proportion to n^α: with α = 1 it is read as often as the others, with less small tasks are
read more often (α = ½: Stickland & Murray, 2019; α = 0: all have as many steps). How many steps a task has in an epoch is
computed, not drawn: it is read on from where the epoch before has left it. Which step is of which task is drawn from (seed,
epoch).

Where one task is left, its batches are those that it has alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqloom.batches.labelled import LabelledBatches, LabelledPlan
from seqloom.batches.plan import generator
from seqloom.randomness import derive_seed


class Joint:
    """batches: of each task; passes: how often each is read in an epoch, 0 for one that is left out; accumulate: the batches of a
    step; mark: a batch with the number of its task."""

    rows = usual = 0

    def __init__(
        self,
        batches: Sequence[LabelledBatches],
        passes: Sequence[float],
        accumulate: int,
        mark: Callable[[int, Any], Any],
    ):
        self.batches, self.passes, self.accumulate, self.mark = batches, passes, accumulate, mark
        self.sizes = [-(-len(each.examples) // each.size) for each in batches]  # batches of a pass

    def steps_before(self, epoch: int) -> list[int]:
        """How many steps each task has in all epochs before this one."""
        return [
            round(epoch * often * size / self.accumulate) for often, size in zip(self.passes, self.sizes, strict=True)
        ]

    def plan(self, seed: int, epoch: int) -> "JointPlan":
        return JointPlan(self, seed, epoch)


class JointPlan:
    def __init__(self, joint: Joint, seed: int, epoch: int):
        self.joint, self.seed = joint, seed
        begin, end = joint.steps_before(epoch), joint.steps_before(epoch + 1)
        counts = [max(b - a, 0) for a, b in zip(begin, end, strict=True)]
        self.tasks = generator(seed, epoch).permutation(np.repeat(np.arange(len(counts)), counts))
        # of each step, which of its task's steps it is
        self.numbers = np.zeros(len(self.tasks), np.int64)
        for task, first in enumerate(begin):
            own = self.tasks == task
            self.numbers[own] = first + np.arange(int(own.sum()))
        self.plans: dict[tuple[int, int], LabelledPlan] = {}

    def __len__(self) -> int:
        return len(self.tasks) * self.joint.accumulate

    def batch(self, i: int) -> Any:
        step, place = divmod(i, self.joint.accumulate)
        task = int(self.tasks[step])
        number, batch = divmod(int(self.numbers[step]) * self.joint.accumulate + place, self.joint.sizes[task])
        if (task, number) not in self.plans:
            # the main task in the order that it has alone
            seed = derive_seed(self.seed, task) if task else self.seed
            self.plans[task, number] = self.joint.batches[task].plan(seed, number)
        return self.joint.mark(task, self.plans[task, number].batch(batch))
