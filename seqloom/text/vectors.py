"""Vectors of words in the text format of word2vec and GloVe: a line has a word and its numbers, separated by spaces.

A first line with two whole numbers, how many words and how many numbers each, is word2vec's header and is skipped. A word may
have spaces in it: the numbers are at the end of the line. Files may be compressed with gz, xz or zst.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from seqloom.errors import DataError
from seqloom.text.pairs import lines_with_errors


def read_vectors(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """The vectors of the wanted words, float32; the first if a word occurs twice. DataError with file:line."""
    found: dict[str, np.ndarray] = {}
    width = 0
    for number, (line, wrong) in enumerate(lines_with_errors(path), 1):
        place = f"{path}:{number}"
        if wrong is not None:
            raise DataError(f"{place}: {wrong}")
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            width = int(parts[1])
            continue
        width = width or len(parts) - 1
        if width < 1 or len(parts) <= width:
            raise DataError(
                f"{place}: {len(parts) - 1} numbers, but the first line has {width}: give a word and its numbers on each line"
            )
        word = " ".join(parts[:-width])
        if word not in wanted or word in found:
            continue
        try:
            vector = np.array(parts[-width:], np.float64).astype(np.float32)
        except ValueError:
            raise DataError(f"{place}: the word {word[:50]!r} is not followed by {width} numbers") from None
        if not np.isfinite(vector).all():
            raise DataError(f"{place}: a number of the word {word[:50]!r} is not finite")
        found[word] = vector
    if not width:
        raise DataError(f"{path}: no vectors: the file is empty")
    return found
