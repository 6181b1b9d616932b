"""Scores of predicted classes (accuracy, F1, Matthews correlation) and numbers (Pearson, Spearman, mean squared error).

As scikit-learn and scipy compute them. Macro averages are plain means over all classes that occur, gold or predicted; a division
by zero gives 0, and so does a correlation with a constant. Matthews, 1975; for many classes Gorodkin, 2004.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.metrics.entities import rates


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """accuracy, macro f1, precision and recall, mcc; `majority`, the accuracy of always predicting the most frequent label;
    scores `per_class`, among them the F1 of a positive class; `confusion`: counts[i][j] of gold label i predicted as label j."""
    _check(len(gold), len(predicted))
    pairs = Counter(zip(gold, predicted, strict=True))
    true, found = Counter(gold), Counter(predicted)
    labels = sorted(true.keys() | found.keys())
    each = {label: {**rates(pairs[label, label], found[label], true[label]), "count": true[label]} for label in labels}
    correct = sum(pairs[label, label] for label in labels)
    gold_counts, predicted_counts = (np.array([side[label] for label in labels]) for side in (true, found))
    return {
        "accuracy": correct / len(gold),
        **{name: sum(part[name] for part in each.values()) / len(labels) for name in ("f1", "precision", "recall")},
        "mcc": matthews_correlation(gold_counts, predicted_counts, correct),
        "majority": max(true.values()) / len(gold),
        "count": len(gold),
        "per_class": each,
        "confusion": {"labels": labels, "counts": [[pairs[a, b] for b in labels] for a in labels]},
    }


def matthews_correlation(gold: np.ndarray, predicted: np.ndarray, correct: int) -> float:
    """gold, predicted: how often each class occurs, as whole numbers; correct: how many predictions are right."""
    n = int(gold.sum())
    spread = (n * n - int(gold @ gold)) * (n * n - int(predicted @ predicted))  # of Python's integers, which are exact
    return (correct * n - int(gold @ predicted)) / math.sqrt(spread) if spread else 0.0


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, Any]:
    """pearson, spearman (equal numbers share their mean rank) and mse."""
    _check(len(gold), len(predicted))
    a, b = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    for name, values in (("gold", a), ("predicted", b)):
        if not np.isfinite(values).all():
            where = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(f"the {name} value of example {where + 1} is {values[where]}: give a finite number")
    return {
        "pearson": correlation(a, b),
        "spearman": correlation(ranks(a), ranks(b)),
        "mse": float(((a - b) ** 2).mean()),
        "count": len(a),
    }


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    if not np.ptp(a) or not np.ptp(b):
        return 0.0
    a, b = (each - each.mean() for each in (a, b))
    a, b = (each / np.abs(each).max() for each in (a, b))  # else their squares may overflow or underflow
    return float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1, 1))


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _check(gold: int, predicted: int) -> None:
    if gold != predicted:
        raise DataError(f"{predicted:,} predictions for {gold:,} examples: give one for each")
    if not gold:
        raise DataError("no example to score: the files are empty")
