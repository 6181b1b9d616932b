"""Occurrences of a word, with its sense where that is known.

senses      jsonl {"word", "sense", "tokens", "head"}, as Senseval's instances are stored: the place of the word in tokens
same        the tables of Word in Context: T or F, the word, its part of speech, the places i-j, and two sentences
text        any text, one per line: all places where the word stands
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.analyse.probe import Item, Items
from seqloom.errors import DataError, UsageError
from seqloom.text.pairs import lines


class Pairs(NamedTuple):
    """Two occurrences each, and whether they have one sense."""

    items: Items  # two for each pair, one after the other
    same: list[bool]


def spans_of(words: Sequence[str], place: int) -> tuple[int, int]:
    """The characters of a word in words with blanks between them."""
    start = sum(len(word) + 1 for word in words[:place])
    return start, start + len(words[place])


def read_senses(path: Path, word: str | None, most: int) -> Items:
    """Evenly over the file, at most `most`; of a text those without senses."""
    first = next((line for line in lines(path) if line.strip()), "")
    labelled = first.lstrip().startswith("{")
    found = tagged(path, word) if labelled else plain(path, word)
    if not found:
        where = "with this key" if labelled else "in it"
        raise DataError(
            f"{path}: the word {word!r} does not occur {where}: choose another --word"
            if word
            else f"{path}: no words in it"
        )
    step = max(len(found) / most, 1.0)
    found = [found[int(i * step)] for i in range(min(most, len(found)))]
    texts = {place: text for text, *_, place in found}  # a text with several occurrences is read once
    numbers = {place: i for i, place in enumerate(texts)}
    items = [Item(numbers[place], (span,), sense, form) for _, span, sense, form, place in found]
    return Items(list(texts.values()), items, list(texts))


Occurrence = tuple[str, tuple[int, int], str, str, str]  # text, span, sense, word, place


def tagged(path: Path, word: str | None) -> list[Occurrence]:
    found = []
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
            tokens, head, sense, form = row["tokens"], int(row["head"]), str(row["sense"]), str(row["word"])
            if not 0 <= head < len(tokens):
                raise ValueError(f"head {head} of {len(tokens)} tokens")
            span = spans_of(tokens, head)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DataError(f'{place}: no row of {{"word", "sense", "tokens", "head"}} ({error})') from error
        if word in (None, form):
            found.append((" ".join(tokens), span, sense if word else f"{form}.{sense}", form, place))
    return found


def plain(path: Path, word: str | None) -> list[Occurrence]:
    if word is None:
        raise UsageError(f"--word: {path} has no senses: name the word whose occurrences are looked for")
    pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    return [
        (line, match.span(), "", word, f"{path}:{number}")
        for number, line in enumerate(lines(path), 1)
        for match in pattern.finditer(line)
    ]


def read_same(path: Path) -> Pairs:
    texts: list[str] = []
    items: list[Item] = []
    places: list[str] = []
    same = []
    for number, line in enumerate(lines(path), 1):
        cells = line.rstrip("\n").split("\t")
        place = f"{path}:{number}"
        try:
            label, word, _, where, *sentences = cells
            for index, sentence in zip(where.split("-"), sentences, strict=True):
                items.append(Item(len(texts), (spans_of(sentence.split(" "), int(index)),), "", word))
                texts.append(sentence)
                places.append(place)
            same.append({"T": True, "F": False}[label])
        except (ValueError, KeyError, IndexError) as error:
            raise DataError(
                f"{place}: no row of T or F, word, part of speech, i-j and two sentences ({error})"
            ) from error
    if not same:
        raise DataError(f"{path} has no pairs: give a table of Word in Context")
    return Pairs(Items(texts, items, places), same)
