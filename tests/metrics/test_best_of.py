"""The expected best of k trials: by hand, unbiased and covered in simulated searches, and what it does not claim to know."""

import math
from itertools import combinations

import numpy as np
import pytest

from seqloom.metrics import best_of
from seqloom.metrics.best_of import best_of_curve, expected_best
from seqloom.metrics.intervals import around

SEARCHES = {  # how results of random trials are distributed; higher is better
    "normal": lambda random, shape: random.normal(size=shape),
    "uniform": lambda random, shape: random.uniform(size=shape),
    "a peak over the rate": lambda random, shape: (
        -(random.uniform(-1.5, 1.5, shape) ** 2) + random.normal(0, 0.05, shape)
    ),
    "some diverge": lambda random, shape: (
        -(random.uniform(-2, 1, shape) ** 2) - 3 * (random.random(shape) < 0.15) + random.normal(0, 0.02, shape)
    ),
}


def simulate(search, n, simulations):
    """(simulations, n) trials, and the true expected best of 1 … n."""
    random = np.random.default_rng([n, len(search)])
    many = np.maximum.accumulate(SEARCHES[search](random, (100_000, n)), 1)
    return SEARCHES[search](random, (simulations, n)), many.mean(0)


@pytest.mark.parametrize("lower", [False, True])
def test_every_set_of_k_counts_once(lower):
    trials = np.random.default_rng(0).normal(size=7)
    best = min if lower else max
    for k, found in enumerate(best_of_curve(trials, lower), 1):
        assert found.value == pytest.approx(np.mean([best(chosen) for chosen in combinations(trials, k)]))
    assert expected_best(trials, 7, lower).value == best(trials)


def test_lower_is_the_mirror_of_higher():
    trials = np.random.default_rng(1).normal(size=8)
    for k in (1, 3, 7):
        up, down = expected_best(trials, k), expected_best(-trials, k, lower=True)
        assert down == pytest.approx((-up.value, -up.high, -up.low))


def check_unbiased(simulations, search="a peak over the rate", n=8):
    trials, truth = simulate(search, n, simulations)
    found = np.array([[best_of.mean_of_bests(row, k) for k in range(1, n + 1)] for row in np.sort(trials)])
    error = found.mean(0) - truth
    allowed = 4 * np.hypot(found.std(0) / math.sqrt(simulations), found.std(0) / math.sqrt(100_000))
    assert (np.abs(error) <= allowed).all(), error / allowed


@pytest.mark.parametrize("search", SEARCHES)
def test_unbiased(search):
    check_unbiased(1000, search)


@pytest.mark.long
@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize("search", SEARCHES)
def test_unbiased_in_many_searches(search, n):
    check_unbiased(10_000, search, n)


def test_planted_draws_with_replacement_are_noticed(monkeypatch):
    """As in Dodge et al. (2019)."""

    def with_replacement(ordered, k):
        rank = np.arange(len(ordered) + 1) / len(ordered)
        return float(ordered @ np.diff(rank**k))

    monkeypatch.setattr(best_of, "mean_of_bests", with_replacement)
    with pytest.raises(AssertionError):
        check_unbiased(1000)


def coverage(search, n, simulations):
    """Of k = 1 … n - 1."""
    trials, truth = simulate(search, n, simulations)
    held = [
        [each.contains(right) for each, right in zip(best_of.best_of_curve(row), truth, strict=True)] for row in trials
    ]
    return np.mean(held, 0)[:-1]


def check_covered(search, n, simulations):
    """Never far below 95%. Where trials that diverge are rare, it is lower, as with any interval of a mean of skewed numbers."""
    assert coverage(search, n, simulations).min() >= (0.87 if search == "some diverge" else 0.91)


@pytest.mark.parametrize("search", SEARCHES)
def test_the_truth_is_covered(search):
    check_covered(search, 8, 600)


@pytest.mark.long
@pytest.mark.parametrize("n", [8, 16])
@pytest.mark.parametrize("search", SEARCHES)
def test_the_truth_is_covered_in_many_searches(search, n):
    check_covered(search, n, 2000)


def test_planted_certain_degrees_of_freedom_are_noticed(monkeypatch):
    """As if the best of 7 of 8 were as well known as the mean of 8."""
    monkeypatch.setattr(best_of, "around", lambda value, parts, level: around(value, [parts[0]._replace(df=7)], level))
    with pytest.raises(AssertionError):
        check_covered("uniform", 8, 600)


def test_of_all_trials_nothing_is_concluded():
    for trials in ([0.3], [0.1, 0.5, 0.4], [0.2, 0.2, 0.2]):
        found = expected_best(trials, len(trials))
        assert found.value == max(trials) and not found.is_bounded


def test_no_interval_without_width():
    """Where the best trials are equal, there is no sign of how far others would be from them."""
    for trials in ([0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.5, 0.5]):
        assert all(found.low < found.high for found in best_of_curve(trials))
    assert not expected_best([0.1, 0.2, 0.5, 0.5], 3).is_bounded


def test_failed_trials_are_the_worst():
    trials = [math.inf, 2.0, 3.0, math.inf, 2.5]
    curve = best_of_curve(trials, lower=True)
    assert [math.isinf(each.value) for each in curve] == [True, True, False, False, False]
    assert curve[2].value == pytest.approx((6 * 2.0 + 3 * 2.5 + 1 * 3.0) / 10)
    assert not curve[0].is_bounded and not curve[4].is_bounded and curve[3].low < curve[3].high


@pytest.mark.parametrize(
    ("trials", "k"), [([1.0, 2.0], 3), ([1.0], 0), ([], 1), ([1.0, math.nan], 1), ([1.0, math.inf], 1)]
)
def test_what_cannot_be_estimated_is_refused(trials, k):
    with pytest.raises(ValueError, match="trial"):
        expected_best(trials, k)
