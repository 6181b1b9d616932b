"""Records of a comparison are written with the keys that they were given, and keep those that another version wrote."""

import pytest
from pydantic import ConfigDict

from seqloom.comparison import records
from seqloom.comparison.records import JobResult, parse
from tests.comparison.results import METRICS, RESULT

WRITTEN = RESULT | {
    "metrics": METRICS | {"parameters": 3, "learnt_by": "a later version"},
    "suites": {"blimp": {"accuracy": 1, "by_phenomenon": {"a": 0.5}, "count": 2}, "lambada": {"refused": "why"}},
    "milestones": [{"words": 100, "step": 3, "suites": {"blimp": None}}],
    "tasks": {"tone": {"score": 0.5, "confusion": {"labels": ["a"]}}},
    "by": {"suites": [{"name": "blimp", "data": "x"}], "tasks": [], "milestones": []},
    "later": [1, {"a": 2.0}],
}


def check_unchanged():
    found = parse(JobResult, WRITTEN).record()
    assert found == WRITTEN and type(found["metrics"]["parameters"]) is int


def test_a_result_is_written_as_it_was_read():
    check_unchanged()


def test_planted_closed_records_are_noticed(monkeypatch):
    class Closed(records.RunMetrics):
        model_config = ConfigDict(extra="ignore")

    class Result(JobResult):
        metrics: Closed

    monkeypatch.setitem(globals(), "JobResult", Result)
    with pytest.raises(AssertionError):
        check_unchanged()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sample": 3}, "'sample' = 3"),
        ({"metrics": METRICS | {"flops": "many"}}, "metrics.flops"),
        ({"suites": {"blimp": []}}, "suites.blimp"),
        ({"by": {"suites": [{}]}}, "'by.suites.0.name' is missing"),
    ],
)
def test_what_is_wrong_with_a_result_is_one_line(changes, words):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
        parse(JobResult, RESULT | changes)
    assert words in str(refused.value)
