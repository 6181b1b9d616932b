"""Scores of answer spans: exact match and F1 over words by the rules of SQuAD (Rajpurkar et al., 2016, 2018).

Case, punctuation and English articles are ignored; of several gold answers the nearest one counts; the prediction for a question
without an answer is right if it is empty. These are the rules of 2.0. On the data of 1.1 they give the same scores as those of
1.1, except for an answer of nothing but articles and punctuation: there it is an answer, here it is none.
Departure: of questions with equal no-answer probabilities a threshold takes all or none, since no threshold can separate them; a
question without a prediction is an error. Scores are fractions, not percentages.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from seqloom.errors import DataError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Threshold(NamedTuple):
    """No answer is given to a question that is more likely than this to have none; and the score with this threshold."""

    threshold: float
    score: float


def normalised(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """1 if it is one of the answers; where there are none, 1 if it is empty."""
    found = normalised(predicted)
    return float(any(found == answer for answer in _right(answers)))


def f1(predicted: str, answers: Sequence[str]) -> float:
    """F1 of the words that it shares with the nearest answer."""
    found = normalised(predicted).split()
    return max(_f1(found, answer.split()) for answer in _right(answers))


def _right(answers: Sequence[str]) -> list[str]:
    return [normal for normal in map(normalised, answers) if normal] or [""]


def _f1(a: list[str], b: list[str]) -> float:
    if not a or not b:
        return float(a == b)
    return 2 * (Counter(a) & Counter(b)).total() / (len(a) + len(b))


Measure = Callable[[str, Sequence[str]], float]


def span_scores(
    gold: Mapping[str, Sequence[str]],
    predicted: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, Any]:
    """gold: the answers of each question by its id, none where it has no answer; predicted: one a question, "" for no answer.
    no_answer: how likely each question is to have no answer; above the threshold the prediction is dropped, and the best
    thresholds in hindsight are given too. Where some questions have no answer, both sorts are scored apart as well."""
    _check(gold, predicted, no_answer)
    given = {id_: "" if no_answer is not None and no_answer[id_] > threshold else predicted[id_] for id_ in gold}
    answered = [id_ for id_ in gold if gold[id_]]
    rest = [id_ for id_ in gold if not gold[id_]]
    parts = {"": list(gold)} | ({"answerable_": answered, "unanswerable_": rest} if rest else {})
    measures: dict[str, Measure] = {"exact_match": exact_match, "f1": f1}
    scores: dict[str, Any] = {}
    for prefix, ids in parts.items():
        for name, measure in measures.items():
            scores[prefix + name] = sum(measure(given[id_], gold[id_]) for id_ in ids) / max(len(ids), 1)
        scores[f"{prefix}count"] = len(ids)
    for name, measure in measures.items() if no_answer is not None else ():
        best = best_threshold(gold, predicted, no_answer or {}, measure)
        scores |= {f"best_{name}": best.score, f"best_{name}_threshold": best.threshold}
    return scores


def best_threshold(
    gold: Mapping[str, Sequence[str]],
    predicted: Mapping[str, str],
    no_answer: Mapping[str, float],
    measure: Measure = f1,
) -> Threshold:
    """The threshold with the highest mean of the measure, the lowest of several: predictions are accepted in the order of their
    no-answer probabilities, the lowest first."""
    _check(gold, predicted, no_answer)
    order = sorted(gold, key=lambda id_: no_answer[id_])
    total = float(sum(not answers for answers in gold.values()))  # where no question is answered
    lowest = no_answer[order[0]]
    best = Threshold(0.0 if lowest > 0 else lowest - 1, total)
    for i, id_ in enumerate(order):
        total += measure(predicted[id_], gold[id_]) - (not gold[id_])
        border = i + 1 == len(order) or no_answer[order[i + 1]] > no_answer[id_]
        if border and total > best.score:
            best = Threshold(no_answer[id_], total)
    return best._replace(score=best.score / len(order))


def _check(gold: Mapping[str, Any], predicted: Mapping[str, Any], no_answer: Mapping[str, float] | None) -> None:
    if not gold:
        raise DataError("no question to score: the files have none")
    for name, given in (("prediction", predicted), ("probability of no answer", no_answer)):
        missing = [id_ for id_ in gold if id_ not in given] if given is not None else []
        if missing:
            raise DataError(
                f"{len(missing):,} of {len(gold):,} questions have no {name}, the first is {missing[0]!r}: give one for each"
            )
