"""Number agreement over a distance: of two forms of a word that differ in number, does a model find the right one likelier?

    colorless   Gulordava et al., 2018 (arXiv 1803.11138): sentences, and nonsense made of them by other words of the same kind.
                Two rows an item, "class" correct and wrong, the "form" in the place "len_prefix" of the sentence "sent" (in
                made-up ones the sentence has a third word there). Accuracy by construction ("pattern") and type.
    linzen      Linzen et al., 2016 (arXiv 1611.01368), as the same authors filtered it: "index" of the verb in "sentence",
                "correct", "wrong", "n_attractors" (nouns of the other number in between). A row whose index points at
                another word than the right form is left out, and counted.

Sentences are read as they are published: cut into words, a blank between any two, <eos> left out. What stands before a form
is taken from the sentence itself: the column "prefix" has <unk> for words that its authors' vocabulary lacks.
A pair with equal scores counts half: so does one of two forms that a vocabulary does not have.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.evaluate.suites.minimal import files_in, mean, won
from seqloom.text.pairs import lines
from seqloom.text.read import file_extension

COLORLESS = ("pattern", "constr_id", "sent_id", "form", "class", "type", "n_attr", "len_prefix", "sent")
LINZEN = ("index", "correct", "wrong", "n_attractors", "sentence")
END = "<eos>"


class Forms(NamedTuple):
    """Two forms for one place of a sentence."""

    before: str
    right: str
    wrong: str
    after: str
    place: str  # file:line
    group: str  # the name of its file
    attractors: int
    construction: str | None = None
    type: str | None = None


class Weighed(NamedTuple):
    log_prob: float
    unknown: bool  # the vocabulary does not have the word


def read_agreement(path: Path) -> tuple[list[Forms], list[str]]:
    """All items of a table, or of the .tsv files in a folder, and the places of rows that are left out."""
    found: list[Forms] = []
    skipped: list[str] = []
    for file in files_in(path, ".tsv", lambda file: file_extension(file) == "tsv"):
        rows = _table(file)
        place, header = next(rows, (f"{file}:1", []))
        if set(header) >= set(COLORLESS):
            found += _colorless(file, header, rows)
        elif set(header) >= set(LINZEN):
            found += _linzen(file, header, rows, skipped)
        else:
            raise DataError(
                f"{place}: no table of agreement: its first line names the columns {', '.join(COLORLESS)}, or {', '.join(LINZEN)}"
            )
    if not found:
        raise DataError(f"{path}: no pair of forms in it")
    return found, skipped


def _table(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The rows with their file:line; a cell may stand in quotes."""
    rows = csv.reader((line + "\n" for line in lines(path)), delimiter="\t", strict=True)
    width = None
    while True:
        place = f"{path}:{rows.line_num + 1}"
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise DataError(f"{place}: no row of a table ({error}): is a quote not closed?") from error
        if cells is None:
            return
        if cells:
            width = width or len(cells)
            if len(cells) != width:
                raise DataError(f"{place}: {len(cells)} columns, the first line names {width}")
            yield place, cells


def _colorless(path: Path, header: list[str], rows: Iterator[tuple[str, list[str]]]) -> Iterator[Forms]:
    pairs: dict[tuple[str, ...], dict[str, tuple[str, dict[str, str]]]] = {}
    for place, cells in rows:
        row = dict(zip(header, cells, strict=True))
        if row["class"] not in ("correct", "wrong"):
            raise DataError(f'{place}: "class" is {row["class"][:40]!r}: it is correct or wrong')
        both = pairs.setdefault((row["pattern"], row["constr_id"], row["sent_id"]), {})
        if row["class"] in both:
            raise DataError(f"{place}: the {row['class']} form of this item stands in {both[row['class']][0]} already")
        both[row["class"]] = place, row
    for both in pairs.values():
        place, row = next(iter(both.values()))
        if len(both) != 2:
            raise DataError(f"{place}: an item has two rows, correct and wrong; of this one there is one")
        right, wrong = both["correct"][1]["form"], both["wrong"][1]["form"]
        number, attractors = (_number(row, name, place) for name in ("len_prefix", "n_attr"))
        yield _forms(path, place, row["sent"], number, right, wrong, attractors)._replace(
            construction=row["pattern"], type=row["type"]
        )


def _linzen(
    path: Path, header: list[str], rows: Iterator[tuple[str, list[str]]], skipped: list[str]
) -> Iterator[Forms]:
    for place, cells in rows:
        row = dict(zip(header, cells, strict=True))
        number, attractors = (_number(row, name, place) for name in ("index", "n_attractors"))
        found = _forms(path, place, row["sentence"], number, row["correct"], row["wrong"], attractors)
        if row["sentence"].split()[number] == row["correct"]:
            yield found
        else:
            skipped.append(place)


def _forms(path: Path, place: str, sentence: str, number: int, right: str, wrong: str, attractors: int) -> Forms:
    words = sentence.removesuffix(END).split()
    if number >= len(words):
        raise DataError(f"{place}: the form has the place {number}, counted from 0, the sentence {len(words)} words")
    for form in (right, wrong):
        if form.split() != [form]:
            raise DataError(f"{place}: {form[:40]!r} is no form of a word")
    before, after = " ".join(words[:number]), " ".join(words[number + 1 :])
    return Forms(before, right, wrong, after, place, path.name.partition(".")[0], attractors)


def _number(row: dict[str, str], name: str, place: str) -> int:
    if not row[name].isascii() or not row[name].isdigit() or len(row[name]) > 9:
        raise DataError(f'{place}: "{name}" is {row[name][:40]!r}: it is a whole number')
    return int(row[name])


# words with what stands before and after them, and where they are from, for messages
Weigh = Callable[[Sequence[str], Sequence[str], Sequence[str], Sequence[str]], list[Weighed]]


def score_agreement(items: Sequence[Forms], skipped: Sequence[str], weigh: Weigh) -> dict[str, Any]:
    twice = [each for each in items for _ in range(2)]
    words = [form for each in items for form in (each.right, each.wrong)]
    found = weigh([e.before for e in twice], words, [e.after for e in twice], [e.place for e in twice])
    points = [won(a.log_prob, b.log_prob) for a, b in zip(found[::2], found[1::2], strict=True)]
    unknown = sum(a.unknown or b.unknown for a, b in zip(found[::2], found[1::2], strict=True))
    result: dict[str, Any] = {"accuracy": mean(points), "pairs": len(items), "ties": points.count(0.5)}
    result |= {"unknown": unknown, "skipped": len(skipped)}
    if skipped:
        result["skipped_because"] = f"another word than the right form stands at the index, first in {skipped[0]}"
    for kind in ("type", "attractors", "construction", "group"):
        groups: dict[Any, list[float]] = {}
        for each, point in zip(items, points, strict=True):
            if getattr(each, kind) is not None:
                groups.setdefault(getattr(each, kind), []).append(point)
        if groups:
            name = "set" if kind == "group" else kind
            result[f"by_{name}"] = {str(label): mean(groups[label]) for label in sorted(groups)}
    return result | {"items": points}
