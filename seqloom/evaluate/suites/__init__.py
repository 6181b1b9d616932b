"""Suites: published sets of questions to any language model, each read from its published files.

A suite gives figures and "items", a number for each of its items in the order of the files: 1, ½ or 0, and of similarity a
product of two ranks. The order is the same for every model, so that two can be compared item by item. The accuracy of every
suite, or its correlation, is the mean of its items: what is concluded from items is about the number that is shown.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.config import unknown_name
from seqloom.errors import UsageError
from seqloom.evaluate.suites.agreement import read_agreement, score_agreement
from seqloom.evaluate.suites.analogies import read_analogies, score_analogies
from seqloom.evaluate.suites.copy import read_copy, score_copy
from seqloom.evaluate.suites.lambada import read_lambada, score_lambada
from seqloom.evaluate.suites.minimal import read_minimal, score_minimal_pairs
from seqloom.evaluate.suites.similarity import read_similarity, score_similarity
from seqloom.files import replace_file, write_bytes

Asks = Literal["sentences", "words", "continuations", "vectors"]


class Suite(NamedTuple):
    # the scores of whole sentences; of words in their place; what comes next, which some models cannot predict; vectors of words
    asks: Asks
    read: Callable[[Path], Any]  # its files
    measure: Callable[[Any, Any], dict[str, Any]]  # what was read, and whoever is asked
    sets: Callable[[Any], list[str]] | None = None  # the set that each item belongs to: its items are alike


SUITES = {
    "blimp": Suite("sentences", read_minimal, score_minimal_pairs, lambda pairs: [pair.group for pair in pairs]),
    "agreement": Suite("words", read_agreement, lambda read, ask: score_agreement(read[0], read[1], ask)),
    "lambada": Suite("continuations", read_lambada, score_lambada),
    "copy": Suite("continuations", read_copy, score_copy),
    "analogies": Suite("vectors", read_analogies, score_analogies, lambda read: [each.section for each in read]),
    "similarity": Suite("vectors", read_similarity, score_similarity, lambda read: [each.group for each in read]),
}


def find_suite(name: str) -> Suite:
    if name not in SUITES:
        raise UsageError(unknown_name("suite", name, name, list(SUITES)))
    return SUITES[name]


def write_items(path: Path, items: Sequence[float], groups: Sequence[str] | None = None) -> None:
    """groups: the set that each item belongs to."""
    if path.suffix == ".jsonl":
        rows: list[dict[str, Any]] = [{"item": i, "score": x} for i, x in enumerate(items)]
        for row, group in zip(rows, groups or (), strict=False):
            row["group"] = group
        write_bytes(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        return
    write_arrays(path, {"items": np.array(items)} | ({} if groups is None else {"groups": np.array(groups)}))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an .npz file, whole or not at all."""

    def write(file: Path) -> None:
        with open(file, "wb") as opened:  # given a name numpy would add an ending of its own
            np.savez(opened, **arrays)  # type: ignore[arg-type]

    replace_file(path, write)
