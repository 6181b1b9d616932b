"""By what left-to-right rows are ranked: bits per byte of text, nats per event of songs, which have no bytes."""

from collections.abc import Iterable
from typing import NamedTuple

from seqloom.comparison.records import HeldOutScores, Number


class TextMeasure(NamedTuple):
    """A ratio of sums over documents."""

    name: str  # of the column
    field: str  # of HeldOutScores
    total: str  # of the arrays with the scores of single documents: what is summed
    size: str  # and by what it is divided

    def of(self, scores: HeldOutScores) -> Number | None:
        found: Number | None = getattr(scores, self.field)
        return found

    def at(self, context: int) -> str:
        """The name of the column for all rows at the same context."""
        return f"{self.name} at {context:,} tokens of context"


BITS = TextMeasure("bits per byte", "bits_per_byte", "bits", "bytes")
EVENTS = TextMeasure("nats per event", "nats_per_event", "nats", "tokens")
NAMES = (BITS.name, EVENTS.name)  # with which the names of its columns begin


def text_measure(scores: Iterable[HeldOutScores]) -> TextMeasure:
    """That of a plan, all of whose rows learn from the same text."""
    return EVENTS if any(each.nats_per_event is not None for each in scores) else BITS
