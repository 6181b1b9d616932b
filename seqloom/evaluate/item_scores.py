"""Scores of single items from files made anywhere, for tests of significance.

    .jsonl .csv .tsv   rows with "id" and "score", and if there are any "seed" and "group" (items of a group are alike)
    .jsonl .npz        what `evaluate --items` writes, and results/ROW/seed-N.npz of a comparison
    samples_*.jsonl    samples of the lm-evaluation-harness ("doc_id", and a number for each of the "metrics"); tasks are groups
    .json              predictions of BabyLM, {task: {subtask: {"predictions": [{"id", "pred"}, …]}}}; they need the files with
                       the gold answers, and subtasks are groups

A system is one file a seed, one with a seed in each row, or folders of such files. What is wrong is said with file and line.
"""

import math
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError, UsageError
from seqloom.files import parse_json
from seqloom.text.read import file_extension, file_format
from seqloom.text.stream import InputFile
from seqloom.text.tables import fields_of, read_objects, rows_of

SAMPLES = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?\.jsonl")
GOLD = ("sentence_good", "Target1", "label")  # fields of BabyLM's files: minimal pairs, EWoK, GLUE
KNOWN = ("acc", "exact_match", "f1", "em", "mcc")  # metrics of older samples, which do not list them
SHOWN = 3  # ids in a message


class ItemScore(NamedTuple):
    id: str
    score: float
    place: str  # file:line
    seed: str | None = None
    group: str | None = None
    content: str | None = None  # a hash of what was asked


class Choice(NamedTuple):
    """What is read of files that hold more than one score an item."""

    metric: str | None = None  # a column, a metric of the harness, an array of an .npz
    filter: str | None = None  # of the harness
    gold: Path | None = None  # the files with the gold answers


EVERYTHING = Choice()


@dataclass(frozen=True)
class System:
    name: str
    seeds: Mapping[str, Mapping[str, ItemScore]]  # by seed and id
    metric: str
    has_tasks: bool  # its groups are tasks of the harness

    @property
    def ids(self) -> list[str]:
        return list(next(iter(self.seeds.values())))

    def scores(self, ids: Sequence[str]) -> np.ndarray:
        """(S, n)"""
        return np.array([[items[each].score for each in ids] for items in self.seeds.values()])


# ---- systems


def read_system(text: str, choice: Choice = EVERYTHING) -> System:
    """text: [NAME=]PATH[,PATH…]; a path may have wildcards. Each path is a seed, unless rows have their own."""
    name, rest = split_name(text)
    given = [rest] if Path(rest).exists() else rest.split(",")
    found = [path for part in given if part for path in expand(part)]
    if not found:
        raise UsageError(f"{text!r} names no file: give PATH, PATH,PATH or NAME=PATH")
    parts = [seed for path in found for seed in seeds_in(path)]
    files = [(str(part), file) for part in parts for file in files_of(part)]
    seeds, metrics = collect_items(files, choice)
    if not seeds:
        raise DataError(f"{', '.join(map(str, parts))}: no item in it")
    check_seeds([item for items in seeds.values() for item in items.values()])
    same_items({f"seed {seed}": items for seed, items in seeds.items()}, f"{name or rest}: ")
    has_tasks = any(SAMPLES.fullmatch(file.name) for _, file in files)
    return System(name or Path(given[0]).name.split(".")[0] or given[0], seeds, "/".join(sorted(metrics)), has_tasks)


def split_name(text: str) -> tuple[str, str]:
    """The name of a system, empty where none is given, and its paths."""
    named = re.match(r"[^/\\=]+=", text) is not None and not Path(text).exists()
    name, _, paths = text.partition("=") if named else ("", "", text)
    return name, paths


def collect_items(
    files: Iterable[tuple[str, Path]], choice: Choice
) -> tuple[dict[str, dict[str, ItemScore]], set[str]]:
    """The items of each seed by their ids, and the names of their scores. files: each with the seed of rows that have none."""
    seeds: dict[str, dict[str, ItemScore]] = {}
    metrics = set()
    for seed, file in files:
        for metric, item in read_items(file, choice):
            metrics.add(metric)
            items = seeds.setdefault(seed if item.seed is None else item.seed, {})
            if item.id in items:
                raise DataError(
                    f"{item.place}: the id {item.id!r} is also at {items[item.id].place}: "
                    "give each item once, or rows with a seed, or choose a --filter of the harness"
                )
            items[item.id] = item
    return seeds, metrics


def check_seeds(items: Sequence[ItemScore]) -> None:
    """Raises DataError where some rows have a seed and others have none."""
    without = [item for item in items if item.seed is None]
    if without and len(without) < len(items):
        raise DataError(f'{without[0].place}: no "seed", but other rows have one: give it in all rows or in none')


def expand(part: str) -> list[Path]:
    if not re.search(r"[*?\[]", part) or Path(part).exists():
        if not Path(part).exists():
            raise DataError(f"{part}: no such file or folder: check the name")
        return [Path(part)]
    anchor = Path(part).anchor
    found = sorted(Path(anchor or ".").glob(str(Path(part).relative_to(anchor)) if anchor else part))
    if not found:
        raise DataError(f"{part}: no file has such a name")
    return found


def seeds_in(path: Path) -> list[Path]:
    """The files or folders of a folder that are a seed each. The samples of the harness in one folder are one seed's."""
    if not path.is_dir():
        return [path]
    files = readable(path)
    if any(SAMPLES.fullmatch(file.name) for file in files):
        return [path]
    found = files or [seed for each in sorted(path.iterdir()) if each.is_dir() for seed in seeds_in(each)]
    if not found:
        raise DataError(f"{path}: no file with scores of items in this folder: give .jsonl, .csv, .tsv, .npz or .json")
    return found


def files_of(path: Path) -> list[Path]:
    return [file for file in readable(path) if SAMPLES.fullmatch(file.name)] if path.is_dir() else [path]


def readable(folder: Path) -> list[Path]:
    """Of the first kind that there is: a comparison has records beside its arrays, the harness results beside its samples."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    for kinds in (("npz",), ("jsonl", "ndjson", "csv", "tsv"), ("json",)):
        if found := [file for file in files if file_extension(file) in kinds]:
            return found
    return []


# ---- files


def read_items(path: Path, choice: Choice) -> Iterator[tuple[str, ItemScore]]:
    """The items of a file, each with the name of its score."""
    ending = file_extension(path)
    if ending == "npz":
        return read_arrays(path, choice)
    if ending == "json":
        return read_predictions(path, choice)
    if file_format(path) != "jsonl" and ending not in ("csv", "tsv"):
        raise DataError(f"{path}: not a .jsonl, .csv, .tsv, .npz or .json file: give scores in one of these formats")
    return read_rows(path, choice)


def read_rows(path: Path, choice: Choice) -> Iterator[tuple[str, ItemScore]]:
    name = choice.metric or "score"
    for place, row in rows_of(path, ["id", name.lower()]):
        try:
            fields = fields_of(row)
            if "doc_id" in fields:
                if (found := sample_of(fields, place, path, choice)) is not None:
                    yield found
                continue
            key = "item" if "item" in fields and "id" not in fields else "id"
            column = name if name in fields else name.lower()
            yield (
                name,
                ItemScore(
                    required(fields, key),
                    number(fields.get(column), column),
                    place,
                    optional(fields, "seed"),
                    optional(fields, "group"),
                ),
            )
        except ValueError as wrong:
            raise DataError(f"{place}: {wrong}") from None


def required(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None or value == "" or isinstance(value, bool | float | list | dict):
        raise ValueError(
            f'no "{name}"' if value is None or value == "" else f'"{name}" is no name or number: {value!r}'
        )
    return str(value)


def optional(row: Mapping[str, Any], name: str) -> str | None:
    return required(row, name) if row.get(name) not in (None, "") else None


def number(value: Any, name: str) -> float:
    if value is None or value == "":
        raise ValueError(f'no "{name}"')
    try:
        found = float("nan" if isinstance(value, list | dict) else value)
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f'"{name}" is not a finite number: {str(value)[:60]}')
    return found


def sample_of(row: Mapping[str, Any], place: str, path: Path, choice: Choice) -> tuple[str, ItemScore] | None:
    """A row of the harness; None if it is of another filter."""
    made_by = row.get("filter")
    if choice.filter is not None and made_by != choice.filter:
        return None
    listed = row.get("metrics")
    metrics = [str(name) for name in listed] if isinstance(listed, list) else [n for n in row if n.startswith(KNOWN)]
    if choice.metric is None and len(metrics) != 1:
        raise ValueError(f"{len(metrics)} metrics ({', '.join(metrics) or 'none is known'}): choose one with --metric")
    metric = choice.metric or metrics[0]
    if metric not in row:
        raise ValueError(f'no metric "{metric}": the row has {", ".join(metrics) or "none that is known"}')
    matched, content = SAMPLES.fullmatch(path.name), row.get("doc_hash")
    item = ItemScore(
        required(row, "doc_id"),
        number(row[metric], metric),
        place if made_by in (None, "none") else f"{place} (filter {made_by})",
        optional(row, "seed"),
        content=None if content is None else str(content),
    )
    return metric, item._replace(id=f"{matched[1]}/{item.id}", group=matched[1]) if matched else item


SUMS = ("documents.", "common_documents.")  # over a document, in the own context of a row and in that of all


def read_arrays(path: Path, choice: Choice) -> Iterator[tuple[str, ItemScore]]:
    """What `evaluate --items` and comparisons write: items are known by their place."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a readable .npz file ({str(error)[:100]})") from None
    groups = arrays.pop("groups", None)
    names = [name for name in arrays if not name.startswith(SUMS)]
    if arrays and not names:
        raise DataError(
            f"{path}: no scores of items, only sums over documents, of which bits per byte are made: differences of these are in "
            f"comparison.json"
        )
    if choice.metric is None and len(names) != 1:
        raise DataError(f"{path}: {len(names)} arrays ({', '.join(names)}): choose one with --metric")
    name = choice.metric or names[0]
    if name not in names:
        raise DataError(f"{path}: no array {name!r} of scores of items: there is {', '.join(names) or 'none'}")
    values = arrays[name]
    if values.ndim != 1 or values.dtype.kind not in "fiub" or (groups is not None and groups.shape != values.shape):
        raise DataError(f"{path}: the array {name!r} is not a row of numbers, with a group for each or none")
    bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
    if bad.size:
        raise DataError(f"{path}: item {bad[0]} of {name!r} is not a finite number")
    for i, value in enumerate(values.tolist()):
        group = None if groups is None else str(groups[i])
        yield name, ItemScore(str(i), float(value), f"{path}: item {i}", group=group)


# ---- predictions of BabyLM


def read_predictions(path: Path, choice: Choice) -> Iterator[tuple[str, ItemScore]]:
    with InputFile(path) as file:
        try:
            found = parse_json(file.bytes.read())
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: not valid JSON ({str(error)[:100]})") from None
    subtasks = dict(subtasks_of(found))
    if not subtasks:
        raise DataError(f'{path}: no predictions: they are {{"task": {{"predictions": [{{"id": …, "pred": …}}, …]}}}}')
    if choice.gold is None:
        raise DataError(
            f"{path}: predictions without gold answers: name the folder with the files they were made from (--gold)"
        )
    for name, rows in subtasks.items():
        gold = read_gold(choice.gold, name.split("/")[-1])
        if len(gold) != len(rows):
            raise DataError(f"{path}: {len(rows)} predictions of {name}, but {len(gold)} gold answers in {choice.gold}")
        for i, (row, right) in enumerate(zip(rows, gold, strict=True)):
            place = f"{path}: {name}, prediction {i}"
            try:
                if not isinstance(row, dict) or "pred" not in row:
                    raise ValueError('no "pred"')
                score = float(normal(row["pred"]) == normal(right))
                yield "accuracy", ItemScore(f"{name}/{required(row, 'id')}", score, place, group=name)
            except ValueError as wrong:
                raise DataError(f"{place}: {wrong}") from None


def subtasks_of(found: Any, name: str = "") -> Iterator[tuple[str, list[Any]]]:
    """By "task/subtask", or "task" where there are no subtasks."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if key == "predictions" and isinstance(value, list) and name:
            yield name, value
        else:
            yield from subtasks_of(value, f"{name}/{key}" if name else key)


def read_gold(folder: Path, name: str) -> list[Any]:
    """The gold answers of a subtask, in the order of its file."""
    files = [folder] if folder.is_file() else [*folder.rglob(f"{name}.jsonl*"), *folder.rglob(f"{name}.valid.jsonl*")]
    if len(files) != 1:
        raise DataError(f"{folder}: {len(files)} files with gold answers of {name}: there must be one, {name}.jsonl")
    answers = []
    for place, row in read_objects(files[0]):
        field = None if isinstance(row, str) else next((field for field in GOLD if field in row), None)
        if isinstance(row, str) or field is None:
            raise DataError(f"{place}: {row if isinstance(row, str) else 'no gold answer, ' + ' or '.join(GOLD)}")
        answers.append(row[field])
    return answers


def normal(answer: Any) -> str:
    """As BabyLM compares them."""
    return str(int(answer) if isinstance(answer, bool) else answer).strip().lower()


# ---- the same items


def same_items(sides: Mapping[str, Collection[str]], where: str = "", remedy: str = "give the same items") -> None:
    """DataError if one side lacks an item of another."""
    (first, wanted), *others = sides.items()
    for name, ids in others:
        lacks = [each for each in wanted if each not in ids]
        has = [each for each in ids if each not in wanted]
        if lacks or has:
            sides_lacking = ((name, first, lacks), (first, name, has))
            found = [f"{side} lacks {some(missing)} of {other}" for side, other, missing in sides_lacking if missing]
            raise DataError(f"{where}items do not match: {'; '.join(found)}: {remedy}")


def some(ids: Sequence[str]) -> str:
    return f"{len(ids):,} items ({', '.join(ids[:SHOWN])}{', …' if len(ids) > SHOWN else ''})"


def same_facts(systems: Sequence[System], ids: Collection[str], field: str, what: str) -> dict[str, str]:
    """What systems know of items; DataError if they do not agree."""
    found: dict[str, tuple[str, str]] = {}
    for system in systems:
        for items in system.seeds.values():
            for each in items.values():
                value = getattr(each, field)
                if value is not None and each.id in ids:
                    other, place = found.setdefault(each.id, (value, each.place))
                    if other != value:
                        raise DataError(f"{each.place}: item {each.id} {what} {value}, but {other} at {place}")
    return {id: value for id, (value, _) in found.items()}
