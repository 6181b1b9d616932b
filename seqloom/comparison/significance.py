"""Tests of significance on the scores of single items that any program has written: what `seqloom significance` prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from seqloom.charts import Cell, TableCell, note, table
from seqloom.comparison.metric import ALPHA, Metric, PairDifference
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.item_scores import System, same_facts, same_items
from seqloom.metrics.power import WANTED, Design, design_of
from seqloom.runs.results import import_optional, one_line

OUTCOMES = (0.0, 0.5, 1.0)


@dataclass(frozen=True, repr=False)
class Significance:
    metric: Metric
    items: int
    left_out: int  # items that not all systems have
    fixed: bool

    @property
    def remarks(self) -> list[str]:
        method = self.metric.method()
        found = [method.split("; ")[0] if self.fixed else method]  # fixed models are no deterministic kind of model
        if self.left_out:
            found.append(f"--common: {self.left_out:,} items that not all systems have are left out")
        single = [name for name, scores in self.metric.values.items() if len(scores) == 1]
        if self.fixed:
            found.append("--fixed: differences are between these very models, not between ways to train them")
        elif single:
            found.append(
                f"{', '.join(single)}: of one seed nothing can be concluded about others; give more seeds, or --fixed to compare "
                "these very models"
            )
        return found

    @cached_property
    def designs(self) -> list[Design]:
        """Of each pair."""
        pairs, together = list(combinations(self.metric.values, 2)), self.metric.pool
        rows = len(together.rows) if together is not None and together.component is not None else 0
        own = {name: row._replace(pooled=None) for name, row in self.metric.samples.items()}
        return [design_of(own[a], own[b], len(pairs), rows) for a, b in pairs]

    def power(self, pair: PairDifference, design: Design) -> dict[str, Any]:
        """The smallest difference that is found in 80% of repetitions, and what the observed one would need."""
        found, observed = design.detectable(), abs(pair.difference.interval.value)
        if not np.isfinite(found):
            return {}
        record: dict[str, Any] = {"detectable": found}
        if observed:
            record["power"] = design.power(observed)
            if not self.fixed:
                record["seeds_needed"] = design.seeds_needed(observed)
            record[f"{self.unit}_needed"] = design.items_needed(observed)
        return record

    @property
    def unit(self) -> str:
        return "groups" if self.metric.has_sampled_sets else "items"

    def record(self) -> dict[str, Any]:
        metric = self.metric
        return {
            "metric": metric.name,
            "lower": metric.lower,
            "items": self.items,
            "groups": None if metric.sets is None else len(np.unique(metric.sets)),
            "left_out": self.left_out,
            "fixed": self.fixed,
            "systems": {
                name: metric.interval(name).record() | {"seeds": len(scores)} for name, scores in metric.values.items()
            },
            "best": metric.leaders(),
            "differences": [
                {"first": each.first, "second": each.second}
                | each.difference.interval.record()
                | {"p": each.difference.p, "p_adjusted": each.p_adjusted, "significant": each.p_adjusted < ALPHA}
                | self.power(each, design)
                for each, design in zip(metric.differences, self.designs, strict=True)
            ],
            "method": self.remarks,
        }

    def __repr__(self) -> str:
        metric = self.metric
        found = sum(each.p_adjusted < ALPHA for each in metric.differences)
        return one_line(
            f"<significance of {metric.name}: {', '.join(metric.values)} on {self.items:,} items; {found} of "
            f"{len(self.designs)} differences significant>"
        )

    def _repr_html_(self) -> str:
        metric = self.metric
        systems: list[list[TableCell]] = [
            [name, Cell(str(metric.interval(name)), metric.interval(name).value), str(len(scores))]
            for name, scores in metric.values.items()
        ]
        pairs: list[list[TableCell]] = [
            [f"{each.first} − {each.second}", str(each.difference.interval), f"{each.p_adjusted:.2g}"]
            for each in metric.differences
        ]
        notes = "".join(map(note, self.remarks))
        return (
            table(["", metric.name, "seeds"], systems)
            + table(["difference", metric.name, "p, corrected"], pairs)
            + notes
        )

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each pair of systems: the difference, its interval, p, and what could be found."""
        return import_optional("pandas", "to_pandas").DataFrame(self.record()["differences"])

    def __str__(self) -> str:
        metric, best = self.metric, self.metric.leaders()
        width = max(map(len, metric.values))
        lines = [f"{metric.name} ({'lower' if metric.lower else 'higher'} is better), {self.items:,} items"]
        for name, scores in metric.values.items():
            mark = "" if name not in best else "  best" if len(best) == 1 else "  may be best"
            lines.append(f"{name:{width}}  {metric.interval(name)}  {len(scores)} seed{'s' * (len(scores) > 1)}{mark}")
        for each, design in zip(metric.differences, self.designs, strict=True):
            verdict = "significant" if each.p_adjusted < ALPHA else "not significant"
            p = f"p = {each.difference.p:.2g}" + (
                f", {each.p_adjusted:.2g} corrected for {len(self.designs)} pairs" if len(self.designs) > 1 else ""
            )
            lines.append(f"\n{each.first} − {each.second}: {each.difference.interval}, {p}: {verdict}")
            lines += self.power_in_words(self.power(each, design), design)
        return "\n".join([*lines, "", *self.remarks])

    def power_in_words(self, found: dict[str, Any], design: Design) -> list[str]:
        if not found:
            return ["  no difference could be found with so few seeds or items"]
        seeds = "" if self.fixed else f"{design.seeds} seeds and "
        lines = [
            f"  with {seeds}{design.items:,} {self.unit}, a difference of {found['detectable']:.2g} would be found in "
            f"{WANTED:.0%} of repetitions"
        ]
        if "power" not in found or found["power"] >= WANTED:
            return lines
        ways = [
            f"about {count:,} {name}"
            for name, count in (("seeds", found.get("seeds_needed")), (self.unit, found[f"{self.unit}_needed"]))
            if count is not None
        ]
        needed = " or ".join(ways) or f"more seeds and more {self.unit}"
        return [*lines, f"  to find the observed difference as often, you would need {needed}"]


def significance(
    systems: Sequence[System],
    lower: bool = False,
    common: bool = False,
    fixed: bool = False,
    fixed_groups: bool | None = None,
) -> Significance:
    """common: compare the items that all systems have. fixed: systems are models as they are, not seeds of a kind.
    fixed_groups: groups are all that are meant, as tasks of the harness are unless it is given, and not a sample of groups."""
    check_systems(systems, fixed)
    ids, every = shared_items(systems, common)
    groups = groups_of(systems, ids)
    values = {system.name: system.scores(ids) for system in systems}
    several_groups = len(set(groups.values())) > 1
    tasks = any(system.has_tasks for system in systems)
    metric = Metric(
        name=systems[0].metric,
        lower=lower,
        values=values,
        missing={},
        deterministic=frozenset(values) if fixed else frozenset(),
        outcomes=all(np.isin(scores, OUTCOMES).all() for scores in values.values()),
        sets=np.array([groups[each] for each in ids]) if several_groups else None,
        fixed_sets=tasks if fixed_groups is None else fixed_groups,
    )
    return Significance(metric, len(ids), every - len(ids), fixed)


def check_systems(systems: Sequence[System], fixed: bool) -> None:
    names = [system.name for system in systems]
    if len(systems) < 2:
        raise UsageError(f"{len(systems)} system: give at least two to compare")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two systems are named {twice!r}: name them, as in A=PATH B=PATH")
    metrics = {system.metric for system in systems}
    if len(metrics) > 1:
        raise UsageError(f"scores are {' and '.join(sorted(metrics))}: choose one that all systems have with --metric")
    if fixed and (several := next((system for system in systems if len(system.seeds) > 1), None)):
        raise UsageError(
            f"--fixed: {several.name} has {len(several.seeds)} seeds: leave the option out, or give one seed"
        )


def shared_items(systems: Sequence[System], common: bool) -> tuple[list[str], int]:
    """The items that all systems have, and how many there are in all; the same of each system, unless `common` leaves others
    out."""
    sides = {system.name: dict.fromkeys(system.ids) for system in systems}
    ids = [each for each in systems[0].ids if all(each in side for side in sides.values())]
    if not common or not ids:
        remedy = "give the same items" + (", or --common to compare those that all systems have" if ids else "")
        same_items(sides, remedy=remedy)
    same_facts(systems, set(ids), "content", "has the hash")
    return ids, len({each for side in sides.values() for each in side})


def groups_of(systems: Sequence[System], ids: Sequence[str]) -> dict[str, str]:
    """The group of each item; none where there are no groups."""
    groups = same_facts(systems, set(ids), "group", "is in group")
    lacking = [each for each in ids if each not in groups]
    if groups and lacking:
        place = next(iter(systems[0].seeds.values()))[lacking[0]].place
        raise DataError(f"{place}: no group, but other items have one: give it in all rows or in none")
    return groups
