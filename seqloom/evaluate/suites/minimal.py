"""Minimal pairs: of two sentences that differ in one point, does a model find the grammatical one likelier?

BLiMP (Warstadt et al., 2020, arXiv 1912.00582): 67 sets of 1,000 pairs. The accuracy, of a set as of the whole, is the share of
pairs whose good sentence has the higher score; a pair with equal scores counts half. That of a phenomenon or field is the mean
over its sets. In BLiMP, whose sets are of one size, the whole is the mean over sets, too, as it is published. Scores are sums
over tokens, not divided by length.
"""

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.files import parse_json
from seqloom.progress import Progress
from seqloom.text.pairs import lines
from seqloom.text.read import file_format

NAMES = (("sentence_good", "sentence_bad"), ("good", "bad"))  # as published, and as some copies have it
PHENOMENA = ("linguistics_term", "phenomenon", "term")
AT_ONCE = 4096  # sentences
EQUAL = 1e-6  # scores closer than this share of them are one number, added up in another order


class MinimalPair(NamedTuple):
    good: str
    bad: str
    place: str  # file:line
    group: str  # the set: its UID, else the name of its file
    phenomenon: str | None
    field: str | None


def read_minimal(path: Path) -> list[MinimalPair]:
    """All pairs of a file, or of the .jsonl files in a folder."""
    paths = files_in(path, ".jsonl", lambda file: file_format(file) == "jsonl")
    found = [pair for file in paths for pair in _rows(file)]
    if not found:
        raise DataError(f"{path}: no pair of sentences in it")
    return found


def files_in(path: Path, ending: str, fits: Callable[[Path], bool]) -> list[Path]:
    """A file itself, or those of a folder that fit, by their names."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.is_file() and fits(file))
    if not found:
        raise DataError(f"{path}: no {ending} file in this folder, nor a packed one (.gz, .xz, .zst)")
    return found


def _rows(path: Path) -> Iterator[MinimalPair]:
    for number, line in enumerate(lines(path), 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: no valid JSON ({error})") from error
        names = next((pair for pair in NAMES if isinstance(row, dict) and row.keys() >= set(pair)), None)
        if names is None:
            raise DataError(f'{place}: no object with "sentence_good" and "sentence_bad" (or "good" and "bad")')
        good, bad = (row[name] for name in names)
        for name, sentence in zip(names, (good, bad), strict=True):
            if not isinstance(sentence, str) or not sentence.strip():
                raise DataError(f'{place}: "{name}" is no sentence: {json.dumps(sentence)[:40]}')
        group = _label(row, ("UID",)) or path.name.partition(".")[0]
        field = _label(row, ("field",))  # one of them is written in two ways in BLiMP's own files
        yield MinimalPair(good, bad, place, group, _label(row, PHENOMENA), field and field.replace("/", "_"))


def _label(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str) and row[name]), None)


Score = Callable[[Sequence[str], Sequence[str]], list[float]]  # sentences, and where they stand, for messages


def score_minimal_pairs(pairs: Sequence[MinimalPair], score: Score) -> dict[str, Any]:
    places: dict[str, str] = {}  # every sentence once
    for pair in pairs:
        for sentence in (pair.good, pair.bad):
            places.setdefault(sentence, pair.place)
    order = sorted(places, key=len)
    found: dict[str, float] = {}
    with Progress("minimal pairs", total=float(len(order)), unit="sentences") as bar:
        for i in range(0, len(order), AT_ONCE):
            part = order[i : i + AT_ONCE]
            found |= zip(part, score(part, [places[sentence] for sentence in part]), strict=True)
            bar.advance(len(part))
    points = [won(found[pair.good], found[pair.bad]) for pair in pairs]
    groups: dict[str, list[float]] = {}
    for pair, point in zip(pairs, points, strict=True):
        groups.setdefault(pair.group, []).append(point)
    accuracy = {name: mean(some) for name, some in groups.items()}
    result: dict[str, Any] = {
        "accuracy": mean(points),
        "pairs": len(pairs),
        "ties": points.count(0.5),
        "sets": len(groups),
    }
    for kind in ("field", "phenomenon"):
        members = sorted({(label, pair.group) for pair in pairs if (label := getattr(pair, kind)) is not None})
        by = itertools.groupby(members, key=lambda member: member[0])
        result[f"by_{kind}"] = {label: mean([accuracy[group] for _, group in some]) for label, some in by}
    return result | {"by_set": dict(sorted(accuracy.items())), "items": points}


def won(good: float, bad: float) -> float:
    return 0.5 if math.isclose(good, bad, rel_tol=EQUAL) else float(good > bad)


def mean(values: Collection[float]) -> float:
    return sum(values) / len(values)
