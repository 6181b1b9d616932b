"""Intervals against scipy and against simulations in which the truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from seqloom.metrics import intervals
from seqloom.metrics.intervals import (
    Interval,
    Sample,
    VarianceComponent,
    around,
    bootstrap,
    by_set,
    item_component,
    nested,
    ratio_items,
    seed_component,
    student,
)
from seqloom.metrics.student_t import student_quantile
from tests.metrics.simulations import (
    KINDS,
    SPREADS,
    over_both,
    over_deterministic,
    over_documents,
    over_items,
    over_seeds,
    over_sets,
)

LONG = pytest.param(2000, marks=pytest.mark.long)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_interval_of_a_mean_is_scipys(count):
    values = np.random.default_rng(count).normal(0.8, 0.1, count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert student(values) == pytest.approx((values.mean(), low, high))


def test_one_value_tells_nothing():
    found = student([0.8])
    assert found == Interval(0.8, -math.inf, math.inf) and not found.is_bounded and found.contains(0.1)
    assert str(found) == "0.8000" and found.record() == {"value": 0.8}
    assert student([0.5, 0.5]) == Interval(0.5, -math.inf, math.inf), "equal numbers tell no more"
    for wrong in (student, bootstrap):
        with pytest.raises(ValueError, match="needs at least one"):
            wrong([])


def test_one_seed_or_one_item_tells_nothing_about_others():
    scores = np.random.default_rng(0).random((1, 50))
    assert nested(scores) == Interval(scores.mean(), -math.inf, math.inf)
    assert not nested(scores.T).is_bounded
    for wrong in ([0.5, 0.6], np.zeros((0, 3)), np.zeros((3, 0))):
        with pytest.raises(ValueError, match=r"\(seeds, items\)"):
            nested(wrong)


def test_parts_that_do_not_move_a_mean():
    """The same of every seed: only items are left. The same of every item: only seeds, and a few that were not seen. All the
    same: nothing is known about how far apart scores may lie."""
    values = np.random.default_rng(0).random(7)
    assert nested(np.tile(values, (3, 1))) == pytest.approx(student(values))
    assert around(values.mean(), [seed_component(Sample(np.tile(values[:, None], (1, 9))))]) == pytest.approx(
        student(values)
    )
    assert not nested(np.full((3, 9), 0.5)).is_bounded
    assert nested(Sample(np.full((3, 9), 0.5), outcomes=True)).is_bounded


def test_nested_by_hand():
    """Seeds' means 1, 3; items' means 1, 2, 3; the rest 1, -1, 0 and its negative."""
    scores = np.array([[1, 0, 2], [1, 4, 4]])
    seeds, items, rest = 2 / 2, 1 / 3, 4 / 2 / 6
    assert intervals.mean_component(scores.mean(1)) == pytest.approx((seeds, 1))
    assert intervals.item_component(scores.mean(0), Sample(scores)) == pytest.approx((items - rest, 2))
    assert nested(scores).high - 2 == pytest.approx(stats.t.ppf(0.975, 1))
    half = 2 * (0.75 * stats.t.ppf(0.975, 1) + 0.25 * stats.t.ppf(0.975, 8))
    assert around(2, [VarianceComponent(3, 1), VarianceComponent(1, 8)]) == pytest.approx((2, 2 - half, 2 + half))


def check_student_coverage(count):
    """Over 2,000 simulations; its own error is half a hundredth."""
    assert 0.93 <= over_seeds(2000, count) <= 0.97


@pytest.mark.parametrize("count", [3, 5, 10])
def test_student_covers_the_truth(count):
    check_student_coverage(count)


def check_bootstrap_coverage():
    random = np.random.default_rng(1)
    right = (random.random((600, 200)) < 0.7).astype(float)
    held = [bootstrap(row, draws=300, seed=i).contains(0.7) for i, row in enumerate(right)]
    assert 0.92 <= np.mean(held) <= 0.98


def test_bootstrap_covers_the_truth():
    check_bootstrap_coverage()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("items", [200, 1000])
def test_bootstrap_covers_the_truth_of_every_kind(items, kind):
    assert 0.93 <= over_items(2000, items, kind, draws=500) <= 0.97


def check_nested_coverage(simulations, seeds, spread, kind):
    """At least so often, and not by intervals without end: with 3 seeds Student's are 1.9 times as wide as the ideal."""
    covered, width = over_both(simulations, seeds, 200, SPREADS[spread], kind)
    assert covered >= (0.93 if simulations >= 2000 else 0.92)
    assert width <= {2: 5.0, 3: 2.0, 5: 1.4, 10: 1.2}[seeds]


@pytest.mark.parametrize("simulations", [600, LONG])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_nested_covers_the_truth(simulations, seeds, spread, kind):
    check_nested_coverage(simulations, seeds, spread, kind)


def test_a_mean_is_drawn_as_any_other_score():
    values = np.random.default_rng(0).random(37)
    assert bootstrap(values) == pytest.approx(bootstrap(values, lambda rows: rows.mean()))


def test_rows_stay_together():
    """Of two columns that are nearly the same the correlation is nearly 1 in every draw."""
    column, noise = np.random.default_rng(0).random((2, 50))
    found = bootstrap(np.stack((column, column + 1e-3 * noise), 1), lambda rows: np.corrcoef(rows.T)[0, 1])
    assert found == pytest.approx((1, 1, 1), abs=1e-4)


def test_draws_that_are_all_the_same():
    """All right: how many of others would be wrong is known from how many there were. Of any other score nothing is known."""
    for n in (20, 1000):
        value, low, _ = bootstrap(np.ones(n))
        assert value == 1 and (1 - low) * n == pytest.approx(3.7, abs=0.3)
    assert not bootstrap(np.ones((20, 2)), lambda rows: 1.0).is_bounded


def test_draws_are_private_and_the_same_again():
    values = np.random.default_rng(0).random(30)
    np.random.seed(3)
    before = np.random.get_state()[1].tolist()
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1) != bootstrap(values, seed=2)
    assert np.random.get_state()[1].tolist() == before


def test_many_items_are_drawn_in_parts(monkeypatch):
    values = np.random.default_rng(0).random(30)
    whole = bootstrap(values, draws=100)
    monkeypatch.setattr(intervals, "AT_ONCE", 40)
    assert bootstrap(values, draws=100) == whole


# ---- bugs that one could write


def test_planted_normal_quantiles_are_noticed(monkeypatch):
    monkeypatch.setattr(intervals, "student_quantile", lambda df, alpha: stats.norm.isf(alpha / 2))
    with pytest.raises(AssertionError):
        check_student_coverage(3)
    with pytest.raises(AssertionError):
        check_nested_coverage(600, 3, "large", "numbers")


def test_planted_interval_over_items_alone_is_noticed(monkeypatch):
    monkeypatch.setattr(intervals, "seed_component", lambda row: VarianceComponent(0.0, 1))
    with pytest.raises(AssertionError):
        check_nested_coverage(600, 3, "equal", "0/1 at 0.7")


def test_planted_interval_over_seeds_alone_is_noticed(monkeypatch):
    monkeypatch.setattr(intervals, "item_component", lambda means, *rows: VarianceComponent(0.0, 1))
    with pytest.raises(AssertionError):
        check_nested_coverage(600, 10, "small", "numbers")


def test_planted_satterthwaite_is_noticed(monkeypatch):
    """What comes to mind first is too narrow with 3 seeds: the worst case is below 93%."""

    def satterthwaite(parts, alpha):
        total = sum(part.variance for part in parts)
        df = total**2 / sum(part.variance**2 / part.df for part in parts)
        return student_quantile(df, alpha)

    monkeypatch.setattr(intervals, "quantile", satterthwaite)
    assert over_both(2000, 3, 200, 5.0, "numbers")[0] < 0.93


def test_planted_items_counted_apart_for_every_seed_are_noticed(monkeypatch):
    """All scores as if independent."""
    monkeypatch.setattr(
        intervals, "around", lambda value, parts, level: around(value, [VarianceComponent(0.0, 1)], level)
    )
    with pytest.raises(AssertionError):
        check_nested_coverage(600, 5, "equal", "numbers")


def test_planted_spread_over_all_is_noticed(monkeypatch):
    """The spread divided by n, not by n - 1."""
    quantile = student_quantile
    monkeypatch.setattr(intervals, "student_quantile", lambda f, alpha: quantile(f, alpha) * math.sqrt(f / (f + 1)))
    with pytest.raises(AssertionError):
        check_student_coverage(3)


def test_planted_one_sided_quantiles_are_noticed(monkeypatch):
    quantile = student_quantile
    monkeypatch.setattr(intervals, "student_quantile", lambda f, alpha: quantile(f, 2 * alpha))
    with pytest.raises(AssertionError):
        check_student_coverage(10)


class Orders:
    """Draws without replacement: every item once."""

    def __init__(self, seed):
        self.random = np.random.Generator(np.random.PCG64(seed))

    def integers(self, low, high, shape):
        return self.random.permuted(np.tile(np.arange(low, high), (shape[0], 1)), axis=1)


def check_draws_differ():
    right = (np.random.RandomState(1).random((50, 200)) < 0.7).astype(float)
    found = [bootstrap(row, lambda rows: rows.mean(), draws=100, seed=i) for i, row in enumerate(right)]
    assert all(each.is_bounded and each.low < each.value < each.high for each in found)


def test_planted_draws_without_replacement_are_noticed(monkeypatch):
    check_draws_differ()
    monkeypatch.setattr(intervals.np.random, "default_rng", Orders)
    with pytest.raises(AssertionError):
        check_draws_differ()


# ---- items in sets, documents, rows without anything random


def test_sets_by_hand():
    """Two items and four: the mean over items is that of sets weighted by their sizes; a set is one item of the jackknife."""
    scores, sets = np.array([[1.0, 0, 1, 1, 1, 0]]), np.array([7, 7, 2, 2, 2, 2])
    row = by_set(Sample(scores, deterministic=True), sets)
    assert row.value == pytest.approx(scores.mean())
    left_out = np.array([scores[0, :2].mean(), scores[0, 2:].mean()])  # without the larger set, and without the smaller
    spread = math.sqrt(((left_out - left_out.mean()) ** 2).sum() / 2)
    assert item_component(row.scores[0], row).variance == pytest.approx(spread**2)
    assert row.df == 1  # sizes of 2 and 4 leave 0.5, and less than one is not said
    within = Sample(scores, deterministic=True, strata=sets)
    parts = [0.5 * 2 / 36, 0.25 * 4 / 36]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 1 + parts[1] ** 2 / 3)
    assert item_component(scores[0], within) == pytest.approx((sum(parts), df))


def test_one_set_is_all_items_and_items_of_their_own_are_one_set():
    scores = np.random.default_rng(0).normal(size=(3, 40))
    plain = nested(scores)
    for strata in (np.zeros(40, int), np.arange(40)):
        assert nested(Sample(scores, strata=strata)) == pytest.approx(plain)
    assert nested(by_set(Sample(scores), np.arange(40))) == pytest.approx(plain)


def test_ratios_of_equal_sizes_are_means():
    totals = np.random.default_rng(0).normal(size=(3, 40))
    scores, df = ratio_items(totals, np.ones(40))
    assert scores == pytest.approx(totals) and df == pytest.approx(39)
    sizes = np.random.default_rng(1).random(40)
    scores, df = ratio_items(totals, sizes)
    assert scores.mean(1) == pytest.approx(totals.sum(1) / sizes.sum()) and df < 39


SETS = [(5, 10, 20), (3, 67, 15), (10, 20, 10)]  # seeds, sets, items of each


def check_sets(simulations, seeds, sets, each, kind, by, most=0.99):
    assert (0.92 if simulations < 1000 else 0.93) <= over_sets(simulations, seeds, sets, each, kind, by) <= most


@pytest.mark.parametrize("by", ["set", "item"])
@pytest.mark.parametrize("kind", ["numbers", "0/1 at 0.7"])
@pytest.mark.parametrize(("seeds", "sets", "each"), SETS)
def test_intervals_of_sets_cover_the_truth(seeds, sets, each, kind, by):
    check_sets(400, seeds, sets, each, kind, by)


@pytest.mark.long
@pytest.mark.parametrize("by", ["set", "item"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_intervals_of_sets_cover_the_truth_of_blimp(seeds, kind, by):
    check_sets(1000, seeds, 67, 15, kind, by)


def test_planted_items_without_sets_are_noticed():
    """As intervals were: all items as if they had nothing in common."""
    assert over_sets(400, 5, 10, 20, "0/1 at 0.7", "none") < 0.75
    with pytest.raises(AssertionError):
        check_sets(400, 5, 67, 15, "0/1 at 0.7", "none")


def check_documents(simulations, seeds, documents, spread=1.0):
    covered, apart = over_documents(simulations, seeds, documents, spread)
    assert covered >= (0.92 if simulations < 1000 else 0.93) and apart <= (0.075 if simulations < 1000 else 0.065)


@pytest.mark.parametrize(("seeds", "documents"), [(2, 20), (3, 100), (10, 50)])
def test_bits_of_documents_cover_the_truth(seeds, documents):
    check_documents(500, seeds, documents)


@pytest.mark.long
@pytest.mark.parametrize("spread", [0.3, 1.0])
@pytest.mark.parametrize("documents", [20, 100, 1000])
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_bits_of_documents_cover_the_truth_anywhere(seeds, documents, spread):
    check_documents(1000, seeds, documents, spread)


def test_planted_mean_over_documents_is_noticed(monkeypatch):
    """The mean of ratios is not the ratio of sums: long documents are more of the text."""
    monkeypatch.setattr(
        "tests.metrics.simulations.ratio_items", lambda totals, sizes: (totals / sizes, len(sizes) - 1.0)
    )
    with pytest.raises(AssertionError):
        check_documents(500, 10, 50)


def check_deterministic(simulations, items, kind):
    covered, apart, empty = over_deterministic(simulations, items, kind)
    assert covered >= 0.92 and apart <= 0.075 and not empty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("items", [20, 200])
def test_a_deterministic_row_has_items_alone(items, kind):
    check_deterministic(600, items, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("items", [20, 100, 1000, 5000])
def test_deterministic_rows_with_any_number_of_items(items, kind):
    check_deterministic(2000, items, kind)


def test_planted_copies_that_count_as_seeds_are_noticed(monkeypatch):
    """If every copy were a seed of its own and items did not count, there would be no doubt left."""
    monkeypatch.setattr(intervals, "item_component", lambda means, *rows: VarianceComponent(0.0, 1))
    with pytest.raises(AssertionError):
        check_deterministic(100, 200, "numbers")


def test_planted_trust_in_equal_items_is_noticed(monkeypatch):
    monkeypatch.setattr(intervals, "UNSEEN", 0.0)
    with pytest.raises(AssertionError):
        check_deterministic(300, 20, "0/1 at 0.95")


def test_shares_stay_between_0_and_1():
    for right in (0, 1, 19, 20):
        row = Sample((np.arange(20) < right).astype(float)[None], deterministic=True, outcomes=True)
        value, low, high = nested(row)
        assert 0 <= low <= value <= high <= 1 and low < high
