"""The plans of the project's own figures are run seldom, and mostly where time is short: they must stay readable."""

from pathlib import Path

import pytest

from seqloom.comparison.plan import read_plan

PLACE = Path(__file__).parents[2] / "benchmarks"
PLANS = sorted(path for path in PLACE.rglob("*.toml") if "[[rows]]" in path.read_text())


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_is_read(path):
    plan = read_plan(path)
    assert len(plan.rows) > 1


def test_there_are_plans():
    assert len(PLANS) > 15
