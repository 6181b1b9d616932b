"""Fits of power laws: exact ladders, simulated ones whose law is known, two rows that cross, and what is not claimed."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from seqloom.metrics import scaling
from seqloom.metrics.scaling import (
    Stretch,
    best_before_worse,
    crossing,
    difference_at,
    f_tail,
    fit_ladder,
    fit_ladders,
    leaders_by_budget,
    who_is_ahead,
)
from tests.metrics.ladders import COLUMNS, SHAPES, Law, called_different, coverage, draw_losses, two_rows


@pytest.mark.parametrize(("df", "below"), [(1, 6), (2, 10), (4, 3), (7, 40)])
def test_tails_are_scipys(df, below):
    for value in (0.01, 0.5, 1.0, 4.0, 60.0):
        assert f_tail(value, df, below) == pytest.approx(stats.f.sf(value, df, below))


@pytest.mark.parametrize("exponent", [0.02, 0.3, 1.0, 2.5])
def test_the_law_is_found_where_there_is_no_noise(exponent):
    law = Law(exponent, 1.5)
    found = fit_ladder({x: [law.at(x)] for x in (5e5, 1.5e6, 5e6)})
    assert found.exponent().value == pytest.approx(exponent, rel=1e-4)
    assert found.offset().value == pytest.approx(1.5, rel=1e-3)
    assert found.factor().value == pytest.approx(5e5**exponent, rel=1e-2)
    assert found.at(17e6) == pytest.approx(law.at(17e6), rel=1e-6)


def test_the_fit_is_that_of_least_squares():
    """With unequal numbers of seeds, against scipy's."""
    from scipy.optimize import curve_fit

    random, law = np.random.default_rng(3), Law(0.4, 1.2)
    losses = {x: law.at(x) + random.normal(0, 0.01, seeds) for x, seeds in ((5e5, 5), (2e6, 3), (6e6, 2), (2e7, 4))}
    x, y = np.array([(x, y) for x, seeds in losses.items() for y in seeds]).T
    (offset, factor, exponent), _ = curve_fit(lambda x, e, a, b: e + a * (x / 5e5) ** -b, x, y, (1, 1, 0.5))
    found = fit_ladder(losses)
    assert found.exponent().value == pytest.approx(exponent, rel=1e-4)
    assert found.offset().value == pytest.approx(offset, rel=1e-4)
    assert found.factor().value == pytest.approx(factor * 5e5**exponent, rel=1e-3)
    left = ((y - [found.at(each) for each in x]) ** 2).sum()
    assert found.variance == pytest.approx((left / (14 - 3), 14 - 3))


def test_intervals_hold_the_laws_that_fit():
    """A law at an end of the exponent's interval is worse than the best by exactly what is allowed, and so is the best law that
    passes through an end of the prediction."""
    found = fit_ladder(draw_losses(np.random.default_rng(0), Law(0.3, 1.5), 4, 3, 0.01))
    interval, allowed = found.exponent(), found.allowed()
    for end in (interval.low, interval.high):
        share = end * found.width / (1 + end * found.width)
        assert found.fit(np.array([share]), found._best[1]).worse[0] == pytest.approx(allowed, rel=1e-4)
    for end in found.predict(17e6, 3)[1:]:
        more = fit_ladder({**dict(zip(found.budgets, ([m] for m in found.means), strict=True)), 17e6: [end]})
        counts = np.array([3, 3, 3, 3, 3])[np.argsort([*found.budgets, 17e6])]
        together = scaling.PowerLaw(more.budgets, more.means, counts, 0.0, 0)
        assert together._best[1] - found._best[1] == pytest.approx(allowed, rel=1e-3)


def check_covered(simulations, budgets, seeds, columns=COLUMNS, most=0.97, least=0.93):
    found = dict(zip(COLUMNS, coverage(simulations, budgets, seeds), strict=False))
    for name in columns:
        assert least <= found[name] <= most, (name, found[name])


@pytest.mark.parametrize(("budgets", "seeds"), [(3, 2), (3, 3), (5, 4)])
def test_the_truth_is_covered(budgets, seeds):
    check_covered(250, budgets, seeds, least=0.915, most=0.99)


@pytest.mark.long
@pytest.mark.parametrize(("budgets", "seeds"), SHAPES)
def test_the_truth_is_covered_in_many_ladders(budgets, seeds):
    check_covered(2000, budgets, seeds)


def test_planted_normal_quantiles_are_noticed(monkeypatch):
    monkeypatch.setattr(scaling, "student_quantile", lambda df, alpha: stats.norm.isf(alpha / 2))
    with pytest.raises(AssertionError):
        check_covered(250, 3, 2, least=0.915, most=0.99)


def test_planted_trust_in_the_best_exponent_is_noticed(monkeypatch):
    """A prediction as if the exponent were known."""
    monkeypatch.setattr(scaling.PowerLaw, "fitting", lambda self, most, count=0: self.best)
    with pytest.raises(AssertionError):
        check_covered(250, 4, 3, ["prediction"], least=0.915, most=0.99)


def test_planted_bootstrap_over_seeds_is_noticed(monkeypatch):
    """The percentiles of fits to resampled seeds: three seeds scatter too little when drawn with replacement."""

    def percentiles(self, budget, seeds=1, level=0.95):
        random = np.random.default_rng(0)
        scale = math.sqrt(self.within / self.counts.sum())
        draws = self.means + random.normal(size=(40, len(self.means))) * scale / np.sqrt(self.counts)
        values = [scaling.PowerLaw(self.budgets, draw, self.counts, 0.0, 0).at(budget) for draw in draws]
        values += random.normal(0, scale / math.sqrt(seeds), len(values))
        return scaling.Interval(self.at(budget), *np.quantile(values, (0.025, 0.975)))

    monkeypatch.setattr(scaling.PowerLaw, "predict", percentiles)
    with pytest.raises(AssertionError):
        check_covered(120, 3, 3, ["prediction"], least=0.915, most=0.99)


def test_what_a_ladder_cannot_tell():
    """Budgets that all have the same loss but for noise: any exponent fits, there is no lowest loss, and yet a prediction."""
    random = np.random.default_rng(1)
    found = fit_ladder({x: random.normal(2, 0.01, 3) for x in (1e6, 3e6, 1e7)})
    assert found.exponent().low == 0 and found.exponent().high == math.inf
    assert found.offset().low == -math.inf and found.factor().high == math.inf
    assert found.predict(3.4e7, 3).is_bounded and found.predict(3.4e7, 3).contains(2)


def test_of_one_seed_nothing_is_concluded_from_three_budgets():
    law = Law(0.3, 1.5)
    for seeds in ([0.0], [0.0, 0.0, 0.0]):  # copies
        found = fit_ladder({x: [law.at(x) + each for each in seeds] for x in (5e5, 1.5e6, 5e6)})
        assert not found.predict(17e6).is_bounded and not found.offset().is_bounded
        assert found.exponent()[1:] == (0, math.inf) and found.misfit == 1
    noisy = fit_ladder({5e5 * 3**i: [law.at(5e5 * 3**i) + 0.01 * (-1) ** i] for i in range(5)})
    assert noisy.variance.df == 2 and noisy.predict(17e7).is_bounded, "five budgets scatter around the law"


def test_a_wrong_law_is_noticed():
    random = np.random.default_rng(0)
    bent = {x: 2 - 0.3 * (x > 4e6) + random.normal(0, 0.005, 4) for x in (5e5, 1e6, 2e6, 4e6, 8e6)}
    right = draw_losses(random, Law(0.3, 1.5), 5, 4, 0.005)
    assert fit_ladder(bent).misfit < 1e-4 < 0.05 < fit_ladder(right).misfit


def test_predictions_of_more_seeds_are_narrower():
    found = fit_ladder(draw_losses(np.random.default_rng(0), Law(0.3, 1.5), 4, 3, 0.01))
    widths = [found.predict(17e6, seeds).high - found.predict(17e6, seeds).low for seeds in (1, 3, 100)]
    mean = found.mean_at(17e6)
    assert widths[0] > widths[1] > widths[2] > mean.high - mean.low


def test_where_two_rows_cross():
    quick, slow = Law(0.8, 1.0), Law(0.15, 0.7)
    gap = quick.at(5e5) - slow.at(5e5)
    assert gap > 0
    random = np.random.default_rng(0)
    fits = fit_ladders(
        {"quick": draw_losses(random, quick, 4, 3, 0.005), "slow": draw_losses(random, slow, 4, 3, 0.005)}
    )
    places = np.geomspace(5e5, 5e5 * 3.2**3, 100_000)
    true = places[np.abs(quick.at(places) - slow.at(places)).argmin()]
    found = crossing(*fits.values()).interval
    assert found.contains(true) and found.low < found.value < found.high < 3 * found.low
    stretches = who_is_ahead(*fits.values())
    assert [each.ahead for each in stretches] == [1, None, 0]
    assert stretches[1][:2] == found[1:]
    assert all(before.high == after.low for before, after in pairwise(stretches))
    mirrored = who_is_ahead(*reversed(fits.values()))
    assert [each.ahead for each in mirrored] == [0, None, 1]
    for budget in (5e5, true, 1.6e7):
        there, back = difference_at(*fits.values(), budget), difference_at(*reversed(fits.values()), budget)
        assert there == pytest.approx((-back.value, -back.high, -back.low))


def test_rows_that_do_not_cross_or_cannot_be_told():
    random = np.random.default_rng(0)
    rows = {
        name: draw_losses(random, Law(0.3, offset), 4, 3, 0.005)
        for name, offset in (("a", 1.0), ("b", 1.2), ("c", 1.2))
    }
    fits = fit_ladders(rows)
    assert who_is_ahead(fits["a"], fits["b"]) == [Stretch(pytest.approx(5e5), pytest.approx(5e5 * 3.2**3), 0)]
    assert crossing(fits["a"], fits["b"]) == (None, "no crossing between 500000 and 1.6384e+07")
    assert crossing(fits["b"], fits["c"]).reason.startswith("undetermined between")
    single = fit_ladder({x: [seeds[0]] for x, seeds in list(rows["a"].items())[:3]})
    assert [each.ahead for each in who_is_ahead(single, fits["b"])] == [None]


def test_who_leads_at_each_budget():
    """As measured: rows need not have the same budgets, and one seed is never left out."""
    rows = {
        "quick": {1e6: [2.0, 2.01, 2.02], 3e6: [1.5, 1.51, 1.5], 9e6: [1.2, 1.21, 1.2]},
        "slow": {1e6: [1.8, 1.81, 1.8], 3e6: [1.5, 1.5, 1.51], 9e6: [1.4, 1.41, 1.42]},
        "short": {1e6: [1.9, 1.91, 1.9], 3e6: [1.7, 1.7, 1.71]},
        "single": {9e6: [1.5]},
    }
    assert leaders_by_budget(rows) == {1e6: ["slow"], 3e6: ["quick", "slow"], 9e6: ["quick", "single"]}


def test_beyond_the_ladder_less_is_known():
    fits = fit_ladders(
        {str(i): draw_losses(np.random.default_rng(i), Law(0.3, 1 + i / 20), 3, 3, 0.005) for i in range(2)}
    )
    a, b = fits.values()
    widths = [(found := difference_at(a, b, budget)).high - found.low for budget in (2e6, 17e6, 1e9)]
    assert widths[0] < widths[1] < widths[2]


def check_crossings(simulations, budgets, seeds, least):
    held, found, right = two_rows(simulations, budgets, seeds)
    assert held >= least and found > 0.3 and right >= least


def check_equal(simulations, budgets, seeds, most):
    assert called_different(simulations, budgets, seeds) <= most


def test_crossings_are_covered():
    check_crossings(60, 4, 3, 0.88)


def test_equal_rows_are_seldom_called_different():
    check_equal(80, 4, 3, 0.12)


def test_planted_certain_laws_are_noticed(monkeypatch):
    """As if only the height of each law were unknown, not its shape."""
    monkeypatch.setattr(scaling.PowerLaw, "fitting", lambda self, most, count=0: self.best)
    monkeypatch.setattr(scaling.PowerLaw, "variances", lambda self, x, laws: np.array([1 / self.counts.sum()]))
    with pytest.raises(AssertionError):
        check_equal(80, 4, 3, 0.12)


@pytest.mark.long
@pytest.mark.parametrize(("budgets", "seeds"), [(3, 3), (4, 3), (5, 5)])
def test_crossings_are_covered_in_many_ladders(budgets, seeds):
    check_crossings(400, budgets, seeds, 0.93)
    check_equal(400, budgets, seeds, 0.075)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ({1e6: [2.0], 2e6: [1.9]}, "at least three budgets, not 2"),
        ({0: [2.0], 1e6: [1.9], 2e6: [1.8]}, "must be positive"),
        ({1e6: [2.0], 2e6: [], 4e6: [1.8]}, "budget 2e\\+06"),
        ({1e6: [2.0], 2e6: [1.9, math.nan], 4e6: [1.8]}, "must be numbers"),
    ],
)
def test_ladders_that_cannot_be_fitted_are_refused(losses, message):
    with pytest.raises(ValueError, match=message):
        fit_ladder(losses)


def test_stretches_need_two_budgets():
    fits = fit_ladders({str(i): draw_losses(np.random.default_rng(i), Law(0.3, 1), 3, 3, 0.01) for i in range(2)})
    with pytest.raises(ValueError, match="the smaller one first"):
        who_is_ahead(*fits.values(), low=2e6, high=1e6)


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ({1: [1.767, 1.765, 1.772], 3: [1.687, 1.686, 1.690], 10: [1.738, 1.734, 1.738]}, 3),  # an LSTM that overfits
        ({1: [1.824, 1.825, 1.822], 3: [1.679, 1.680, 1.679], 10: [1.654, 1.652, 1.654]}, None),
        ({1: [1.78, 1.79], 3: [1.681, 1.679], 10: [1.680, 1.685]}, None),  # within the noise
        ({1: [1.8], 3: [1.6], 10: [1.7]}, None),  # one seed
        ({1: [1.60, 1.61, 1.61], 3: [1.75, 1.76, 1.75], 10: [1.75, 1.76, 1.74]}, 1),
    ],
)
def test_a_row_that_gets_worse_has_no_law(losses, best):
    assert best_before_worse(losses) == best
