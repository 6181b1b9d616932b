"""The rows of a comparison with the results of their jobs, as they are read from its folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.comparison.folder import result_path, run_path
from seqloom.comparison.records import JobResult, ResolvedPlan, Row, RunRecord, parse, read_items, read_result
from seqloom.comparison.text_measure import TextMeasure, text_measure
from seqloom.runs.folder import read_config


class MeasuredRow(NamedTuple):
    """A row with at least one result. results, items, runs: by seed."""

    row: Row
    results: Mapping[int, JobResult]
    items: Mapping[int, Mapping[str, np.ndarray]]
    run: RunRecord  # of its first seed
    runs: Mapping[int, Path]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def first(self) -> JobResult:
        return next(iter(self.results.values()))

    @property
    def is_deterministic(self) -> bool:
        """Whether seeds are copies: it counts the whole text. A smaller budget chooses documents by the seed."""
        return self.row.is_count_based and all(each.metrics.epochs >= 1 for each in self.results.values())


def measure_of(rows: Iterable[MeasuredRow]) -> TextMeasure:
    """By what the left-to-right rows are ranked."""
    return text_measure(result.held_out for each in rows for result in each.results.values())


def read_rows(folder: Path, plan: ResolvedPlan) -> list[MeasuredRow]:
    """Those that have a result."""
    found = []
    for row in plan.rows:
        paths = {seed: result_path(folder, row.place, seed) for seed in plan.seeds}
        paths = {seed: path for seed, path in paths.items() if path.exists()}
        if not paths:
            continue
        results = {seed: read_result(path) for seed, path in paths.items()}
        items = {seed: read_items(path) for seed, path in paths.items()}
        runs = {seed: run_path(folder, row.place, seed) for seed in paths}
        run = parse(RunRecord, read_config(next(iter(runs.values())) / "config.json"))
        found.append(MeasuredRow(row, results, items, run, runs))
    return found
