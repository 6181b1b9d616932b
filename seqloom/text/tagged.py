"""Words with a tag each: CoNLL columns (word first, tag last, a blank line between sentences) or jsonl {"words", "tags"}.

Where tags are not needed (`predict`), columns after the first are ignored, a row of jsonl may have {"text"} instead of {"words"},
and so may one of csv or parquet; a file may also have plain sentences, one per line. Their words are found by `word_spans`. Every
row may have an "id". A bad row is an error with its file and line, or, where tags are not needed, a BadRow.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from seqloom.errors import DataError, UsageError
from seqloom.progress import say
from seqloom.text.labelled import (
    BLANK,
    NOT_TEXT,
    BadRow,
    Id,
    check_unique,
    id_of,
    known_id,
    lines_of,
    reject_bad_rows,
    seen_ids,
    text_of,
)
from seqloom.text.pairs import lines_with_errors
from seqloom.text.read import file_extension, file_format
from seqloom.text.tables import NOTHING, PLAIN, Layout, Names, Table, fields_of

DOCUMENT = "-DOCSTART-"  # a line that is not a word in some files
COLUMNS = ("conll", "conllu", "conllx", "bio", "iob", "iob2", "iobes", "tsv")  # what names of files with columns end in
TAG = re.compile("O|[BIES](-.+)?")
HEAD = 1000  # lines that decide whether a file is in columns
FEW = 5  # fewer lines decide nothing by having as many columns each
JOINERS = "\u200c\u200d"  # inside words of some scripts


class Sentence(NamedTuple):
    words: list[str]
    tags: list[str]  # none where they are not needed
    place: str  # file:line of its first word
    columns: bool = False  # each word has a line of its own
    id: Id | None = None
    source: str | None = None  # the text whose words were found by `word_spans`, if any
    row: Mapping[str, Any] | None = None  # all columns of its row, where tags are not needed and it has some

    def place_of(self, word: int) -> str:
        """file:line of a word, by its number from 0; in a row of jsonl, which of its words."""
        if not self.columns:
            return f"{self.place}, word {word + 1}"
        path, _, line = self.place.rpartition(":")
        return f"{path}:{int(line) + word}"

    @property
    def text(self) -> str:
        """Its words with blanks between them; none between single characters of scripts that write none."""
        if self.source is not None:
            return self.source
        return "".join(word + space for word, space in zip(self.words, self.spaces, strict=True))

    @property
    def spaces(self) -> list[str]:
        """The space after each word in `text`."""
        between = ["" if is_unspaced(a) and is_unspaced(b) else " " for a, b in itertools.pairwise(self.words)]
        return [*between, ""]

    @property
    def word_offsets(self) -> list[tuple[int, int]]:
        """Where each word begins and ends in the text, in characters."""
        if self.source is not None:
            return word_spans(self.source)
        sizes = [len(word) + len(space) for word, space in zip(self.words, self.spaces, strict=True)]
        starts = itertools.accumulate(sizes, initial=0)
        return [(start, start + len(word)) for start, word in zip(starts, self.words, strict=False)]


def is_unspaced(word: str) -> bool:
    """A character of a script without blanks between words: Chinese, Japanese."""
    return len(word) == 1 and ("\u3000" <= word <= "\u9fff" or "\uff00" <= word <= "\uffef" or word in "“”‘’…—·")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a plain text begin and end: runs of letters, marks and digits; any other character that is no blank is
    a word of its own, and so is one of a script without blanks between words."""
    found: list[tuple[int, int]] = []
    before = False  # whether the last character was one of a run
    for i, character in enumerate(text):
        runs = character in JOINERS or (unicodedata.category(character)[0] in "LMN" and not is_unspaced(character))
        if runs and before:
            found[-1] = (found[-1][0], i + 1)
        elif not character.isspace():
            found.append((i, i + 1))
        before = runs
    return found


@overload
def read_tagged(paths: Sequence[Path], *, layout: Layout = PLAIN) -> Iterator[Sentence]: ...
@overload
def read_tagged(paths: Sequence[Path], need_tags: Literal[True], layout: Layout = PLAIN) -> Iterator[Sentence]: ...
@overload
def read_tagged(paths: Sequence[Path], need_tags: bool, layout: Layout = PLAIN) -> Iterator[Sentence | BadRow]: ...
def read_tagged(paths: Sequence[Path], need_tags: bool = True, layout: Layout = PLAIN) -> Iterator[Sentence | BadRow]:
    """The sentences of all files in their order. Without need_tags, tags are ignored and bad rows are returned as BadRow."""
    if not need_tags:
        return iter_sentences(paths, False, layout)
    rows = (row for row in iter_sentences(paths, True, layout) if isinstance(row, BadRow) or row.words)
    return reject_bad_rows(rows, paths, "sentence")


def iter_sentences(
    paths: Sequence[Path], need_tags: bool = True, layout: Layout = PLAIN
) -> Iterator[Sentence | BadRow]:
    """Every sentence, bad rows as BadRow. With tags, a sentence may have no words."""
    seen = seen_ids(need_tags)
    for path in paths:
        for found in _rows(path, need_tags, layout):
            if isinstance(found, Sentence) and found.id is not None:
                try:
                    check_unique(found.id, found.place, seen)
                except ValueError as wrong:
                    found = BadRow(found.place, str(wrong), found.id, found.row)
            yield found
    seen.say()


def _rows(path: Path, need_tags: bool, layout: Layout) -> Iterator[Sentence | BadRow]:
    ending = file_extension(path)
    tabular = ending == "csv" or file_format(path) == "parquet" or (ending == "tsv" and layout.columns)
    if file_format(path) == "jsonl" or (tabular and not need_tags):
        return _objects(path, need_tags, layout)
    if layout.columns or tabular:
        raise UsageError(
            f"{path}: words with their tags are read from columns without names, or from jsonl with words and tags"
        )
    if not need_tags and ending not in COLUMNS:
        head = (line for line, _ in itertools.islice(lines_with_errors(path, layout.encoding), HEAD))
        if not has_columns(head):
            say(f"{path}: read as plain sentences, one per line (files with columns have one word per line)")
            return _sentences(path, layout)
    return _columns(path, need_tags, layout)


def has_columns(lines: Iterable[str]) -> bool:
    """Whether lines are words with columns behind them, rather than plain sentences: each is a single word, or has tabs, or ends
    in a tag; or all have as many columns, in groups between blank lines."""
    rows = [line.strip() for line in lines]
    words = [re.split("[ \t]+", row) for row in rows if row and not row.startswith(DOCUMENT)]
    if not words or all(len(row) == 1 for row in words) or any("\t" in row for row in rows):
        return True
    if all(len(row) > 1 and TAG.fullmatch(row[-1]) for row in words):
        return True
    grouped = len(words) >= FEW and "" in rows[1:-1]
    return grouped and len({len(row) for row in words}) == 1


def _sentences(path: Path, layout: Layout) -> Iterator[Sentence | BadRow]:
    for place, row in lines_of(lines_with_errors(path, layout.encoding), f"{path}:"):
        if row == BLANK:  # between sentences, as between those with tags
            continue
        yield BadRow(place, row) if isinstance(row, str) else _sentence(row, place, need_tags=False)


def _columns(path: Path, need_tags: bool, layout: Layout) -> Iterator[Sentence | BadRow]:
    words: list[str] = []
    tags: list[str] = []
    start, width = 1, 0
    bad: BadRow | None = None  # the first line of the sentence that cannot be read
    for number, (line, wrong) in enumerate(itertools.chain(lines_with_errors(path, layout.encoding), [("", None)]), 1):
        parts = re.split("[ \t]+", line.strip(" \t")) if line.strip() else []
        if wrong is None and (not parts or parts[0] == DOCUMENT):
            if bad is not None:
                yield bad
            elif words:
                yield Sentence(words, tags, f"{path}:{start}", columns=True)
            words, tags, start, width, bad = [], [], number + 1, 0, None
            continue
        if wrong is None and need_tags:
            width = width or len(parts)
            if len(parts) < 2:
                wrong = "one column: a line needs a word first and its tag last"
            elif len(parts) != width:
                wrong = (
                    f"{len(parts)} columns, but the first word of the sentence has {width}: a word or a tag is missing"
                )
        if wrong is not None:
            bad = bad or BadRow(f"{path}:{number}", wrong)
            continue
        words.append(parts[0])
        tags += parts[-1:] if need_tags else []


def _objects(path: Path, need_tags: bool, layout: Layout) -> Iterator[Sentence | BadRow]:
    table = Table(path, layout, ("words", "tags") if need_tags else ("text",))
    wanted = ["text"] if table.header is not None and not need_tags else []
    names = table.columns_of(wanted, ["words", "tags", "text", "id"])
    for place, row in table.rows:
        kept = row if not need_tags and isinstance(row, dict) else None
        try:
            yield _sentence(fields_of(row), place, need_tags, names)._replace(row=kept)
        except ValueError as wrong:
            yield BadRow(place, str(wrong), known_id(row, names), kept)


def sentence_of(row: Mapping[str, Any], place: str) -> Sentence:
    """One row without tags from any source; DataError with its place if it is bad."""
    try:
        return _sentence(row, place, need_tags=False)
    except ValueError as wrong:
        raise DataError(f"{place}: {wrong}") from None


def _sentence(row: Mapping[str, Any], place: str, need_tags: bool, names: Names = NOTHING) -> Sentence:
    name, text_name, tags_name = (names.get(field, field) for field in ("words", "text", "tags"))
    if not need_tags and not isinstance(row.get(name), list) and (row.get(name) is None or "text" in names):
        if row.get(text_name) is None:
            raise ValueError(f'neither "{name}" nor "{text_name}"')
        text = text_of(row, text_name)
        return Sentence([text[a:b] for a, b in word_spans(text)], [], place, id=id_of(row, names), source=text)
    words = _strings(row, name)
    tags = _strings(row, tags_name) if need_tags else []
    if need_tags and len(words) != len(tags):
        raise ValueError(f"{len(words)} words but {len(tags)} tags")
    if not words and not need_tags:
        raise ValueError(f'"{name}" is empty')
    return Sentence(words, tags, place, id=id_of(row, names))


def _strings(row: Mapping[str, Any], name: str) -> list[str]:
    value = row.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f'"{name}" is not a list of strings')
    for i, each in enumerate(value, 1):
        if not each:
            raise ValueError(f'number {i} of "{name}" is empty')
        if NOT_TEXT.search(each):
            raise ValueError(f'number {i} of "{name}" contains a NUL or a lone surrogate, which is not valid text')
    return value


def split_tag(tag: str) -> tuple[str, str]:
    """A tag's mark and kind: B and PER of B-PER. It is split at the first hyphen: creative-work is one kind."""
    mark, _, kind = tag.partition("-")
    return mark, kind


def continues_entity(tags: Sequence[str]) -> list[bool]:
    """Which words continue the entity of the word before them. IOB1, IOB2 and IOBES are read alike: an entity continues where a
    tag is inside or at the end (I, E) and the one before it is of the same kind and did not end (O, E, S)."""
    found, before = [], "O"
    for tag in tags:
        (mark, kind), (last, other) = split_tag(tag), split_tag(before)
        found.append(mark in ("I", "E") and kind == other and last in ("B", "I"))
        before = tag
    return found
