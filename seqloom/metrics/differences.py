"""Whether two rows of a table differ by more than chance, and which rows may be the best one.

A row is what a model has scored (`intervals.Sample`): (S, n), a number for each seed and item, or (S,), one for each seed. Rows
of items are on the same items in the same order: what is hard for both cancels. Seeds of different rows have nothing to do with
each other.
"""

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.metrics.intervals import (
    LEVEL,
    Interval,
    Part,
    Sample,
    Scores,
    around,
    as_sample,
    part_of_items,
    part_of_seeds,
    quantile,
)
from seqloom.metrics.students import tail


class Difference(NamedTuple):
    interval: Interval  # of the first row's mean less the second's
    p: float  # how often rows that are equal would differ so much or more; 1 where nothing can be concluded


def difference(first: Scores, second: Scores, level: float = LEVEL) -> Difference:
    """(S_a, n) against (S_b, n), for other seeds on other items: paired over items, and seeds are counted in."""
    a, b = as_sample(first), as_sample(second)
    shapes = a.scores.shape, b.scores.shape
    if any(len(shape) != 2 or not math.prod(shape) for shape in shapes) or shapes[0][1] != shapes[1][1]:
        raise ValueError(f"rows have the shape (seeds, items) with the same items, not {shapes[0]} and {shapes[1]}")
    means = a.replicates.mean(0) - b.replicates.mean(0)
    return told(a.value - b.value, [seeds_of_both(a, b), part_of_items(means, a, b)], level)


def difference_of_seeds(first: Scores, second: Scores, level: float = LEVEL) -> Difference:
    """(S_a,) against (S_b,), for other seeds: the test of Welch (1947)."""
    a, b = as_sample(first), as_sample(second)
    if any(row.scores.ndim != 1 or not row.scores.size for row in (a, b)):
        raise ValueError(f"rows have one number a seed, not the shapes {a.scores.shape} and {b.scores.shape}")
    return told(a.value - b.value, [seeds_of_both(a, b)], level)


def seeds_of_both(a: Sample, b: Sample) -> Part:
    """Welch's degrees of freedom, but never more than if both rows had the fewer seeds: his test tells equal rows apart too
    often where few seeds meet many (2 against 10: in 10% of cases). A deterministic row adds nothing to it."""
    random = [row for row in (a, b) if not row.deterministic]
    parts = [part_of_seeds(row) for row in random or (a, b)]
    total = sum(part.variance for part in parts)
    if not total or not math.isfinite(total):
        return Part(total, 1)
    pooled = [row.pooled and row.pooled.freedom for row in random]
    if all(part.freedom == freedom for part, freedom in zip(parts, pooled, strict=False)):  # one variance, seen once
        return Part(total, parts[0].freedom)
    freedom = total**2 / sum(part.variance**2 / part.freedom for part in parts)
    return Part(total, min(freedom, len(parts) * min(part.freedom for part in parts)))


def told(value: float, parts: Sequence[Part], level: float) -> Difference:
    """p is what lies outside of the interval that ends at 0."""
    interval = around(value, parts, level)
    if not value or not interval.bounded:
        return Difference(interval, 1.0)
    moving = [part for part in parts if part.variance]
    t = abs(value) / math.sqrt(sum(part.variance for part in moving))
    tails = [tail(t, part.freedom) for part in moving]
    low, high = min(tails), max(tails)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if quantile(moving, middle) > t else (low, middle)
    return Difference(interval, max(high, sys.float_info.min))  # what is too small for a number is not impossible


def holm(p_values: Sequence[float]) -> list[float]:
    """p values of several comparisons, raised so that where nothing is to be found any of them is below 0.05 in at most 5% of all
    tables (Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = highest
    return adjusted


def leaders(rows: Sequence[Scores], lower: bool = False, level: float = LEVEL) -> list[int]:
    """Places of the rows that are not told apart from the best; where it stands alone, it is the winner. lower: less is better.

    Which row is the best is seen in the same numbers, so any row may stand out against any other by chance: while r rows are
    left, all r (r - 1) / 2 pairs of them count. They are fewer after each that is told apart, the clearest first: a closed test
    (Marcus, Peritz & Gabriel, 1976) of all sets with the best in them. A row of one seed stays; if it is the best, all stay."""
    samples = [as_sample(row) for row in rows]
    if not samples:
        raise ValueError("no row to find the best of")
    means = [row.value for row in samples]
    best = means.index(min(means) if lower else max(means))
    compare = difference if samples[best].scores.ndim == 2 else difference_of_seeds
    p = {i: compare(samples[best], row).p for i, row in enumerate(samples) if i != best}
    left = sorted(p, key=lambda i: p[i])
    while left and p[left[0]] * math.comb(len(left) + 1, 2) < 1 - level:
        del left[0]
    return sorted([best, *left])
