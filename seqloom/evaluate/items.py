"""The predictions of a task, item by item: beside its gold label, with its probability, and the numbers that scores are made of.

The scores are those of `metrics`, split by item, so that a confidence interval can be had by resampling items. An item is an
example; for tags it is a whole sentence, because its words are not independent.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.metrics.entities import entities
from seqloom.metrics.labels import correlation, matthews_correlation, ranks
from seqloom.metrics.spans import exact_match, f1
from seqloom.tasks.transfer import Transfer

Predictions = Sequence[dict[str, Any]]


class Item(NamedTuple):
    text: str
    gold: str
    predicted: str
    confidence: float  # the probability of the prediction; for a number its error
    wrong: bool


class Score(NamedTuple):
    rows: np.ndarray  # (n, …), one for each item
    of: Callable[[np.ndarray], float] | None = None  # the score of such rows; None: their mean
    baseline: float | None = None  # of always predicting the most frequent label


class ItemScores(NamedTuple):
    scores: dict[str, Score]  # by the names that `Transfer.scores` gives them
    items: list[Item]
    measure: str = "probability"  # what `confidence` is


def score_items(learner: Transfer, task: str, examples: Sequence[Any], predictions: Predictions) -> ItemScores:
    """Scores the predictions of a task, item by item. A task without a function here is scored by its own."""
    if task in FORMS:
        return FORMS[task](examples, predictions)
    every = np.arange(len(examples))

    def score(index: np.ndarray) -> float:
        return learner.scores([examples[i] for i in index], [predictions[i] for i in index])[learner.main_metric]

    return ItemScores({learner.main_metric: Score(every, score)}, [])


# ---- classes


def classes(examples: Sequence[Any], predictions: Predictions) -> ItemScores:
    gold, predicted = [str(each.label) for each in examples], [each["label"] for each in predictions]
    names, codes = np.unique([*gold, *predicted], return_inverse=True)
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
        Item(" ⏎ ".join(each.texts), right, found, prediction["probabilities"][found], right != found)
        for each, right, found, prediction in zip(examples, gold, predicted, predictions, strict=True)
    ]
    return ItemScores(scores, items)


def macro_f1(rows: np.ndarray, count: int) -> float:
    """rows: (n, 2) numbers of classes, gold and predicted. The mean is over the classes that occur."""
    true, found = (np.bincount(column, minlength=count) for column in rows.T)
    right = np.bincount(rows[rows[:, 0] == rows[:, 1], 0], minlength=count)
    occurs = true + found > 0
    return float((2 * right[occurs] / (true + found)[occurs]).mean())


def mcc(rows: np.ndarray, count: int) -> float:
    gold, predicted = (np.bincount(column, minlength=count) for column in rows.T)
    return matthews_correlation(gold, predicted, int((rows[:, 0] == rows[:, 1]).sum()))


def choices(examples: Sequence[Any], predictions: Predictions) -> ItemScores:
    gold, predicted = np.array([each.label for each in examples]), np.array([each["label"] for each in predictions])
    items = [
        Item(e.texts[0], e.texts[1 + a], e.texts[1 + b], prediction["probabilities"][b], a != b)
        for e, a, b, prediction in zip(examples, gold.tolist(), predicted.tolist(), predictions, strict=True)
    ]
    baseline = float(np.bincount(gold).max() / len(gold))
    return ItemScores({"accuracy": Score((gold == predicted).astype(float), None, baseline)}, items)


# ---- numbers, spans, tags


def numbers(examples: Sequence[Any], predictions: Predictions) -> ItemScores:
    rows = np.array(
        [(each.label, prediction["label"]) for each, prediction in zip(examples, predictions, strict=True)], float
    )

    def pearson(some: np.ndarray) -> float:
        return correlation(some[:, 0], some[:, 1])

    def spearman(some: np.ndarray) -> float:
        return correlation(ranks(some[:, 0]), ranks(some[:, 1]))

    items = [
        Item(" ⏎ ".join(each.texts), f"{a:.4g}", f"{b:.4g}", abs(a - b), a != b)
        for each, (a, b) in zip(examples, rows.tolist(), strict=True)
    ]
    return ItemScores({"pearson": Score(rows, pearson, 0.0), "spearman": Score(rows, spearman, 0.0)}, items, "error")


def spans(examples: Sequence[Any], predictions: Predictions) -> ItemScores:
    """The baseline predicts that there is no answer."""
    gold = [[text for text, _ in each.answers] for each in examples]
    predicted = [prediction["answer"] for prediction in predictions]
    scores = {
        name: Score(
            np.array([measure(found, right) for found, right in zip(predicted, gold, strict=True)]),
            None,
            float(np.mean([measure("", right) for right in gold])),
        )
        for name, measure in (("exact_match", exact_match), ("f1", f1))
    }
    items = []
    for asked, right, prediction, hit in zip(examples, gold, predictions, scores["exact_match"].rows, strict=True):
        confidence = prediction["n_best"][0]["probability"] if prediction["answer"] else prediction["no_answer"]
        shown = " / ".join(dict.fromkeys(right)) or "(no answer)"
        items.append(
            Item(
                f"{asked.question} ⏎ {asked.context}", shown, prediction["answer"] or "(no answer)", confidence, not hit
            )
        )
    return ItemScores(scores, items)


def tags(examples: Sequence[Any], predictions: Predictions) -> ItemScores:
    """The baseline gives every word the most frequent tag; of entities it finds none."""
    gold, predicted = [each.tags for each in examples], [each["tags"] for each in predictions]
    common = Counter(tag for each in gold for tag in each).most_common(1)[0][0]
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(gold, predicted, strict=True)]
    same = np.array([(sum(a == b for a, b in each), len(each)) for each in pairs], float)
    always = sum(tag == common for each in gold for tag in each) / same[:, 1].sum()
    scores = {"accuracy": Score(same, lambda rows: float(rows[:, 0].sum() / rows[:, 1].sum()), always)}
    if predictions and "entities" in predictions[0]:
        sets = [(set(entities(a)), set(entities(b))) for a, b in zip(gold, predicted, strict=True)]
        counts = np.array([(len(a & b), len(a) + len(b)) for a, b in sets], float)
        scores = {"f1": Score(counts, entity_f1, 0.0)} | scores
    items = []
    for each, pair, prediction in zip(examples, pairs, predictions, strict=True):
        off = [i for i, (a, b) in enumerate(pair) if a != b]
        right, found = (", ".join(f"{each.words[i]}/{pair[i][side]}" for i in off) for side in (0, 1))
        items.append(
            Item(each.text, right, found, max((prediction["probabilities"][i] for i in off), default=0), bool(off))
        )
    return ItemScores(scores, items)


def entity_f1(rows: np.ndarray) -> float:
    """rows: (n, 2) numbers of entities: those that are right, and the gold ones plus the predicted ones."""
    right, both = rows.sum(0)
    return float(2 * right / both) if both else 0.0


FORMS: dict[str, Callable[[Sequence[Any], Predictions], ItemScores]] = {
    "classify": classes, "pair": classes, "choose": choices, "regress": numbers, "span": spans, "tag": tags,
}  # fmt: skip
