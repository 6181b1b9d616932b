"""Whether probabilities mean what they say: calibration error, reliability by confidence, temperature; and thresholds.

The expected calibration error is the mean distance of confidence and accuracy over ten bins of equal width, weighted by their
examples (Naeini et al., 2015). A temperature divides the logits, so that probabilities become less or more extreme and the most
likely class stays the same; it is the one with the lowest negative log-likelihood (Guo et al., 2017).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BINS = 10
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0


class Bin(NamedTuple):
    """Examples of similar confidence."""

    confidence: float  # their mean
    accuracy: float
    size: int


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = BINS) -> list[Bin]:
    """The bins that have examples. confidences: the probability of each predicted class; right: whether it is the gold one."""
    probabilities, hits = np.asarray(confidences, np.float64), np.asarray(right, np.float64)
    number = np.clip((probabilities * bins).astype(int), 0, bins - 1)
    found = []
    for i in np.unique(number):
        chosen = number == i
        found.append(Bin(float(probabilities[chosen].mean()), float(hits[chosen].mean()), int(chosen.sum())))
    return found


def calibration_error(found: Sequence[Bin]) -> float:
    """The expected calibration error of all bins."""
    total = sum(each.size for each in found)
    return sum(each.size * abs(each.confidence - each.accuracy) for each in found) / max(total, 1)


def scale(logits: np.ndarray, temperature: float) -> np.ndarray:
    """(n, classes) probabilities."""
    values = logits / temperature
    values = np.exp(values - values.max(1, keepdims=True))
    return values / values.sum(1, keepdims=True)


def fit_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """The temperature with the lowest negative log-likelihood, within MIN_TEMPERATURE and MAX_TEMPERATURE. logits: (n, classes),
    or log-probabilities; gold: (n,) numbers of classes."""
    logits = np.asarray(logits, np.float64)
    own = logits[np.arange(len(logits)), gold]
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE  # of the inverse, in which the loss is convex
    for _ in range(60):
        middle = np.sqrt(low * high)
        slope = float(((scale(logits, 1 / middle) * logits).sum(1) - own).mean())
        low, high = (low, middle) if slope > 0 else (middle, high)
    return float(1 / np.sqrt(low * high))


def best_threshold(probabilities: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """The threshold with the best F1 of a class, between two probabilities that occur, and that F1. probabilities: (n,) of the
    class; positive: (n,) whether it is the gold one."""
    order = np.argsort(-probabilities, kind="stable")
    sorted_, right = probabilities[order], np.cumsum(positive[order])
    f1 = 2 * right / (np.arange(1, len(order) + 1) + positive.sum())
    ends = np.append(sorted_[:-1] > sorted_[1:], True)  # a threshold cannot part equal probabilities
    best = int(np.argmax(np.where(ends, f1, -1.0)))
    below = sorted_[best + 1] if best + 1 < len(order) else 0.0
    return float((sorted_[best] + below) / 2), float(f1[best])
