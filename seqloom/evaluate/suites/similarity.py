"""How alike are two words? Cosines of vectors against what people said, by the correlation of ranks (Spearman).

A file has two words and a number on each line, separated by tabs, blanks or commas; a folder of such files is several sets.

spearman         the mean of the items. An item is the product of its two standardised ranks in its set, 0 where the model does
                 not know a word; so the mean over the known pairs of a set is Spearman's ρ, and no model is ahead by knowing
                 fewer words
spearman_known   ρ of the known pairs, the mean over the sets: what papers report
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.evaluate.suites.analogies import Ask
from seqloom.evaluate.suites.minimal import mean
from seqloom.metrics.labels import ranks
from seqloom.text.pairs import lines

SEPARATOR = re.compile(r"[\t ,;]+")


class RatedPair(NamedTuple):
    first: str
    second: str
    rating: float
    group: str


def read_similarity(path: Path) -> list[RatedPair]:
    files = (
        sorted(each for each in path.iterdir() if each.suffix in (".tsv", ".txt", ".csv")) if path.is_dir() else [path]
    )
    found = [pair for file in files for pair in read_set(file)]
    if not found:
        raise DataError(f"{path}: no pairs of words in it (two words and a number on each line)")
    return found


def read_set(path: Path) -> list[RatedPair]:
    found = []
    for number, line in enumerate(lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = SEPARATOR.split(line.strip())
        try:
            rating = float(parts[2])
            if not np.isfinite(rating):
                raise ValueError
        except (IndexError, ValueError):
            if number == 1:  # the names of the columns
                continue
            raise DataError(f"{path}:{number}: no two words and a number: {line.strip()[:60]!r}") from None
        found.append(RatedPair(parts[0], parts[1], rating, path.name.partition(".")[0]))
    return found


def standardised_ranks(values: np.ndarray) -> np.ndarray:
    found = ranks(values)
    spread = found.std()
    return (found - found.mean()) / spread if spread else np.zeros_like(found)


def score_similarity(pairs: Sequence[RatedPair], ask: Ask) -> dict[str, Any]:
    asked = ask(sorted({word for pair in pairs for word in (pair.first, pair.second)}), False)
    similar = np.full(len(pairs), np.nan)
    for i, pair in enumerate(pairs):
        a, b = asked.vectors[pair.first], asked.vectors[pair.second]
        if a is not None and b is not None:
            similar[i] = a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-30)
    ratings = np.array([pair.rating for pair in pairs])
    groups: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        groups.setdefault(pair.group, []).append(i)
    items, by_set = np.zeros(len(pairs)), {}
    for name, members in groups.items():
        known = [i for i in members if not np.isnan(similar[i])]
        if len(known) > 1:
            items[known] = standardised_ranks(similar[known]) * standardised_ranks(ratings[known])
            by_set[name] = float(items[known].mean())
    found: dict[str, Any] = {"spearman": mean(items.tolist())}
    if by_set:
        found["spearman_known"] = mean(list(by_set.values()))
    found |= {"pairs": len(pairs), "unknown": int(np.isnan(similar).sum()), "sets": len(groups)}
    return found | {"by_set": by_set, "items": items.tolist()}
