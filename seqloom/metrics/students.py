"""Student's distribution (1908) for any degrees of freedom, whole or not: how much lies outside ±t, and the other way round."""

import math
from functools import lru_cache
from statistics import NormalDist


def tail(t: float, freedom: float) -> float:
    """P(|T| ≥ t): the incomplete beta function of freedom / (freedom + t²) with freedom / 2 and 1/2."""
    square = t * t
    x, y = freedom / (freedom + square), square / (freedom + square)
    if x < (freedom + 2) / (freedom + 5):  # on either side of this the fraction of that side needs few terms
        return beta_share(x, y, freedom / 2, 0.5)
    return 1 - beta_share(y, x, 0.5, freedom / 2)


def beta_share(x: float, y: float, a: float, b: float) -> float:
    """The incomplete beta function over the whole one, by its continued fraction (Abramowitz & Stegun, 1964, 26.5.8), whose
    convergents are summed by their differences (Gautschi, 1967). y: 1 - x, which is known better than it could be computed."""
    if not x:
        return 0.0
    total = change = ratio = 1.0
    step = 0
    while abs(change) > 1e-16 * total:
        half, odd = divmod(step, 2)
        upper = half + 1
        term = upper * (b - upper) if odd else -(a + half) * (a + b + half)
        ratio = 1 / (1 + term * x / ((a + step) * (a + step + 1)) * ratio)
        change *= ratio - 1
        total += change
        step += 1
    size = a * math.log(x) + b * math.log(y) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(size) / a * total


@lru_cache
def student_quantile(freedom: float, outside: float) -> float:
    """t with P(|T| ≥ t) = outside. The tail falls ever more slowly, so Newton's steps from the normal quantile, which is less,
    never go too far."""
    size = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    t, step = -NormalDist().inv_cdf(outside / 2), math.inf
    while step > 1e-14 * t:
        density = size * math.exp(-(freedom + 1) / 2 * math.log1p(t * t / freedom))
        step = (tail(t, freedom) - outside) / (2 * density)
        t += step
    return t
