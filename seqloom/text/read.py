"""Documents from files, one after the other, in bounded memory.

.txt: one document per line, or documents between blank lines (detected in the head of the file), or the whole file as one;
.jsonl: one object per line with "text"; .parquet: a column "text". Each may be compressed with gz, xz or zst.

How bad input is handled (every case is counted and listed in the report):
- a document that is not UTF-8 or has a NUL is left out; a file that looks binary is rejected;
- a line or paragraph longer than MAX_DOCUMENT is cut into pieces of about that size at blanks (a whole corpus in one line,
  such as text8, stays usable); a jsonl row of that length is left out;
- \r\n counts as \n; a byte-order mark is dropped; an empty document is left out.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqloom.errors import DataError, ModelError, UsageError
from seqloom.files import HALVES
from seqloom.text.stream import COMPRESSED, PARQUET, InputFile, check_text

Documents = Literal["auto", "line", "blank", "file"]
MAX_DOCUMENT = 10_000_000  # bytes of one line, paragraph or row
MAX_FILE = 2_000_000_000  # bytes of a file that is one document
_HEAD = 1 << 18
UNREADABLE = "bad UTF-8"
_NAMED = 5  # places of each problem in the report


class Document(NamedTuple):
    text: str
    location: str  # file.txt:123
    split: str | None = None  # from the row's own field, where one was asked for


@dataclass
class Problems:
    """What was wrong with the rows of the files, with the first places of each kind."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    unreadable: int = 0  # characters of documents that are not UTF-8
    sample: bytes = b""  # the first of them
    has_utf_8: bool = False  # other lines have letters that only UTF-8 writes so

    def add(self, kind: str, place: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        places = self.places.setdefault(kind, [])
        if len(places) < _NAMED:
            places.append(place)

    def add_unreadable(self, raw: bytes, place: str) -> None:
        self.add(UNREADABLE, place)
        self.unreadable += len(raw.decode("utf-8", "replace"))
        self.sample = self.sample or raw[:100_000]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def as_json(self) -> dict[str, Any]:
        return {kind: {"count": n, "places": self.places[kind]} for kind, n in sorted(self.counts.items())}


def file_extension(path: Path) -> str:
    """The extension in lower case, without that of the compression: "tsv" of pairs.tsv.gz."""
    endings = [ending.lower().lstrip(".") for ending in path.suffixes]
    while endings and endings[-1] in COMPRESSED.values():
        endings.pop()
    return endings[-1] if endings else ""


def file_format(path: Path) -> str:
    """txt, jsonl or parquet, by the extension without that of the compression."""
    last = file_extension(path)
    if last in ("jsonl", "ndjson"):
        return "jsonl"
    return "parquet" if last == "parquet" else "txt"


class Reader:
    """The documents of one file; `mode` says how they are separated, `position()` how far the file has been read."""

    def __init__(
        self,
        path: Path,
        documents: str = "auto",
        problems: Problems | None = None,
        split_field: str | None = None,
        encoding: str | None = None,
    ):
        if documents not in ("auto", "line", "blank", "file"):
            raise UsageError(f"--documents {documents}: choose auto, line, blank or file")
        self.path, self.split_field, self.encoding = path, split_field, encoding
        self.problems = problems if problems is not None else Problems()
        self._opened: InputFile | None = None
        self.count = 0  # documents that the last iteration gave
        with InputFile(path, encoding) as opened:
            self.size = opened.size
            head = opened.bytes.peek(_HEAD)[:_HEAD] if opened.size else b""
            if len(head) < _HEAD:  # a compressed file may give less at first
                head = opened.bytes.read(_HEAD)
        form = "parquet" if head.startswith(PARQUET) else file_format(path)
        if form == "txt" and file_extension(path) in ("csv", "tsv"):
            raise UsageError(
                f'{path} is a table, and its columns would be read as text: write the texts as .jsonl, as "text" of each line, '
                f"or as .txt"
            )
        if form == "parquet" and head and not head.startswith(PARQUET):
            raise DataError(f"{path}: not a parquet file: its first bytes are {head[:4]!r}: check the name")
        if form != "parquet":
            check_text(path, head)
        if form == "txt":
            self.mode = (detect_documents(head) if documents == "auto" else documents) if head else "line"
        else:
            self.mode = form

    def position(self) -> int:
        return self._opened.position() if self._opened is not None else 0

    def __iter__(self) -> Iterator[Document]:
        self.count = 0
        with InputFile(self.path, self.encoding) as self._opened:
            for document in self._rows(self._opened) if self.size else ():
                self.count += 1
                yield document

    def _rows(self, opened: InputFile) -> Iterator[Document]:
        if self.mode == "parquet":
            return self._parquet(opened)
        if self.mode == "file":
            return self._whole(opened)
        if self.mode == "blank":
            return self._paragraphs(opened)
        return self._lines(opened)

    def _lines(self, opened: InputFile) -> Iterator[Document]:
        row = self._json_row if self.mode == "jsonl" else self._text_row
        for raw, number, whole in self._raw_lines(opened):
            place = f"{self.path}:{number}"
            if self.mode == "jsonl" and not whole:
                self.problems.add("too long", place)
                continue
            document = row(raw, place)
            if document is not None:
                yield document

    def _raw_lines(self, opened: InputFile) -> Iterator[tuple[bytes, int, bool]]:
        """Line without its end, its number, and whether it is whole. A longer line comes in pieces (text) or once (jsonl)."""
        readline = opened.bytes.readline
        number = 0
        while line := readline(MAX_DOCUMENT + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.endswith(b"\n"):
                yield line[:-2] if line.endswith(b"\r\n") else line[:-1], number, True
            elif len(line) <= MAX_DOCUMENT:
                yield line, number, True
            elif self.mode == "jsonl":
                while line and not line.endswith(b"\n"):
                    line = readline(MAX_DOCUMENT)
                yield b"", number, False
            else:
                self.problems.add("too long, cut", f"{self.path}:{number}")
                yield from ((piece, number, False) for piece in _split_line(line, readline))

    def _paragraphs(self, opened: InputFile) -> Iterator[Document]:
        lines: list[bytes] = []
        first = size = 0
        for raw, number, _ in self._raw_lines(opened):
            if raw.strip():
                first = first if lines else number
                lines.append(raw)
                size += len(raw) + 1
                if size < MAX_DOCUMENT:
                    continue
                self.problems.add("too long, cut", f"{self.path}:{first}")
            if lines:
                document = self._text_row(b"\n".join(lines), f"{self.path}:{first}")
                if document is not None:
                    yield document
            lines, size = [], 0
        if lines:
            document = self._text_row(b"\n".join(lines), f"{self.path}:{first}")
            if document is not None:
                yield document

    def _whole(self, opened: InputFile) -> Iterator[Document]:
        raw = opened.bytes.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            raise DataError(
                f"{self.path}: more than {MAX_FILE // 10**9} GB as one document: use --documents line or blank"
            )
        document = self._text_row(raw.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n"), f"{self.path}:1")
        if document is not None:
            yield document

    def _text_row(self, raw: bytes, place: str) -> Document | None:
        if b"\0" in raw:
            self.problems.add("NUL byte", place)
            return None
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start)
            if line:  # the line within a paragraph or file
                name, _, number = place.rpartition(":")
                place = f"{name}:{int(number) + line}"
            self.problems.add_unreadable(raw, place)
            return None
        self.problems.has_utf_8 |= not text.isascii()
        return self._kept(text, place, None)

    def _json_row(self, raw: bytes, place: str) -> Document | None:
        if not raw.strip():
            return None
        try:
            value = json.loads(raw)
        except UnicodeDecodeError:
            self.problems.add_unreadable(raw, place)
            return None
        except (ValueError, RecursionError):
            self.problems.add("bad JSON", place)
            return None
        if not isinstance(value, dict) or not isinstance(value.get("text"), str):
            self.problems.add('no "text"', place)
            return None
        split = None
        if self.split_field is not None:
            split = value.get(self.split_field)
            if not isinstance(split, str):
                self.problems.add(f'no "{self.split_field}"', place)
                return None
        return self._kept(value["text"], place, split)

    def _kept(self, text: str, place: str, split: str | None) -> Document | None:
        if "\0" in text:
            self.problems.add("NUL byte", place)
        elif not text or text.isspace():
            self.problems.add("empty", place)
        elif has_lone_surrogate(text):
            self.problems.add_unreadable(text.encode("utf-8", "replace"), place)
        else:
            return Document(text, place, split)
        return None

    def _parquet(self, opened: InputFile) -> Iterator[Document]:
        parquet, broken = pyarrow_parquet()
        if opened.compression:
            raise DataError(
                f"{self.path}: a compressed parquet file: decompress it (parquet is compressed inside already)"
            )
        number = 0
        try:
            file = parquet.ParquetFile(opened.bytes)
            columns = set(file.schema_arrow.names)
            wanted = ["text"] + ([self.split_field] if self.split_field else [])
            for name in wanted:
                if name not in columns:
                    raise DataError(f"{self.path} has no column {name!r} (it has: {', '.join(sorted(columns)[:10])})")
            for batch in file.iter_batches(batch_size=256, columns=wanted):
                splits = batch.column(1).to_pylist() if self.split_field else [None] * batch.num_rows
                for text, split in zip(batch.column(0).to_pylist(), splits, strict=True):
                    number += 1
                    place = f"{self.path}:{number}"
                    if not isinstance(text, str):
                        self.problems.add('no "text"', place)
                    elif len(text) > MAX_DOCUMENT:
                        self.problems.add("too long", place)
                    elif document := self._kept(text, place, split):
                        yield document
        except (OSError, ValueError, broken) as error:
            detail = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{self.path}:{number + 1}: damaged parquet file ({detail}): download it again") from error


def has_lone_surrogate(text: str) -> bool:
    """JSON can write one: \\ud800. No tokenizer and no UTF-8 file accepts it."""
    return not text.isascii() and HALVES.search(text) is not None


def detect_documents(head: bytes) -> str:
    """ "blank" if blank lines separate groups of lines, "line" if nearly every line is full.

    A stray blank line among hundreds does not make paragraphs: at least one line in 200 must be blank.
    """
    lines = head.split(b"\n")
    filled = [bool(line.strip()) for line in lines]
    while filled and not filled[-1]:
        filled.pop()
    blanks = sum(1 for before, now in itertools.pairwise(filled) if before and not now)
    return "blank" if blanks and blanks * 200 >= len(filled) else "line"


def _split_line(start: bytes, readline: Callable[[int], bytes]) -> Iterator[bytes]:
    """A line that is too long in pieces: at its last blank, else between two characters."""
    rest, ended = start, False
    while rest or not ended:
        if len(rest) < MAX_DOCUMENT and not ended:
            more = readline(MAX_DOCUMENT - len(rest))
            ended = not more or more.endswith(b"\n")
            rest += more.rstrip(b"\r\n") if ended else more
        if len(rest) <= MAX_DOCUMENT:
            if ended:
                if rest:
                    yield rest
                return
            if len(rest) < MAX_DOCUMENT:
                continue
        stop = rest.rfind(b" ", MAX_DOCUMENT // 2, MAX_DOCUMENT) + 1
        if not stop:
            stop = min(len(rest), MAX_DOCUMENT)
            while stop > 1 and stop < len(rest) and rest[stop] & 0xC0 == 0x80:
                stop -= 1
            if stop == len(rest) and not ended:  # the next byte is not here yet: leave a whole character behind
                stop -= 4
                while stop > 1 and rest[stop] & 0xC0 == 0x80:
                    stop -= 1
        yield rest[:stop]
        rest = rest[stop:]


def pyarrow_parquet() -> tuple[Any, Any]:
    """The module, and the base class of its errors."""
    try:
        import pyarrow.parquet as parquet
        from pyarrow import ArrowException
    except ImportError:
        raise ModelError("this needs 'pyarrow': pip install \"seqloom[data]\"") from None
    return parquet, ArrowException
