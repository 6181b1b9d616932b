"""Feeds the training loop: batches in plan order from any cursor on, read ahead by worker threads, shared out to ranks."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

from seqloom.batch import Learner, Sizes
from seqloom.batches.plan import Batches, Plan
from seqloom.errors import UsageError
from seqloom.randomness import derive_seed


class Cursor(NamedTuple):
    """The next batch to be read: known in advance, never replayed."""

    epoch: int = 0
    batch: int = 0


class Item(NamedTuple):
    example: Any
    sizes: Sizes
    fresh: bool  # the first batch of an epoch: a carried state is reset
    next: Cursor
    length: float = 1.0  # relative to the usual one, where it varies


class Loader:
    def __init__(self, batches: Batches, learner: Learner, seed: int, workers: int = 1, rank: int = 0, world: int = 1):
        self.batches, self.learner, self.seed = batches, learner, seed
        self.workers, self.rank, self.world = workers, rank, world
        self._plans: dict[int, Plan] = {}

    def plan(self, epoch: int) -> Plan:
        if epoch not in self._plans:
            plan = self.batches.plan(self.seed, epoch)
            if len(plan) < self.world:
                raise UsageError(
                    f"the corpus has {len(plan)} batches per epoch, fewer than {self.world} ranks: make the batches smaller"
                )
            self._plans = {e: p for e, p in self._plans.items() if e == epoch - 1} | {epoch: plan}
        return self._plans[epoch]

    def cursors(self, cursor: Cursor) -> Iterator[tuple[Cursor, Cursor]]:
        """(this, next) for ever. With several ranks `batch` counts rounds: each rank has one of its own in every round."""
        while True:
            rounds = len(self.plan(cursor.epoch)) // self.world
            if cursor.batch >= rounds:
                cursor = Cursor(cursor.epoch + 1, 0)
                continue
            after = Cursor(cursor.epoch, cursor.batch + 1)
            yield cursor, after
            cursor = after

    def read(self, plan: Plan, cursor: Cursor, after: Cursor) -> Item:
        index = cursor.batch * self.world + self.rank
        cut = plan.batch(index)
        rng = torch.Generator().manual_seed(derive_seed(self.seed, cursor.epoch, index))
        usual = self.batches.rows * self.batches.usual
        length = cut.batch.ids.shape[0] / usual if usual else 1.0
        example = self.learner.corrupt(cut, rng)
        return Item(example, example.sizes(), cursor.batch == 0, after, length)

    def items(self, cursor: Cursor) -> Generator[Item, None, None]:
        """Endless; closing the iterator ends its workers."""
        if self.workers == 0:
            for this, after in self.cursors(cursor):
                yield self.read(self.plan(this.epoch), this, after)
            return
        with ThreadPoolExecutor(self.workers, thread_name_prefix="seqloom-data") as pool:
            waiting: deque[Future[Item]] = deque()
            try:
                for this, after in self.cursors(cursor):
                    waiting.append(pool.submit(self.read, self.plan(this.epoch), this, after))
                    if len(waiting) > 2 * self.workers:
                        yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
