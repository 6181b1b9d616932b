"""Student's distribution against scipy's."""

import math

import pytest
from scipy import stats

from seqloom.metrics import student_t
from seqloom.metrics.student_t import student_quantile, tail

DFS = [1, 1.3, 2, 2.7, 3, 4, 5.5, 9, 30, 101.4, 1000, 5001, 1e5]


def check_tails(df):
    for t in (0, 1e-3, 0.5, 1, 1.5, 1.7, 2, 3, 5, 12, 40):
        assert tail(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-8, abs=1e-200)


@pytest.mark.parametrize("df", DFS)
def test_tails_are_scipys(df):
    check_tails(df)


@pytest.mark.parametrize("df", DFS)
@pytest.mark.parametrize("alpha", [0.999, 0.5, 0.1, 0.05, 0.01, 0.05 / 28, 1e-12])
def test_quantiles_are_scipys(df, alpha):
    found = student_quantile(df, alpha)
    assert found == pytest.approx(stats.t.isf(alpha / 2, df), rel=1e-9)
    assert tail(found, df) == pytest.approx(alpha, rel=1e-7)


def test_the_ends_of_the_distribution():
    assert tail(0, 3) == 1 and tail(math.inf, 3) == 0 == tail(1e200, 3)
    assert student_quantile(3, 1) == 0
    assert tail(1, 1) == pytest.approx(0.5) and tail(3e-8, 1) == pytest.approx(1 - 2 / math.pi * 3e-8, rel=1e-15)
    assert student_quantile(1e4, 1e-300) == pytest.approx(stats.t.isf(0.5e-300, 1e4), rel=1e-9)


# ---- bugs that one could write


def test_planted_whole_degrees_of_freedom_are_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "tail", lambda t, df: student_t.tail(t, int(df)))
    check_tails(3)
    with pytest.raises(AssertionError):
        check_tails(2.7)


def test_planted_fraction_that_ends_early_is_noticed(monkeypatch):
    monkeypatch.setattr(student_t, "abs", lambda change: abs(change) * 1e-10, raising=False)
    with pytest.raises(AssertionError):
        check_tails(3)
