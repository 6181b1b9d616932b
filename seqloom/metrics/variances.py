"""Pooling the variance between seeds over rows, where all rows vary equally.

Two or three seeds say little about the variance between seeds; those of eight rows together say a lot. The variance is pooled
where Bartlett's test (1937) finds no difference at the 20% level: it has some power with so few seeds, where the tests of Levene
and of Brown and Forsythe have none. As it may still miss a difference, a row that varies more than the pool keeps its own
variance (`intervals.seed_component`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.metrics.intervals import Sample, VarianceComponent, all_equal

UNEQUAL = 0.2  # variances are pooled only if Bartlett's p is at least this


class Pool(NamedTuple):
    component: VarianceComponent | None  # the variance of a single seed's score; None where rows are not pooled
    rows: list[int]  # indices of the rows that were tested
    p: float  # of the test


def pool(rows: Sequence[Sample]) -> Pool | None:
    """None unless at least two rows have a variance."""
    able = [
        i for i, row in enumerate(rows) if not row.deterministic and len(row.seeds) > 1 and not all_equal(row.seeds)
    ]
    if len(able) < 2:
        return None
    variances = [float(rows[i].seeds.var(ddof=1)) for i in able]
    dfs = [len(rows[i].seeds) - 1 for i in able]
    p, whole = bartlett(variances, dfs), sum(dfs)
    mean = float(np.average(variances, weights=dfs))
    return Pool(VarianceComponent(mean, whole) if p >= UNEQUAL else None, able, p)


def bartlett(variances: Sequence[float], dfs: Sequence[int]) -> float:
    """The p value of Bartlett's test that all variances are equal."""
    whole, count = sum(dfs), len(variances)
    mean = float(np.average(variances, weights=dfs))
    ratio = whole * math.log(mean) - sum(f * math.log(v) for f, v in zip(dfs, variances, strict=True))
    return chi_square_tail(ratio / (1 + (sum(1 / f for f in dfs) - 1 / whole) / (3 * (count - 1))), count - 1)


def chi_square_tail(value: float, df: int) -> float:
    """P(X ≥ value), by the recurrence of the incomplete gamma function."""
    half = max(value, 0.0) / 2
    a, found = (0.5, math.erfc(math.sqrt(half))) if df % 2 else (1.0, math.exp(-half))
    while 2 * a < df:
        found += math.exp(a * math.log(half) - half - math.lgamma(a + 1)) if half else 0.0
        a += 1
    return found
