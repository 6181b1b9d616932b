"""Rows with results that no job has made."""

from pathlib import Path

import numpy as np

from seqloom.comparison.measured import MeasuredRow
from seqloom.comparison.records import JobResult, Row, RunRecord, parse
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
