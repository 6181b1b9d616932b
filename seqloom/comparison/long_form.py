"""The scores of a comparison in long form, a line each, as statistics programs want them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.comparison.metric import Metric


class LongRow(NamedTuple):
    """item: its number in the test, from 0 on; empty for the score of a seed over all items. set: the number of the set that the
    item belongs to, where items come in sets."""

    row: str
    seed: int
    metric: str
    lower_is_better: bool
    item: int | None
    set: int | None
    value: float


def long_rows(metrics: Sequence[Metric], seeds: Mapping[str, Sequence[int]], items: bool = False) -> Iterator[LongRow]:
    """One score for each row, seed and metric; or, by `items`, one for each item of metrics that have items as well."""
    for metric in metrics:
        for row, values in metric.values.items():
            for seed, found in zip(seeds[row], values, strict=True):
                if found.ndim == 0 or not items:
                    yield LongRow(row, seed, metric.name, metric.lower, None, None, float(np.mean(found)))
                    continue
                sets: list[int | None] = [None] * len(found) if metric.sets is None else metric.sets.tolist()
                for item, (group, value) in enumerate(zip(sets, found.tolist(), strict=True)):
                    yield LongRow(row, seed, metric.name, metric.lower, item, group, value)
