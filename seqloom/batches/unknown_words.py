"""The spelling of unknown words in a prepared text: all are one token, but some models read their characters.

A shard has a third file, NAME.words.bin: its unknown words in the order of their tokens, UTF-8, a line break after each.
"""

from pathlib import Path

import numpy as np

from seqloom.errors import DataError
from seqloom.files import explained
from seqloom.tokens.spelling import Characters, spell


class UnknownWords:
    """The unknown words of one shard. place: the positions of its unknown tokens."""

    def __init__(self, path: Path, ids: np.ndarray, unk_id: int, longest: int):
        with explained(path):
            words = path.read_bytes().split(b"\n")[:-1]
        self.place = np.flatnonzero(ids == unk_id)
        if len(words) != len(self.place):
            raise DataError(
                f"{path} has {len(words):,} words but the shard has {len(self.place):,} unknown tokens: it is damaged, "
                "prepare the data again"
            )
        kinds: dict[bytes, int] = {}
        self.kind = np.array([kinds.setdefault(word, len(kinds)) for word in words], np.int64)
        self.rows = spell(kinds, longest)

    def at(self, places: np.ndarray) -> Characters:
        return self.rows[self.kind[np.searchsorted(self.place, places)]]


def words_file(words: list[str]) -> bytes:
    return b"".join(word.encode() + b"\n" for word in words)
