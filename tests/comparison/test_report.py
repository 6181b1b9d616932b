"""What lies beside the page: of an earlier call nothing is left, of others everything."""

import math
from itertools import combinations

import numpy as np
import pytest

from seqloom.comparison import metric as metric_module
from seqloom.comparison.folder import earlier_pictures
from seqloom.comparison.metric import Metric
from seqloom.comparison.records import COSTS, ResolvedPlan
from seqloom.comparison.report import write_report
from seqloom.comparison.table import Comparison
from seqloom.metrics.differences import difference_of_seeds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"pictures": ["pairs.svg", "../up.svg", "plan.json"]}', {"pairs.svg", "up.svg"}),
        ('{"pictures": [3]}', set()),
        ('{"pictures": null}', set()),
        ("{}", set()),
        ("[]", set()),
        ("{", set()),
    ],
)
def test_only_pictures_of_an_earlier_call_are_taken_away(text, expected, tmp_path):
    assert earlier_pictures(tmp_path) == set()
    (tmp_path / "comparison.json").write_text(text)
    assert earlier_pictures(tmp_path) == expected


def count_tests(folder, monkeypatch, differences=None) -> int:
    """How many pairs of rows are compared for a page of five rows."""
    calls = []
    monkeypatch.setattr(metric_module, "difference_of_seeds", lambda a, b: calls.append(a) or difference_of_seeds(a, b))
    if differences is not None:
        monkeypatch.setattr(Metric, "differences", differences)
    values = {name: np.array([1.0, 1.1, 1.2]) * i for i, name in enumerate("abcde", 1)}
    rows = list(values)
    plan = ResolvedPlan.model_construct(
        rows=(), seeds=(), questions=(), price=None, budget={"words": 1e6}, parameters=None
    )
    costs = {row: dict.fromkeys(COSTS, 1.0) for row in rows}
    seeds = {row: [0, 1, 2] for row in rows}
    metric = Metric("score", False, values, {})
    found = Comparison("a", rows, seeds, costs, [], [metric], [], {}, {}, {}, {}, [], [], plan, {})
    monkeypatch.setattr(ResolvedPlan, "record", lambda self: {})
    write_report(found, folder)
    return len(calls)


def test_pairs_of_rows_are_compared_once_for_a_page(tmp_path, monkeypatch):
    assert count_tests(tmp_path, monkeypatch) == math.comb(5, 2)


def test_planted_pairs_that_are_compared_again_are_noticed(tmp_path, monkeypatch):
    again = property(lambda self: self.compare_rows(list(combinations(self.values, 2))))
    assert count_tests(tmp_path, monkeypatch, again) == 4 * math.comb(5, 2), (
        "the record, the table, the matrix and its digits"
    )
