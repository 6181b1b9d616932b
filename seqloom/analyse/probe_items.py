"""What probes are asked about: words with tags, stretches of texts with labels, whole texts, and the number of a verb.

words       CoNLL columns or jsonl {"words", "tags"}: a label for each word
sentences   jsonl, csv or tsv with "text" and "label": a label for each text
spans       jsonl {"text", "span": [from, to], "label"}, or "spans" with two of them: characters of the text
agreement   the published tables of number agreement: the word before a verb, whose label is the right form's number
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from seqloom.analyse.probe import Item, Items
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.suites.agreement import read_agreement
from seqloom.text.labelled import read_labelled
from seqloom.text.pairs import lines
from seqloom.text.tagged import read_tagged, word_spans

Read = tuple[str, str, list[tuple[tuple[tuple[int, int], ...], str]]]  # text, place, spans with their labels

# verbs and auxiliaries of which the form alone says the number, where it does not end in s
SINGULAR = {"is", "was", "has", "does"}


def read_items(path: Path, most: int, skip: int = 0) -> Items:
    """The items of a file, of as many whole texts as have at most so many. skip: texts at the beginning that are left out."""
    texts: list[str] = []
    items: list[Item] = []
    places: list[str] = []
    for number, (text, place, found) in enumerate(reader_of(path)(path)):
        if number < skip:
            continue
        if items and len(items) + len(found) > most:
            break
        for spans, label in found:
            for a, b in spans:
                if not 0 <= a < b <= len(text):
                    raise DataError(
                        f"{place}: the span {a} to {b} is not in the text, which has {len(text)} characters"
                    )
            items.append(Item(len(texts), spans, label, form_of(text, spans)))
        texts.append(text)
        places.append(place)
    if not items:
        raise DataError(f"{path}: no labels in it: see 'seqloom probe --help' for its form")
    return Items(texts, items, places)


def form_of(text: str, spans: tuple[tuple[int, int], ...]) -> str:
    """Of a word itself; of a longer stretch its last word, so that forms come again."""
    words = [text[a:b].lower().split() or [""] for a, b in spans]
    return " ".join(each[-1] for each in words)


def reader_of(path: Path) -> Callable[[Path], Iterator[Read]]:
    """By what the first line of a file has."""
    first = next((line for line in lines(path) if line.strip()), "")
    if "\t" in first and {"correct", "sent"} & set(first.strip().split("\t")):
        return agreement
    if not first.lstrip().startswith("{"):
        return sentences if path.name.split(".")[-1] in ("csv", "tsv") else words
    try:
        row = json.loads(first)
    except ValueError as error:
        raise DataError(f"{path}:1: no JSON object ({error})") from error
    keys = set(row) if isinstance(row, dict) else set()
    if "words" in keys:
        return words
    return spans if {"span", "spans"} & keys else sentences


def words(path: Path) -> Iterator[Read]:
    for sentence in read_tagged([path]):
        found: list[tuple[tuple[tuple[int, int], ...], str]] = [
            ((span,), tag) for span, tag in zip(sentence.word_offsets, sentence.tags, strict=True)
        ]
        yield sentence.text, sentence.place, found


def sentences(path: Path) -> Iterator[Read]:
    for example in read_labelled([path], "classify"):
        text = example.texts[0]
        yield text, example.place, [(((0, len(text)),), str(example.label))]


def spans(path: Path) -> Iterator[Read]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
            given: Any = [row["span"]] if "span" in row else row["spans"]
            found = tuple((int(a), int(b)) for a, b in given)
            text, label = row["text"], row["label"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f'{place}: no row of {{"text", "span": [from, to], "label"}} ({error})') from error
        if not isinstance(text, str) or not 1 <= len(found) <= 2:
            raise DataError(f"{place}: a row has a text and one span or two")
        yield text, place, [(found, str(label))]


def agreement(path: Path) -> Iterator[Read]:
    """What stands before the verb, and whether the verb must be singular; the last word is the place that is asked."""
    forms, _skipped = read_agreement(path)
    for each in forms:
        spots = word_spans(each.before)
        if not spots:
            continue
        singular = each.right in SINGULAR or (each.right.endswith("s") and not each.wrong.endswith("s"))
        yield each.before, each.place, [(((spots[-1],)), "singular" if singular else "plural")]


def check_pairs(train: Items, test: Items, names: tuple[str, str]) -> None:
    """Raises where two files do not ask the same: one stretch against two."""
    sizes = {len(item.spans) for item in chain(train.items, test.items)}
    if len(sizes) > 1:
        raise UsageError(f"{names[0]} and {names[1]}: some items have one span and some two: probe them one by one")
    known, asked = ({item.label for item in each.items} for each in (train, test))
    if not known & asked:
        some = ", ".join(sorted(asked)[:5])
        raise DataError(f"{names[1]}: none of its labels ({some}) is in {names[0]}: give files of the same task")
