"""Feeds the training loop: batches in plan order from any cursor on, read ahead by worker threads, shared out to ranks."""

import itertools
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

from seqloom.batch import Learner, Sizes
from seqloom.batches.plan import Batches, Plan, StreamPlan
from seqloom.errors import UsageError
from seqloom.randomness import derive_seed


class Cursor(NamedTuple):
    """The next batch to be read: known in advance, never replayed."""

    epoch: int = 0
    batch: int = 0


class Item(NamedTuple):
    """One batch of the plan as this process sees it. parts: those that are its own, by their numbers in the step."""

    parts: Mapping[int, Any]
    sizes: Sequence[Sizes]  # of its own parts
    fresh: bool  # the first batch of an epoch: a carried state is reset
    next: Cursor
    length: float = 1.0  # relative to the usual one, where it varies

    @property
    def example(self) -> Any:
        """The batch as a whole, where it is one part."""
        (example,) = self.parts.values()
        return example


class Loader:
    """A step is a fixed number of parts, which several processes may share. Streams are cut into `parts` blocks of rows; of
    everything else a part is one of the `accumulate` batches of a step. own: the parts that are read here, by their numbers."""

    def __init__(
        self, batches: Batches, learner: Learner, seed: int, workers: int = 1, accumulate: int = 1, parts: int = 1
    ):
        if parts > 1 and not batches.rows:
            raise UsageError(
                f"train.parts = {parts} is for streams, whose rows can be shared out: use train.accumulate = {parts} instead"
            )
        if parts > max(batches.rows, 1):
            raise UsageError(
                f"train.parts = {parts} is more than the {batches.rows} streams: give fewer parts, or more streams"
            )
        self.batches, self.learner, self.seed = batches, learner, seed
        self.workers, self.accumulate, self.parts = workers, accumulate, parts
        self.own = range(parts if batches.rows else accumulate)
        self._plans: dict[int, Plan] = {}

    def plan(self, epoch: int) -> Plan:
        if epoch not in self._plans:
            plan = self.batches.plan(self.seed, epoch)
            self._plans = {e: p for e, p in self._plans.items() if e == epoch - 1} | {epoch: plan}
        return self._plans[epoch]

    def cursors(self, cursor: Cursor) -> Iterator[tuple[Cursor, Cursor]]:
        """(this, next) for ever: of the whole plan, whoever reads which part of it."""
        while True:
            if cursor.batch >= len(self.plan(cursor.epoch)):
                cursor = Cursor(cursor.epoch + 1, 0)
                continue
            after = Cursor(cursor.epoch, cursor.batch + 1)
            yield cursor, after
            cursor = after

    def rows(self, part: int) -> range:
        """The streams of a part."""
        n = self.batches.rows
        return range(n * part // self.parts, n * (part + 1) // self.parts)

    def read(self, plan: Plan, cursor: Cursor, after: Cursor, place: int = 0) -> Item:
        """place: of the batch in its step."""
        fresh = cursor.batch == 0
        found = {}
        length = 1.0
        for part in self.own if self.batches.rows else [place]:
            if part not in self.own:
                return Item({}, (), fresh, after)
            if isinstance(plan, StreamPlan):
                rows = self.rows(part)
                cut: Any = plan.rows(cursor.batch, rows)
                usual = len(rows) * self.batches.usual
                length = cut.batch.ids.shape[0] / usual if usual else 1.0
            else:
                cut = plan.batch(cursor.batch)
            block = (part,) if self.batches.rows and part else ()
            rng = torch.Generator().manual_seed(derive_seed(self.seed, cursor.epoch, cursor.batch, *block))
            found[part] = self.learner.corrupt(cut, rng)
        return Item(found, [each.sizes() for each in found.values()], fresh, after, length)

    def items(self, cursor: Cursor) -> Generator[Item, None, None]:
        """Endless, from the first batch of a step on; closing the iterator ends its workers."""
        places = itertools.cycle(range(self.accumulate))
        if self.workers == 0:
            for place, (this, after) in zip(places, self.cursors(cursor), strict=False):
                yield self.read(self.plan(this.epoch), this, after, place)
            return
        with ThreadPoolExecutor(self.workers, thread_name_prefix="seqloom-data") as pool:
            waiting: deque[Future[Item]] = deque()
            try:
                for place, (this, after) in zip(places, self.cursors(cursor), strict=False):
                    waiting.append(pool.submit(self.read, self.plan(this.epoch), this, after, place))
                    if len(waiting) > 2 * self.workers:
                        yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
