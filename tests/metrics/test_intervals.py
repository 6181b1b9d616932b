"""Intervals against scipy and against simulations in which the truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from seqloom.metrics import intervals
from seqloom.metrics.intervals import Interval, bootstrap, student, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 30, 101, 1000, 5001])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_quantiles_are_scipys(freedom, level):
    assert student_quantile(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-10)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_interval_of_a_mean_is_scipys(count):
    values = np.random.default_rng(count).normal(0.8, 0.1, count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert student(values) == pytest.approx((values.mean(), low, high))


def test_one_value_tells_nothing():
    found = student([0.8])
    assert found == Interval(0.8, -math.inf, math.inf) and not found.bounded and found.holds(0.1)
    assert str(found) == "0.8000" and found.record() == {"value": 0.8}
    assert student([0.5, 0.5]) == (0.5, 0.5, 0.5)
    for wrong in (student, bootstrap):
        with pytest.raises(ValueError, match="no "):
            wrong([])


def check_student_coverage(count):
    """Over 2,000 simulations; its own error is half a hundredth."""
    random = np.random.default_rng(count)
    held = [student(values).holds(0.8) for values in random.normal(0.8, 0.05, (2000, count))]
    assert 0.93 <= np.mean(held) <= 0.97


@pytest.mark.parametrize("count", [3, 5, 10])
def test_student_covers_the_truth(count):
    check_student_coverage(count)


def check_bootstrap_coverage():
    random = np.random.default_rng(1)
    right = (random.random((600, 200)) < 0.7).astype(float)
    held = [bootstrap(row, draws=300, seed=i).holds(0.7) for i, row in enumerate(right)]
    assert 0.92 <= np.mean(held) <= 0.98


def test_bootstrap_covers_the_truth():
    check_bootstrap_coverage()


def test_a_mean_is_drawn_as_any_other_score():
    values = np.random.default_rng(0).random(37)
    assert bootstrap(values) == pytest.approx(bootstrap(values, lambda rows: rows.mean()))


def test_rows_stay_together():
    """Of two columns that are the same the correlation is 1 in every draw."""
    column = np.random.default_rng(0).random(50)
    found = bootstrap(np.stack((column, column), 1), lambda rows: np.corrcoef(rows.T)[0, 1])
    assert found == pytest.approx((1, 1, 1))


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
    monkeypatch.setattr(intervals, "student_quantile", lambda freedom, level: stats.norm.ppf((1 + level) / 2))
    with pytest.raises(AssertionError):
        check_student_coverage(3)


def test_planted_spread_over_all_is_noticed(monkeypatch):
    """The spread divided by n, not by n - 1."""
    quantile = student_quantile
    monkeypatch.setattr(intervals, "student_quantile", lambda f, level: quantile(f, level) * math.sqrt(f / (f + 1)))
    with pytest.raises(AssertionError):
        check_student_coverage(3)


def test_planted_one_sided_quantiles_are_noticed(monkeypatch):
    quantile = student_quantile
    monkeypatch.setattr(intervals, "student_quantile", lambda f, level: quantile(f, 2 * level - 1))
    with pytest.raises(AssertionError):
        check_student_coverage(10)


class Orders:
    """Draws without replacement: every item once."""

    def __init__(self, seed):
        self.random = np.random.Generator(np.random.PCG64(seed))

    def integers(self, low, high, shape):
        return self.random.permuted(np.tile(np.arange(low, high), (shape[0], 1)), axis=1)


def test_planted_draws_without_replacement_are_noticed(monkeypatch):
    right = (np.random.default_rng(1).random((50, 200)) < 0.7).astype(float)
    monkeypatch.setattr(intervals.np.random, "default_rng", Orders)
    assert np.mean([bootstrap(row, draws=100, seed=i).holds(0.7) for i, row in enumerate(right)]) < 0.92
