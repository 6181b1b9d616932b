"""Power: against how often differences are really found in simulated tables, and what a plan is told."""

import math

import numpy as np
import pytest
from scipy import stats

from seqloom.metrics import power
from seqloom.metrics.differences import difference_of_seeds
from seqloom.metrics.intervals import Sample, by_set
from seqloom.metrics.power import Design, Spread, design_of, plan_power, spread_of
from seqloom.metrics.variances import pool
from tests.metrics.simulations import OWN, SPREADS, seeds_told_apart, tables, told_apart


def spread_in(items, name):
    """Of the tables of `simulations`."""
    return Spread(SPREADS[name] * math.sqrt((1 + OWN**2) / items), math.sqrt(2) * OWN, 1.0)


def check_items(simulations, seeds, items, spread, gap, allowed):
    found = told_apart(simulations, (seeds, seeds), items, SPREADS[spread], "numbers", gap)
    assert Design(seeds, items, spread_in(items, spread)).power(gap) == pytest.approx(found, abs=allowed)


CASES = [(3, 200, "equal", 0.3), (5, 200, "small", 0.15), (10, 100, "large", 0.4)]


@pytest.mark.parametrize(("seeds", "items", "spread", "gap"), CASES)
def test_power_is_how_often_a_difference_on_items_is_found(seeds, items, spread, gap):
    check_items(300, seeds, items, spread, gap, 0.09)


@pytest.mark.long
@pytest.mark.parametrize("gap", [0.0, 0.1, 0.2, 0.4])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_power_is_how_often_a_difference_on_items_is_found_anywhere(seeds, spread, gap):
    check_items(2000, seeds, 200, spread, gap, 0.035)


def check_seeds(simulations, seeds, gap, allowed):
    found = seeds_told_apart(simulations, (seeds, seeds), gap=gap)
    assert Design(seeds, None, Spread(1.0)).power(gap) == pytest.approx(found, abs=allowed)


@pytest.mark.parametrize(("seeds", "gap"), [(2, 6.0), (3, 3.0), (5, 2.0), (10, 1.0)])
def test_power_is_how_often_a_difference_of_seeds_is_found(seeds, gap):
    check_seeds(1000, seeds, gap, 0.05)


def found_in_pools(simulations, rows, seeds, gap, comparisons):
    """How often two rows that differ are told apart, with the seeds of equal rows pooled."""
    table = np.random.default_rng([rows, seeds]).normal(size=(simulations, rows, seeds))
    table[:, 0] += gap
    found = 0
    for each in table:
        component = pool([Sample(row) for row in each]).component
        found += difference_of_seeds(*(Sample(row, pooled=component) for row in each[:2])).p < 0.05 / comparisons
    return found / simulations


@pytest.mark.parametrize(
    ("rows", "seeds", "gap", "comparisons"), [(2, 3, 3.4, 1), (4, 3, 4.0, 3), (8, 3, 8.0, 28), (8, 5, 3.5, 28)]
)
def test_power_of_pooled_seeds(rows, seeds, gap, comparisons):
    """A little less is found: in a fifth of all tables Bartlett's test forbids the pool."""
    expected = Design(seeds, None, Spread(1.0), comparisons, rows).power(gap)
    assert found_in_pools(400, rows, seeds, gap, comparisons) == pytest.approx(expected, abs=0.09)


@pytest.mark.parametrize("seeds", [5, 50])
def test_one_source_is_the_noncentral_t(seeds):
    """Of fixed models, the power of the paired t test."""
    for n, gap in ((10, 1.0), (40, 0.5)):
        shift, critical = gap * math.sqrt(n), stats.t.isf(0.025, n - 1)
        exact = stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)
        assert Design(seeds, n, Spread(0.0, 1.0)).power(gap) == pytest.approx(exact, abs=0.01)


def test_planted_normal_quantiles_are_noticed(monkeypatch):
    monkeypatch.setattr(power, "student_quantile", lambda df, alpha: stats.norm.isf(alpha / 2))
    with pytest.raises(AssertionError):
        check_seeds(1000, 3, 3.0, 0.05)
    with pytest.raises(AssertionError):
        check_items(300, 3, 200, "equal", 0.3, 0.09)


def test_planted_items_that_are_forgotten_are_noticed(monkeypatch):
    monkeypatch.setattr(Design, "_item_variance", 0.0)
    with pytest.raises(AssertionError):
        check_items(300, *CASES[1], 0.09)


def test_planted_variances_that_are_known_are_noticed(monkeypatch):
    """As if the variance between seeds had been estimated without error."""
    monkeypatch.setattr(
        Design, "_estimates", lambda self, random, one: (np.full(4000, 2 * one / self.seeds), np.full(4000, 1e6))
    )
    with pytest.raises(AssertionError):
        check_seeds(1000, 3, 3.0, 0.05)


def test_more_of_anything_finds_more():
    design = Design(3, 200, Spread(0.01, 0.3, 0.4), 3)
    assert design.power(0.0) < 0.05 / 3 * 1.2 < design.power(0.05) < design.power(0.1)
    for field, values in (
        ("seeds", (2, 3, 5, 20)),
        ("items", (20, 200, 2000)),
        ("comparisons", (28, 3, 1)),
        ("rows", (2, 4, 8)),
    ):
        found = [power.replace(design, **{field: value}).detectable() for value in values]
        assert found == sorted(found, reverse=True), field


def test_what_is_found_and_what_is_needed_agree():
    design = Design(5, 400, Spread(0.02, 0.3, 0.4), 3, 3)
    smallest = design.detectable()
    assert design.power(smallest) == pytest.approx(0.8, abs=0.001)
    assert design.seeds_needed(smallest * 1.001) == 5
    assert design.items_needed(smallest * 1.001) == pytest.approx(400, rel=0.02)
    needed = design.seeds_needed(smallest / 1.5)
    assert (
        power.replace(design, seeds=needed).power(smallest / 1.5)
        >= 0.8
        > power.replace(design, seeds=needed - 1).power(smallest / 1.5)
    )
    assert design.seeds_needed(0.02) is None, "with so few items no number of seeds helps"
    assert design.items_needed(0.02) is None, "with so few seeds no number of items helps"


def test_of_one_seed_nothing_is_found():
    assert Design(1, None, Spread(1.0)).power(100) == 0 and Design(1, None, Spread(1.0)).detectable() == math.inf
    assert Design(1, 100, Spread(0.0, 0.5)).power(0.2) > 0.9, "fixed models have no seeds"
    assert Design(3, 1, Spread(1.0, 0.5)).detectable() == math.inf
    assert Design(3, 100, Spread(0.0)).power(1.0) == 0, "nothing varies: nothing is known"


def test_the_spread_of_rows_is_found_again():
    rows = tables(200, (6, 6), 300, SPREADS["large"], "numbers").rows
    found = np.mean([spread_of(Sample(a), Sample(b)) for a, b in zip(*rows, strict=True)], 0)
    assert found == pytest.approx(spread_in(300, "large"), rel=0.06)
    seeds = np.random.default_rng(0).normal(scale=2.0, size=(2, 2000))
    assert spread_of(*map(Sample, seeds)) == pytest.approx((2.0, 0, 0), rel=0.05)
    fixed = [Sample(row[0][:1], deterministic=True) for row in rows]
    assert spread_of(*fixed) == pytest.approx((0.0, math.sqrt(2 * OWN**2 + 2), 0.0), rel=0.15)


def test_items_of_which_few_dominate_are_known_worse():
    """One set of 1,000 items and 20 of 10: the variance is as badly known as that of two."""
    random = np.random.default_rng(0)
    sets = np.repeat(np.arange(21), [1000, *[10] * 20])
    rows = [random.normal(size=1200) + random.normal(scale=0.1, size=(4, 1200)) for _ in range(2)]
    equal, unequal = (design_of(*(by_set(Sample(row), each) for row in rows)) for each in (np.arange(1200) % 21, sets))
    assert (
        equal.items == unequal.items == 21
        and equal.df_share > 0.9
        and unequal.df_share == pytest.approx(0.05, abs=0.01)
    )
    assert unequal.detectable() > 2 * power.replace(unequal, df_share=1.0).detectable()
    plain = design_of(*map(Sample, rows), 3, 2)
    assert plain == Design(4, 1200, spread_of(*map(Sample, rows)), 3, 2)


def test_a_plan_is_told_what_it_can_find():
    one, two, three, five = (plan_power(seeds, 1, 0) for seeds in (1, 2, 3, 5))
    assert one.detectable == math.inf and not one.enough and "no difference" in one.words
    assert not two.enough and two.detectable > 10, "Student's quantile is 12.7 for either row"
    assert not three.enough and "4 seeds would detect differences of 3" in three.words
    assert five.enough and five.words.endswith("are detected with 80% power")
    assert "2.1 standard deviations of a seed (0.021)" in plan_power(5, 1, 0, 0.01).words
    assert plan_power(5, 28, 8).detectable > plan_power(5, 1, 8).detectable < plan_power(5, 1, 2).detectable
    assert "among 28 comparisons" in plan_power(5, 28, 8).words
