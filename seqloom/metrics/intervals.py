"""Confidence intervals: over seeds (Student, 1908), over items (Efron, 1979: the percentile bootstrap) and over both.

There are few seeds, so their variance is known badly too: the quantiles are Student's, never the normal ones. There are many
items, and a score need not be a mean: items are resampled with replacement, and the score is computed again.
Where every seed has a score on every item, the interval is for other seeds and other items (`nested`). Items may come in sets
(of one template, say): then the interval is for other sets (`by_set`) or for other items of the same sets (`Sample.strata`). A
ratio of sums, such as bits per byte, has items too (`ratio_items`).
All functions are pure: arrays and a seed go in, the same numbers come out.

No interval has a width of zero. Replicates that are identical, because nothing in the model is random, are one replicate. Items
that all have the same score still leave room for others that would not (`UNSEEN`). Where not even the scale of the variation is
known, nothing is concluded.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.metrics.student_t import student_quantile

LEVEL = 0.95
DRAWS = 2000
AT_ONCE = 2_000_000  # numbers that are drawn at a time
UNSEEN = (
    1.88**2
)  # n equal items: two standard errors of sqrt(UNSEEN) / n reach 3.7 / n, the most that is missed n times in 2.5%
STEEP = 4.0  # larger quantiles come from two seeds, whose variance is known so badly that no skew matters
SAME = 1e-12  # numbers whose relative difference is below this are equal but for rounding


class Interval(NamedTuple):
    value: float
    low: float  # minus infinity where nothing can be concluded
    high: float

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.value:.4f}" + (f" [{self.low:.4f}, {self.high:.4f}]" if self.is_bounded else "")

    def record(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        return {"value": self.value, "low": self.low, "high": self.high} if self.is_bounded else {"value": self.value}


class VarianceComponent(NamedTuple):
    """One source of variance of a mean, independent of the others."""

    variance: float  # of the mean, from this source alone
    df: float  # degrees of freedom: how well the variance is known


def around(value: float, components: Sequence[VarianceComponent], level: float = LEVEL) -> Interval:
    """The interval of a mean with these sources of variance. With a single one it is Student's interval."""
    total = sum(component.variance for component in components)
    if not math.isfinite(total):
        return Interval(value, -math.inf, math.inf)
    half = quantile(components, 1 - level) * math.sqrt(total) if total else 0.0
    return Interval(value, value - half, value + half)


def around_share(value: float, components: Sequence[VarianceComponent], level: float = LEVEL) -> Interval:
    """The interval of a proportion, which is skewed near 0 and 1: Wilson's interval (1927) of as many independent outcomes as
    would have the same variance. It never leaves 0 … 1."""
    plain = around(value, components, level)
    if not plain.is_bounded or not 0 < value < 1:
        return Interval(value, max(plain.low, 0.0), min(plain.high, 1.0)) if plain.is_bounded else plain
    t, variance = quantile(components, 1 - level), sum(component.variance for component in components)
    more = min(t, STEEP) ** 2 * variance / max(value * (1 - value), variance)
    middle, half = (value + more / 2) / (1 + more), math.sqrt(t * t * variance + more**2 / 4) / (1 + more)
    return Interval(value, max(min(middle - half, value), 0.0), min(max(middle + half, value), 1.0))


def quantile(components: Sequence[VarianceComponent], alpha: float) -> float:
    """The mean of the components' own Student quantiles, weighted by their variances (Cochran & Cox, 1950): slightly conservative
    with few seeds, where Satterthwaite's degrees of freedom (1946) are too liberal."""
    found = sum(
        component.variance * student_quantile(component.df, alpha) for component in components if component.variance
    )
    return found / sum(component.variance for component in components)


def mean_component(values: np.ndarray) -> VarianceComponent:
    """The variance of the mean of independent numbers; infinite for a single one."""
    n = len(values)
    return VarianceComponent(float(values.var(ddof=1)) / n, n - 1) if n > 1 else VarianceComponent(math.inf, 0)


class Sample(NamedTuple):
    """The scores of one row: (S, n), a number for each seed and item, or (S,), one for each seed; and what is known of them."""

    scores: np.ndarray
    deterministic: bool = False  # nothing is random: seeds are copies of one another, and only the first is used
    pooled: VarianceComponent | None = (
        None  # the variance of a single seed's score, from several rows (`variances.pool`)
    )
    strata: np.ndarray | None = None  # (n,) sets that stay the same: the interval is for other items within them
    df: float | None = None  # of the variance over items, where items have different weights
    outcomes: bool = False  # items are right (1), wrong (0) or in between
    selection: VarianceComponent | None = None  # its settings were searched for (`best_of.selection_component`)

    @property
    def seeds(self) -> np.ndarray:
        """(S,) the score of each seed."""
        return self.scores if self.scores.ndim == 1 else self.scores.mean(1)

    @property
    def value(self) -> float:
        return float(self.replicates.mean())

    @property
    def replicates(self) -> np.ndarray:
        return self.scores[:1] if self.deterministic else self.scores


Scores = Sample | Sequence[float] | Sequence[Sequence[float]] | np.ndarray


def as_sample(row: Scores) -> Sample:
    return row if isinstance(row, Sample) else Sample(np.asarray(row, np.float64))


def all_equal(values: np.ndarray) -> bool:
    return bool(np.ptp(values) <= SAME * np.abs(values).max())


def seed_component(row: Sample) -> VarianceComponent:
    """The variance of the mean between seeds. Where rows are pooled, one that varies more than the others keeps its own variance.
    Seeds that agree on every item are copies, and items alone are left; without items nothing can be concluded from them."""
    if row.deterministic:
        return VarianceComponent(0.0, 1) if row.scores.ndim == 2 else VarianceComponent(math.inf, 0)
    means = row.seeds
    own, S = mean_component(means), len(means)
    if S > 1 and row.pooled is not None and own.variance <= row.pooled.variance / S:
        return VarianceComponent(row.pooled.variance / S, row.pooled.df)
    if not all_equal(means):
        return own
    if row.scores.ndim == 1:
        return VarianceComponent(math.inf, 0)
    # seeds whose means agree by chance still differ on single items, and means vary by at least that
    return VarianceComponent(unexplained(row.scores), S - 1) if S > 1 else VarianceComponent(math.inf, 0)


def selection_components(*rows: Sample) -> list[VarianceComponent]:
    """The variance from what another search would have found, which is independent between rows."""
    return [row.selection for row in rows if row.selection is not None]


def unexplained(scores: np.ndarray, strata: np.ndarray | None = None) -> float:
    """The variance of the mean from the interaction of seeds and items."""
    S, n = scores.shape
    if S == 1:
        return 0.0  # one seed has no residual
    groups = strata_of(n, strata)
    rest = scores - within(scores, groups)[1]
    rest = rest - rest.mean(0)
    return float((rest**2 @ correction(groups)).sum()) / ((S - 1) * S * n**2)


def strata_of(n: int, strata: np.ndarray | None) -> np.ndarray:
    """Numbers 0 … G - 1; sets of a single item, within which nothing can vary, are merged."""
    if strata is None:
        return np.zeros(n, np.int64)
    groups = np.unique(strata, return_inverse=True)[1].reshape(-1)
    single = np.bincount(groups)[groups] == 1
    if single.sum() == 1:
        groups[single] = groups[~single][0] if n > 1 else 0
    elif single.any():
        groups[single] = groups[single][0]
    return np.unique(groups, return_inverse=True)[1].reshape(-1)


def within(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(…, G) the means of the groups, and (…, n) the mean of each item's group."""
    rows = values.reshape(-1, values.shape[-1])
    means = np.stack([np.bincount(groups, row) for row in rows]) / np.bincount(groups)
    return means.reshape(*values.shape[:-1], -1), means[:, groups].reshape(values.shape)


def correction(groups: np.ndarray) -> np.ndarray:
    """(n,) Bessel's correction of squared deviations from the means of their groups."""
    counts = np.bincount(groups)
    return (counts / np.maximum(counts - 1, 1))[groups]


def item_component(means: np.ndarray, *rows: Sample) -> VarianceComponent:
    """The variance of the mean between items. means: (n,), of each item over the seeds of a row, or the difference of two rows.
    The interaction of seeds and items is subtracted: the variance between seeds has it already."""
    n, first = len(means), rows[0]
    if n == 1:
        return VarianceComponent(math.inf, 0)
    groups = strata_of(n, first.strata)
    squares = (means - within(means, groups)[1]) ** 2 * correction(groups)
    components = np.bincount(groups, squares) / n**2
    counts = np.bincount(groups) - 1
    if squares.max() <= (SAME * max(np.abs(row.scores).max() for row in rows)) ** 2:
        span = 1.0 if first.outcomes else max(float(np.ptp(row.scores)) for row in rows)
        return VarianceComponent(UNSEEN * span**2 / n**2, n - 1) if span else VarianceComponent(math.inf, 0)
    df = first.df
    if df is None:  # Satterthwaite's (1946) over the sets: n - 1 where there is one
        df = components.sum() ** 2 / sum(x**2 / count for x, count in zip(components, counts, strict=True) if x)
    variance = components.sum() - sum(unexplained(row.replicates, first.strata) for row in rows)
    return VarianceComponent(max(float(variance), 0.0), float(df))


def ratio_items(totals: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, float]:
    """totals: (S, n) of items with sizes (n,), such as bits of documents of so many bytes. Returns (S, n) numbers whose means are
    the ratios of the sums, and whose variance between items is that of the ratios (jackknife; Quenouille, 1956), and the degrees
    of freedom: n - 1 only if items have equal sizes, else fewer, as the large ones dominate (Satterthwaite, 1946)."""
    whole, n = sizes.sum(), len(sizes)
    ratios = totals.sum(1, keepdims=True) / whole
    if n == 1:
        return ratios, 0.0
    moved = (totals - ratios * sizes) / np.maximum(whole - sizes, SAME * whole) * (n - 1)
    return ratios + moved - moved.mean(1, keepdims=True), max(float((sizes**2).sum() ** 2 / (sizes**4).sum()) - 1, 1.0)


def by_set(row: Sample, sets: np.ndarray) -> Sample:
    """The same row for other sets of items: each set becomes one item, weighted by its size."""
    groups = np.unique(sets, return_inverse=True)[1].reshape(-1)
    totals = np.stack([np.bincount(groups, each) for each in row.scores])
    scores, df = ratio_items(totals, np.bincount(groups).astype(float))
    return row._replace(scores=scores, df=df, strata=None)


def student(values: Scores, level: float = LEVEL) -> Interval:
    """The interval of the mean of a few independent numbers, one a seed; unbounded for a single one or equal ones."""
    row = as_sample(values)
    if not row.scores.size:
        raise ValueError("an interval needs at least one value")
    return around(row.value, [seed_component(row), *selection_components(row)], level)


def nested(items: Scores, level: float = LEVEL) -> Interval:
    """items: (S, n), the score of each seed on each item. The interval of the mean for other seeds on other items: both are
    random and crossed, and their variances are the mean squares of a two-way analysis of variance. It is unbounded for a single
    seed (unless it is deterministic) and for a single item."""
    row = as_sample(items)
    if row.scores.ndim != 2 or not row.scores.size:
        raise ValueError(f"scores of seeds on items have the shape (seeds, items), not {row.scores.shape}")
    components = [seed_component(row), item_component(row.replicates.mean(0), row), *selection_components(row)]
    return (around_share if row.outcomes else around)(row.value, components, level)


def bootstrap(
    items: Sequence[float] | np.ndarray,
    score: Callable[[np.ndarray], float] | None = None,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """items: (n, …), one row an item. score: computed from any n of these rows; the mean unless given. The interval of a score
    that is the same in every draw is unbounded, unless it is the mean of outcomes (0 to 1): then it is that of `nested`."""
    array = np.asarray(items)
    n = len(array)
    if not n:
        raise ValueError("the bootstrap needs at least one item")
    random = np.random.default_rng(seed)
    size = max(AT_ONCE // n, 1)
    found: list[float] = []
    for start in range(0, draws, size):
        index = random.integers(0, n, (min(size, draws - start), n))
        found += array[index].mean(1).tolist() if score is None else [score(array[row]) for row in index]
    value = float(array.mean() if score is None else score(array))
    if all_equal(np.asarray(found)):
        outcomes = score is None and array.ndim == 1 and 0 <= array.min() <= array.max() <= 1
        row = Sample(array.astype(np.float64)[None], deterministic=True, outcomes=True)
        return nested(row, level) if outcomes else Interval(value, -math.inf, math.inf)
    low, high = np.quantile(found, ((1 - level) / 2, (1 + level) / 2))
    return Interval(value, float(low), float(high))
