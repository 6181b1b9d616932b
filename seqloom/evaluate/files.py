"""Scores of predictions in files, made by any program, against gold files."""

import math
from pathlib import Path
from typing import Any

from seqloom.errors import DataError, UsageError
from seqloom.metrics.entities import SCHEMES, entity_scores, marks_of, scheme_of
from seqloom.metrics.labels import label_scores, number_scores
from seqloom.metrics.spans import span_scores
from seqloom.metrics.translation import translation_scores
from seqloom.text.labelled import Label, number_of, read_labels
from seqloom.text.pairs import lines
from seqloom.text.spans import read_answers, read_questions
from seqloom.text.tagged import read_tagged, split_tag


def translation_files(gold: Path, predicted: Path, tokenize: str, lowercase: bool) -> dict[str, Any]:
    return translation_scores(list(lines(predicted)), list(lines(gold)), tokenize, lowercase)


def tag_files(gold: Path, predicted: Path, strict: bool = False) -> dict[str, Any]:
    """Entity scores; for plain tags, such as parts of speech, label scores."""
    right, found = list(read_tagged([gold])), list(read_tagged([predicted]))
    for a, b in zip(right, found, strict=False):
        if len(a.words) != len(b.words):
            raise DataError(f"{b.place}: {len(b.words)} words, {a.place} has {len(a.words)}: tag the same sentences")
        for i, (word, other) in enumerate(zip(a.words, b.words, strict=True)):
            if word != other:
                raise DataError(
                    f"{b.place_of(i)}: the word {other!r}, {a.place_of(i)} has {word!r}: tag the same sentences"
                )
    tags, predicted_tags = ([sentence.tags for sentence in side] for side in (right, found))
    if len(tags) == len(predicted_tags) and marks_of(tags, lambda i, j: right[i].place_of(j)) is None:
        if strict:
            raise UsageError(f"--strict: it is about entities, and the tags of {gold} are plain labels: leave it out")
        return label_scores([tag for each in tags for tag in each], [tag for each in predicted_tags for tag in each])
    scheme = scheme_of(tags, lambda i, j: right[i].place_of(j)) if strict else None
    for sentence in found if scheme else ():
        for i, tag in enumerate(sentence.tags):
            if split_tag(tag)[0] not in SCHEMES[str(scheme)]:
                raise DataError(f"{sentence.place_of(i)}: the tag {tag!r} is none of {scheme}, which {gold} is in")
    return entity_scores(tags, predicted_tags, strict, scheme)


def span_files(gold: Path, predicted: Path, threshold: float | None = None) -> dict[str, Any]:
    """Span scores. threshold: of the probability of no answer, 1 unless given."""
    if threshold is not None and math.isnan(threshold):
        raise UsageError(f"--threshold {threshold}: give a number")
    answers, no_answer = read_answers(predicted)
    if threshold is not None and no_answer is None:
        raise UsageError(
            f'--threshold {threshold:g}: {predicted} does not say how likely no answer is: give "no_answer" in rows of jsonl, or '
            "leave the option out"
        )
    questions = {each.id: [text for text, _ in each.answers] for each in read_questions([gold])}
    return span_scores(questions, answers, no_answer, 1.0 if threshold is None else threshold)


def label_files(gold: Path, predicted: Path, column: str | None = None) -> dict[str, Any]:
    """column: of the gold labels, where it is not "label"."""
    right, found = _read_matching(gold, predicted, column)
    return label_scores([each.label for each in right], [each.label for each in found])


def number_files(gold: Path, predicted: Path, column: str | None = None) -> dict[str, Any]:
    """column: of the gold numbers, where it is not "label"."""
    sides = _read_matching(gold, predicted, column)
    return number_scores(*([_number(each) for each in side] for side in sides))


def _number(label: Label) -> float:
    try:
        return number_of(label.label)
    except ValueError as error:
        raise DataError(f"{label.place}: {error}") from None


def _read_matching(gold: Path, predicted: Path, column: str | None) -> tuple[list[Label], list[Label]]:
    """The labels of both files, row by row; where both have ids they must be the same."""
    right, found = read_labels(gold, column), read_labels(predicted, predicted=True)
    for a, b in zip(right, found, strict=False):
        if a.id is not None and b.id is not None and str(a.id) != str(b.id):
            raise DataError(
                f"{b.place}: the id {b.id!r}, {a.place} has {a.id!r}: predictions stand in the order of the examples"
            )
    return right, found
