"""What every single answer of a task is worth: beside what is right, how sure it was, and the figures that scores are made of.

The scores are those of `metrics`, taken apart by item, so that an interval can be made by drawing items again. An item is an
example: of tags a whole sentence, for its words are no independent ones.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.metrics.entities import entities
from seqloom.metrics.labels import correlation, matthews_correlation, ranks
from seqloom.metrics.spans import exact_match, f1
from seqloom.tasks.transfer import Transfer

Answers = Sequence[dict[str, Any]]


class Item(NamedTuple):
    text: str
    right: str
    told: str
    sure: float  # how likely it took what it told to be; of a number how far it is off
    wrong: bool


class Score(NamedTuple):
    rows: np.ndarray  # (n, …), one an item
    of: Callable[[np.ndarray], float] | None = None  # of such rows; None: their mean
    baseline: float | None = None  # of who tells the most frequent always, and looks at nothing


class Judged(NamedTuple):
    scores: dict[str, Score]  # by their names in `Transfer.scores`
    items: list[Item]
    measure: str = "probability"  # what `sure` is


def judged(learner: Transfer, task: str, examples: Sequence[Any], answers: Answers) -> Judged:
    """task: its name. One that is not known here is still scored, by its own scores over examples that are drawn again."""
    if task in FORMS:
        return FORMS[task](examples, answers)
    every = np.arange(len(examples))

    def score(index: np.ndarray) -> float:
        return learner.scores([examples[i] for i in index], [answers[i] for i in index])[learner.main_metric]

    return Judged({learner.main_metric: Score(every, score)}, [])


# ---- classes


def classes(examples: Sequence[Any], answers: Answers) -> Judged:
    gold, told = [str(each.label) for each in examples], [each["label"] for each in answers]
    names, codes = np.unique([*gold, *told], return_inverse=True)
    rows = codes.reshape(2, -1).T
    constant = np.stack((rows[:, 0], np.full(len(rows), np.bincount(rows[:, 0]).argmax())), 1)

    def macro(some: np.ndarray) -> float:
        return macro_f1(some, len(names))

    def matthews(some: np.ndarray) -> float:
        return mcc(some, len(names))

    scores = {
        "accuracy": Score((rows[:, 0] == rows[:, 1]).astype(float), None, float((rows[:, 0] == constant[:, 1]).mean())),
        "f1": Score(rows, macro, macro(constant)),
        "mcc": Score(rows, matthews, 0.0),
    }
    items = [
        Item(" ⏎ ".join(each.texts), right, found, answer["probabilities"][found], right != found)
        for each, right, found, answer in zip(examples, gold, told, answers, strict=True)
    ]
    return Judged(scores, items)


def macro_f1(rows: np.ndarray, count: int) -> float:
    """rows: (n, 2) numbers of classes, the right one and the one that was told. Over the classes that occur."""
    true, found = (np.bincount(column, minlength=count) for column in rows.T)
    right = np.bincount(rows[rows[:, 0] == rows[:, 1], 0], minlength=count)
    occurs = true + found > 0
    return float((2 * right[occurs] / (true + found)[occurs]).mean())


def mcc(rows: np.ndarray, count: int) -> float:
    gold, predicted = (np.bincount(column, minlength=count) for column in rows.T)
    return matthews_correlation(gold, predicted, int((rows[:, 0] == rows[:, 1]).sum()))


def choices(examples: Sequence[Any], answers: Answers) -> Judged:
    gold, told = np.array([each.label for each in examples]), np.array([each["label"] for each in answers])
    items = [
        Item(e.texts[0], e.texts[1 + a], e.texts[1 + b], answer["probabilities"][b], a != b)
        for e, a, b, answer in zip(examples, gold.tolist(), told.tolist(), answers, strict=True)
    ]
    baseline = float(np.bincount(gold).max() / len(gold))
    return Judged({"accuracy": Score((gold == told).astype(float), None, baseline)}, items)


# ---- numbers, stretches of text, tags


def numbers(examples: Sequence[Any], answers: Answers) -> Judged:
    rows = np.array([(each.label, answer["label"]) for each, answer in zip(examples, answers, strict=True)], float)

    def pearson(some: np.ndarray) -> float:
        return correlation(some[:, 0], some[:, 1])

    def spearman(some: np.ndarray) -> float:
        return correlation(ranks(some[:, 0]), ranks(some[:, 1]))

    items = [
        Item(" ⏎ ".join(each.texts), f"{a:.4g}", f"{b:.4g}", abs(a - b), a != b)
        for each, (a, b) in zip(examples, rows.tolist(), strict=True)
    ]
    return Judged({"pearson": Score(rows, pearson, 0.0), "spearman": Score(rows, spearman, 0.0)}, items, "error")


def spans(examples: Sequence[Any], answers: Answers) -> Judged:
    """The baseline answers nothing."""
    gold = [[text for text, _ in each.answers] for each in examples]
    told = [answer["answer"] for answer in answers]
    scores = {
        name: Score(
            np.array([measure(found, right) for found, right in zip(told, gold, strict=True)]),
            None,
            float(np.mean([measure("", right) for right in gold])),
        )
        for name, measure in (("exact_match", exact_match), ("f1", f1))
    }
    items = []
    for asked, right, answer, hit in zip(examples, gold, answers, scores["exact_match"].rows, strict=True):
        sure = answer["n_best"][0]["probability"] if answer["answer"] else answer["no_answer"]
        shown = " / ".join(dict.fromkeys(right)) or "(no answer)"
        items.append(
            Item(f"{asked.question} ⏎ {asked.context}", shown, answer["answer"] or "(no answer)", sure, not hit)
        )
    return Judged(scores, items)


def tags(examples: Sequence[Any], answers: Answers) -> Judged:
    """The baseline gives every word the most frequent tag; of entities it finds none."""
    gold, told = [each.tags for each in examples], [each["tags"] for each in answers]
    common = Counter(tag for each in gold for tag in each).most_common(1)[0][0]
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(gold, told, strict=True)]
    same = np.array([(sum(a == b for a, b in each), len(each)) for each in pairs], float)
    always = sum(tag == common for each in gold for tag in each) / same[:, 1].sum()
    scores = {"accuracy": Score(same, lambda rows: float(rows[:, 0].sum() / rows[:, 1].sum()), always)}
    if answers and "entities" in answers[0]:
        sets = [(set(entities(a)), set(entities(b))) for a, b in zip(gold, told, strict=True)]
        counts = np.array([(len(a & b), len(a) + len(b)) for a, b in sets], float)
        scores = {"f1": Score(counts, entity_f1, 0.0)} | scores
    items = []
    for each, pair, answer in zip(examples, pairs, answers, strict=True):
        off = [i for i, (a, b) in enumerate(pair) if a != b]
        right, found = (", ".join(f"{each.words[i]}/{pair[i][side]}" for i in off) for side in (0, 1))
        items.append(
            Item(each.text, right, found, max((answer["probabilities"][i] for i in off), default=0), bool(off))
        )
    return Judged(scores, items)


def entity_f1(rows: np.ndarray) -> float:
    """rows: (n, 2) entities that are right, and those that are true and those found together."""
    right, both = rows.sum(0)
    return float(2 * right / both) if both else 0.0


FORMS: dict[str, Callable[[Sequence[Any], Answers], Judged]] = {
    "classify": classes, "pair": classes, "choose": choices, "regress": numbers, "span": spans, "tag": tags,
}  # fmt: skip
