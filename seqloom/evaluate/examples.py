"""A survey of labelled files before training: counts, labels, lengths, and problems with their rows."""

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.metrics.entities import describe_illegal_moves, entities, nearest_scheme
from seqloom.tasks import task_class
from seqloom.text.labelled import TASKS, BadRow, Example, iter_rows
from seqloom.text.read import Problems
from seqloom.text.spans import Question, iter_questions
from seqloom.text.tables import NOTHING, Layout
from seqloom.text.tagged import Sentence, iter_sentences

READERS: dict[str, Callable[..., Iterator[Any]]] = {
    **{task: partial(iter_rows, task=task) for task in TASKS},
    "tag": iter_sentences,
    "span": iter_questions,
}


def survey_examples(
    task: str, files: Mapping[str, Sequence[Path]], columns: Mapping[str, str] = NOTHING, encoding: str | None = None
) -> dict[str, Any]:
    """Surveys each split, train first: examples, words, labels with their counts, and problems with the places of the first few;
    `refused`: why training would not take the files, or None. Nothing is changed, and a bad row does not end it."""
    found: dict[str, Any] = {}
    train_texts: dict[tuple[str, ...], str] = {}  # of the training examples, and where each stands
    train_labels: set[str] = set()
    scheme: str | None = None
    bad: BadRow | None = None
    read: dict[str, list[Any]] = {}
    cls: Any = task_class(task)
    layout: Layout = cls.layout(columns, encoding, need_labels=True)
    for name, paths in files.items():
        problems = Problems()
        read[name], sizes, first_bad = read_examples(task, paths, problems, layout)
        bad = bad or first_bad
        texts = find_repeats(read[name], train_texts, problems)
        labels, own_scheme = count_labels(task, read[name], problems, scheme)
        for label in sorted(labels.keys() - train_labels) if found and task in ("classify", "pair", "tag") else ():
            problems.add("a label that the training files have not", label)
        if not found:
            train_texts, train_labels, scheme = texts, set(labels), own_scheme
        found[name] = summarize_split(task, read[name], sizes, labels, own_scheme) | {"problems": problems.as_json()}
    return {"task": task, "refused": f"{bad.place}: {bad.reason}" if bad else refusal(task, read), "splits": found}


def read_examples(
    task: str, paths: Sequence[Path], problems: Problems, layout: Layout
) -> tuple[list[Any], np.ndarray, BadRow | None]:
    """The examples that can be read, texts of tables in short, with the words of each, and the first row that cannot."""
    examples, sizes, bad = [], array("q"), None
    for row in READERS[task](paths, layout=layout):
        if isinstance(row, BadRow):
            problems.add("cannot be read", f"{row.place}: {row.reason}")
            bad = bad or row
        elif isinstance(row, Sentence) and not row.words:
            problems.add("no words: left out", row.place)
        else:
            sizes.append(sum(len(text.split()) for text in texts_of(row)))
            examples.append(shorten(row))
    if not examples:
        why = next((places[0] for places in problems.places.values()), "the files are empty")
        raise DataError(f"{', '.join(map(str, paths))}: no example: {why}")
    return examples, np.array(sizes), bad


def shorten(example: Any) -> Any:
    """A row of a table with a fingerprint in place of its texts: tables may be larger than memory."""
    if not isinstance(example, Example):
        return example
    digest = hashlib.blake2b(digest_size=16)
    for text in example.texts:
        digest.update(len(text).to_bytes(8) + text.encode())
    label = sys.intern(example.label) if isinstance(example.label, str) else example.label
    return Example((digest.hexdigest(),), label, None, example.place)


def find_repeats(
    examples: Sequence[Any], train_texts: Mapping[tuple[str, ...], str], problems: Problems
) -> dict[tuple[str, ...], str]:
    """The place where each text occurs first; later ones, and those of the training files, are problems."""
    seen: dict[tuple[str, ...], tuple[str, Any]] = {}
    for example in examples:
        texts, label = texts_of(example), label_of(example)
        first, same = seen.setdefault(texts, (example.place, label))
        if first != example.place:
            again = "the same again" if same == label else "the same again, with another label"
            problems.add(again, f"{example.place} as {first}")
        elif texts in train_texts:
            problems.add("in the training files, too", f"{example.place} as {train_texts[texts]}")
    return {texts: first for texts, (first, _) in seen.items()}


def summarize_split(
    task: str, examples: Sequence[Any], sizes: np.ndarray, labels: Counter[str], scheme: str | None
) -> dict[str, Any]:
    return {
        "examples": len(examples),
        "words": {
            "total": int(sizes.sum()), "median": float(np.median(sizes)),
            "mean": float(sizes.mean()), "longest": int(sizes.max()),
        },
        "labels": dict(sorted(labels.items(), key=lambda item: (-item[1], item[0]))),
        **({"numbers": spread(examples)} if task == "regress" else {}),
        **({"scheme": scheme} if task == "tag" else {}),
    }  # fmt: skip


def refusal(task: str, examples: Mapping[str, Sequence[Any]]) -> str | None:
    """The error with which training would reject the examples."""
    cls: Any = task_class(task)
    try:
        about = cls.survey(examples["train"])
        for each in examples.values():
            cls.check_against(each, about)
    except DataError as error:
        return str(error)
    return None


def texts_of(example: Example | Sentence | Question) -> tuple[str, ...]:
    if isinstance(example, Sentence):
        return (example.text,)
    return (example.question, example.context) if isinstance(example, Question) else example.texts


def label_of(example: Example | Sentence | Question) -> Any:
    if isinstance(example, Sentence):
        return example.tags
    return sorted(example.answers) if isinstance(example, Question) else example.label


def count_labels(
    task: str, examples: Sequence[Any], problems: Problems, learnt: str | None = None
) -> tuple[Counter[str], str | None]:
    """Counts the labels: classes, numbers of right choices, kinds of entities or plain tags, answered or not. For tags also the
    scheme; transitions that it, or that of the training files (learnt), forbids are problems."""
    if task == "regress":
        return Counter(), None
    if task == "span":
        return Counter("unanswered" if each.impossible else "answered" for each in examples), None
    if task != "tag":
        return Counter(str(each.label) for each in examples), None
    tags = [each.tags for each in examples]
    try:
        scheme = nearest_scheme(tags, lambda i, j: examples[i].place_of(j))
    except DataError as error:  # tags of two sorts
        problems.add("tags of two sorts", str(error))
        scheme = None
    if scheme is None:
        return Counter(tag for each in tags for tag in each), None
    for move in describe_illegal_moves(tags, learnt or scheme, lambda i, j: examples[i].place_of(j)):
        problems.add(f"a tag that breaks {learnt or scheme} (read as conlleval does)", move)
    return Counter(kind for each in tags for kind, _, _ in entities(each)), scheme


def spread(examples: Sequence[Example]) -> dict[str, float]:
    numbers = np.array([each.label for each in examples], np.float64)
    return {
        "mean": float(numbers.mean()), "spread": float(numbers.std()),
        "least": float(numbers.min()), "greatest": float(numbers.max()),
    }  # fmt: skip
