"""Encoding a text word by word, each different word once.

Natural text repeats its words, so a table from a word (with the blanks before it) to its ids is many times faster than
running the tokenizer over everything. The ids are the same because text is cut only where no tokenizer of ours looks
across: before a plain blank that follows a non-blank character.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]

_BLANK = r" \t\n\r"
# white space to a Unicode regular expression, yet not a place to cut: some normalisers remove or keep it differently
_RARE = r"\x0b\x0c\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHUNK = re.compile(rf"[{_BLANK}]*[^{_BLANK}]+(?:(?<=[{_RARE}])[{_BLANK}]+[^{_BLANK}]*)*|[{_BLANK}]+")

LONGEST = 1 << 20  # characters; text without any blank is cut here, whatever stands there
_MAX_ENTRIES = 300_000
_MAX_CHARACTERS = 16 << 20


def chunks(text: str) -> list[str]:
    """The text cut before the blanks that follow a word; joined again they are the text."""
    found: list[str] = _CHUNK.findall(text)
    if len(text) > LONGEST and any(len(chunk) > LONGEST for chunk in found):
        return [chunk[i : i + LONGEST] for chunk in found for i in range(0, len(chunk), LONGEST)]
    return found


def pieces(text: str, size: int) -> Iterator[str]:
    """The text in stretches of about `size` characters, cut like `chunks`."""
    if len(text) <= size:
        yield text
        return
    start = 0
    while len(text) - start > size:
        match = _CHUNK.search(text, start + size)
        # the match may begin inside a word; its end is a safe place
        stop = match.end() if match else len(text)
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]


class ChunkTable:
    """Remembers the ids of every chunk seen, within a bound; one lock, so that threads may share it."""

    def __init__(self, encode: Callable[[Sequence[str]], list[list[int]]], unknown_id: int | None):
        self._encode, self._unknown_id = encode, unknown_id
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
        for chunk, ids in zip(missing, self._encode(missing), strict=True):
            number, end = len(self._index), self._used + len(ids)
            if end > self._flat.size:
                self._flat = _grown(self._flat, end)
            if number >= self._starts.size:
                self._starts, self._lengths = _grown(self._starts, number + 1), _grown(self._lengths, number + 1)
                self._unknown = _grown(self._unknown, number + 1)
            self._flat[self._used : end] = ids
            self._starts[number], self._lengths[number] = self._used, len(ids)
            self._unknown[number] = self._unknown_id in ids
            self._index[chunk] = number
            self._used = end
            self._characters += len(chunk)

    def _numbers(self, parts: list[str]) -> npt.NDArray[np.int64]:
        missing = set(parts).difference(self._index)
        if missing:
            self._add(list(missing))
        return np.fromiter(map(self._index.__getitem__, parts), np.int64, len(parts))

    def encode(self, texts: Sequence[str]) -> tuple[list[Ids], list[list[str]]]:
        """For each text its ids, and those of its chunks that hold an unknown token."""
        ids: list[Ids] = []
        strange: list[list[str]] = []
        with self._lock:
            if len(self._index) > _MAX_ENTRIES or self._characters > _MAX_CHARACTERS:
                self._clear()
            cut = [chunks(text) for text in texts]
            # one call for all new chunks: the Rust side works on them in parallel
            self._numbers([chunk for parts in cut for chunk in parts])
            for parts in cut:
                numbers = self._numbers(parts)
                lengths = self._lengths[numbers]
                ends = np.cumsum(lengths)
                total = int(ends[-1]) if parts else 0
                at = np.repeat(self._starts[numbers] - (ends - lengths), lengths) + np.arange(total)
                ids.append(self._flat[at])
                holds = np.flatnonzero(self._unknown[numbers]) if self._unknown_id is not None else ()
                strange.append([parts[i] for i in holds])
        return ids, strange


def _grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    grown = np.zeros(max(size, 2 * array.size), array.dtype)
    grown[: array.size] = array
    return grown
