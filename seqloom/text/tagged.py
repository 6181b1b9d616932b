"""Words with a tag each: CoNLL columns (word first, tag last, a blank line between sentences) or jsonl {"words", "tags"}."""

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.errors import DataError
from seqloom.text.pairs import lines
from seqloom.text.read import form_of, has_half_character

DOCUMENT = "-DOCSTART-"  # a line that is no word in some files


class Sentence(NamedTuple):
    words: list[str]
    tags: list[str]
    place: str  # file:line of its first word
    columns: bool = False  # each word has a line of its own

    def place_of(self, word: int) -> str:
        """file:line of a word, by its number from 0; in a row of jsonl, which of its words."""
        if not self.columns:
            return f"{self.place}, word {word + 1}"
        path, _, line = self.place.rpartition(":")
        return f"{path}:{int(line) + word}"

    @property
    def text(self) -> str:
        """Its words with blanks between them; none between single characters of scripts that write none."""
        return "".join(word + space for word, space in zip(self.words, self.spaces, strict=True))

    @property
    def spaces(self) -> list[str]:
        """What stands behind each word."""
        parted = ["" if unspaced(a) and unspaced(b) else " " for a, b in itertools.pairwise(self.words)]
        return [*parted, ""]


def unspaced(word: str) -> bool:
    """A character of a script without blanks between words: Chinese, Japanese."""
    return len(word) == 1 and ("\u3000" <= word <= "\u9fff" or "\uff00" <= word <= "\uffef" or word in "“”‘’…—·")


def read_tagged(paths: Sequence[Path]) -> Iterator[Sentence]:
    for path in paths:
        yield from _rows(path) if form_of(path) == "jsonl" else _columns(path)


def _columns(path: Path) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    start = 1
    for number, line in enumerate(itertools.chain(lines(path), [""]), 1):
        parts = line.split()
        if not parts or parts[0] == DOCUMENT:
            if words:
                yield Sentence(words, tags, f"{path}:{start}", columns=True)
            words, tags, start = [], [], number + 1
            continue
        if len(parts) < 2:
            raise DataError(f"{path}:{number}: one column: a line has a word first and its tag last")
        words.append(parts[0])
        tags.append(parts[-1])


def _rows(path: Path) -> Iterator[Sentence]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: no valid JSON ({error})") from error
        words, tags = (value.get(key) if isinstance(value, dict) else None for key in ("words", "tags"))
        for name, part in (("words", words), ("tags", tags)):
            if not isinstance(part, list) or not all(isinstance(each, str) for each in part):
                raise DataError(f'{place}: "{name}" is no list of strings')
        assert isinstance(words, list) and isinstance(tags, list)
        if len(words) != len(tags):
            raise DataError(f"{place}: {len(words)} words and {len(tags)} tags")
        if has_half_character("".join(words)):
            raise DataError(f"{place}: half of a character (\\ud800 … \\udfff alone): write the line anew")
        if words:
            yield Sentence(words, tags, place)


def parted(tag: str) -> tuple[str, str]:
    """Its mark and its kind: B and PER of B-PER. The first hyphen parts them: creative-work is one kind."""
    mark, _, kind = tag.partition("-")
    return mark, kind


def continued(tags: Sequence[str]) -> list[bool]:
    """Which words go on with the entity of the word before them. IOB1, IOB2 and IOBES are read alike: an entity goes on where a
    tag is inside or at the end (I, E) and the one before it is of the same kind and did not end (O, E, S)."""
    found, before = [], "O"
    for tag in tags:
        (mark, kind), (last, other) = parted(tag), parted(before)
        found.append(mark in ("I", "E") and kind == other and last in ("B", "I"))
        before = tag
    return found
