"""Where the whole sentences of a text begin and end.

Finding them takes about a second for every million words, and every run on pairs of sentences needs them. So they are kept beside
a large prepared split, once they were found, in a file that is a shortcut and nothing more: where it is missing or damaged, or
was made by other rules or of other text, they are found again.
"""

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seqloom.batches.store import Split
from seqloom.errors import SeqloomError
from seqloom.files import write_bytes
from seqloom.text import sentences as in_text
from seqloom.tokens import words as in_tokens

LARGE = 1 << 20  # tokens: in a smaller split they are found in a second, and a folder that is only read stays as it is

Find = Callable[[np.ndarray], np.ndarray]  # (T,) a document → (S, 2) where its whole sentences begin and end


class Documents(Protocol):
    """A Split, or documents in memory."""

    @property
    def offsets(self) -> np.ndarray: ...
    @property
    def num_documents(self) -> int: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...


class Borders(NamedTuple):
    """The sentences of all documents, in their order."""

    spans: np.ndarray  # (S, 2) places in the split: the first token of each sentence, and the one behind its last
    counts: np.ndarray  # (D,) how many each document has


def find_borders(split: Documents, find: Find) -> Borders:
    found, counts = [], np.zeros(split.num_documents, np.int64)
    for document, (start, stop) in enumerate(pairwise(split.offsets.tolist())):
        here = find(split.read(start, stop - 1)) + start  # the end token belongs to no sentence
        counts[document] = len(here)
        found.append(here)
    return Borders(np.concatenate(found) if found else np.zeros((0, 2), np.int64), counts)


def keep_borders(split: Split, find: Find) -> Borders:
    """The same; of a large split read from the file of an earlier call if there is one, else written to it where possible."""
    if split.num_tokens < LARGE:
        return find_borders(split, find)
    path, key = split.sentences_file, content_key(split)
    kept = read_borders(path, key, split)
    if kept is not None:
        return kept
    found = find_borders(split, find)
    record = {name: np.ascontiguousarray(values, np.int64) for name, values in found._asdict().items()}
    with suppress(SeqloomError, OSError):  # a folder that belongs to somebody else, a full disk
        write_bytes(path, save(record, {"of": key}))
    return found


def content_key(split: Split) -> str:
    """Names the tokens of a split and the rules by which sentences are found in them."""
    digest = hashlib.sha256()
    for part in (*(shard.sha256 for shard in split.entry.shards), *map(inspect.getsource, (in_text, in_tokens))):
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()


def read_borders(path: Path, key: str, split: Split) -> Borders | None:
    try:
        with safe_open(path, "numpy") as file:
            if (file.metadata() or {}).get("of") != key:
                return None
            found = Borders(file.get_tensor("spans"), file.get_tensor("counts"))
    except (OSError, SafetensorError):
        return None
    return found if fits(found, split) else None


def fits(found: Borders, split: Split) -> bool:
    """Whether each document has so many sentences, one behind the other, within it."""
    spans, counts = found
    if (
        spans.dtype != np.int64
        or counts.dtype != np.int64
        or spans.shape[1:] != (2,)
        or counts.shape != (split.num_documents,)
    ):
        return False
    if (counts < 0).any() or counts.sum() != len(spans):
        return False
    owner = np.repeat(np.arange(len(counts)), counts)
    flat = spans.ravel()
    inside = (spans[:, 0] >= split.offsets[owner]) & (spans[:, 1] < split.offsets[owner + 1])
    return bool(inside.all() and (spans[:, 0] < spans[:, 1]).all() and (np.diff(flat) >= 0).all())
