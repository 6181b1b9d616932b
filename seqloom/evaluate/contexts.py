"""Contexts of words in a text, by which words of contextual models become vectors: the mean over some of them (Bommasani et al.,
2020, "Interpreting pretrained contextualized representations via reductions to static embeddings").

Of each word at most `most` occurrences are taken, in any case of letters, and so many characters around each as REACH. Which ones
follows from where they stand in the text alone: those whose place has the smallest pseudo-random number. So memory is bounded by
the number of words, and every model sees the same contexts.
"""

import heapq
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from seqloom.errors import UsageError
from seqloom.progress import Progress
from seqloom.randomness import derive_seed
from seqloom.text.read import Reader

REACH = 120  # characters to either side
LARGEST = 1000  # contexts of a word
WORD = re.compile(r"\w+(?:['’-]\w+)*")


class Occurrence(NamedTuple):
    """A word in its context: characters start … stop − 1 of the text are the word."""

    text: str
    start: int
    stop: int


class Contexts:
    """Where contexts are found. path: a text, as `prepare` reads it; most: of each word."""

    def __init__(self, path: Path, most: int):
        if not path.is_file():
            raise UsageError(f"--contexts {path}: no such file: name a text in which words are looked up")
        if not 1 <= most <= LARGEST:
            raise UsageError(f"--num-contexts {most}: between 1 and {LARGEST:,} contexts of a word are read")
        self.path, self.most = path, most

    def find(self, words: Collection[str]) -> dict[str, list[Occurrence]]:
        """Contexts of each word, in the order of the text; none of a word that does not occur."""
        with Progress("find contexts", total=float(self.path.stat().st_size), unit="B") as bar:
            reader = Reader(self.path)

            def texts() -> Iterator[str]:
                for document in reader:
                    bar.done = float(reader.position())
                    bar.advance(0)
                    yield document.text

            return sample(texts(), words, self.most)


def sample(texts: Iterable[str], words: Collection[str], most: int) -> dict[str, list[Occurrence]]:
    chosen: dict[str, list[tuple[int, int, Occurrence]]] = {word.lower(): [] for word in words}
    place = 0
    for text in texts:
        for match in WORD.finditer(text):
            place += 1
            kept = chosen.get(match.group().lower())
            if kept is None:
                continue
            rank = -derive_seed(place)  # the largest number is on top of the heap, and leaves it first
            if len(kept) < most:
                heapq.heappush(kept, (rank, place, cut_out(text, match.start(), match.end())))
            elif rank > kept[0][0]:
                heapq.heapreplace(kept, (rank, place, cut_out(text, match.start(), match.end())))
    found = {key: [each for _, _, each in sorted(kept, key=lambda row: row[1])] for key, kept in chosen.items()}
    return {word: found[word.lower()] for word in words}


def cut_out(text: str, start: int, stop: int) -> Occurrence:
    """With the words around it, none of which is cut."""
    first, last = max(start - REACH, 0), min(stop + REACH, len(text))
    while first and first < start and not text[first - 1].isspace():
        first += 1
    while last < len(text) and last > stop and not text[last].isspace():
        last -= 1
    return Occurrence(text[first:last], start - first, stop - first)
