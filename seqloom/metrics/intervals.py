"""How sure a figure is: intervals over seeds (Student, 1908), over items (Efron, 1979: the percentile bootstrap) and over both.

Over seeds there are few numbers, so their spread is known badly too: the quantiles are Student's, never the normal ones. Over
items there are many, and a score need be no mean: items are drawn again, with replacement, and the score is computed anew.
Where every seed has a score on every item, the mean is given for other seeds and other items (`nested`).
All of it is pure: arrays and a seed go in, the same numbers come out.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.metrics.students import student_quantile

LEVEL = 0.95
DRAWS = 2000
AT_ONCE = 2_000_000  # numbers that are drawn together


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


def quantile(parts: Sequence[Part], outside: float) -> float:
    """The mean of the parts' own Student quantiles, weighted by their variances (Cochran & Cox, 1950): with few seeds a
    little too much, where the degrees of freedom of Satterthwaite (1946) give too little."""
    found = sum(part.variance * student_quantile(part.freedom, outside) for part in parts if part.variance)
    return found / sum(part.variance for part in parts)


def part_of(values: np.ndarray) -> Part:
    """What the mean of independent numbers owes to which of them were drawn. A single one does not tell: infinite."""
    n = len(values)
    return Part(float(values.var(ddof=1)) / n, n - 1) if n > 1 else Part(math.inf, 0)


def part_of_items(means: np.ndarray, *rows: np.ndarray) -> Part:
    """means: (n,), what each item adds to a mean of `rows` (S, n), or to the difference of two. Their variance less what comes
    into it from how single seeds do on single items: that is in the variance over seeds already."""
    variance, freedom = part_of(means)
    for row in rows:
        S, n = row.shape
        rest = row - row.mean(0) - row.mean(1, keepdims=True) + row.mean()
        variance -= float((rest**2).sum()) / max((S - 1) * (n - 1), 1) / (S * n)  # one seed leaves no rest
    return Part(max(variance, 0.0), freedom)


def student(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> Interval:
    """The mean of a few independent numbers, one a seed. Of a single one nothing can be concluded."""
    array = np.asarray(values, np.float64)
    if not array.size:
        raise ValueError("no value to make an interval of")
    return around(float(array.mean()), [part_of(array)], level)


def nested(items: Sequence[Sequence[float]] | np.ndarray, level: float = LEVEL) -> Interval:
    """items: (S, n), the score of each seed on each item. The mean, for other seeds on other items: both are random and crossed,
    and the mean squares of a two-way analysis of variance say how much each of them moves it. Of a single seed or a single item
    nothing can be concluded."""
    array = np.asarray(items, np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"scores of seeds on items have the shape (seeds, items), not {array.shape}")
    return around(float(array.mean()), [part_of(array.mean(1)), part_of_items(array.mean(0), array)], level)


def bootstrap(
    items: Sequence[float] | np.ndarray,
    score: Callable[[np.ndarray], float] | None = None,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """items: (n, …), a row for each that could have been another. score: of any n of these rows; the mean unless given."""
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
    low, high = np.quantile(found, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(array.mean() if score is None else score(array)), float(low), float(high))
