"""Whether two rows of a table differ significantly, and which rows may be the best one.

A row holds the scores of a model (`intervals.Sample`): (S, n), a number for each seed and item, or (S,), one for each seed. Rows
with items have the same items in the same order, so that what is hard for both cancels. Seeds of different rows are independent.
"""

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.metrics.intervals import (
    LEVEL,
    Interval,
    Sample,
    Scores,
    VarianceComponent,
    around,
    as_sample,
    item_component,
    quantile,
    seed_component,
    selection_components,
)
from seqloom.metrics.student_t import tail

SMALL = 1e-100  # smaller p values are given as this one: quantiles that far out are beyond the range of numbers


class Difference(NamedTuple):
    interval: Interval  # of the first row's mean minus the second's
    p: float  # how often equal rows would differ by this much or more; 1 where nothing can be concluded


def difference(first: Scores, second: Scores, level: float = LEVEL) -> Difference:
    """(S_a, n) against (S_b, n), for other seeds on other items: paired over items, with the variance between seeds."""
    a, b = as_sample(first), as_sample(second)
    shapes = a.scores.shape, b.scores.shape
    if any(len(shape) != 2 or not math.prod(shape) for shape in shapes) or shapes[0][1] != shapes[1][1]:
        raise ValueError(f"rows have the shape (seeds, items) with the same items, not {shapes[0]} and {shapes[1]}")
    means = a.replicates.mean(0) - b.replicates.mean(0)
    components = [seed_component_of_both(a, b), item_component(means, a, b), *selection_components(a, b)]
    return compare_with_zero(a.value - b.value, components, level)


def difference_of_seeds(first: Scores, second: Scores, level: float = LEVEL) -> Difference:
    """(S_a,) against (S_b,), for other seeds: Welch's test (1947)."""
    a, b = as_sample(first), as_sample(second)
    if any(row.scores.ndim != 1 or not row.scores.size for row in (a, b)):
        raise ValueError(f"rows have one number a seed, not the shapes {a.scores.shape} and {b.scores.shape}")
    return compare_with_zero(a.value - b.value, [seed_component_of_both(a, b), *selection_components(a, b)], level)


def seed_component_of_both(a: Sample, b: Sample) -> VarianceComponent:
    """With Welch's degrees of freedom, but never more than if both rows had the smaller number of seeds: his test finds equal
    rows significantly different too often where few seeds meet many (2 against 10: in 10% of cases). A deterministic row adds
    nothing."""
    random = [row for row in (a, b) if not row.deterministic]
    components = [seed_component(row) for row in random or (a, b)]
    total = sum(component.variance for component in components)
    if not total or not math.isfinite(total):
        return VarianceComponent(total, 1)
    pooled = [row.pooled and row.pooled.df for row in random]
    if all(each.df == df for each, df in zip(components, pooled, strict=False)):  # all rows have the pooled variance
        return VarianceComponent(total, components[0].df)
    df = total**2 / sum(component.variance**2 / component.df for component in components)
    return VarianceComponent(total, min(df, len(components) * min(component.df for component in components)))


def compare_with_zero(value: float, components: Sequence[VarianceComponent], level: float) -> Difference:
    """p is 1 - the level of the interval that ends at 0."""
    interval = around(value, components, level)
    if not value or not interval.is_bounded:
        return Difference(interval, 1.0)
    moving = [component for component in components if component.variance]
    t = abs(value) / math.sqrt(sum(component.variance for component in moving))
    tails = [tail(t, component.df) for component in moving]
    low, high = min(tails), max(tails)
    while high - low > 1e-6 * high and high > SMALL:
        middle = (low + high) / 2
        low, high = (middle, high) if quantile(moving, middle) > t else (low, max(middle, SMALL))
    return Difference(interval, max(high, sys.float_info.min))  # never 0, however small


def holm(p_values: Sequence[float]) -> list[float]:
    """p values of several comparisons, adjusted so that where all rows are equal any of them is below 0.05 in at most 5% of all
    tables (Holm, 1979)."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = highest
    return adjusted


def leaders(rows: Sequence[Scores], lower: bool = False, level: float = LEVEL) -> list[int]:
    """Indices of the rows that are not significantly different from the best; the best alone is the winner. lower: lower is
    better.

    Which row is the best is read from the same numbers, so any row may stand out against any other by chance: while r rows are
    left, the correction is for all r (r - 1) / 2 pairs of them. Rows that are significantly different are removed, the clearest
    first: a closed test (Marcus, Peritz & Gabriel, 1976) of all sets with the best in them. A row of one seed stays; if it is
    the best, all stay."""
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
