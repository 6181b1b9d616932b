"""Power: how often a difference of a given size would be found with so many seeds and items, and how many it would need.

Two rows are compared by `differences.difference` (or `difference_of_seeds`, without items). The variance of their difference has
two sources: the seeds of both rows, each with what it does differently on single items, and the items. Both are estimated
from the same scores, the first one badly where seeds are few: so the power is averaged over the estimates that may come. Of
several comparisons the one with the smallest p must pass Holm's strictest bound, alpha / comparisons; power is given for that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from seqloom.metrics.intervals import Sample, item_component, seed_component, unexplained
from seqloom.metrics.student_t import student_quantile

ALPHA = 0.05
WANTED = 0.8
DRAWS = 4000  # of estimated variances
MOST_SEEDS, MOST_ITEMS = 1000, 10_000_000
FEW = 3.0  # deviations of a seed: a plan that finds only larger differences has too few seeds


class Spread(NamedTuple):
    """Standard deviations. Of fixed models, which have no other seeds, the first and the last are 0."""

    seeds: float  # of a seed's mean over all items there could be
    items: float = 0.0  # of an item's difference between the two rows, over all seeds there could be
    rest: float = 0.0  # of a seed on a single item


def spread_of(a: Sample, b: Sample) -> Spread:
    """As measured on two rows of the same items, or of one number a seed."""
    rows = [row for row in (a, b) if not row.deterministic]
    counts = [len(row.scores) for row in rows]
    if a.scores.ndim == 1:
        variances = [seed_component(row).variance * count for row, count in zip(rows, counts, strict=True)]
        return Spread(math.sqrt(sum(variances) / 2))
    n = a.scores.shape[1]
    rest = [unexplained(row.scores, a.strata) * count * n for row, count in zip(rows, counts, strict=True)]
    means = [seed_component(row).variance * count for row, count in zip(rows, counts, strict=True)]
    between = sum(max(mean - each / n, 0.0) for mean, each in zip(means, rest, strict=True)) / 2
    items = item_component(a.replicates.mean(0) - b.replicates.mean(0), a, b).variance * n
    return Spread(math.sqrt(between), math.sqrt(items), math.sqrt(sum(rest) / 2))


@dataclass(frozen=True)
class Design:
    """A comparison of two rows with so many seeds each, on so many items; None: one number a seed. rows: how many are pooled for
    the variance between seeds, 0 if it is not pooled."""

    seeds: int
    items: int | None
    spread: Spread
    comparisons: int = 1
    rows: int = 0
    alpha: float = ALPHA
    df_share: float = 1.0  # degrees of freedom of n items over n - 1: fewer where large ones dominate

    def power(self, difference: float) -> float:
        """How often a true difference of this size is found."""
        if self._bounds is None:
            return 0.0
        mean = abs(difference) / self._deviation
        return float((normal_tail(self._bounds - mean) + normal_tail(self._bounds + mean)).mean())

    def detectable(self, wanted: float = WANTED) -> float:
        """The smallest difference that is found as often as wanted; infinite where none is, as with one seed."""
        if self._bounds is None:
            return math.inf
        low, high = 0.0, self._deviation
        while self.power(high) < wanted:
            low, high = high, 2 * high
        while high - low > 1e-4 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle) >= wanted else (middle, high)
        return high

    def seeds_needed(self, difference: float, wanted: float = WANTED) -> int | None:
        """How many seeds of each row find the difference as often as wanted; None where no number up to 1,000 does, as there are
        too few items."""
        return first_enough(lambda seeds: replace(self, seeds=seeds).power(difference) >= wanted, MOST_SEEDS)

    def items_needed(self, difference: float, wanted: float = WANTED) -> int | None:
        """The same of items; None where no number does, as there are too few seeds."""
        return first_enough(lambda items: replace(self, items=items).power(difference) >= wanted, MOST_ITEMS)

    @property
    def _seed_variance(self) -> float:
        """Of a seed's mean over the items."""
        return self.spread.seeds**2 + (self.spread.rest**2 / self.items if self.items else 0.0)

    @property
    def _item_variance(self) -> float:
        return self.spread.items**2 / self.items if self.items else 0.0

    @property
    def _deviation(self) -> float:
        """Of the difference."""
        return math.sqrt(2 * self._seed_variance / self.seeds + self._item_variance)

    @cached_property
    def _bounds(self) -> np.ndarray | None:
        """How many of its deviations a difference must lie from 0 to be significant, in many repetitions: the same sums as
        in `differences`. None where nothing is ever concluded."""
        one, between, alpha = self._seed_variance, self._item_variance, self.alpha / self.comparisons
        if (one and self.seeds < 2) or (self.items is not None and self.items < 2) or not one + between:
            return None
        random = np.random.default_rng(0)
        total = bound = np.zeros(DRAWS)
        if one:
            total, dfs = self._estimates(random, one)
            table = np.geomspace(self.seeds - 1, max(self.rows, 2) * (self.seeds - 1), 60)
            bound = total * np.interp(dfs, table, [student_quantile(float(df), alpha) for df in table])
        if between and self.items:
            df = max((self.items - 1) * self.df_share, 1.0)
            estimate = between * random.chisquare(df, DRAWS) / df
            total = total + estimate
            bound = bound + estimate * student_quantile(df, alpha)
        return bound / np.sqrt(total) / self._deviation

    def _estimates(self, random: np.random.Generator, one: float) -> tuple[np.ndarray, np.ndarray]:
        """The variance of the difference between seeds as it may be estimated, and its degrees of freedom."""
        free = self.seeds - 1.0
        own = one * random.chisquare(free, (DRAWS, max(self.rows, 2))) / free
        dfs = np.full(own.shape, free)
        if self.rows:
            pool = own.mean(1, keepdims=True)
            own, dfs = np.maximum(own, pool), np.where(own <= pool, self.rows * free, free)
        own, dfs = own[:, :2] / self.seeds, dfs[:, :2]
        total = own.sum(1)
        welch = np.minimum(total**2 / (own**2 / dfs).sum(1), 2 * dfs.min(1))
        return total, np.where(dfs.min(1) > free, dfs[:, 0], welch)


def design_of(a: Sample, b: Sample, comparisons: int = 1, rows: int = 0) -> Design:
    """Of two rows that were measured on the same items. Their seeds are as many as the row with fewer has."""
    means = a.replicates.mean(0) - b.replicates.mean(0)
    n, df = len(means), item_component(means, a, b).df
    return Design(
        min(len(a.scores), len(b.scores)),
        n,
        spread_of(a, b),
        comparisons,
        rows,
        df_share=df / (n - 1) if n > 1 else 1.0,
    )


def first_enough(enough: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 2 on that is enough, to 1%."""
    low, high = 1, 2
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > max(low // 100, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def normal_tail(values: np.ndarray) -> np.ndarray:
    """P(Z ≥ value)."""
    return np.array([math.erfc(each) for each in (values / math.sqrt(2)).tolist()]) / 2


class PlanPower(NamedTuple):
    detectable: float  # in standard deviations of a seed; infinite with one seed
    enough: bool
    words: str


def plan_power(seeds: int, comparisons: int, rows: int = 2, deviation: float | None = None) -> PlanPower:
    """What a plan can find, before anything has run: of metrics with many items or one number a seed, where seeds decide. rows:
    the plan's, over which the variance between seeds is pooled if they vary equally. deviation: of a seed, where it is known."""
    if seeds < 2:
        words = "with 1 seed a row no difference can be called significant: give at least 3 seeds"
        return PlanPower(math.inf, False, words)
    design = Design(seeds, None, Spread(1.0), max(comparisons, 1), rows if rows > 1 else 0)
    found = design.detectable()
    size = f"{found:.1f} standard deviations of a seed" + (f" ({found * deviation:.2g})" if deviation else "")
    among = f" among {comparisons} comparisons" if comparisons > 1 else ""
    words = f"with {seeds} seeds per row, differences of at least {size} are detected with {WANTED:.0%} power{among}"
    if found <= FEW:
        return PlanPower(found, True, words)
    needed = f"{design.seeds_needed(FEW)} seeds would detect differences of {FEW:.0f}"
    return PlanPower(found, False, f"{words}, smaller ones will mostly be missed; {needed}")
