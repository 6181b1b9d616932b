"""Predictions into files, row by row: csv with all columns of the input and those of the predictions, or jsonl."""

import csv
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from seqloom.errors import UsageError
from seqloom.files import replace_file
from seqloom.progress import say
from seqloom.runs.results import flatten
from seqloom.text.read import file_extension
from seqloom.text.tables import HEAD, Table

Predicted = tuple[
    Mapping[str, Any] | None, dict[str, Any]
]  # the columns of a row, if it could be read, and its prediction


class Form(NamedTuple):
    """How predictions are written. columns: of the input, which a csv keeps; None where they are in the rows alone."""

    kind: str  # csv, tsv or jsonl
    separator: str = ","
    columns: list[str] | None = None


def form_of(out: Path | None, table: Table | None) -> Form:
    """That of --out by its ending, otherwise as the input: csv and tsv stay what they are, all else becomes jsonl."""
    given = "jsonl" if table is None else table.kind
    ending = given if out is None else file_extension(out)
    kind = "jsonl" if ending in ("parquet", "ndjson") and out is None else ending
    if kind == "tsv" and given != "tsv":
        raise UsageError(f"--out {out}: a .tsv cannot hold texts with tabs or line ends: name a .csv or .jsonl")
    if kind in ("xlsx", "xls", "parquet"):
        raise UsageError(f"--out {out}: predictions are written as .csv, .tsv or .jsonl: name such a file")
    if kind not in ("csv", "tsv"):
        return Form("jsonl")  # also for files of any other name
    separator = table.separator if table is not None and table.kind in ("csv", "tsv") else ","
    return Form(kind, separator, None if table is None else table.header)


def write_predictions(
    rows: Iterable[Predicted], form: Form, out: Path | None, fields: Callable[[], Iterable[str]]
) -> tuple[int, int]:
    """Writes to a file, which is there as a whole or not at all, or to standard output. Returns how many rows there are, and how
    many of them could not be read. fields: those of a prediction, asked where the first rows have none."""
    counts = [0, 0]
    counted = count(rows, counts)
    if out is None:
        write_rows(counted, form, sys.stdout, fields)
        return counts[0], counts[1]

    def write(temporary: Path) -> None:
        try:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                write_rows(counted, form, file, fields)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    replace_file(out, write)
    return counts[0], counts[1]


def count(rows: Iterable[Predicted], counts: list[int]) -> Iterator[Predicted]:
    for row, prediction in rows:
        counts[0] += 1
        counts[1] += "error" in prediction
        yield row, prediction


def write_rows(rows: Iterator[Predicted], form: Form, file: TextIO, fields: Callable[[], Iterable[str]]) -> None:
    if form.kind == "jsonl":
        for _, prediction in rows:
            file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
        return
    head = list(itertools.islice(rows, HEAD))
    columns = form.columns
    if columns is None:  # jsonl, or plain lines
        columns = list(dict.fromkeys(name for row, _ in head for name in row or ()))
    good = next((flatten(prediction) for _, prediction in head if "error" not in prediction), None)
    found = list(good if good is not None else fields())
    names = prediction_columns([name for name in found if name != "id"], columns)
    quotes: dict[str, Any] = {} if form.kind == "csv" else {"quoting": csv.QUOTE_NONE, "quotechar": None}
    writer = csv.writer(file, delimiter=form.separator, lineterminator="\n", **quotes)
    writer.writerow([*columns, *names.values()])
    left_out = 0
    for row, prediction in itertools.chain(head, rows):
        given, flat = row or {}, flatten(prediction)
        left_out += len(given.keys() - set(columns))
        writer.writerow([cell(given.get(name)) for name in columns] + [cell(flat.get(name)) for name in names])
    if left_out:
        say(
            f"{left_out:,} values of columns that the first {HEAD} rows have not are not in the csv: write .jsonl to keep them"
        )


def prediction_columns(found: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """The column of each field of a prediction: named as it is, or "predicted_NAME" where the input has such a column."""
    names: dict[str, str] = {}
    for name in (*found, "error"):
        new = name
        while new in columns or new in names.values():
            new = f"predicted_{new}"
        names[name] = new
    return names


def cell(value: Any) -> Any:
    """Lists and dicts are written as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return json.dumps(value)
    return value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False, default=str)
