"""Encoding a text word by word, each different word once.

Natural text repeats its words, so a table from a word (with the blanks before it) to its ids is many times faster than
running the tokenizer over everything. The ids are the same because text is cut only where no tokenizer of ours looks
across: before a plain blank that follows a non-blank character.

Work is bounded for any text. Runs of letters and digits, or of punctuation, are encoded in pieces of at most RUN
characters, and without a blank for LONGEST characters a text is cut there, wherever that is. Vocabularies are learnt from runs of
at most WORD characters: the trainers' work grows with the square of a word.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]

_BLANK = r" \t\n\r"
# white space to a Unicode regular expression, yet not a place to cut: some normalisers remove or keep it differently
_RARE = r"\x0b\x0c\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHUNK = re.compile(rf"[{_BLANK}]*[^{_BLANK}]+(?:(?<=[{_RARE}])[{_BLANK}]+[^{_BLANK}]*)*|[{_BLANK}]+")
# a tokenizer that separates words from punctuation can be split there, too: word, "word and word," then share an entry
_FINE = re.compile(rf"[{_BLANK}]*(?:[A-Za-z]+(?=[,.;:!?)\"])|[\"(]+(?=[A-Za-z]))|" + _CHUNK.pattern)

LONGEST = 1 << 20  # characters; text without any space is split here, even inside a word
RUN = 1 << 15  # characters of a run of letters and digits, or of punctuation, that are encoded at once
WORD = 256  # characters of such a run that a vocabulary is learnt from
_RUN = re.compile(r"\w++|[^\w\s]++")
FEW = 16  # chunks of a text that are looked up one by one
_MAX_ENTRIES = 400_000
_MAX_CHARACTERS = 16 << 20


def chunks(text: str, fine: bool = False) -> list[str]:
    """The text cut before the blanks that follow a word (and, if `fine`, beside punctuation); joined they are the text."""
    found: list[str] = (_FINE if fine else _CHUNK).findall(text)
    if len(text) > RUN and max(map(len, found)) > RUN:
        short = chain.from_iterable(with_words_cut(chunk, RUN) if len(chunk) > RUN else (chunk,) for chunk in found)
        return [chunk[i : i + LONGEST] for chunk in short for i in range(0, len(chunk), LONGEST)]
    return found


def pieces(text: str, size: int) -> Iterator[str]:
    """The text in stretches of about `size` characters, cut like `chunks`."""
    if len(text) <= size:
        yield text
        return
    start = 0
    while len(text) - start > size:
        match = _CHUNK.search(text, start + size)
        # the match may begin inside a word; its end is a safe place, unless it is too far
        stop = min(match.end() if match else len(text), start + size + LONGEST)
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


def has_long_word(text: str) -> bool:
    return len(text) > WORD and max(map(len, text.split()), default=0) > WORD


def with_words_cut(text: str, limit: int) -> Iterator[str]:
    """The text, cut within runs of letters and digits, or of anything else but blanks, that are longer than the limit."""
    start = 0
    for run in _RUN.finditer(text):
        for place in range(run.start() + limit, run.end(), limit):
            yield text[start:place]
            start = place
    yield text[start:]


class ChunkTable:
    """Remembers the ids of every chunk seen, within a bound; one lock, so that threads may share it."""

    def __init__(self, encode: Callable[[Sequence[str]], list[list[int]]], unknown_id: int | None, fine: bool):
        self._encode, self._unknown_id, self._fine = encode, unknown_id, fine
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._index: dict[str, int] = {}
        self._characters = 0
        self._flat = np.zeros(1 << 12, np.uint32)
        self._used = 0
        self._starts = np.zeros(1 << 10, np.int64)
        self._lengths = np.zeros(1 << 10, np.int64)
        self._unknown = np.zeros(1 << 10, np.bool_)

    def _add(self, missing: list[str]) -> None:
        rows = self._encode(missing)
        first, count = len(self._index), len(missing)
        lengths = np.fromiter(map(len, rows), np.int64, count)
        flat = np.fromiter(chain.from_iterable(rows), np.uint32, int(lengths.sum()))
        ends = np.cumsum(lengths)
        if first + count > self._starts.size:
            self._starts, self._lengths = grow(self._starts, first + count), grow(self._lengths, first + count)
            self._unknown = grow(self._unknown, first + count)
        if self._used + flat.size > self._flat.size:
            self._flat = grow(self._flat, self._used + flat.size)
        self._flat[self._used : self._used + flat.size] = flat
        self._starts[first : first + count] = self._used + ends - lengths
        self._lengths[first : first + count] = lengths
        if self._unknown_id is not None:
            self._unknown[first : first + count] = [self._unknown_id in row for row in rows]
        self._used += flat.size
        self._index.update(zip(missing, range(first, first + count), strict=True))
        self._characters += sum(map(len, missing))

    @property
    def is_busy(self) -> bool:
        """Whether another thread encodes: whoever comes waits for it."""
        return self._lock.locked()

    def cut(self, text: str) -> list[str]:
        """Pieces that can be encoded separately."""
        return chunks(text, self._fine)

    def encode(self, texts: Sequence[str]) -> tuple[list[Ids], list[list[str]]]:
        """The ids of each text, and those of its chunks that contain an unknown token."""
        with self._lock:
            if len(self._index) > _MAX_ENTRIES or self._characters > _MAX_CHARACTERS:
                self._clear()
            cut = [self.cut(text) for text in texts]
            parts = list(chain.from_iterable(cut))
            # one call for all new chunks: the Rust side works on them in parallel
            missing = set(parts).difference(self._index)
            if missing:
                self._add(list(missing))
            if len(texts) == 1 and len(parts) <= FEW:
                return self._join(parts)
            numbers = np.fromiter(map(self._index.__getitem__, parts), np.int64, len(parts))
            lengths, starts = self._lengths[numbers], self._starts[numbers]
            ends = np.cumsum(lengths)
            at = np.repeat(starts - (ends - lengths), lengths) + np.arange(int(lengths.sum()))
            flat = self._flat[at]
            unknown = self._unknown[numbers]
        stops = np.cumsum([0, *map(len, cut)])
        borders = np.concatenate([[0], ends])[stops]
        ids = [flat[a:b] for a, b in pairwise(borders.tolist())]
        if self._unknown_id is None:
            return ids, [[] for _ in texts]
        return ids, [
            [parts[i] for i in (np.flatnonzero(unknown[a:b]) + a).tolist()] for a, b in pairwise(stops.tolist())
        ]

    def _join(self, parts: list[str]) -> tuple[list[Ids], list[list[str]]]:
        """`encode` of one text of a few chunks, all of them known: for those, arrays cost more than they save."""
        numbers = [self._index[part] for part in parts]
        places = [(int(self._starts[i]), int(self._lengths[i])) for i in numbers]
        ids = [np.concatenate([self._flat[a : a + n] for a, n in places])] if parts else [self._flat[:0].copy()]
        return ids, [[part for part, i in zip(parts, numbers, strict=True) if self._unknown[i]]]


def grow(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    larger = np.zeros(max(size, 2 * array.size), array.dtype)
    larger[: array.size] = array
    return larger
