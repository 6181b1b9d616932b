"""Whether two rows of a table differ by more than chance, and which rows may be the best one.

A row is what a model has scored: (S, n), a number for each seed and item, or (S,), one for each seed. Rows of items are on the
same items in the same order: what is hard for both cancels. Seeds of different rows have nothing to do with each other.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from seqloom.metrics.intervals import LEVEL, Interval, Part, around, part_of, part_of_items, quantile
from seqloom.metrics.students import tail


class Difference(NamedTuple):
    interval: Interval  # of the first row's mean less the second's
    p: float  # how often rows that are equal would differ so much or more; 1 where nothing can be concluded


def difference(first: ArrayLike, second: ArrayLike, level: float = LEVEL) -> Difference:
    """(S_a, n) against (S_b, n), for other seeds on other items: paired over items, and seeds are counted in."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.ndim != 2 or b.ndim != 2 or not a.size or not b.size or a.shape[1] != b.shape[1]:
        raise ValueError(f"rows have the shape (seeds, items) with the same items, not {a.shape} and {b.shape}")
    parts = [seeds_of_both(a.mean(1), b.mean(1)), part_of_items(a.mean(0) - b.mean(0), a, b)]
    return told(float(a.mean() - b.mean()), parts, level)


def difference_of_seeds(first: ArrayLike, second: ArrayLike, level: float = LEVEL) -> Difference:
    """(S_a,) against (S_b,), for other seeds: the test of Welch (1947)."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.ndim != 1 or b.ndim != 1 or not a.size or not b.size:
        raise ValueError(f"rows have one number a seed, not the shapes {a.shape} and {b.shape}")
    return told(float(a.mean() - b.mean()), [seeds_of_both(a, b)], level)


def seeds_of_both(a: np.ndarray, b: np.ndarray) -> Part:
    """Welch's degrees of freedom, but never more than if both rows had the fewer seeds: his test tells equal rows apart too
    often where few seeds meet many (2 against 10: in 10% of cases)."""
    parts = part_of(a), part_of(b)
    total = sum(part.variance for part in parts)
    if not total or not math.isfinite(total):
        return Part(total, 0)
    freedom = total**2 / sum(part.variance**2 / part.freedom for part in parts)
    return Part(total, min(freedom, 2 * min(part.freedom for part in parts)))


def told(value: float, parts: Sequence[Part], level: float) -> Difference:
    """p is what lies outside of the interval that ends at 0."""
    interval = around(value, parts, level)
    if not value or not interval.bounded:
        return Difference(interval, 1.0)
    moving = [part for part in parts if part.variance]
    if not moving:
        return Difference(interval, 0.0)
    t = abs(value) / math.sqrt(sum(part.variance for part in moving))
    tails = [tail(t, part.freedom) for part in moving]
    low, high = min(tails), max(tails)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if quantile(moving, middle) > t else (low, middle)
    return Difference(interval, high)


def holm(p_values: Sequence[float]) -> list[float]:
    """p values of several comparisons, raised so that where nothing is to be found any of them is below 0.05 in at most 5% of all
    tables (Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = highest
    return adjusted


def leaders(rows: Sequence[ArrayLike], lower: bool = False, level: float = LEVEL) -> list[int]:
    """Places of the rows that are not told apart from the best; where it stands alone, it is the winner. lower: less is better.

    Which row is the best is seen in the same numbers, so any row may stand out against any other by chance: while r rows are
    left, all r (r - 1) / 2 pairs of them count. They are fewer after each that is told apart, the clearest first: a closed test
    (Marcus, Peritz & Gabriel, 1976) of all sets with the best in them. A row of one seed stays; if it is the best, all stay."""
    arrays = [np.asarray(row, np.float64) for row in rows]
    if not arrays:
        raise ValueError("no row to find the best of")
    means = [float(array.mean()) for array in arrays]
    best = means.index(min(means) if lower else max(means))
    compare = difference if arrays[best].ndim == 2 else difference_of_seeds
    p = {i: compare(arrays[best], array).p for i, array in enumerate(arrays) if i != best}
    left = sorted(p, key=lambda i: p[i])
    while left and p[left[0]] * math.comb(len(left) + 1, 2) < 1 - level:
        del left[0]
    return sorted([best, *left])
