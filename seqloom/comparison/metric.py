"""One column of a comparison's table: the scores of all rows by one metric, their intervals and their differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from seqloom.metrics.differences import Difference, difference, difference_of_seeds, holm, leaders
from seqloom.metrics.intervals import Interval, Sample, VarianceComponent, by_set, nested, student
from seqloom.metrics.variances import Pool, pool

ALPHA = 0.05  # a difference is significant if its corrected p is below this


class PairDifference(NamedTuple):
    """The first row minus the second, and p corrected for all pairs that were compared with it."""

    first: str
    second: str
    difference: Difference
    p_adjusted: float


@dataclass(frozen=True, eq=False)
class Metric:
    """name: of the column. values: of each row (S,) or (S, n). missing: the reason for each row without a value."""

    name: str
    lower: bool  # lower is better
    values: Mapping[str, np.ndarray]
    missing: Mapping[str, str]
    deterministic: frozenset[str] = frozenset()  # rows whose seeds are copies of one another
    items: str = "items"  # what they are
    outcomes: bool = False  # items are right, wrong or in between
    sets: np.ndarray | None = None  # (n,) of the items: intervals are for other sets of the kind, unless asked by item
    fixed_sets: bool = False  # there are no other sets: all are meant
    df: float | None = None  # of the variance over items that have different sizes
    selection: Mapping[str, VarianceComponent] = field(default_factory=dict)  # of rows whose settings were searched for

    @property
    def has_sampled_sets(self) -> bool:
        return self.sets is not None and not self.fixed_sets

    def sample(self, row: str, by_item: bool = False) -> Sample:
        """Before seeds are pooled."""
        found = Sample(
            self.values[row],
            row in self.deterministic,
            strata=self.sets,
            df=self.df,
            outcomes=self.outcomes,
            selection=self.selection.get(row),
        )
        return by_set(found, self.sets) if self.sets is not None and self.has_sampled_sets and not by_item else found

    @cached_property
    def pool(self) -> Pool | None:
        return pool([self.sample(row, by_item=True) for row in self.values])

    def pooled_sample(self, row: str, by_item: bool = False) -> Sample:
        return self.sample(row, by_item)._replace(pooled=self.pool and self.pool.component)

    @cached_property
    def samples(self) -> dict[str, Sample]:
        return {row: self.pooled_sample(row) for row in self.values}

    def interval(self, row: str, by_item: bool = False) -> Interval:
        """by_item: for other items of the same sets."""
        found = self.pooled_sample(row, by_item=True) if by_item else self.samples[row]
        return nested(found) if found.scores.ndim == 2 else student(found)

    def leaders(self) -> list[str]:
        """The rows that are not significantly different from the best; one alone is the winner. Empty for a single row."""
        names = list(self.values)
        return [names[i] for i in leaders(list(self.samples.values()), self.lower)] if len(names) > 1 else []

    def compare_rows(self, pairs: Sequence[tuple[str, str]]) -> list[PairDifference]:
        """With p values corrected for so many comparisons (Holm, 1979)."""
        found = []
        for a, b in pairs:
            test = difference if self.samples[a].scores.ndim == 2 else difference_of_seeds
            found.append(test(self.samples[a], self.samples[b]))
        adjusted = holm([each.p for each in found])
        return [PairDifference(a, b, each, p) for (a, b), each, p in zip(pairs, found, adjusted, strict=True)]

    @cached_property
    def differences(self) -> list[PairDifference]:
        """Of all pairs of rows."""
        return self.compare_rows(list(combinations(self.values, 2)))

    def method(self) -> str:
        """What its intervals cover, in words."""
        sources = ["other seeds"] if any(row not in self.deterministic for row in self.values) else []
        first = next(iter(self.values.values()))
        if first.ndim == 2:
            count = f"{first.shape[1]:,} {self.items}"
            if self.sets is not None and self.has_sampled_sets:
                count += (
                    f" in {len(np.unique(self.sets)):,} sets: ± for other sets, then for other items of the same sets"
                )
            sources.append(f"other {self.items} ({count})")
        if self.selection:
            sources.append("other searches")
        lines = [f"{self.name}: intervals are for {' and '.join(sources) or 'nothing that was sampled'}"]
        if first.ndim == 2 and self.deterministic:
            names = ", ".join(sorted(self.deterministic))
            lines.append(
                f"{names} {'is' if len(self.deterministic) == 1 else 'are'} deterministic, so seeds change nothing"
            )
        if self.pool is not None:
            names = ", ".join(list(self.values)[i] for i in self.pool.rows)
            done = "pooled over" if self.pool.component else "not pooled over"
            own = ", and a row that varies more keeps its own" if self.pool.component else ""
            lines.append(
                f"seed variance {done} {names} (Bartlett's test of equal variances: p = {self.pool.p:.2g}){own}"
            )
        return "; ".join(lines)
