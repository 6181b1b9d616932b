"""Rows with named fields: jsonl, csv and tsv with a header, and parquet; which column holds which field of a task.

A .csv has the usual quotes; its separator is a comma, or a semicolon, tab or bar where the header has one of these instead, or
what Excel's line "sep=;" says. A .tsv has no quotes, so a row is a line. Rows come one by one: no file is held in memory.
A row that cannot be read is returned as what is wrong with it, and reading continues.
"""

import csv
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from seqloom.errors import DataError, UsageError
from seqloom.files import parse_json
from seqloom.progress import say
from seqloom.text.pairs import lines_with_errors
from seqloom.text.read import MAX_DOCUMENT, file_extension, file_format, pyarrow_parquet
from seqloom.text.stream import InputFile, check_encoding

Rows = Iterator[tuple[str, dict[str, Any] | str]]  # file:line and the fields there, or what is wrong with that line
Names = Mapping[str, str]  # the column of each field

# usual names of columns, taken where a file has exactly one of them and none with the name of the field
ALIASES = {
    "text": ("sentence", "review", "comment", "message", "content", "document", "body", "tweet"),
    "label": ("class", "category", "sentiment", "target"),
}
NOTHING: Mapping[str, Any] = MappingProxyType({})
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SEPARATOR_LINE = re.compile('"?sep=(.)"?', re.IGNORECASE)
QUOTED = re.compile('"(?:[^"]|"")*"')
HEAD = 100  # rows of jsonl whose names are looked at
SHOWN = 20  # columns that a message names


class Layout(NamedTuple):
    """Where the fields of labelled files are. columns: the name of each field's column, where it was given; encoding: of text
    that is not UTF-8; trained: the columns that a run was trained with, taken where a file has them and no others are given."""

    columns: Names = NOTHING
    encoding: str | None = None
    trained: Names = NOTHING


PLAIN = Layout()  # columns are named as the fields are


def is_table(path: Path) -> bool:
    return file_format(path) in ("jsonl", "parquet") or file_extension(path) in ("csv", "tsv")


class Table:
    """A file with named columns. header: their names in order; None where each row has its own (jsonl)."""

    def __init__(self, path: Path, layout: Layout = PLAIN, fields: Sequence[str] = ()):
        """fields: those that are looked for; they help to find the separator of a csv."""
        self.path, self.layout, self.fields = path, layout, fields
        self.kind = file_format(path) if file_format(path) != "txt" else file_extension(path)
        self.header: list[str] | None = None
        self.separator = "\t" if self.kind == "tsv" else ","
        if self.kind not in ("jsonl", "parquet", "csv", "tsv"):
            raise DataError(
                f"{path}: not a .jsonl, .csv or .tsv file, and not .parquet: give labelled texts in one of these formats"
            )
        encoding = None if layout.encoding is None else check_encoding(layout.encoding)
        if self.kind == "jsonl":
            self.rows: Rows = objects_of(lines_with_errors(path, encoding), f"{path}:")
            head = list(itertools.islice(self.rows, HEAD))
            self.names = list(dict.fromkeys(name for _, row in head if isinstance(row, dict) for name in row))
            self.rows = itertools.chain(head, self.rows)
            self.place = f"{path}:1"
        elif self.kind == "parquet":
            self.rows = self._parquet()
        else:
            self.rows = self._cells(_Lines(path, encoding))
        if self.kind != "jsonl":
            self.place = f"{path}:1"
            first = next(self.rows, None)  # the header
            if first is not None:
                self.place = first[0]
            self.names = self.header or []

    def has(self, field: str) -> bool:
        """Whether it has a column for a field."""
        return self._column(field) is not None

    def columns_of(self, wanted: Sequence[str], optional: Sequence[str] = ()) -> dict[str, str]:
        """The column of each field. wanted: fields that there must be; optional: those that there may be."""
        found: dict[str, str] = {}
        for field in (*wanted, *optional):
            column = self._column(field)
            if column is not None:
                found[field] = column
            elif self.header is not None and field in wanted and (self.header or self.kind == "parquet"):
                raise DataError(self._missing(field, wanted))
        self._say(found, wanted)
        return found

    def _column(self, field: str) -> str | None:
        given = self.layout.columns.get(field)
        if given is not None:
            if not self.names and self.header is None:
                return given
            same = [name for name in self.names if name == given] or self._like(given)
            if len(same) == 1:
                return same[0]
            if same:
                raise DataError(f"{self.place}: {len(same)} columns are named {given!r}: rename all but one of them")
            near = difflib.get_close_matches(given, self.names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "name one of these"
            raise UsageError(f"{self.path} has no column {given!r} for {field!r}, it has {self.listed()}: {hint}")
        for name in (self.layout.trained.get(field), field):
            same = [] if name is None else self._like(name)
            if len(same) == 1:
                return same[0]
            if same and self.header is not None:
                raise DataError(
                    f'{self.place}: the header needs one column "{field}" and has {len(same)}: rename all but one of them'
                )
        usual = [name for alias in ALIASES.get(field, ()) for name in self._like(alias)]
        if len(usual) == 1 and usual[0] not in self.layout.columns.values():
            return usual[0]
        return None

    def _like(self, name: str) -> list[str]:
        if self.header is None:  # the keys of JSON are exact
            return [name] if name in self.names else []
        return [each for each in self.names if each.strip().lower() == name.strip().lower()]

    def _missing(self, field: str, wanted: Sequence[str]) -> str:
        near = difflib.get_close_matches(field, self.names, n=1, cutoff=0.5)
        option = OPTIONS.get(field)
        hint = "" if option is None else f"; {option} {near[0] if near else 'NAME'} names another"
        other = next((SEPARATORS[s] for s in SEPARATORS if len(self.names) == 1 and s in self.names[0]), None)
        cut = "" if other is None else f" (is it separated by {other}? name it .csv or .tsv to match)"
        return (
            f'{self.place}: no column "{field}": the first line must name the columns {", ".join(wanted)}, and it has '
            f"{self.listed()}{cut}{hint}"
        )

    def listed(self) -> str:
        """The names of the columns, for a message."""
        more = f" and {len(self.names) - SHOWN:,} more" if len(self.names) > SHOWN else ""
        return (", ".join(repr(name) for name in self.names[:SHOWN]) or "no columns") + more

    def _say(self, found: Names, wanted: Sequence[str]) -> None:
        other = {field: name for field, name in found.items() if name.strip().lower() != field}
        parts = [f"{field} is the column {name!r}" for field, name in other.items()]
        if self.kind == "csv" and self.separator != ",":
            parts.append(f"columns are separated by {SEPARATORS.get(self.separator, repr(self.separator))}")
        if parts:
            say_once(f"{self.path}: {', '.join(parts)}")

    # ---- csv and tsv

    def _cells(self, lines: "_Lines") -> Rows:
        """The header as a row of its own, then the rows."""
        source, start = iter(lines), 0
        first = next(source, None)
        if first is not None and self.kind == "csv":
            if sep := SEPARATOR_LINE.fullmatch(first.strip("\r\n")):  # Excel's
                self.separator, start = sep[1], 1
                first = next(source, None)
            elif 1 not in lines.errors:
                self.separator = self._separator(first)
        quotes: dict[str, Any] = {"strict": True} if self.kind == "csv" else {"quoting": csv.QUOTE_NONE}
        csv.field_size_limit(MAX_DOCUMENT)  # a document may be longer than the module's 128 KB
        whole = source if first is None else itertools.chain([first], source)
        reader = csv.reader(whole, delimiter=self.separator, **quotes)
        while True:
            number = start + reader.line_num + 1
            place = f"{self.path}:{number}"
            try:
                cells = next(reader, None)
            except csv.Error as error:
                last = start + reader.line_num
                lines.take_error(last)  # one error for the row
                upto = f", up to line {last}" if last > number else ""
                wrong = f"not valid {self.kind.upper()} ({error}{upto}): close the quote, or use .jsonl"
                if self.header is None:
                    raise DataError(f"{place}: {wrong}") from None
                yield place, wrong
                continue
            if cells is None:
                return
            bad, wrong = lines.take_error(start + reader.line_num)
            if self.header is None:
                if bad is not None:
                    raise DataError(f"{self.path}:{bad}: {wrong}")
                if not cells:
                    continue
                self.header = cells
                yield place, {}
            elif bad is not None:
                yield f"{self.path}:{bad}", wrong
            elif cells and len(cells) != len(self.header):
                yield place, self._wrong_size(cells)
            elif cells:
                yield place, dict(zip(self.header, cells, strict=True))

    def _separator(self, line: str) -> str:
        """The separator of a header. Where it has several kinds, the one that gives most of the names that are looked for."""
        bare = QUOTED.sub("", line)
        names = {name for field in self.fields for name in (field, *ALIASES.get(field, ()))}
        names |= {name.strip().lower() for name in (*self.layout.columns.values(), *self.layout.trained.values())}
        best, most = ",", -1
        for separator in SEPARATORS:
            if separator in bare:
                known = sum(cell.strip().strip('"').lower() in names for cell in line.split(separator))
                best, most = (separator, known) if known > most else (best, most)
        return best

    def _wrong_size(self, cells: Sequence[str]) -> str:
        assert self.header is not None
        wrong = f"{len(cells)} columns, but the header has {len(self.header)}"
        line = self.separator.join(cells)
        for other, name in SEPARATORS.items():
            if other != self.separator and line.count(other) == len(self.header) - 1 > 0:
                return f"{wrong}: here {name} separate them, in the header {SEPARATORS.get(self.separator, self.separator)}"
        if len(cells) > len(self.header) and self.kind == "csv":
            return f"{wrong}: put texts with {SEPARATORS.get(self.separator, repr(self.separator))} in quotes"
        return wrong

    # ---- parquet

    def _parquet(self) -> Rows:
        parquet, broken = pyarrow_parquet()
        number = 0
        try:
            with InputFile(self.path) as opened:
                if opened.compression:
                    raise DataError(
                        f"{self.path}: a compressed parquet file: decompress it (parquet is compressed inside already)"
                    )
                file = parquet.ParquetFile(opened.bytes)
                self.header = list(file.schema_arrow.names)
                yield f"{self.path}:1", {}
                for batch in file.iter_batches(batch_size=256):
                    for row in batch.to_pylist():
                        number += 1
                        yield f"{self.path}:{number}", row
        except (OSError, ValueError, broken) as error:
            detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{self.path}:{number + 1}: damaged parquet file ({detail}): download it again") from error


OPTIONS = {"text": "--text-column", "text2": "--pair-column", "label": "--label-column", "id": "--id-column"}


@lru_cache(maxsize=1000)
def say_once(line: str) -> None:
    """A file is read several times, and its columns are said once."""
    say(line)


def rows_of(path: Path, wanted: Sequence[str]) -> Rows:
    """The rows of a file whose columns have the names of the fields, in lower case. Empty cells are left out, but for those of
    the wanted fields."""
    table = Table(path, fields=wanted)
    table.columns_of(wanted)
    if table.header is None:
        return table.rows
    return ((place, row if isinstance(row, str) else _lower(row, wanted)) for place, row in table.rows)


def _lower(row: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    lower = {name.strip().lower(): value for name, value in row.items()}
    return {name: value for name, value in lower.items() if value or name in wanted}


def fields_of(row: dict[str, Any] | str) -> dict[str, Any]:
    """The fields of a row; ValueError if there is an error message in its place."""
    if isinstance(row, str):
        raise ValueError(row)
    return row


def read_objects(path: Path) -> Rows:
    """The objects of a jsonl file, each with its file:line, or what is wrong with that line."""
    return objects_of(lines_with_errors(path), f"{path}:")


def objects_of(lines: Iterable[tuple[str, str | None]], where: str) -> Rows:
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

    def __init__(self, path: Path, encoding: str | None):
        self.path, self.encoding = path, encoding
        self.errors: dict[int, str] = {}  # by line number

    def __iter__(self) -> Iterator[str]:
        for number, (line, error) in enumerate(lines_with_errors(self.path, self.encoding), 1):
            if error is not None:
                self.errors[number] = error
            yield line.replace("\0", "") + "\n"

    def take_error(self, stop: int) -> tuple[int | None, str]:
        """The first error up to a line and where it is, None where there is none; those up to there are forgotten."""
        found = sorted(number for number in self.errors if number <= stop)
        errors = [self.errors.pop(number) for number in found]
        return (found[0], errors[0]) if found else (None, "")
