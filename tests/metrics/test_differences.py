"""Differences of rows: against scipy, by hand, and in simulations in which it is known who is better."""

import math

import numpy as np
import pytest
from scipy import stats

from seqloom.metrics import differences
from seqloom.metrics.differences import difference, difference_of_seeds, holm, leaders
from seqloom.metrics.intervals import Interval, Sample, VarianceComponent, item_component, mean_component, nested
from tests.metrics.simulations import KINDS, SPREADS, among_equals, seeds_told_apart, sets_told_apart, told_apart

ALLOWED = {600: 0.075, 2000: 0.065}  # the share of equal rows that may differ significantly, in so many simulations
SIMULATIONS = [600, pytest.param(2000, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_one_number_a_seed_is_compared_as_by_welch(count):
    random = np.random.default_rng(count)
    a, b = random.normal(20, 1, count), random.normal(21, 3, count)
    expected = stats.ttest_ind(a, b, equal_var=False)
    found = difference_of_seeds(a, b)
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert found.interval == pytest.approx((a.mean() - b.mean(), interval.low, interval.high))


def test_many_seeds_on_one_side_do_not_make_up_for_few_on_the_other():
    a, b = [1.0, 2.0], np.random.default_rng(0).normal(5, 3, 20)
    df = 2  # Welch says 18
    spread = math.sqrt(np.var(a, ddof=1) / 2 + b.var(ddof=1) / 20)
    assert difference_of_seeds(a, b).p == pytest.approx(2 * stats.t.sf(abs(1.5 - b.mean()) / spread, df))
    assert difference_of_seeds(a, b).p == pytest.approx(difference_of_seeds(b, a).p)


def test_a_row_against_nothing_is_the_row_itself():
    """Against zeros of as many seeds, which have no variance."""
    row = np.random.default_rng(0).normal(size=(3, 40))
    assert difference(row, np.zeros((3, 40))).interval == pytest.approx(nested(row))


def test_p_and_interval_say_the_same():
    random = np.random.default_rng(0)
    for gap in (0.1, 0.3, 0.6):
        a, b = random.normal(gap, 1, (3, 60)), random.normal(size=(4, 60))
        p = difference(a, b).p
        assert 0 < p < 1
        for level, excluded in ((1 - p * 1.001, True), (1 - p * 0.999, False)):
            assert difference(a, b, level).interval.contains(0) is not excluded
        assert difference(b, a).p == p
        assert difference(b, a).interval.high == pytest.approx(-difference(a, b).interval.low)


def test_of_one_seed_nothing_can_be_concluded():
    for a, b in (([1.0], [2.0, 2.1]), ([2.0, 2.1], [1.0])):
        assert difference_of_seeds(a, b).p == 1
        assert not difference_of_seeds(a, b).interval.is_bounded
    found = difference(np.zeros((1, 50)), np.ones((3, 50)))
    assert found == (Interval(-1, -math.inf, math.inf), 1)
    assert leaders([np.zeros((3, 50)), np.ones((1, 50)), np.full((3, 50), 0.2)]) == [0, 1, 2]
    assert leaders([[1.0, 1.1, 1.2], [9.0], [8.9, 9.0, 9.1]], lower=True) == [0, 1]


def test_rows_without_chance():
    """A model that is counted, not trained, is the same with every seed: of such rows only items can be others."""
    counts = [Sample(np.full(2, value), deterministic=True) for value in (2.0, 3.0)]
    for a, b in (([2.0, 2.0], [2.0, 2.0]), ([2.0, 2.0], [3.0, 3.0]), counts):
        assert difference_of_seeds(a, b).p == 1 and not difference_of_seeds(a, b).interval.is_bounded
    trained = [2.9, 3.0, 3.1]
    assert difference_of_seeds(counts[0], trained).p == pytest.approx(stats.ttest_1samp(trained, 2.0).pvalue)
    right = np.random.default_rng(0).random((2, 80)) < [[0.6], [0.7]]
    found = difference(*np.repeat(right[:, None], 3, 1))
    expected = stats.ttest_rel(*right.astype(float)).pvalue
    assert found.p == pytest.approx(expected)
    assert difference(*(Sample(row[None].astype(float), deterministic=True) for row in right)).p == pytest.approx(
        expected
    )


def test_rows_of_other_items_are_refused():
    row = np.zeros((3, 10))
    for other in (np.zeros((3, 9)), np.zeros(3), np.zeros((0, 10))):
        with pytest.raises(ValueError, match="same items"):
            difference(row, other)
    with pytest.raises(ValueError, match="one number a seed"):
        difference_of_seeds(row, row)
    with pytest.raises(ValueError, match="no row"):
        leaders([])
    with pytest.raises(ValueError, match="same items"):
        leaders([row + 1, np.zeros(3)])


def test_holm_by_hand():
    assert holm([]) == [] and holm([0.3]) == [0.3]
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9, 0.4]) == [1, 1, 1]


def check_holm():
    """Of ten comparisons that have nothing to show one comes up in at most 5% of tables; three that have stay found."""
    p = np.random.default_rng(0).random((2000, 10))
    assert np.mean([min(differences.holm(row)) < 0.05 for row in p]) < 0.065
    p[:, :3] = 1e-6
    assert np.mean([min(differences.holm(row)[3:]) < 0.05 for row in p]) < 0.065
    assert all(max(differences.holm(row)[:3]) < 0.05 for row in p)


def test_holm_keeps_the_error_of_the_table():
    check_holm()


def check_equal(simulations, seeds, spread, kind):
    assert told_apart(simulations, (seeds, seeds), 200, SPREADS[spread], kind) <= ALLOWED[simulations]


@pytest.mark.parametrize(
    ("seeds", "spread", "kind"), [(3, "large", "numbers"), (5, "equal", "0/1 at 0.7"), (10, "small", "0/1 at 0.95")]
)
def test_equal_rows_are_seldom_told_apart(seeds, spread, kind):
    check_equal(600, seeds, spread, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_equal_rows_are_seldom_told_apart_anywhere(seeds, spread, kind):
    check_equal(2000, seeds, spread, kind)


def check_equal_seeds(simulations, pair):
    assert seeds_told_apart(simulations, pair) <= ALLOWED[simulations]


@pytest.mark.parametrize("simulations", SIMULATIONS)
@pytest.mark.parametrize("pair", [(2, 2), (3, 3), (5, 5), (10, 10), (3, 5), (3, 10), (2, 10)])
def test_equal_rows_of_one_number_a_seed_are_seldom_told_apart(simulations, pair):
    check_equal_seeds(simulations, pair)


def check_power():
    """A true difference is found, and more often with more seeds."""
    found = [told_apart(120, (seeds, seeds), 200, SPREADS["equal"], "numbers", gap=0.25) for seeds in (3, 5, 10)]
    assert 0.3 < found[0] < found[1] < found[2] and found[2] > 0.85


def test_a_true_difference_is_found():
    check_power()
    assert seeds_told_apart(600, (3, 3), gap=3) < seeds_told_apart(600, (5, 5), gap=3) > 0.95


def check_equal_rows(simulations, rows, seeds, items=0, kind="numbers"):
    winner, dropped = among_equals(simulations, rows, seeds, items, kind)
    assert winner <= ALLOWED[simulations] and dropped <= ALLOWED[simulations]


@pytest.mark.parametrize("simulations", SIMULATIONS)
@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("rows", [2, 3, 5, 8])
def test_none_of_equal_rows_is_the_winner(simulations, rows, seeds):
    check_equal_rows(simulations, rows, seeds)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [2, 4, 8])
def test_none_of_rows_equal_on_items_is_the_winner(rows, kind):
    check_equal_rows(2000, rows, 3, 200, kind)


def test_who_leads():
    random = np.random.default_rng(0)
    hard = random.normal(size=(1, 100))
    rows = [level + hard + random.normal(scale=0.3, size=(5, 100)) for level in (0.0, 2.0, 2.0, 1.0)]
    assert leaders(rows) == [1, 2]
    assert leaders(rows, lower=True) == [0]
    assert leaders([-row for row in rows], lower=True) == [1, 2]
    assert leaders(rows[:1]) == [0]
    perplexities = [[30.1, 30.4, 29.9], [25.0, 25.3, 25.2], [40.2, 41.0, 40.1]]
    assert leaders(perplexities, lower=True) == [1] and leaders(perplexities) == [2]


# ---- bugs that one could write


def test_planted_normal_tails_are_noticed(monkeypatch):
    monkeypatch.setattr(differences, "tail", lambda t, df: 2 * stats.norm.sf(t))
    for check in (lambda: check_equal_seeds(600, (3, 3)), lambda: check_equal(600, 3, "large", "numbers")):
        with pytest.raises(AssertionError):
            check()


def test_planted_test_over_items_alone_is_noticed(monkeypatch):
    monkeypatch.setattr(differences, "seed_component_of_both", lambda a, b: VarianceComponent(0.0, 1))
    with pytest.raises(AssertionError):
        check_equal(600, 5, "equal", "0/1 at 0.7")


def test_planted_test_over_seeds_alone_is_noticed(monkeypatch):
    """As if the items were all there are."""
    monkeypatch.setattr(differences, "item_component", lambda means, *rows: VarianceComponent(0.0, 1))
    with pytest.raises(AssertionError):
        check_equal(600, 10, "small", "0/1 at 0.95")


def test_planted_unpaired_items_lose_power(monkeypatch):
    def unpaired(means, a, b):
        parts = item_component(a.scores.mean(0), a), item_component(b.scores.mean(0), b)
        return VarianceComponent(sum(part.variance for part in parts), parts[0].df)

    monkeypatch.setattr(differences, "item_component", unpaired)
    with pytest.raises(AssertionError):
        check_power()


def test_planted_trust_in_many_seeds_of_one_row_is_noticed(monkeypatch):
    """Welch's own degrees of freedom."""

    def welch(a, b):
        parts = mean_component(a.scores), mean_component(b.scores)
        total = sum(part.variance for part in parts)
        return VarianceComponent(total, total**2 / sum(part.variance**2 / part.df for part in parts))

    monkeypatch.setattr(differences, "seed_component_of_both", welch)
    check_equal_seeds(600, (5, 5))
    with pytest.raises(AssertionError):
        check_equal_seeds(600, (2, 10))


@pytest.mark.parametrize("pairs", [lambda rows, two: 1, lambda rows, two: rows - 1])
def test_planted_corrections_that_forget_pairs_are_noticed(monkeypatch, pairs):
    """None at all, and one that counts only the pairs with the best, as if it had been known before."""
    monkeypatch.setattr(differences.math, "comb", pairs)
    check_equal_rows(600, 2, 3)
    with pytest.raises(AssertionError):
        check_equal_rows(600, 8, 10)


def test_planted_uncorrected_tables_are_noticed(monkeypatch):
    monkeypatch.setattr(differences, "holm", list)
    with pytest.raises(AssertionError):
        check_holm()


def test_planted_correction_that_is_too_small_is_noticed(monkeypatch):
    """All p values times the same number, one that is too small."""
    monkeypatch.setattr(differences, "holm", lambda p: [each * (len(p) - 7) for each in p])
    with pytest.raises(AssertionError):
        check_holm()


def check_identical_rows():
    """Rows that scored alike, and rows whose seeds did: no interval without width, no p of 0, no winner."""
    one = (np.random.default_rng(0).random((1, 60)) < 0.7).astype(float)
    copies = [Sample(np.repeat(one, 2, 0), outcomes=True), Sample(one, deterministic=True, outcomes=True)]
    tied = Sample(np.stack([one[0], one[0][::-1]]), outcomes=True)  # as many right, of others
    for a, b in ((copies[0], copies[0]), (copies[1], copies[1]), (copies[0], tied), (tied, tied)):
        interval, p = difference(a, b)
        assert p == 1 and interval.low < 0 < interval.high and leaders([a, b]) == [0, 1]
        assert nested(a).low < nested(a).high
    ahead = Sample(np.ones((2, 60)), outcomes=True)
    found = difference(ahead, Sample(np.zeros((2, 60)), outcomes=True))
    assert 0 < found.p < 0.05 and found.interval.low < 1 < found.interval.high
    assert difference(np.random.default_rng(0).normal(1e8, 1, (5, 5000)), np.zeros((5, 5000))).p > 0


def test_identical_rows_are_no_certainty():
    check_identical_rows()


def test_planted_trust_in_identical_replicates_is_noticed(monkeypatch):
    """Equal items leave no doubt, as it was."""
    monkeypatch.setattr(
        differences, "item_component", lambda means, *rows: VarianceComponent(float(means.var(ddof=1)) / len(means), 1)
    )
    with pytest.raises((AssertionError, ZeroDivisionError)):
        check_identical_rows()


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("dfs", [(1, 19), (18, 99), (9, 4999)])
@pytest.mark.parametrize("variance", [1e-4, 1e-20, 1e-28])
def test_differences_beyond_all_doubt_have_a_p(size, dfs, variance):
    """Seeds that are copies but for rounding, and rows far apart: quantiles of p values below 1e-300 are beyond the range of
    numbers."""

    def p(size):
        components = [VarianceComponent(each, df) for each, df in zip((variance, 1e-4), dfs, strict=True)]
        return differences.compare_with_zero(size, components, 0.95).p

    assert 0 < p(size) < 0.05 and p(size) <= p(size / 10)


@pytest.mark.parametrize("seeds", [3, 10])
def test_rows_equal_over_sets_are_seldom_told_apart(seeds):
    assert sets_told_apart(400, seeds, 20, 10, "0/1 at 0.7") <= ALLOWED[600]
