"""The expected best of k trials of a search, from n ≥ k that were run: what a search with a smaller budget would have found.

Dodge et al. (2019) plot it from draws with replacement, which may draw one trial twice. That is too pessimistic, most at k near
n, where a third of all draws lacks the best trial (Tang et al., 2020). Here every set of k of the n trials counts once
(Hoeffding's U-statistic, 1948), which is unbiased. Its variance is the jackknife's. At k = n a single set is left, which says
nothing about how far another would lie from it: the interval has no bounds.
"""

import math
from collections.abc import Sequence

import numpy as np

from seqloom.metrics.intervals import LEVEL, Interval, VarianceComponent, around


def expected_best(trials: Sequence[float] | np.ndarray, k: int, lower: bool = False, level: float = LEVEL) -> Interval:
    """trials: the result of each, in any order, infinitely bad where it failed. lower: lower is better. The value is infinite as
    long as k trials may all fail."""
    found = np.sort(np.asarray(trials, np.float64) * (-1 if lower else 1))  # the best last
    n = len(found)
    if not 1 <= k <= n:
        raise ValueError(f"the best of {k} trials is estimated from at least as many, not from {n}")
    if np.isnan(found).any() or found[-1] == math.inf:
        raise ValueError("a trial has no number, or an infinitely good one")
    value, sign = mean_of_bests(found, k), -1 if lower else 1
    if not math.isfinite(value) or k == n:
        return Interval(sign * value, -math.inf, math.inf)
    without = np.array([mean_of_bests(np.delete(found, i), k) for i in range(n)])
    variance = (n - 1) / n * float(((without - without.mean()) ** 2).sum())
    # n - 1 degrees of freedom at k = 1; how fast they fall was chosen by simulation (tests/metrics/test_best_of.py)
    component = VarianceComponent(variance or math.inf, max((n - k) / math.sqrt(k), 1.0))
    return around(sign * value, [component], level)


def best_of_curve(trials: Sequence[float] | np.ndarray, lower: bool = False, level: float = LEVEL) -> list[Interval]:
    """`expected_best` of 1, 2, … n trials."""
    return [expected_best(trials, k, lower, level) for k in range(1, len(trials) + 1)]


def selection_component(
    trials: Sequence[float] | np.ndarray, lower: bool = False, scale: float = 1.0
) -> VarianceComponent:
    """How far the best of another search with as many trials would lie from this one's, as a variance: what a search adds to that
    between seeds (`intervals.Sample.selection`). It is the bootstrap's: of n draws with replacement, the i-th worst is the best
    with the probability (i / n)^n - ((i - 1) / n)^n. With a single trial nothing is selected. scale: by how much the compared
    metric changes where that of the trials changes by 1, as bits per byte do with nats per token.

    A row is measured with fresh seeds, but at a setting that owes something to luck. Without this, rows that are equal when tuned
    are called different in up to half of all comparisons after 8 trials, and more after 4 (tests/metrics/test_search.py)."""
    found = np.sort(np.asarray(trials, np.float64) * (-1 if lower else 1))
    n = len(found)
    if not n or np.isnan(found).any() or not math.isfinite(found[-1]):
        raise ValueError("a search needs a trial that did not fail, and a number for each")
    found = np.maximum(found, found[np.isfinite(found)][0])  # one that failed is as bad as the worst that did not
    weights = np.diff((np.arange(n + 1) / n) ** n)
    return VarianceComponent(scale**2 * float(weights @ (found - weights @ found) ** 2), max(n - 1, 1))


def mean_of_bests(ordered: np.ndarray, k: int) -> float:
    """The mean of the best over all sets of k. The i-th of all (from 0) is the best of C(i, k - 1) of the C(n, k) sets."""
    n = len(ordered)
    weights = [math.comb(i, k - 1) / math.comb(n, k) for i in range(k - 1, n)]
    return float(ordered[k - 1 :] @ np.array(weights))
