"""Seeds of several rows together: the test against scipy's, and what is gained and risked by pooling."""

import numpy as np
import pytest
from scipy import stats

from seqloom.metrics import differences, intervals
from seqloom.metrics.intervals import Sample, VarianceComponent, seed_component
from seqloom.metrics.variances import bartlett, chi_square_tail, pool
from tests.metrics.simulations import over_pool


@pytest.mark.parametrize("df", [1, 2, 3, 6, 7, 20])
def test_tails_are_scipys(df):
    for value in (0, 0.1, 1.0, 3.0, 20.0, 100.0):
        assert chi_square_tail(value, df) == pytest.approx(stats.chi2.sf(value, df))


def test_the_test_is_scipys():
    rows = [np.random.default_rng(i).normal(size=3 + i) for i in range(4)]
    found = bartlett([row.var(ddof=1) for row in rows], [len(row) - 1 for row in rows])
    assert found == pytest.approx(stats.bartlett(*rows).pvalue)


def test_pooled_by_hand():
    rows = [Sample(np.array(values)) for values in ([1.0, 3.0], [5.0, 6.0, 10.0], [2.0, 2.0], [7.0])]
    rows.append(Sample(np.array([1.0, 2.0]), deterministic=True))
    found = pool(rows)
    assert found.rows == [0, 1] and found.component == pytest.approx(((2 + 14) / 3, 3))
    assert pool(rows[1:]) is None
    pooled = [row._replace(pooled=found.component) for row in rows]
    assert seed_component(pooled[0]) == pytest.approx((16 / 3 / 2, 3))
    assert seed_component(pooled[1]) == pytest.approx((7 / 3, 2)), "what varies more keeps its own"
    assert seed_component(pooled[2]) == pytest.approx((16 / 3 / 2, 3)), "equal by chance"
    assert seed_component(pooled[3]).variance == float("inf")


def test_variances_that_differ_are_not_pooled():
    rows = [Sample(scale * np.random.default_rng(i).normal(size=10)) for i, scale in enumerate((1.0, 1.0, 30.0))]
    assert pool(rows).component is None and pool(rows[:2]).component is not None


def check_pool(simulations, rows, seeds, ratio):
    """Two seeds of rows that differ are too few for any test: their worst case is on the page of results."""
    _, covered, apart, width = over_pool(simulations, rows, seeds, ratio)
    assert covered >= 0.92 and apart <= 0.085 and width <= 1.05
    if ratio == 1 and seeds == 2:
        assert width <= 0.95, "it is of use"


CASES = [(2, 2, 1.0), (2, 2, 5.0), (8, 2, 1.0), (4, 3, 1.0), (4, 3, 5.0), (8, 5, 1.0), (8, 5, 5.0)]


@pytest.mark.parametrize(
    ("rows", "seeds", "ratio"),
    [case if i % 2 == 0 else pytest.param(*case, marks=pytest.mark.long) for i, case in enumerate(CASES)],
)
def test_pooled_rows_cover_the_truth(rows, seeds, ratio):
    check_pool(1000, rows, seeds, ratio)


def test_planted_pool_for_every_row_is_noticed(monkeypatch):
    """Even for a row that varies more."""

    def always(row):
        return (
            own(row) if row.pooled is None else VarianceComponent(row.pooled.variance / len(row.seeds), row.pooled.df)
        )

    own = intervals.seed_component
    for module in (intervals, differences):
        monkeypatch.setattr(module, "seed_component", always)
    with pytest.raises(AssertionError):
        check_pool(600, 4, 3, 5.0)
