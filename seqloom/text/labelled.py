"""Texts with a label each: jsonl, or csv and tsv with a header, any of them packed with gz, xz or zst.

    classify   {"text", "label"}             label: the name of a class
    regress    {"text", "label"}             label: a number; {"text", "text2", "label"} for the similarity of two texts
    pair       {"text", "text2", "label"}    label: the name of a class
    choose     {"text", "choices", "label"}  label: the number of a choice, from 0, or its text

Every row may have an "id"; other fields are ignored. A .csv has the usual quotes; a .tsv has none, so a row is a line. In both,
"choices" is a JSON list. A bad row is an error with its file and line; where labels are not needed (`predict`) it is returned
as a BadRow, and reading continues.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from seqloom.config import unknown_name
from seqloom.errors import DataError, UsageError
from seqloom.files import parse_json
from seqloom.text.pairs import lines, lines_with_errors
from seqloom.text.read import file_extension, file_format

TASKS = ("classify", "regress", "pair", "choose")

NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # a NUL and a lone surrogate: JSON can write both


Id = str | int  # unchanged, so that predictions can be joined to rows; 1 and "1" are equal


class Example(NamedTuple):
    texts: tuple[str, ...]  # one; two for pair; for choose the context, then the choices
    label: str | float | int | None  # a class, a number, the number of a choice; None where none is needed
    id: Id | None
    place: str  # file:line


class BadRow(NamedTuple):
    """A row that cannot be used, returned so that reading can continue."""

    place: str
    reason: str
    id: Id | None = None  # where it has one


@overload
def read_labelled(paths: Sequence[Path], task: str) -> Iterator[Example]: ...
@overload
def read_labelled(paths: Sequence[Path], task: str, need_labels: Literal[True]) -> Iterator[Example]: ...
@overload
def read_labelled(paths: Sequence[Path], task: str, need_labels: bool) -> Iterator[Example | BadRow]: ...
def read_labelled(paths: Sequence[Path], task: str, need_labels: bool = True) -> Iterator[Example | BadRow]:
    """The rows of all files, in order. Without need_labels, labels are ignored and bad rows are returned as BadRow."""
    return (
        iter_rows(paths, task, need_labels)
        if not need_labels
        else reject_bad_rows(iter_rows(paths, task), paths, "example")
    )


def reject_bad_rows(rows: Iterator[Any], paths: Sequence[Path], what: str) -> Iterator[Any]:
    """The rows; DataError for a bad row, or if there are none."""
    empty = True
    for row in rows:
        if isinstance(row, BadRow):
            raise DataError(f"{row.place}: {row.reason}")
        empty = False
        yield row
    if empty:
        raise DataError(f"{', '.join(map(str, paths))}: no {what}s: the files are empty")


def iter_rows(paths: Sequence[Path], task: str, need_labels: bool = True) -> Iterator[Example | BadRow]:
    """Every row, bad ones as BadRow."""
    if task not in TASKS:
        raise UsageError(unknown_name("task", task, task, list(TASKS)))
    wanted = [*_fields(task), *(["label"] if need_labels else [])]
    seen: dict[str, str] = {}
    first: Example | None = None
    for path in paths:
        for place, row in rows_of(path, wanted):
            try:
                example = _example(fields_of(row), task, place, need_labels)
                first = first or example
                if task == "regress" and len(example.texts) != len(first.texts):
                    raise ValueError(
                        f"{len(example.texts)} texts, but {first.place} has {len(first.texts)}: "
                        'give "text2" in all rows or in none'
                    )
                if example.id is not None and (other := seen.setdefault(str(example.id), place)) != place:
                    raise ValueError(f"the id {example.id!r} is also used at {other}: ids must be unique")
            except ValueError as wrong:
                yield BadRow(place, str(wrong), known_id(row))
            else:
                yield example


class Label(NamedTuple):
    label: str
    id: Id | None
    place: str


def read_labels(path: Path) -> list[Label]:
    """Only the labels of a file, gold or predicted: "label" of jsonl, csv or tsv, or the lines of any other file."""
    if file_format(path) == "jsonl" or file_extension(path) in ("csv", "tsv"):
        rows = rows_of(path, ["label"])
    else:
        rows = ((f"{path}:{i}", {"label": line}) for i, line in enumerate(lines(path), 1))
    found = []
    for place, row in rows:
        try:
            fields = fields_of(row)
            value = fields.get("label")
            # a number stays as it is written: the task is not known here
            label = str(value) if isinstance(value, float) else _label(value, "classify", ())
            found.append(Label(str(label), id_of(fields), place))
        except ValueError as wrong:
            raise DataError(f"{place}: {wrong}") from None
    return found


def example_of(row: Mapping[str, Any], task: str, place: str, need_labels: bool = True) -> Example:
    """One row from any source as an example; DataError with its place if it is bad."""
    try:
        return _example(row, task, place, need_labels)
    except ValueError as wrong:
        raise DataError(f"{place}: {wrong}") from None


def text_of(row: Mapping[str, Any], name: str) -> str:
    """A field that must be text; ValueError says what is wrong with it."""
    value = row.get(name)
    if value is None:
        raise ValueError(f'no "{name}"')
    if not isinstance(value, str):
        raise ValueError(f'"{name}" is not a string: {_short(value)}')
    if not value.strip():
        raise ValueError(f'"{name}" is empty')
    if NOT_TEXT.search(value):
        raise ValueError(f'"{name}" contains a NUL or a lone surrogate, which is not valid text')
    return value


def _fields(task: str) -> list[str]:
    return ["text", *{"pair": ["text2"], "choose": ["choices"]}.get(task, [])]


def rows_of(path: Path, wanted: Sequence[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """file:line and the fields there, or what is wrong with that line."""
    if file_format(path) == "jsonl":
        return read_objects(path)
    if file_extension(path) in ("csv", "tsv"):
        return _table(path, wanted, file_extension(path))
    raise DataError(f"{path}: not a .jsonl, .csv or .tsv file: give labelled texts in one of these formats")


def fields_of(row: dict[str, Any] | str) -> dict[str, Any]:
    """The fields of a row; ValueError if there is an error message in its place."""
    if isinstance(row, str):
        raise ValueError(row)
    return row


def read_objects(path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The objects of a jsonl file, each with its file:line, or what is wrong with that line."""
    return objects_of(lines_with_errors(path), f"{path}:")


def objects_of(lines: Iterable[tuple[str, str | None]], where: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The same from lines and their errors. where: the prefix of the line number."""
    for number, (line, wrong) in enumerate(lines, 1):
        place = f"{where}{number}"
        if wrong is not None:
            yield place, wrong
        elif line.strip():
            try:
                value = parse_json(line)
            except (ValueError, RecursionError) as error:
                yield place, f"not valid JSON ({error})"
            else:
                yield place, value if isinstance(value, dict) else "not a JSON object"


class _Lines:
    """The lines of a table, and which of them cannot be read."""

    def __init__(self, path: Path):
        self.path = path
        self.errors: dict[int, str] = {}  # by line number

    def __iter__(self) -> Iterator[str]:
        for number, (line, error) in enumerate(lines_with_errors(self.path), 1):
            if error is not None:
                self.errors[number] = error
            yield line.replace("\0", "") + "\n"

    def first_error(self, start: int, stop: int) -> int | None:
        return next((i for i in range(start, stop) if i in self.errors), None)


def _table(path: Path, wanted: Sequence[str], ending: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    quotes = {"strict": True} if ending == "csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    lines = _Lines(path)
    reader = csv.reader(lines, **quotes)
    header: list[str] | None = None
    while True:
        start = reader.line_num + 1
        place = f"{path}:{start}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield place, f"not valid {ending.upper()} ({error}): close the quote, or use .jsonl"
            continue
        if cells is None:
            return
        bad = lines.first_error(start, reader.line_num + 1)
        if header is None:
            if bad is not None:
                raise DataError(f"{path}:{bad}: {lines.errors[bad]}")
            header = _header(cells, wanted, place)
        elif bad is not None:
            yield f"{path}:{bad}", lines.errors[bad]
        elif cells and len(cells) != len(header):
            yield place, f"{len(cells)} columns, but the header has {len(header)}"
        elif cells:
            row: dict[str, Any] = dict(zip(header, cells, strict=True))
            yield place, {name: value for name, value in row.items() if value or name in wanted}


def _header(cells: list[str], wanted: Sequence[str], place: str) -> list[str]:
    header = [name.strip().lower() for name in cells]
    missing = [name for name in wanted if header.count(name) != 1]
    if missing:
        raise DataError(
            f'{place}: the header needs one column "{missing[0]}" and has {header.count(missing[0])}: the first line must name '
            f"the columns {', '.join(wanted)}"
        )
    return header


def _example(row: Mapping[str, Any], task: str, place: str, need_labels: bool) -> Example:
    names = ["text", *(["text2"] if task == "pair" or (task == "regress" and row.get("text2") is not None) else [])]
    texts = tuple(text_of(row, name) for name in names)
    if task == "classify" and row.get("text2") is not None:
        raise ValueError('"text2" in a row to classify: use the task pair for two texts')
    if task == "choose":
        texts += _choices(row.get("choices"))
    label = _label(row.get("label"), task, texts[1:]) if need_labels else None
    return Example(texts, label, id_of(row), place)


def id_of(row: Mapping[str, Any]) -> Id | None:
    """The id of a row, if it has one; ValueError if it is not a valid id."""
    value = row.get("id")
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise ValueError(f'"id" is neither a string nor a whole number: {_short(value)}')
    return value


def known_id(row: Mapping[str, Any] | str) -> Id | None:
    """The id of a row that may be bad; None if it has no valid id."""
    try:
        return None if isinstance(row, str) else id_of(row)
    except ValueError:
        return None


def _choices(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):  # the cell of a table
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            raise ValueError(f'"choices" is not a JSON list: {_short(value)}') from None
    if not isinstance(value, list) or len(value) < 2:
        raise ValueError(f'"choices" is not a list of two or more: {_short(value)}')
    return tuple(text_of({"one of the choices": each}, "one of the choices") for each in value)


def _label(value: Any, task: str, choices: Sequence[str]) -> str | float | int:
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        raise ValueError('no "label"')
    if task == "regress":
        return number_of(value)
    if task == "choose":
        return _choice(value, choices)
    if isinstance(value, str):
        if NOT_TEXT.search(value):
            raise ValueError('"label" contains a NUL or a lone surrogate, which is not valid text')
        return value
    if isinstance(value, bool | int):
        return json.dumps(value)
    raise ValueError(f"the label {_short(value)} is not the name of a class; use the task regress for numbers")


def number_of(value: Any) -> float:
    """A label as a number; ValueError if it is not a finite number."""
    try:
        number = float("nan" if isinstance(value, bool | list | dict) else value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the label {_short(value)} is not a finite number")
    return number


def _choice(value: Any, choices: Sequence[str]) -> int:
    if isinstance(value, str):
        same = [i for i, choice in enumerate(choices) if choice.strip() == value]
        if len(same) > 1:
            raise ValueError(
                f"the label {_short(value)} is the text of {len(same)} choices: give the number of one of them, counted from 0"
            )
        if same:
            return same[0]
        value = int(value) if value.isascii() and value.isdecimal() and len(value) < 9 else value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return value
    raise ValueError(
        f"the label {_short(value)} is not among the {len(choices)} choices: give a number, counted from 0, or the text of one"
    )


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"
