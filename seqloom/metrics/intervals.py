"""How sure a figure is: intervals over seeds (Student, 1908) and over items (Efron, 1979: the percentile bootstrap).

Over seeds there are few numbers, so their spread is known badly too: the quantiles are Student's, never the normal ones. Over
items there are many, and a score need be no mean: items are drawn again, with replacement, and the score is computed anew.
All of it is pure: arrays and a seed go in, the same numbers come out.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

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


def student(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> Interval:
    """The mean of a few independent numbers, one a seed. Of a single one nothing can be concluded."""
    array = np.asarray(values, np.float64)
    if not array.size:
        raise ValueError("no value to make an interval of")
    mean = float(array.mean())
    if array.size == 1:
        return Interval(mean, -math.inf, math.inf)
    half = student_quantile(array.size - 1, level) * float(array.std(ddof=1)) / math.sqrt(array.size)
    return Interval(mean, mean - half, mean + half)


@lru_cache
def student_quantile(freedom: int, level: float = LEVEL) -> float:
    """t with P(|T| ≤ t) = level, for T of Student's distribution with so many degrees of freedom."""
    low, high = 0.0, math.pi / 2
    for _ in range(64):  # the angle is halved until no double lies between
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan angle): a finite sum for whole degrees of freedom (Abramowitz & Stegun, 1964, 26.7.3 and 4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    # powers of the cosine from (freedom odd) 1 or 0 up to freedom - 2, each with the product of ratios before it
    steps = np.arange(2 + odd, freedom - 1, 2)
    terms = np.cumprod(np.concatenate(([cosine if odd else 1.0], (steps - 1) / steps * cosine**2)))
    total = sine * float(terms.sum()) if freedom > 1 else 0.0
    return 2 / math.pi * (angle + total) if odd else total


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
