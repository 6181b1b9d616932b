"""No interval has a width of zero and no p is 0, whatever the table: few seeds, few items, rows that are nearly always right or
worlds apart, seeds that are copies, rows without seeds, rows that are one and the same."""

import numpy as np
import pytest

from seqloom.comparison.metric import Metric
from seqloom.metrics import differences, intervals
from seqloom.metrics.intervals import VarianceComponent

KINDS = {  # the share of right answers of the first row and of the second; None: numbers, and how far they lie apart
    "numbers": (None, 0.0),
    "numbers far apart": (None, 1e6),
    "0/1": (0.7, 0.72),
    "nearly all right": (0.999, 0.998),
    "all against none": (1.0, 0.0),
}
SHAPES = [(seeds, items) for seeds in (2, 3, 5, 10) for items in (20, 100, 1000, 5000)]


def draw_table(random, kind, seeds, items):
    """Two rows; in some tables seeds are copies of the first, in some the rows are the same."""
    share, other = KINDS[kind]
    if share is None:
        hard = random.normal(size=items)
        rows = [hard + random.normal(size=(seeds, items), scale=0.3) + gap for gap in (0.0, other)]
    else:
        rows = [(random.random((seeds, items)) < each).astype(float) for each in (share, other)]
    case = random.integers(8)
    if case == 0:
        rows = [np.repeat(row[:1], seeds, 0) for row in rows]
    if case == 1:
        rows = [rows[0], rows[0].copy()]
    return rows


def uncertain(interval):
    return interval.low < interval.high and interval.low <= interval.value <= interval.high


def check_tables(simulations, kind, seeds, items):
    random = np.random.default_rng([simulations, seeds, items, len(kind)])
    groups = np.arange(items) % 10
    for i in range(simulations):
        rows = dict(zip("ab", draw_table(random, kind, seeds, items), strict=True))
        metric = Metric(
            "score",
            False,
            rows,
            {},
            frozenset("ab" if i % 8 == 2 else ""),
            outcomes=KINDS[kind][0] is not None,
            sets=groups if i % 4 == 0 else None,
        )
        if i % 4 == 1:  # one number a seed
            metric = Metric("score", False, {name: row.mean(1) for name, row in rows.items()}, {})
        (pair,) = metric.differences
        assert all(uncertain(metric.interval(row)) for row in rows) and uncertain(pair.difference.interval)
        assert 0 < pair.difference.p <= pair.p_adjusted <= 1
        assert all(uncertain(metric.interval(row, by_item=True)) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_certain(kind):
    for seeds, items in ((2, 20), (3, 100), (10, 20)):
        check_tables(60, kind, seeds, items)
    check_tables(4, kind, 10, 5000)


@pytest.mark.long
@pytest.mark.parametrize(("seeds", "items"), SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_certain_anywhere(kind, seeds, items):
    check_tables(2000, kind, seeds, items)


def test_planted_certainty_is_noticed(monkeypatch):
    """The plain variances: of copies and of items that are all right they are 0."""

    def plain(means, *rows):
        return VarianceComponent(float(means.var(ddof=1)) / len(means), len(means) - 1)

    for module in (intervals, differences):
        monkeypatch.setattr(module, "item_component", plain)
    monkeypatch.setattr(intervals, "all_equal", lambda values: False)
    for kind in ("nearly all right", "all against none"):
        with pytest.raises((AssertionError, ZeroDivisionError, FloatingPointError)):
            check_tables(60, kind, 2, 20)


def test_planted_p_of_zero_is_noticed(monkeypatch):
    """Tails that are too small for a number."""
    monkeypatch.setattr(differences.sys, "float_info", type("Info", (), {"min": 0.0}))
    with pytest.raises(AssertionError):
        check_tables(40, "numbers far apart", 10, 5000)
