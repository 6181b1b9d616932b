"""How sure a figure is: intervals over seeds (Student, 1908), over items (Efron, 1979: the percentile bootstrap) and over both.

Over seeds there are few numbers, so their spread is known badly too: the quantiles are Student's, never the normal ones. Over
items there are many, and a score need be no mean: items are drawn again, with replacement, and the score is computed anew.
Where every seed has a score on every item, the mean is given for other seeds and other items (`nested`). Items may come in sets
(of one template, say): then either other sets are meant (`by_set`) or other items of the same ones (`Sample.strata`). A ratio of
sums, such as bits per byte, has items too (`ratio_items`).
All of it is pure: arrays and a seed go in, the same numbers come out.

No interval has a width of zero. Replicates that are identical, because nothing in the model is random, are one replicate. Items
that all gave the same still leave room for others that would not (`UNSEEN`). Where not even the scale of what could have been
different is known, nothing is concluded.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.metrics.students import student_quantile

LEVEL = 0.95
DRAWS = 2000
AT_ONCE = 2_000_000  # numbers that are drawn together
UNSEEN = (
    1.88**2
)  # n equal items: two standard errors of sqrt(UNSEEN) / n reach 3.7 / n, the most that is missed n times in 2.5%
STEEP = 4.0  # quantiles above are those of two seeds, whose spread is known so badly that no skew matters
SAME = 1e-12  # numbers closer than this share of them are equal, but for rounding


class Interval(NamedTuple):
    value: float
    low: float  # minus infinity where nothing can be concluded
    high: float

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.value:.4f}" + (f" [{self.low:.4f}, {self.high:.4f}]" if self.bounded else "")

    def record(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        return {"value": self.value, "low": self.low, "high": self.high} if self.bounded else {"value": self.value}


class Part(NamedTuple):
    """One of the reasons why a mean would be another one the next time, independent of the other reasons."""

    variance: float  # of the mean, by this reason alone
    freedom: float  # degrees of it: how well the variance is known


def around(value: float, parts: Sequence[Part], level: float = LEVEL) -> Interval:
    """A mean that would be another one for each of these reasons. Of one reason alone this is Student's interval."""
    total = sum(part.variance for part in parts)
    if not math.isfinite(total):
        return Interval(value, -math.inf, math.inf)
    half = quantile(parts, 1 - level) * math.sqrt(total) if total else 0.0
    return Interval(value, value - half, value + half)


def around_share(value: float, parts: Sequence[Part], level: float = LEVEL) -> Interval:
    """The same of a share of outcomes, which are skewed near 0 and 1: Wilson's interval (1927), of as many independent outcomes
    as would vary as much. It never leaves 0 … 1."""
    plain = around(value, parts, level)
    if not plain.bounded or not 0 < value < 1:
        return Interval(value, max(plain.low, 0.0), min(plain.high, 1.0)) if plain.bounded else plain
    t, variance = quantile(parts, 1 - level), sum(part.variance for part in parts)
    more = min(t, STEEP) ** 2 * variance / max(value * (1 - value), variance)
    middle, half = (value + more / 2) / (1 + more), math.sqrt(t * t * variance + more**2 / 4) / (1 + more)
    return Interval(value, max(min(middle - half, value), 0.0), min(max(middle + half, value), 1.0))


def quantile(parts: Sequence[Part], outside: float) -> float:
    """The mean of the parts' own Student quantiles, weighted by their variances (Cochran & Cox, 1950): with few seeds a
    little too much, where the degrees of freedom of Satterthwaite (1946) give too little."""
    found = sum(part.variance * student_quantile(part.freedom, outside) for part in parts if part.variance)
    return found / sum(part.variance for part in parts)


def part_of(values: np.ndarray) -> Part:
    """What the mean of independent numbers owes to which of them were drawn. A single one does not tell: infinite."""
    n = len(values)
    return Part(float(values.var(ddof=1)) / n, n - 1) if n > 1 else Part(math.inf, 0)


class Sample(NamedTuple):
    """The scores of one row: (S, n), a number for each seed and item, or (S,), one for each seed; what is known about them."""

    scores: np.ndarray
    deterministic: bool = (
        False  # nothing in it is random: seeds are copies of one another, and only the first is looked at
    )
    pooled: Part | None = None  # the variance of a single seed's score, from several rows (`variances.pool`)
    strata: np.ndarray | None = None  # (n,) sets that stay the same: only items within them could have been others
    freedom: float | None = None  # of the variance over items, where some of them weigh more than others
    outcomes: bool = False  # items are right (1), wrong (0) or in between

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


def part_of_seeds(row: Sample) -> Part:
    """What the mean owes to which seeds were drawn. Where rows are pooled, one that varies more than the others keeps its own
    variance. Seeds that agree on every item are copies, and items alone are left; without items they tell nothing."""
    if row.deterministic:
        return Part(0.0, 1) if row.scores.ndim == 2 else Part(math.inf, 0)
    means = row.seeds
    own, S = part_of(means), len(means)
    if S > 1 and row.pooled is not None and own.variance <= row.pooled.variance / S:
        return Part(row.pooled.variance / S, row.pooled.freedom)
    if not all_equal(means):
        return own
    if row.scores.ndim == 1:
        return Part(math.inf, 0)
    # seeds whose means agree by chance still differ on single items, and means vary by that at least
    return Part(unexplained(row.scores), S - 1) if S > 1 else Part(math.inf, 0)


def unexplained(scores: np.ndarray, strata: np.ndarray | None = None) -> float:
    """The variance of the mean that comes from how single seeds do on single items."""
    S, n = scores.shape
    if S == 1:
        return 0.0  # one seed leaves no rest
    groups = strata_of(n, strata)
    rest = scores - within(scores, groups)[1]
    rest = rest - rest.mean(0)
    return float((rest**2 @ correction(groups)).sum()) / ((S - 1) * S * n**2)


def strata_of(n: int, strata: np.ndarray | None) -> np.ndarray:
    """Numbers 0 … G - 1; those of one item, in which nothing can be seen to vary, are put together."""
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
    """(…, G) means of the groups, and (…, n) that of each item's group."""
    rows = values.reshape(-1, values.shape[-1])
    means = np.stack([np.bincount(groups, row) for row in rows]) / np.bincount(groups)
    return means.reshape(*values.shape[:-1], -1), means[:, groups].reshape(values.shape)


def correction(groups: np.ndarray) -> np.ndarray:
    """(n,) by which squares are too small, as they are taken from the means of their groups."""
    counts = np.bincount(groups)
    return (counts / np.maximum(counts - 1, 1))[groups]


def part_of_items(means: np.ndarray, *rows: Sample) -> Part:
    """means: (n,), what each item adds to the mean of a row, or to the difference of two. Their variance less what comes into it
    from how single seeds do on single items: that is in the variance over seeds already."""
    n, first = len(means), rows[0]
    if n == 1:
        return Part(math.inf, 0)
    groups = strata_of(n, first.strata)
    squares = (means - within(means, groups)[1]) ** 2 * correction(groups)
    parts = np.bincount(groups, squares) / n**2
    counts = np.bincount(groups) - 1
    if squares.max() <= (SAME * max(np.abs(row.scores).max() for row in rows)) ** 2:
        span = 1.0 if first.outcomes else max(float(np.ptp(row.scores)) for row in rows)
        return Part(UNSEEN * span**2 / n**2, n - 1) if span else Part(math.inf, 0)
    freedom = first.freedom
    if freedom is None:  # Satterthwaite's (1946) over the sets: n - 1 where there is one
        freedom = parts.sum() ** 2 / sum(part**2 / count for part, count in zip(parts, counts, strict=True) if part)
    variance = parts.sum() - sum(unexplained(row.replicates, first.strata) for row in rows)
    return Part(max(float(variance), 0.0), float(freedom))


def ratio_items(totals: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, float]:
    """totals: (S, n) of items that weigh sizes (n,), as bits of documents of so many bytes. Returns (S, n) numbers whose means
    are the ratios of the sums, and which vary as these do from item to item (jackknife; Quenouille, 1956), and the degrees of
    freedom: n - 1 only if items are equal, for squares of the large ones decide (Satterthwaite, 1946)."""
    whole, n = sizes.sum(), len(sizes)
    ratios = totals.sum(1, keepdims=True) / whole
    if n == 1:
        return ratios, 0.0
    moved = (totals - ratios * sizes) / np.maximum(whole - sizes, SAME * whole) * (n - 1)
    return ratios + moved - moved.mean(1, keepdims=True), max(float((sizes**2).sum() ** 2 / (sizes**4).sum()) - 1, 1.0)


def by_set(row: Sample, sets: np.ndarray) -> Sample:
    """The same row for other sets of items: a set is one item, whose weight is how many it holds."""
    groups = np.unique(sets, return_inverse=True)[1].reshape(-1)
    totals = np.stack([np.bincount(groups, each) for each in row.scores])
    scores, freedom = ratio_items(totals, np.bincount(groups).astype(float))
    return row._replace(scores=scores, freedom=freedom, strata=None)


def student(values: Scores, level: float = LEVEL) -> Interval:
    """The mean of a few independent numbers, one a seed. Of a single one nothing can be concluded, nor of equal ones."""
    row = as_sample(values)
    if not row.scores.size:
        raise ValueError("no value to make an interval of")
    return around(row.value, [part_of_seeds(row)], level)


def nested(items: Scores, level: float = LEVEL) -> Interval:
    """items: (S, n), the score of each seed on each item. The mean, for other seeds on other items: both are random and crossed,
    and the mean squares of a two-way analysis of variance say how much each of them moves it. Of a single seed (unless it is
    deterministic) or a single item nothing can be concluded."""
    row = as_sample(items)
    if row.scores.ndim != 2 or not row.scores.size:
        raise ValueError(f"scores of seeds on items have the shape (seeds, items), not {row.scores.shape}")
    parts = [part_of_seeds(row), part_of_items(row.replicates.mean(0), row)]
    return (around_share if row.outcomes else around)(row.value, parts, level)


def bootstrap(
    items: Sequence[float] | np.ndarray,
    score: Callable[[np.ndarray], float] | None = None,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """items: (n, …), a row for each that could have been another. score: of any n of these rows; the mean unless given. A score
    that is the same in every draw tells nothing about others, unless it is the mean of outcomes (0 to 1), as of `nested`."""
    array = np.asarray(items)
    n = len(array)
    if not n:
        raise ValueError("no item to draw from")
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
