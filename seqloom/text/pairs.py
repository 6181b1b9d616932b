"""Pairs of texts: two aligned files, one line each; a TSV of two columns; or jsonl with "source" and "target".

The two sides stay aligned: a line that cannot be read, a row without two columns and files of different lengths are errors that
name the line. Any of the files may be compressed with gz, xz or zst.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError, UsageError
from seqloom.files import parse_json
from seqloom.text.read import MAX_DOCUMENT, Problems, file_extension, file_format
from seqloom.text.stream import InputFile, check_text, guess_encoding


class TextPair(NamedTuple):
    source: str
    target: str
    place: str  # file:line


def read_pairs(paths: Sequence[Path]) -> Iterator[TextPair]:
    """Every pair in order, including empty ones: the caller decides about them."""
    if len(paths) == 2:
        return _aligned(*paths)
    if len(paths) != 1:
        raise UsageError(f"{len(paths)} files: give two aligned files (source, target), one .tsv, or one .jsonl")
    return _rows(paths[0])


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file without their ends."""
    for number, (line, wrong) in enumerate(lines_with_errors(path), 1):
        if wrong is not None:
            raise DataError(f"{path}:{number}: {wrong}")
        yield line


def lines_with_errors(path: Path, encoding: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Every line and its error, if any, so that the caller can continue; a bad line has what can be decoded of it. encoding: of a
    file that is not UTF-8."""
    with InputFile(path, encoding) as opened:
        check_text(path, opened.bytes.peek(1 << 12))
        utf_8: int | None = None  # the first line of UTF-8 beyond ASCII
        for number in itertools.count(1):
            raw = opened.bytes.readline(MAX_DOCUMENT + 1)
            if not raw:
                return
            wrong = None
            if len(raw) > MAX_DOCUMENT:
                wrong = f"the line is longer than {MAX_DOCUMENT // 10**6} MB: check the file"
                while raw and not raw.endswith(b"\n"):
                    raw = opened.bytes.readline(MAX_DOCUMENT)
                raw = b""
            elif b"\0" in raw:
                wrong = "the line has a NUL byte: this is not a text file"
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                wrong = f"not valid UTF-8 ({error.reason}): convert the file to UTF-8"
                if utf_8 is None:
                    wrong += f", or give --encoding {guess_encoding(raw)} where there is that option"
                else:
                    wrong += f"; line {utf_8} is UTF-8, so the file has lines in two encodings"
                line = raw.decode("utf-8", "replace")
            else:
                utf_8 = number if utf_8 is None and not line.isascii() else utf_8
            yield line.rstrip("\r\n"), wrong


def _aligned(source: Path, target: Path) -> Iterator[TextPair]:
    missing = object()
    left, right = lines(source), lines(target)
    for number, (a, b) in enumerate(itertools.zip_longest(left, right, fillvalue=missing), 1):
        if not isinstance(a, str) or not isinstance(b, str):
            short, long, rest = (source, target, right) if a is missing else (target, source, left)
            more = number + sum(1 for _ in rest)
            raise DataError(
                f"{short} has {number - 1:,} lines, {long} has {more:,}: aligned files must have the same number of lines; "
                f"find the first line where they differ"
            )
        yield TextPair(a, b, f"{source}:{number}")


def _rows(path: Path) -> Iterator[TextPair]:
    form = file_format(path)
    if form == "txt" and file_extension(path) != "tsv":
        raise UsageError(
            f"{path}: a single file must be .tsv (source, tab, target) or .jsonl: otherwise give two aligned files"
        )
    for number, line in enumerate(lines(path), 1):
        place = f"{path}:{number}"
        if form == "jsonl":
            if not line.strip():
                continue
            try:
                value = parse_json(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{place}: not valid JSON ({error})") from error
            wanted = [value.get(key) if isinstance(value, dict) else None for key in ("source", "target")]
            if not all(isinstance(part, str) for part in wanted):
                raise DataError(f'{place}: not an object with the strings "source" and "target"')
            a, b = (" ".join(str(part).split("\n")) for part in wanted)
        else:
            columns = line.split("\t")
            if len(columns) != 2:
                raise DataError(f"{place}: {len(columns)} columns, but a TSV of pairs needs two: source and target")
            a, b = columns
            if number == 1 and (a.lower(), b.lower()) == ("source", "target"):
                continue
        yield TextPair(a, b, place)


MAX_LENGTH_RATIO = 3.0  # of the words of both sides, where one has more than a few


def survey_pairs(paths: Sequence[Path]) -> dict[str, Any]:
    """Counts, lengths in words, and lines with problems; nothing is changed."""
    problems = Problems()
    seen: set[int] = set()
    words: tuple[list[int], list[int]] = ([], [])
    for source, target, place in read_pairs(paths):
        sizes = len(source.split()), len(target.split())
        for side, size in zip(words, sizes, strict=True):
            side.append(size)
        key = hash((source, target))
        if not all(sizes):
            problems.add("an empty side", place)
        elif key in seen:
            problems.add("the same pair again", place)
        elif source == target:
            problems.add("source and target are the same", place)
        elif max(sizes) > 5 and max(sizes) > MAX_LENGTH_RATIO * min(sizes):
            problems.add(f"one side has more than {MAX_LENGTH_RATIO:g} times the words of the other", place)
        seen.add(key)
    if not words[0]:
        raise DataError(f"{', '.join(map(str, paths))}: no pairs: the files are empty")
    sides = {
        name: {"words": sum(side), "mean": sum(side) / len(side), "longest": max(side)}
        for name, side in zip(("source", "target"), words, strict=True)
    }
    return {"pairs": len(words[0]), **sides, "problems": problems.as_json()}


def repeated_sources(held_out: Iterable[TextPair], train: Iterable[TextPair]) -> list[str]:
    """The places of held-out sources that are also in the training text."""
    known = {hash(pair.source) for pair in train}
    return [pair.place for pair in held_out if pair.source.strip() and hash(pair.source) in known]
