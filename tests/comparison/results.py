"""Rows with results that no job has made."""

from pathlib import Path
from typing import Any

import numpy as np

from seqloom.comparison.measured import MeasuredRow
from seqloom.comparison.metric import Metric
from seqloom.comparison.records import COSTS, JobResult, ResolvedPlan, Row, RunRecord, parse
from seqloom.comparison.table import Comparison
from seqloom.recipes.library import find_recipe

METRICS = {
    "parameters": 1, "tokens": 1, "words": 1, "epochs": 1.0, "flops": 1.0, "seconds": 1.0, "energy_kwh": 1.0,
    "energy_method": "none",
}  # fmt: skip
RESULT = {
    "metrics": METRICS, "held_out": {"split": "test"}, "definition": "x", "suites": {}, "milestones": [], "tasks": {},
    "sample": "",
}  # fmt: skip


def measured_row(
    name: str,
    recipe: str = "lstm-tiny",
    settings: tuple[str, ...] = (),
    results: tuple[dict, ...] = ({},),
    items: tuple[dict[str, np.ndarray], ...] | None = None,
    tokenizer: str = "x",
) -> MeasuredRow:
    """results: one a seed, what differs from a plain one."""
    row = Row(name=name, recipe=find_recipe(recipe, list(settings)), data="data", fingerprint="abc", place=name)
    found = {seed: parse(JobResult, RESULT | changes) for seed, changes in enumerate(results)}
    arrays = dict(enumerate(items or [{} for _ in results]))
    run = parse(RunRecord, {"tokenizer": tokenizer, "data": {"fingerprint": "abc"}, "versions": {}})
    return MeasuredRow(row, found, arrays, run, {seed: Path(f"seed-{seed}") for seed in found})


def comparison_of(*metrics: Metric, name: str = "a comparison", questions: tuple = (), **changes: Any) -> Comparison:
    """A comparison of the rows that metrics have, with as many seeds; answers are not computed."""
    rows = list(dict.fromkeys(row for metric in metrics for row in (*metric.values, *metric.missing)))
    seeds = {row: max((len(each.values[row]) for each in metrics if row in each.values), default=1) for row in rows}
    values = {
        "rows": (), "seeds": (0, 1, 2), "questions": questions, "price": None, "budget": {"words": 1e6},
        "parameters": 5e5, "suites": (), "tasks": (),
    }  # fmt: skip
    found = {
        "name": name, "rows": rows, "seeds": {row: list(range(count)) for row, count in seeds.items()},
        "costs": {row: dict.fromkeys(COSTS, 1000.0) for row in rows}, "energy": [], "metrics": list(metrics),
        "answers": [], "curves": {}, "milestones": {}, "by_category": {}, "samples": {}, "held": [], "caveats": [],
        "plan": ResolvedPlan.model_construct(**values), "versions": {"seqloom": "1.2.3", "git": "0123456789abcdef"},
    }  # fmt: skip
    return Comparison(**(found | changes))
