"""Student's t distribution (1908) for any degrees of freedom, whole or not: two-sided tails and quantiles."""

import math
from functools import lru_cache
from statistics import NormalDist


def tail(t: float, df: float) -> float:
    """P(|T| ≥ t): the incomplete beta function of df / (df + t²) with df / 2 and 1/2."""
    square = t * t
    x, y = df / (df + square), square / (df + square)
    if x < (df + 2) / (df + 5):  # each side has its own continued fraction, which needs few terms there
        return beta_share(x, y, df / 2, 0.5)
    return 1 - beta_share(y, x, 0.5, df / 2)


def beta_share(x: float, y: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Abramowitz & Stegun, 1964, 26.5.8), whose convergents
    are summed by their differences (Gautschi, 1967). y: 1 - x, given because computing it here would lose digits."""
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
def student_quantile(df: float, alpha: float) -> float:
    """t with P(|T| ≥ t) = alpha. The tail is convex, so Newton's steps from the normal quantile, which is smaller, never
    overshoot."""
    size = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    t, step = -NormalDist().inv_cdf(alpha / 2), math.inf
    while step > 1e-14 * t:
        density = size * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))
        step = (tail(t, df) - alpha) / (2 * density)
        t += step
    return t
