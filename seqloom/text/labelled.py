"""Texts with a label each: jsonl, csv and tsv with a header, or parquet; all but the last also packed with gz, xz or zst.

    classify   {"text", "label"}             label: the name of a class
    regress    {"text", "label"}             label: a number; {"text", "text2", "label"} for the similarity of two texts
    pair       {"text", "text2", "label"}    label: the name of a class
    choose     {"text", "choices", "label"}  label: the number of a choice, from 0, or its text

Rows of classify and choose may have an "image", a path relative to their file, for models that read pictures; to classify a
picture alone, "text" is left out.

Every row may have an "id"; other fields are ignored. A `Layout` names the columns that hold these fields. In csv and tsv
"choices" is a JSON list. A bad row is an error with its file and line; where labels are not needed (`predict`) it is returned
as a BadRow, and reading continues.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from seqloom.config import unknown_name
from seqloom.errors import DataError, UsageError
from seqloom.files import parse_json
from seqloom.text.ids import SeenIds
from seqloom.text.pairs import lines, lines_with_errors
from seqloom.text.tables import NOTHING, PLAIN, Layout, Names, Rows, Table, fields_of, is_table

TASKS = ("classify", "regress", "pair", "choose")
ABOUT_PICTURES = ("classify", "choose")  # tasks whose rows may have an "image"
MAX_IDS = 4_000_000  # ids that are remembered while rows are read without being kept: at most 128 MB

NOT_TEXT = re.compile("[\0\ud800-\udfff]")  # a NUL and a lone surrogate: JSON can write both


Id = str | int  # unchanged, so that predictions can be joined to rows; 1 and "1" are equal


class Example(NamedTuple):
    texts: tuple[str, ...]  # one; two for pair; for choose the context, then the choices
    label: str | float | int | None  # a class, a number, the number of a choice; None where none is needed
    id: Id | None
    place: str  # file:line
    row: Mapping[str, Any] | None = None  # all columns of its row, where labels are not needed
    image: Path | None = None  # the picture that it is about


BLANK = "the line is blank"


class BadRow(NamedTuple):
    """A row that cannot be used, returned so that reading can continue."""

    place: str
    reason: str
    id: Id | None = None  # where it has one
    row: Mapping[str, Any] | None = None  # all columns of it, as far as they can be read


@overload
def read_labelled(paths: Sequence[Path], task: str, *, layout: Layout = PLAIN) -> Iterator[Example]: ...
@overload
def read_labelled(
    paths: Sequence[Path], task: str, need_labels: Literal[True], layout: Layout = PLAIN
) -> Iterator[Example]: ...
@overload
def read_labelled(
    paths: Sequence[Path], task: str, need_labels: bool, layout: Layout = PLAIN
) -> Iterator[Example | BadRow]: ...
def read_labelled(
    paths: Sequence[Path], task: str, need_labels: bool = True, layout: Layout = PLAIN
) -> Iterator[Example | BadRow]:
    """The rows of all files, in order. Without need_labels, labels are ignored, bad rows are returned as BadRow, and a text file
    may have one text per line."""
    rows = iter_rows(paths, task, need_labels, layout)
    return reject_bad_rows(rows, paths, "example") if need_labels else rows


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


def iter_rows(
    paths: Sequence[Path], task: str, need_labels: bool = True, layout: Layout = PLAIN
) -> Iterator[Example | BadRow]:
    """Every row, bad ones as BadRow."""
    if task not in TASKS:
        raise UsageError(unknown_name("task", task, task, list(TASKS)))
    seen = seen_ids(need_labels)
    first: Example | None = None
    for path in paths:
        names, rows = _open(path, task, need_labels, layout)
        for place, row in rows:
            kept = row if not need_labels and isinstance(row, dict) else None
            try:
                example = _example(fields_of(row), task, place, need_labels, names, path.parent)
                first = first or example
                if task == "regress" and len(example.texts) != len(first.texts):
                    raise ValueError(
                        f"{len(example.texts)} texts, but {first.place} has {len(first.texts)}: "
                        'give "text2" in all rows or in none'
                    )
                if example.id is not None:
                    check_unique(example.id, place, seen)
            except ValueError as wrong:
                yield BadRow(place, str(wrong), known_id(row, names), kept)
            else:
                yield example if kept is None else example._replace(row=kept)
    seen.say()


def seen_ids(rows_are_kept: bool) -> SeenIds:
    """For the ids of files. rows_are_kept: without a limit, as the rows take more memory than their ids; otherwise MAX_IDS."""
    return SeenIds(None if rows_are_kept else MAX_IDS)


def check_unique(id: Id, place: str, seen: SeenIds) -> None:
    """Raises ValueError for an id that was seen before."""
    if (other := seen.find_or_add(id, place)) is not None:
        raise ValueError(f"the id {id!r} is also used at {other}: ids must be unique")


def _open(path: Path, task: str, need_labels: bool, layout: Layout) -> tuple[Names, Rows]:
    wanted, optional = _fields(task), ["id", *(["text2"] if task in ("classify", "regress") else [])]
    optional += ["image"] if task in ABOUT_PICTURES else []
    if not is_table(path) and not need_labels and task in ("classify", "regress"):
        return {}, read_lines(path, layout)
    wanted += ["label"] if need_labels else []
    table = Table(path, layout, wanted)
    if task == "classify" and table.header is not None and table.has("image") and not table.has("text"):
        wanted = [name for name in wanted if name != "text"]  # of pictures alone
    names = table.columns_of(wanted, optional)
    return names, table.rows if table.header is None else _without_empty(
        table.rows, [names.get(name) for name in optional]
    )


def _without_empty(rows: Rows, columns: Sequence[str | None]) -> Rows:
    """Rows of a csv, in which an empty cell of these columns means that there is none."""
    for place, row in rows:
        if isinstance(row, dict):
            row |= {name: None for name in columns if name is not None and row[name] == ""}
        yield place, row


def read_lines(path: Path, layout: Layout = PLAIN) -> Rows:
    """A text for each line; a blank line keeps its place with an error, but for those at the end."""
    if layout.columns:
        raise UsageError(
            f"{path}: a text file has no columns: leave them out, or give a .csv, .tsv, .jsonl or .parquet"
        )
    return lines_of(lines_with_errors(path, layout.encoding), f"{path}:")


def lines_of(lines: Iterable[tuple[str, str | None]], where: str) -> Rows:
    """The same from lines and their errors. where: the prefix of the line number."""
    blank: list[int] = []
    for number, (line, wrong) in enumerate(lines, 1):
        if wrong is None and not line.strip():
            blank.append(number)
            continue
        yield from ((f"{where}{each}", BLANK) for each in blank)
        blank = []
        yield f"{where}{number}", {"text": line} if wrong is None else wrong


class Label(NamedTuple):
    label: str
    id: Id | None
    place: str


def read_labels(path: Path, column: str | None = None, predicted: bool = False) -> list[Label]:
    """Only the labels of a file, gold or predicted: "label" of a table, or the lines of any other file. column: of the labels,
    where it has another name; predicted: those of `predict`, in "predicted_label" where the file has gold labels, too."""
    names: Names = {}
    if is_table(path):
        table = Table(path, PLAIN if column is None else Layout({"label": column}), ["label"])
        if predicted and "predicted_label" in table.names:
            names = table.columns_of([], ["id"]) | {"label": "predicted_label"}
        else:
            names = table.columns_of(["label"], ["id"])
        rows = _without_empty(table.rows, [names.get("id")]) if table.header is not None else table.rows
    else:
        rows = ((f"{path}:{i}", {"label": line}) for i, line in enumerate(lines(path), 1))
    found = []
    for place, row in rows:
        try:
            fields = fields_of(row)
            value = fields.get(names.get("label", "label"))
            # a number stays as it is written: the task is not known here
            label = (
                str(value) if isinstance(value, float) else _label(value, "classify", (), names.get("label", "label"))
            )
            found.append(Label(str(label), id_of(fields, names), place))
        except ValueError as wrong:
            raise DataError(f"{place}: {wrong}") from None
    return found


def example_of(
    row: Mapping[str, Any], task: str, place: str, need_labels: bool = True, names: Names = NOTHING
) -> Example:
    """One row from any source as an example; DataError with its place if it is bad. names: the columns of its fields, where they
    have others."""
    try:
        return _example(row, task, place, need_labels, names)
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


def _example(
    row: Mapping[str, Any],
    task: str,
    place: str,
    need_labels: bool,
    names: Names = NOTHING,
    folder: Path | None = None,
) -> Example:
    """folder: that a path of a picture is relative to, if not to the current one."""
    second, choices, label = (names.get(field, field) for field in ("text2", "choices", "label"))
    both = task == "pair" or (task == "regress" and row.get(second) is not None)
    image = image_of(row, names.get("image", "image"), folder) if task in ABOUT_PICTURES else None
    if task == "classify" and image is not None and row.get(names.get("text", "text")) is None:
        texts: tuple[str, ...] = ("",)
    else:
        texts = tuple(text_of(row, name) for name in [names.get("text", "text"), *([second] if both else [])])
    if task == "classify" and names.get("text", "text").lower() == "text" and row.get(second) is not None:
        raise ValueError('"text2" in a row to classify: use the task pair for two texts')
    if task == "choose":
        texts += _choices(row.get(choices))
    found = _label(row.get(label), task, texts[1:], label) if need_labels else None
    return Example(texts, found, id_of(row, names), place, image=image)


def image_of(row: Mapping[str, Any], name: str, folder: Path | None) -> Path | None:
    """The picture that a row names, if it does; what is no path is one of the fields that are ignored."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip() or NOT_TEXT.search(value):
        return None
    return Path(value) if folder is None else folder / value


def id_of(row: Mapping[str, Any], names: Names = NOTHING) -> Id | None:
    """The id of a row, if it has one; ValueError if it is not a valid id."""
    name = names.get("id", "id")
    value = row.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise ValueError(f'"{name}" is neither a string nor a whole number: {_short(value)}')
    return value


def known_id(row: Mapping[str, Any] | str, names: Names = NOTHING) -> Id | None:
    """The id of a row that may be bad; None if it has no valid id."""
    try:
        return None if isinstance(row, str) else id_of(row, names)
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


def _label(value: Any, task: str, choices: Sequence[str], name: str = "label") -> str | float | int:
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        raise ValueError(f'no "{name}"')
    if task == "regress":
        return number_of(value)
    if task == "choose":
        return _choice(value, choices)
    if isinstance(value, str):
        if NOT_TEXT.search(value):
            raise ValueError(f'"{name}" contains a NUL or a lone surrogate, which is not valid text')
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
