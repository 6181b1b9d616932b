"""Texts made by a rule, to see whether a model can follow it. Nothing is downloaded.

copy    0 w 0 w: a word w of random symbols 1 … S, twice, each after a 0. The second half follows from the first, the first from
        nothing: what is right there is chance. Kitaev et al., 2020 (arXiv 2001.04451).
"""

from pathlib import Path

import numpy as np

from seqloom.files import write_bytes


def copy_texts(count: int, length: int, symbols: int, seed: int) -> np.ndarray:
    """(count, 2 · (length + 1)) numbers of symbols."""
    words = np.random.default_rng(seed).integers(1, symbols + 1, (count, length))
    half = np.pad(words, ((0, 0), (1, 0)))
    return np.concatenate((half, half), 1)


def write_copy_texts(path: Path, count: int, length: int, symbols: int, seed: int) -> int:
    """As plain text, one a line, a blank between symbols; returns the number of texts."""
    rows = copy_texts(count, length, symbols, seed)
    write_bytes(path, "".join(" ".join(map(str, row)) + "\n" for row in rows.tolist()).encode())
    return len(rows)
