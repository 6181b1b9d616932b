"""Work on many items, such as the batches of an evaluation, shared by several processes.

Each computes every N-th item, and all get what was found in all of them, in the order of the items: what is added up from it has
the same bits on any number of processes.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from seqloom.errors import Interrupted
from seqloom.training.ranks import Ranks

T = TypeVar("T")


class Share:
    """All of the work, by one process."""

    world = 1

    def __init__(self, stop: Callable[[], None] = lambda: None):
        """stop: raises Interrupted where a signal has asked the process to stop. Long items call it, too."""
        self.stop = stop

    def each(self, many: int, compute: Callable[[int], T]) -> Iterator[T]:
        """What is found in the items 0 … many − 1, in that order; something that JSON can say."""
        for item in range(many):
            self.stop()
            yield compute(item)


ALONE = Share()


class SharedByRanks(Share):
    """The share of one of several ranks. All of them go through the same items, and leave off at the same one."""

    def __init__(self, ranks: Ranks, stop: Callable[[], None]):
        super().__init__(stop)
        self.ranks, self.world = ranks, ranks.world

    def each(self, many: int, compute: Callable[[int], T]) -> Iterator[T]:
        for begin in range(0, many, self.world):
            item, found, stopped = begin + self.ranks.rank, None, False
            try:
                self.stop()
                found = compute(item) if item < many else None
            except Interrupted:  # all are told, and all stop
                stopped = True
            rows: list[Any] = self.ranks.gather_values([stopped, found])
            if any(row[0] for row in rows):
                raise Interrupted("stopped")
            for row in rows[: many - begin]:
                yield row[1]


def share_of(ranks: Ranks, stop: Callable[[], None] = lambda: None) -> Share:
    return Share(stop) if ranks.world == 1 else SharedByRanks(ranks, stop)
