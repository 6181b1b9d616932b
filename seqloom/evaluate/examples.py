"""A look at labelled files before anything is learnt from them: counts, labels, lengths, and what is odd about which rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.metrics.entities import entities, illegal_moves, nearest_scheme
from seqloom.text.labelled import TASKS, BadRow, Example, each_row
from seqloom.text.read import Problems
from seqloom.text.spans import Question, each_question
from seqloom.text.tagged import Sentence, each_sentence

READERS: dict[str, Callable[[Sequence[Path]], Iterator[Any]]] = {
    **{task: partial(each_row, task=task) for task in TASKS},
    "tag": each_sentence,
    "span": each_question,
}


def survey_examples(task: str, files: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """Of each split, train first: examples, words, labels with their counts, and problems with the places of the first few.
    Nothing is changed, and a bad row does not end it."""
    found: dict[str, Any] = {}
    known: dict[tuple[str, ...], str] = {}  # the texts of the training examples
    learnt: set[str] = set()
    for name, paths in files.items():
        problems, examples = Problems(), []
        for row in READERS[task](paths):
            if isinstance(row, BadRow):
                problems.add("cannot be read", f"{row.place}: {row.reason}")
            else:
                examples.append(row)
        if not examples:
            why = next((places[0] for places in problems.places.values()), "the files are empty")
            raise DataError(f"{', '.join(map(str, paths))}: no example: {why}")
        seen: dict[tuple[str, ...], tuple[str, Any]] = {}
        for example in examples:
            texts, label = texts_of(example), label_of(example)
            first, same = seen.setdefault(texts, (example.place, label))
            if first != example.place:
                again = "the same again" if same == label else "the same again, with another label"
                problems.add(again, f"{example.place} as {first}")
            elif texts in known:
                problems.add("in the training files, too", f"{example.place} as {known[texts]}")
        labels, scheme = counted(task, examples, problems)
        for label in sorted(labels.keys() - learnt) if found and task in ("classify", "pair", "tag") else ():
            problems.add("a label that the training files have not", label)
        if not found:
            known, learnt = {texts: first for texts, (first, _) in seen.items()}, set(labels)
        sizes = np.array([sum(len(text.split()) for text in texts_of(example)) for example in examples])
        found[name] = {
            "examples": len(examples),
            "words": {
                "total": int(sizes.sum()), "median": float(np.median(sizes)),
                "mean": float(sizes.mean()), "longest": int(sizes.max()),
            },
            "labels": dict(sorted(labels.items(), key=lambda item: (-item[1], item[0]))),
            **({"numbers": spread(examples)} if task == "regress" else {}),
            **({"scheme": scheme} if task == "tag" else {}),
            "problems": problems.as_json(),
        }  # fmt: skip
    return {"task": task, "splits": found}


def texts_of(example: Example | Sentence | Question) -> tuple[str, ...]:
    if isinstance(example, Sentence):
        return (example.text,)
    return (example.question, example.context) if isinstance(example, Question) else example.texts


def label_of(example: Example | Sentence | Question) -> Any:
    if isinstance(example, Sentence):
        return example.tags
    return sorted(example.answers) if isinstance(example, Question) else example.label


def counted(task: str, examples: Sequence[Any], problems: Problems) -> tuple[Counter[str], str | None]:
    """How often each label occurs: classes; numbers of right choices; kinds of entities, or plain tags; answered or not. Of
    tags the scheme, too, with moves that it does not allow as problems."""
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
    for i, j in illegal_moves(tags, scheme):
        problems.add(f"an illegal move in {scheme}", examples[i].place_of(min(j, len(tags[i]) - 1)))
    return Counter(kind for each in tags for kind, _, _ in entities(each)), scheme


def spread(examples: Sequence[Example]) -> dict[str, float]:
    numbers = np.array([each.label for each in examples], np.float64)
    return {
        "mean": float(numbers.mean()), "spread": float(numbers.std()),
        "least": float(numbers.min()), "greatest": float(numbers.max()),
    }  # fmt: skip
