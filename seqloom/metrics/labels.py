"""How well classes and numbers were told: accuracy, F1, Matthews' correlation; Pearson's and Spearman's, squared error.

As scikit-learn and scipy count them. Macro figures are plain means over all classes that occur, in the truth or in what was
predicted; what has nothing to be divided by is 0, and so is a correlation with what never changes. Matthews, 1975; for many
classes Gorodkin, 2004.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.metrics.entities import rates


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """accuracy, macro f1, precision and recall, mcc; `majority`, the accuracy of always saying the most frequent label;
    `per_class` figures, where the F1 of a positive class is; `confusion`: counts[i][j] of those that are label i and were called
    label j."""
    _check(len(gold), len(predicted))
    pairs = Counter(zip(gold, predicted, strict=True))
    true, found = Counter(gold), Counter(predicted)
    labels = sorted(true.keys() | found.keys())
    each = {label: {**rates(pairs[label, label], found[label], true[label]), "count": true[label]} for label in labels}
    return {
        "accuracy": sum(pairs[label, label] for label in labels) / len(gold),
        **{name: sum(part[name] for part in each.values()) / len(labels) for name in ("f1", "precision", "recall")},
        "mcc": _mcc(pairs, true, found),
        "majority": max(true.values()) / len(gold),
        "count": len(gold),
        "per_class": each,
        "confusion": {"labels": labels, "counts": [[pairs[a, b] for b in labels] for a in labels]},
    }


def _mcc(pairs: Counter[tuple[str, str]], true: Counter[str], found: Counter[str]) -> float:
    n, right = true.total(), sum(count for (a, b), count in pairs.items() if a == b)
    spread = [n * n - sum(count * count for count in side.values()) for side in (true, found)]
    if not all(spread):
        return 0.0
    return (right * n - sum(true[label] * found[label] for label in true)) / math.sqrt(spread[0] * spread[1])


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, Any]:
    """pearson, spearman (equal numbers share the mean of their ranks) and mse."""
    _check(len(gold), len(predicted))
    a, b = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    for name, values in (("right", a), ("predicted", b)):
        if not np.isfinite(values).all():
            where = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(f"the {name} number {where + 1} is {values[where]}: there is nothing to score")
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
    a, b = (each / np.abs(each).max() for each in (a, b))  # their squares may be too large or too small otherwise
    return float(np.clip(a @ b / math.sqrt((a @ a) * (b @ b)), -1, 1))


def ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _check(gold: int, predicted: int) -> None:
    if gold != predicted:
        raise DataError(f"{predicted:,} predictions for {gold:,} examples: give one for each")
    if not gold:
        raise DataError("no example to score: the files are empty")
