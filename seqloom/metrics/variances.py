"""Whether seeds of all rows scatter equally far, so that what is known about one row helps with the others.

Two or three seeds tell little about how far seeds lie apart; those of eight rows together tell a lot. Their variance is pooled
where Bartlett's test (1937) finds no difference, at 20%: that test sees what it can with so few seeds, where Levene's and Brown
and Forsythe's see nothing of two or three. As it may still miss something, a row that varies more than the pool keeps its own
variance (`intervals.part_of_seeds`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.metrics.intervals import Part, Sample, all_equal

UNEQUAL = 0.2  # variances are not pooled where equal ones would differ so much less often than this


class Pool(NamedTuple):
    part: Part | None  # the variance of a single seed's score; None where rows are not pooled
    rows: list[int]  # those that could be
    p: float  # of the test


def pool(rows: Sequence[Sample]) -> Pool | None:
    """None where there are not two rows that have a variance."""
    able = [
        i for i, row in enumerate(rows) if not row.deterministic and len(row.seeds) > 1 and not all_equal(row.seeds)
    ]
    if len(able) < 2:
        return None
    variances = [float(rows[i].seeds.var(ddof=1)) for i in able]
    freedoms = [len(rows[i].seeds) - 1 for i in able]
    p, whole = bartlett(variances, freedoms), sum(freedoms)
    mean = float(np.average(variances, weights=freedoms))
    return Pool(Part(mean, whole) if p >= UNEQUAL else None, able, p)


def bartlett(variances: Sequence[float], freedoms: Sequence[int]) -> float:
    whole, count = sum(freedoms), len(variances)
    mean = float(np.average(variances, weights=freedoms))
    ratio = whole * math.log(mean) - sum(f * math.log(v) for f, v in zip(freedoms, variances, strict=True))
    return chi_square_tail(ratio / (1 + (sum(1 / f for f in freedoms) - 1 / whole) / (3 * (count - 1))), count - 1)


def chi_square_tail(value: float, freedom: int) -> float:
    """P(X ≥ value), by the recurrence of the incomplete gamma function."""
    half = max(value, 0.0) / 2
    a, found = (0.5, math.erfc(math.sqrt(half))) if freedom % 2 else (1.0, math.exp(-half))
    while 2 * a < freedom:
        found += math.exp(a * math.log(half) - half - math.lgamma(a + 1)) if half else 0.0
        a += 1
    return found
