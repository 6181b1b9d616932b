"""Ids of rows that were read, to find those that repeat: 16 bytes for each at a third to two thirds of the room, not its text.

An id is known by 64 bits of it. Two different ids out of four million are taken for one another with a probability of 5 in ten
million.
"""

from array import array

from seqloom.progress import say

MASK = (1 << 64) - 1
LINE_BITS = 40  # of a place: the line, below the number of the file
FIRST_SIZE = 1 << 10  # slots of the first table; a power of two


class SeenIds:
    """A hash table of ids and the places of their first rows. limit: the number of ids that are remembered; None: all."""

    def __init__(self, limit: int | None = None):
        self.limit, self.count = limit, 0
        self.files: list[str] = []
        self.keys, self.places = empty(FIRST_SIZE), empty(FIRST_SIZE)
        self.repeated = self.unchecked = 0  # rows with an id that was there; rows whose id was not remembered
        self.first_repeated = ""

    def find_or_add(self, id: str | int, place: str) -> str | None:
        """Where the id was before, as file:line; None if it was not, and then it is remembered. place: file:line of this row."""
        key = hash(str(id)) & MASK or 1  # 0 is an empty slot
        slot = self._slot(key)
        if self.keys[slot]:
            self.repeated += 1
            self.first_repeated = self.first_repeated or place
            number = self.places[slot]
            return f"{self.files[number >> LINE_BITS]}:{number & ((1 << LINE_BITS) - 1)}"
        if self.limit is not None and self.count >= self.limit:
            self.unchecked += 1
            return None
        path, _, line = place.rpartition(":")
        if not self.files or self.files[-1] != path:
            self.files.append(path)
        self.keys[slot], self.places[slot] = key, (len(self.files) - 1) << LINE_BITS | int(line)
        self.count += 1
        if 3 * self.count > 2 * len(self.keys):
            self._grow()
        return None

    def say(self) -> None:
        """Says how many ids repeat, and how many could not be checked."""
        if self.repeated:
            say(f"{self.repeated:,} rows have the id of an earlier row (first: {self.first_repeated})")
        if self.unchecked:
            say(
                f"{self.unchecked:,} rows come after {self.count:,} different ids, which is as many as are remembered: their ids "
                "were not checked for repeats among themselves"
            )

    def _slot(self, key: int) -> int:
        """The slot of a key, or the empty one where it belongs."""
        last = len(self.keys) - 1
        slot = key & last
        while self.keys[slot] and self.keys[slot] != key:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        keys, places = self.keys, self.places
        self.keys, self.places = empty(2 * len(keys)), empty(2 * len(keys))
        for key, place in zip(keys, places, strict=True):
            if key:
                slot = self._slot(key)
                self.keys[slot], self.places[slot] = key, place


def empty(size: int) -> "array[int]":
    return array("Q", bytes(8)) * size
