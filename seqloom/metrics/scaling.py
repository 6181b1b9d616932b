"""Power laws with an offset, loss = offset + factor · budget^-exponent, of rows that were trained at several budgets.

With three or four budgets and a few seeds the three parameters are known badly and together: a smaller exponent with a lower
offset fits nearly as well. So their intervals are no ± around a best fit. A value is in the interval if some law with it fits
the measured losses not significantly worse than the best one (profile likelihood; Bates & Watts, 1988), and an interval has no
bounds on a side where every value fits. With three budgets the best law fits exactly, and what is known of the noise comes from
seeds alone. Predictions for budgets that nobody has run yet and differences of two rows are judged in the same way.

For a given exponent the law is linear in the rest, so all laws that fit are found on a grid of exponents, with no start value
and no local minimum. Exponents go from 0 (the loss falls with the logarithm of the budget, and there is no offset) to infinity
(all that is gained is gained after the first budget).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from seqloom.metrics.differences import leaders
from seqloom.metrics.intervals import (
    LEVEL,
    Interval,
    Sample,
    VarianceComponent,
    all_equal,
    around,
    mean_component,
)
from seqloom.metrics.student_t import beta_share, student_quantile
from seqloom.metrics.variances import pool

PARAMETERS = 3
GRID = 201  # exponents at a time
GRID_OF_PAIRS = 61  # where those of two rows are combined
STEEPEST = 0.999  # of `PowerLaw.exponents`: from here on it is infinity
PLACES = 241  # budgets at which two rows are compared

Losses = Mapping[float, Sequence[float]]  # of each seed, by budget


class Laws(NamedTuple):
    """The best law for each of several exponents (K,). At x it has the loss level + drop · shape(x); shape falls from 1 at the
    smallest budget to 0 at the largest."""

    exponents: np.ndarray
    level: np.ndarray
    drop: np.ndarray
    worse: np.ndarray  # the sum of squares that it leaves, beyond that of the best law, as seeds count
    centre: np.ndarray  # the mean of the shape over the budgets, and its sum of squares around it
    spread: np.ndarray


@dataclass(frozen=True, eq=False)
class PowerLaw:
    budgets: np.ndarray  # (B,) ascending
    means: np.ndarray  # (B,) over seeds
    counts: np.ndarray  # (B,) seeds
    within: float  # the sum of squares around the means, and its degrees of freedom
    within_df: int
    pooled: VarianceComponent | None = None  # the variance of a single seed, from several rows

    # ---- fitting

    @property
    def width(self) -> float:
        return math.log(self.budgets[-1] / self.budgets[0])

    def shape(self, budgets: np.ndarray | float, exponents: np.ndarray) -> np.ndarray:
        """(…, K): (x^-b - X^-b) / (x0^-b - X^-b), where budgets go from x0 to X."""
        u = np.log(np.asarray(budgets, np.float64) / self.budgets[0])[..., None]
        last = np.expm1(-exponents * self.width)
        return (np.expm1(-exponents * u) - last) / -last

    def exponents(self, share: np.ndarray) -> np.ndarray:
        """Shares 0 … 1 as exponents 0 … infinity."""
        share = np.clip(share, 1e-9, STEEPEST)
        return share / (1 - share) / self.width

    def fit(self, share: np.ndarray, best: float = 0.0) -> Laws:
        """best: the sum of squares that is subtracted."""
        exponents = self.exponents(share)
        shape, weights = self.shape(self.budgets, exponents), self.counts / self.counts.sum()
        centre, mean = weights @ shape, float(weights @ self.means)
        moved = shape - centre
        spread = self.counts @ moved**2
        drop = (self.counts * (self.means - mean)) @ moved / spread
        left = self.counts @ (self.means[:, None] - mean - drop * moved) ** 2
        return Laws(exponents, mean - drop * centre, drop, np.maximum(left - best, 0.0), centre, spread)

    @cached_property
    def _best(self) -> tuple[float, float]:
        """The share of the best exponent, and the sum of squares that is left."""
        low, high = 0.0, STEEPEST
        for _ in range(8):
            share = np.linspace(low, high, GRID)
            left = self.fit(share).worse
            i = int(left.argmin())
            low, high = share[max(i - 1, 0)], share[min(i + 1, GRID - 1)]
        return float(share[i]), float(left[i])

    @cached_property
    def best(self) -> Laws:
        """Of a single exponent."""
        share, left = self._best
        return self.fit(np.array([share]), left)

    @cached_property
    def variance(self) -> VarianceComponent:
        """Of a single seed's loss: what is left by the law, and between seeds. A row that varies less than the pool has its
        variance."""
        df = self.within_df + len(self.budgets) - PARAMETERS
        left = self.within + self._best[1]
        small = df <= 0 or left <= 1e-20 * float(self.means @ self.means)
        own = VarianceComponent(math.inf, 1) if small else VarianceComponent(left / df, df)
        return self.pooled if self.pooled is not None and (small or own.variance <= self.pooled.variance) else own

    def allowed(self, level: float = LEVEL) -> float:
        """How much worse than the best, in squares, a law may fit."""
        return student_quantile(self.variance.df, 1 - level) ** 2 * self.variance.variance

    def fitting(self, most: float, count: int = GRID) -> Laws:
        """The laws of exponents that leave at most so much more than the best one: from the lowest of them to the highest."""
        share, best = self._best
        coarse = np.linspace(0, STEEPEST, GRID)
        fits = np.append(coarse[self.fit(coarse, best).worse <= most], share)
        ends = []
        for end, outside in (
            (fits.min(), coarse[coarse < fits.min()][-1:]),
            (fits.max(), coarse[coarse > fits.max()][:1]),
        ):
            for beyond in outside:
                for _ in range(30):
                    middle = (end + beyond) / 2
                    inside = self.fit(np.array([middle]), best).worse[0] <= most
                    end, beyond = (middle, beyond) if inside else (end, middle)
            ends.append(end)
        return self.fit(np.sort(np.append(np.linspace(ends[0], ends[1], count), share)), best)

    def _fitting(self, level: float) -> Laws:
        return self.fitting(self.allowed(level))

    # ---- what is known

    @property
    def misfit(self) -> float:
        """The p value of a test that the law holds, by the variance between seeds; 1 where there is nothing to test it by."""
        df = len(self.budgets) - PARAMETERS
        if df <= 0 or not self.within_df or not self.within:
            return 1.0
        return f_tail(self._best[1] / df / (self.within / self.within_df), df, self.within_df)

    def exponent(self, level: float = LEVEL) -> Interval:
        found = self._fitting(level).exponents
        steep = self.exponents(np.array([STEEPEST]))[0]
        high = math.inf if found[-1] >= steep else float(found[-1])
        return Interval(float(self.best.exponents[0]), float(found[0]) if found[0] * self.width > 1e-6 else 0.0, high)

    def offset(self, level: float = LEVEL) -> Interval:
        """The loss that no budget gets below. It has no lower bound if an exponent of 0 fits."""
        found = self._interval(self._fitting(level), math.inf, level)
        return found._replace(low=-math.inf) if self.exponent(level).low == 0 else found

    def factor(self, level: float = LEVEL) -> Interval:
        """Of budget^-exponent: it depends on the unit of budgets, and has no bounds if an exponent of 0 or infinity fits."""
        best, laws, exponent = self.best, self._fitting(level), self.exponent(level)
        value = float((best.drop * self._factors(best))[0])
        if exponent.low == 0 or not math.isfinite(exponent.high):
            return Interval(value, -math.inf, math.inf)
        scale, half = self._factors(laws), self._half(1 / laws.spread, laws, level)
        return Interval(value, float((scale * (laws.drop - half)).min()), float((scale * (laws.drop + half)).max()))

    def _factors(self, laws: Laws) -> np.ndarray:
        with np.errstate(over="ignore"):
            return self.budgets[0] ** laws.exponents / -np.expm1(-laws.exponents * self.width)

    def mean_at(self, budget: float, level: float = LEVEL) -> Interval:
        """The mean loss of all seeds at a budget."""
        return self._interval(self._fitting(level), budget, level)

    def predict(self, budget: float, seeds: int = 1, level: float = LEVEL) -> Interval:
        """The mean loss of so many new seeds at a budget."""
        return self._interval(self._fitting(level), budget, level, 1 / seeds)

    def at(self, budget: float) -> float:
        return float(self.values(budget, self.best)[0])

    def values(self, budget: np.ndarray | float, laws: Laws) -> np.ndarray:
        return laws.level + laws.drop * self.shape(budget, laws.exponents)

    def variances(self, budget: np.ndarray | float, laws: Laws) -> np.ndarray:
        """Of `values` for a given exponent, where a single seed has the variance 1."""
        return 1 / self.counts.sum() + (self.shape(budget, laws.exponents) - laws.centre) ** 2 / laws.spread

    def _half(self, variances: np.ndarray, laws: Laws, level: float) -> np.ndarray:
        """How far from the best of its exponent a law may lie that still fits."""
        return np.sqrt(variances * np.maximum(self.allowed(level) - laws.worse, 0.0))

    def _interval(self, laws: Laws, budget: float, level: float, noise: float = 0.0) -> Interval:
        middle = self.values(budget, laws)
        half = self._half(self.variances(budget, laws) + noise, laws, level)
        return Interval(self.at(budget), float((middle - half).min()), float((middle + half).max()))


def f_tail(value: float, df: float, below: float) -> float:
    """P(F ≥ value) of the F distribution."""
    x, y = below / (below + df * value), df * value / (below + df * value)
    if x < (below / 2 + 1) / (below / 2 + df / 2 + 2):
        return beta_share(x, y, below / 2, df / 2)
    return 1 - beta_share(y, x, df / 2, below / 2)


def fit_ladder(losses: Losses, pooled: VarianceComponent | None = None) -> PowerLaw:
    """Seeds that are equal at every budget are copies of one."""
    budgets = sorted(losses)
    seeds = [np.asarray(losses[budget], np.float64) for budget in budgets]
    if len(budgets) < PARAMETERS:
        raise ValueError(f"a power law with an offset needs at least three budgets, not {len(budgets)}")
    if not all(math.isfinite(budget) and budget > 0 for budget in budgets):
        raise ValueError(f"budgets must be positive numbers, not {', '.join(f'{budget:g}' for budget in budgets)}")
    for budget, values in zip(budgets, seeds, strict=True):
        if not values.size or not np.isfinite(values).all():
            raise ValueError(f"budget {budget:g}: its losses must be numbers, at least one, not {values.tolist()}")
    if all(all_equal(values) for values in seeds):
        seeds = [values[:1] for values in seeds]
    counts = np.array([len(values) for values in seeds])
    means = np.array([values.mean() for values in seeds])
    within = sum(float(((values - values.mean()) ** 2).sum()) for values in seeds)
    return PowerLaw(np.array(budgets, np.float64), means, counts, within, int((counts - 1).sum()), pooled)


def best_before_worse(losses: Losses, level: float = LEVEL) -> float | None:
    """The budget with the lowest loss, if that at a larger one is significantly higher, as it is where a row overfits: no power
    law rises. losses: with fewer than two seeds nothing is significant; level: of all larger budgets together (Bonferroni)."""
    lowest = min(losses, key=lambda budget: float(np.mean(losses[budget])))
    later = [budget for budget in losses if budget > lowest]
    for budget in later:
        both = [np.asarray(losses[each], np.float64) for each in (budget, lowest)]
        rise = float(both[0].mean() - both[1].mean())
        if around(rise, [mean_component(each) for each in both], 1 - (1 - level) / len(later)).low > 0:
            return lowest
    return None


def fit_ladders(rows: Mapping[str, Losses]) -> dict[str, PowerLaw]:
    """With the variance between seeds pooled over rows and budgets, where they vary equally."""
    samples = [Sample(np.asarray(values, np.float64)) for losses in rows.values() for values in losses.values()]
    together = pool(samples)
    return {name: fit_ladder(losses, together and together.component) for name, losses in rows.items()}


def leaders_by_budget(rows: Mapping[str, Losses], level: float = LEVEL) -> dict[float, list[str]]:
    """The rows that are not significantly different from the best at each budget, by what was measured there, without any law.
    The level is of all budgets together (Bonferroni's correction)."""
    samples = {
        name: {x: Sample(np.asarray(seeds, np.float64)) for x, seeds in each.items()} for name, each in rows.items()
    }
    together = pool([sample for each in samples.values() for sample in each.values()])
    budgets = sorted({budget for each in rows.values() for budget in each})
    found = {}
    for budget in budgets:
        there = {name: each[budget] for name, each in samples.items() if budget in each}
        pooled = [sample._replace(pooled=together and together.component) for sample in there.values()]
        names = list(there)
        found[budget] = [names[i] for i in leaders(pooled, lower=True, level=1 - (1 - level) / len(budgets))]
    return found


# ---- two rows


class Stretch(NamedTuple):
    """Budgets from low to high, and the row with the significantly lower loss there: 0, 1 or neither."""

    low: float
    high: float
    ahead: int | None


class Crossing(NamedTuple):
    """Where two rows are equal. interval: None where there is none to be found, for the reason given."""

    interval: Interval | None
    reason: str = ""


def difference_at(first: PowerLaw, second: PowerLaw, budget: float, level: float = LEVEL) -> Interval:
    """The first row's mean loss minus the second's."""
    found = _differences(first, second, np.array([budget]), level)
    return Interval(first.at(budget) - second.at(budget), float(found[0][0]), float(found[1][0]))


def _differences(first: PowerLaw, second: PowerLaw, budgets: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest difference at each budget by two laws that together fit. Each row has its own variance, unless
    they are pooled, and the quantile is that of the one known worse."""
    variances = [row.variance for row in (first, second)]
    t = student_quantile(min(each.df for each in variances), 1 - level)
    if not all(math.isfinite(each.variance) for each in variances):
        return np.full(len(budgets), -math.inf), np.full(len(budgets), math.inf)
    a, b = (row.fitting(t * t * row.variance.variance, GRID_OF_PAIRS) for row in (first, second))
    worse = a.worse[:, None] / variances[0].variance + b.worse / variances[1].variance
    room = np.sqrt(np.maximum(t * t - worse, 0.0))
    room[worse > t * t] = math.nan
    low, high = [], []
    for budget in budgets:
        middle = first.values(budget, a)[:, None] - second.values(budget, b)
        scale = (
            variances[0].variance * first.variances(budget, a)[:, None]
            + variances[1].variance * second.variances(budget, b)
        )  # fmt: skip
        half = room * np.sqrt(scale)
        low.append(np.nanmin(middle - half))
        high.append(np.nanmax(middle + half))
    return np.array(low), np.array(high)


def who_is_ahead(
    first: PowerLaw, second: PowerLaw, low: float | None = None, high: float | None = None, level: float = LEVEL
) -> list[Stretch]:
    """From the smallest budget that both have to the largest, unless given. The level is of all budgets together (Bonferroni's
    correction for as many as were measured); for m pairs of rows give 1 - 0.05 / m."""
    start = low or float(max(first.budgets[0], second.budgets[0]))
    end = high or float(min(first.budgets[-1], second.budgets[-1]))
    if not 0 < start < end:
        raise ValueError(f"rows are compared between two budgets, the smaller one first, not {start:g} and {end:g}")
    budgets = np.geomspace(start, end, PLACES)
    each_level = 1 - (1 - level) / max(len(first.budgets), len(second.budgets))
    bounds = zip(*_differences(first, second, budgets, each_level), strict=True)
    ahead = [0 if highest < 0 else 1 if lowest > 0 else None for lowest, highest in bounds]
    found = [Stretch(start, start, ahead[0])]
    for before, budget, row in zip(budgets[:-1].tolist(), budgets[1:].tolist(), ahead[1:], strict=True):
        last = found[-1]
        if last.ahead is not None and row is not None and row != last.ahead:
            found += [Stretch(before, budget, None), Stretch(budget, budget, row)]
        elif row == last.ahead:
            found[-1] = last._replace(high=budget)
        elif row is None:
            found.append(Stretch(before, budget, None))
        else:
            found[-1] = last._replace(high=budget)
            found.append(Stretch(budget, budget, row))
    return found


def crossing(
    first: PowerLaw, second: PowerLaw, low: float | None = None, high: float | None = None, level: float = LEVEL
) -> Crossing:
    """The first budget at which the row that was ahead falls behind; its interval holds all budgets around it at which the rows
    may be equal. It is open on a side on which neither row is known to be ahead as far as they were compared."""
    stretches = who_is_ahead(first, second, low, high, level)
    start, end = stretches[0].low, stretches[-1].high
    for i, each in enumerate(stretches):
        if each.ahead is not None:
            continue
        budgets = np.geomspace(each.low, each.high, PLACES)
        gap = first.values(budgets, first.best)[:, 0] - second.values(budgets, second.best)[:, 0]
        changes = np.flatnonzero(np.sign(gap[1:]) != np.sign(gap[:-1]))
        bounds = (each.low if i else -math.inf, each.high if i + 1 < len(stretches) else math.inf)
        if len(changes) and any(map(math.isfinite, bounds)):
            return Crossing(Interval(float(budgets[changes[0]]), *bounds))
    if len(stretches) == 1 and stretches[0].ahead is not None:
        return Crossing(None, f"no crossing between {start:g} and {end:g}")
    return Crossing(None, f"undetermined between {start:g} and {end:g}")
