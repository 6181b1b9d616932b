"""Rows whose settings were searched for: equal ones are seldom called different, the luck of the search included.

Losses are in deviations of a seed. A row's loss rises with the square of how far the logarithm of its rate is from its best one,
which it was not told; trials are short runs with noise of their own. The best is run again with fresh seeds.
"""

import numpy as np
import pytest

from seqloom.comparison.metric import Metric
from seqloom.metrics import differences, intervals
from seqloom.metrics.best_of import selection_component

WIDTH = 3.4  # of the range of the rate's logarithm: 1e-4 to 3e-3
KINDS = {  # how steep losses are, the noise of trials, whether rows try the same rates, and how far their best ones lie apart
    "flat": (2.0, 0.5, True, 0.0),
    "flat, noisy": (2.0, 2.0, True, 0.0),
    "different rows": (8.0, 1.0, True, 0.5),
    "different rates": (8.0, 2.0, False, 0.5),
    "steep": (30.0, 0.5, True, 0.5),
    "steep, different rates": (30.0, 2.0, False, 0.5),
}


def searched(random, kind, trials, seeds, gap=0.0, rows=2):
    """The results of each row (S,), and the trials that chose its setting."""
    steep, noise, same, apart = KINDS[kind]
    common = random.uniform(-WIDTH / 2, WIDTH / 2, trials)
    found = {}
    for row in range(rows):
        rates = common if same else random.uniform(-WIDTH / 2, WIDTH / 2, trials)
        losses = steep * (rates - random.normal(0, apart)) ** 2 + (gap if row else 0.0)
        tried = losses + random.normal(0, noise, trials)
        found[str(row)] = losses[tried.argmin()] + random.normal(size=seeds), tried
    return found


def called_different(simulations, kind, trials, seeds, gap=0.0, rows=2):
    """How often any two rows are, after Holm's correction."""
    random = np.random.default_rng([simulations, trials, seeds, len(kind)])
    count = 0
    for _ in range(simulations):
        found = searched(random, kind, trials, seeds, gap, rows)
        values = {name: results for name, (results, _) in found.items()}
        selection = {name: selection_component(tried, lower=True) for name, (_, tried) in found.items()}
        metric = Metric("loss", True, values, {}, selection=selection)
        count += min(each.p_adjusted for each in metric.differences) < 0.05
    return count / simulations


def check_equal(simulations, kind, trials=8, seeds=5, rows=2):
    assert called_different(simulations, kind, trials, seeds, rows=rows) <= (0.065 if simulations >= 2000 else 0.085)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_under_search_are_seldom_called_different(kind):
    check_equal(250, kind)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("trials", [4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_under_search_are_seldom_called_different_anywhere(kind, trials, seeds):
    check_equal(2000, kind, trials, seeds)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_none_of_eight_equal_rows_is_called_different(kind):
    check_equal(2000, kind, rows=8)


def test_planted_search_that_counts_for_nothing_is_noticed(monkeypatch):
    """As if the setting had been given."""
    for module in (intervals, differences):
        monkeypatch.setattr(module, "selection_components", lambda *rows: [])
    check_equal(250, "flat")
    for kind in ("flat, noisy", "different rows", "steep"):
        with pytest.raises(AssertionError):
            check_equal(250, kind)


def test_a_difference_beyond_the_luck_of_the_search_is_found():
    for kind, gap in (("flat", 3.5), ("different rows", 14.0)):
        assert called_different(100, kind, 8, 5, gap=gap) > 0.8


def test_the_component_by_hand():
    found = selection_component([1.0, 3.0])
    assert found == pytest.approx((0.25 * 0.75 * 4, 1)), "the best of two draws is the worse one in a quarter of cases"
    trials = np.random.default_rng(0).normal(size=8)
    draws = np.random.default_rng(1).choice(trials, (200_000, 8)).max(1)
    assert selection_component(trials) == pytest.approx((draws.var(), 7), rel=0.03)
    assert selection_component(-trials, lower=True) == selection_component(trials)
    assert selection_component(trials, scale=0.5).variance == pytest.approx(selection_component(trials).variance / 4)
    assert selection_component([2.0]).variance == 0 == selection_component([2.0, 2.0, 2.0]).variance
    assert selection_component([2.0, np.inf, 3.0], lower=True) == selection_component([2.0, 3.0, 3.0], lower=True)
    for trials in ([], [np.inf], [1.0, np.nan]):
        with pytest.raises(ValueError, match="did not fail"):
            selection_component(trials, lower=True)


def test_intervals_are_for_other_searches_too():
    values = {"a": np.array([1.0, 1.1, 1.3]), "b": np.array([2.0, 2.2, 2.3])}
    given = Metric("loss", True, values, {})
    found = Metric("loss", True, values, {}, selection={"a": selection_component([1.0, 1.2, 1.9], lower=True)})
    assert found.interval("a").low < given.interval("a").low and found.interval("b") == given.interval("b")
    assert found.differences[0].difference.p > given.differences[0].difference.p
    assert "other seeds and other searches" in found.method() and "searches" not in given.method()
    items = {name: row[:, None] + np.random.default_rng(0).normal(size=(3, 50)) for name, row in values.items()}
    nested = [Metric("loss", True, items, {}, selection=each.selection).interval("a") for each in (given, found)]
    assert nested[1].low < nested[0].low
