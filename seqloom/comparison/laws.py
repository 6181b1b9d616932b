"""What the comparisons of a ladder say together: a power law for every row, where which is ahead, and how good predictions were.

All of it follows from the comparisons (`summarise`), so that it can be computed again from their folders (`read_ladder`) and
from an archive, which is not believed otherwise.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from seqloom.charts import note
from seqloom.comparison.folder import slug
from seqloom.comparison.metric import ALPHA, Metric
from seqloom.comparison.plan import LadderConfig, Rung
from seqloom.comparison.records import ResolvedPlan
from seqloom.comparison.report import read_comparison
from seqloom.comparison.table import INFILLED, MASKED, Comparison
from seqloom.config import build
from seqloom.errors import DataError, ModelError, SeqloomError
from seqloom.files import digest_of, read_record
from seqloom.metrics.intervals import Interval, student
from seqloom.metrics.scaling import (
    PARAMETERS,
    Crossing,
    PowerLaw,
    Stretch,
    best_before_worse,
    crossing,
    fit_ladders,
    who_is_ahead,
)
from seqloom.runs.results import import_optional, one_line

LADDER, PREDICTIONS = "ladder.json", "predictions.json"


class LadderMetric(NamedTuple):
    """One metric at all budgets. values: by row and budget, one a seed; intervals: for other seeds on the same held-out text,
    which all budgets share; laws: of rows with enough budgets, fitted to the budgets that are not predicted. is_log: the law is
    of the logarithm, as the loss is that of a perplexity. turned: rows that are best at this budget and significantly worse at a
    larger one, which have no law."""

    name: str
    lower: bool
    values: Mapping[str, Mapping[float, list[float]]]
    intervals: Mapping[str, Mapping[float, Interval]]
    laws: Mapping[str, PowerLaw]
    is_log: bool
    turned: Mapping[str, float] = MappingProxyType({})
    passes: float | None = None  # over the text of each budget, where the ladder says it
    measure: str = ""  # the name without them

    def law_at(self, row: str, budget: float) -> Interval:
        """The mean of all seeds at a budget, by the law."""
        return self.back(self.laws[row].mean_at(budget))

    def back(self, found: Interval) -> Interval:
        return Interval(*(math.exp(min(each, 700.0)) for each in found)) if self.is_log else found


class Prediction(NamedTuple):
    metric: str
    row: str
    budget: float
    interval: Interval  # of the mean of as many seeds as the plan has
    measured: float | None = None

    def record(self) -> dict[str, Any]:
        return {"metric": self.metric, "row": self.row, "budget": self.budget, **self.interval.record()}


class Pair(NamedTuple):
    """Two rows by one metric: where which is ahead, and where they cross."""

    metric: str
    rows: tuple[str, str]
    stretches: list[Stretch]
    crossing: Crossing


class Ladder(NamedTuple):
    name: str
    unit: str
    budgets: list[float]  # those that laws are fitted to
    predicted: list[float]
    # those that are finished: by budget, and by words and passes where the ladder has both
    comparisons: dict[float | tuple[float, float], Comparison]
    metrics: list[LadderMetric]
    predictions: list[Prediction]
    pairs: list[Pair]
    caveats: list[str]

    def __repr__(self) -> str:
        budgets = ", ".join(f"{budget:,.6g}" for budget in (*self.budgets, *self.predicted))
        rows = list(dict.fromkeys(row for metric in self.metrics for row in metric.intervals))
        metrics = ", ".join(metric.name for metric in self.metrics)
        return one_line(f"<ladder {self.name}: {', '.join(rows)} at {budgets} {self.unit}; {metrics}>")

    def _repr_html_(self) -> str:
        from seqloom.comparison.ladder_report import metric_table

        return "".join(metric_table(self, metric, {}) for metric in self.metrics) + "".join(map(note, self.caveats))

    def to_pandas(self) -> Any:
        """A DataFrame in long form: one score for each metric, row, budget and seed, as in ladder.csv."""
        from seqloom.comparison.ladder_report import long_rows

        header, *lines = long_rows(self)
        return import_optional("pandas", "to_pandas").DataFrame(lines, columns=header)

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name, "unit": self.unit, "budgets": self.budgets, "predicted_budgets": self.predicted,
            "metrics": [metric_record(metric) for metric in self.metrics],
            "predictions": [each.record() | {"measured": each.measured} for each in self.predictions],
            "pairs": [pair_record(pair) for pair in self.pairs],
            "caveats": self.caveats,
        }  # fmt: skip


def bounded(interval: Interval) -> dict[str, float | None]:
    """With the ends that are known."""
    ends = zip(("value", "low", "high"), interval, strict=True)
    return {name: end if math.isfinite(end) else None for name, end in ends}


def metric_record(metric: LadderMetric) -> dict[str, Any]:
    laws = {
        row: {"exponent": bounded(law.exponent()), "offset": bounded(law.offset()), "misfit_p": law.misfit}
        for row, law in metric.laws.items()
    }
    values = {row: {f"{budget:g}": seeds for budget, seeds in each.items()} for row, each in metric.values.items()}
    return {
        "name": metric.name, "measure": metric.measure, "passes": metric.passes, "lower_is_better": metric.lower,
        "law_of_the_logarithm": metric.is_log, "values": values, "laws": laws, "worse_after": dict(metric.turned),
    }  # fmt: skip


def pair_record(pair: Pair) -> dict[str, Any]:
    ahead = [
        {"low": each.low, "high": each.high, "ahead": None if each.ahead is None else pair.rows[each.ahead]}
        for each in pair.stretches
    ]
    where = None if pair.crossing.interval is None else bounded(pair.crossing.interval)
    return {
        "metric": pair.metric, "rows": list(pair.rows), "ahead": ahead, "crossing": where,
        "reason": pair.crossing.reason,
    }  # fmt: skip


def called(rung: Rung, unit: str) -> str:
    return f"{rung.budget:,.6g} {unit}" + ("" if rung.passes is None else f", {passes_text(rung.passes)}")


def passes_text(passes: float) -> str:
    return f"{passes:g} pass{'' if passes == 1 else 'es'}"


def budget_path(folder: Path, unit: str, rung: Rung) -> Path:
    passes = "" if rung.passes is None else f" {passes_text(rung.passes)}"
    return folder / "budgets" / slug(f"{rung.budget:.12g} {unit}{passes}")


# ---- what was found


def is_ladder(folder: Path) -> bool:
    return (folder / LADDER).exists() or (folder / "budgets").is_dir()


def read_ladder(folder: Path) -> Ladder:
    """A finished ladder, from the results in its folder."""
    if not (folder / LADDER).exists():
        begun = (folder / "budgets").is_dir()
        remedy = "rerun seqloom compare, which finishes it" if begun else "give the --out of seqloom compare"
        raise ModelError(f"{folder} holds no {'finished ' * begun}ladder (it has no {LADDER}): {remedy}")
    name, ladder = ladder_of(
        read_record(folder / LADDER, "rerun seqloom compare, which writes it again"), folder / LADDER
    )
    rungs = ladder.rungs((*ladder.budgets, *ladder.predict))
    found = {rung: read_comparison(budget_path(folder, ladder.unit, rung)) for rung in rungs}
    return summarise(name, ladder, found, folder)


def ladder_of(record: Mapping[str, Any], path: Path) -> tuple[str, LadderConfig]:
    """The name and the budgets that ladder.json says."""
    try:
        passes = sorted({metric.get("passes") for metric in record["metrics"]} - {None})
        given = {record["unit"]: record["budgets"], "predict": record["predicted_budgets"], "passes": passes}
        return str(record["name"]), build(LadderConfig, given)
    except (AttributeError, LookupError, TypeError, SeqloomError) as error:
        raise ModelError(f"{path} is damaged ({error}): rerun seqloom compare, which writes it again") from error


def plan_of(found: Mapping[Rung, Comparison]) -> ResolvedPlan:
    """Of one budget: seeds, sizes and the search are the same at all."""
    return next(iter(found.values())).plan


def summarise(name: str, ladder: LadderConfig, found: Mapping[Rung, Comparison], folder: Path) -> Ladder:
    """folder: where the predictions are, which were made before."""
    metrics = ladder_metrics(ladder, found)
    return Ladder(
        name=name,
        unit=ladder.unit,
        budgets=list(ladder.budgets),
        predicted=list(ladder.predict),
        comparisons={rung.key: each for rung, each in found.items()},
        metrics=metrics,
        predictions=read_predictions(folder, ladder, metrics),
        pairs=compare_pairs(metrics),
        caveats=ladder_caveats(ladder, found, metrics),
    )


def ladder_metrics(ladder: LadderConfig, found: Mapping[Rung, Comparison]) -> list[LadderMetric]:
    """One for each measure, and for each number of passes."""
    names = dict.fromkeys((metric.name, rung.passes) for rung, each in found.items() for metric in each.metrics)
    order = list(dict.fromkeys(name for name, _ in names))
    return [
        ladder_metric(*each, ladder, found)
        for each in sorted(names, key=lambda each: (order.index(each[0]), each[1] or 0))
    ]


def ladder_metric(
    name: str, passes: float | None, ladder: LadderConfig, found: Mapping[Rung, Comparison]
) -> LadderMetric:
    by_budget = {
        rung.budget: metric
        for rung, each in found.items()
        for metric in each.metrics
        if metric.name == name and rung.passes == passes
    }
    first = next(iter(by_budget.values()))
    values: dict[str, dict[float, list[float]]] = {}
    for budget, metric in by_budget.items():
        for row in metric.values:
            values.setdefault(row, {})[budget] = seed_means(metric, row)
    intervals = {row: {budget: student(seeds) for budget, seeds in each.items()} for row, each in values.items()}
    is_log = name.startswith((MASKED, INFILLED))
    losses = losses_at(ladder.budgets, values, is_log) if first.lower else {}
    best = {row: best_before_worse(each) for row, each in losses.items()}
    turned = {row: budget for row, budget in best.items() if budget is not None}
    falling = {row: each for row, each in losses.items() if row not in turned}
    laws = fit_ladders(falling) if falling else {}
    whole = name if passes is None else f"{name}, {passes_text(passes)}"
    return LadderMetric(whole, first.lower, values, intervals, laws, is_log, turned, passes, name)


def losses_at(
    budgets: Sequence[float], values: Mapping[str, Mapping[float, list[float]]], is_log: bool
) -> dict[str, dict[float, list[float]]]:
    """What laws are fitted to, of the rows that have enough of it. is_log: values are exponentials of losses."""
    found = {
        row: {
            budget: [math.log(value) if is_log else value for value in each[budget]]
            for budget in each
            if budget in budgets
        }
        for row, each in values.items()
    }
    return {row: each for row, each in found.items() if len(each) >= PARAMETERS}


def seed_means(metric: Metric, row: str) -> list[float]:
    values = np.atleast_1d(metric.values[row])
    means = values if values.ndim == 1 else values.mean(1)
    return [float(value) for value in (means[:1] if row in metric.deterministic else means)]


def compare_pairs(metrics: Sequence[LadderMetric]) -> list[Pair]:
    """The level is of all pairs of rows of a metric together (Bonferroni)."""
    found = []
    for metric in metrics:
        pairs = list(combinations(metric.laws, 2))
        for a, b in pairs:
            level = 1 - ALPHA / len(pairs)
            laws = metric.laws[a], metric.laws[b]
            if all(math.isfinite(law.variance.variance) for law in laws):
                found.append(Pair(metric.name, (a, b), who_is_ahead(*laws, level=level), crossing(*laws, level=level)))
    return found


def ladder_caveats(
    ladder: LadderConfig, found: Mapping[Rung, Comparison], metrics: Sequence[LadderMetric]
) -> list[str]:
    plan = plan_of(found)
    lines = law_caveats(ladder, plan, metrics)
    if ladder.unit == "epochs":
        lines.append("the budgets are passes over the same text: repeated text is another thing than new text")
    if ladder.passes:
        lines += passes_caveats(found)
    lines += settings_caveats(plan, found)
    lines.append(
        "intervals are for other seeds on the same held-out text; predictions hold if the law does, also beyond its budgets"
    )
    rungs = ladder.rungs((*ladder.budgets, *ladder.predict))
    unfinished = [called(rung, ladder.unit) for rung in rungs if rung not in found]
    return lines + ([f"not finished: {'; '.join(unfinished)}"] if unfinished else [])


def law_caveats(ladder: LadderConfig, plan: ResolvedPlan, metrics: Sequence[LadderMetric]) -> list[str]:
    """Why a law may not hold, or is missing."""
    lines = []
    if len(ladder.budgets) == PARAMETERS:
        lines.append(
            "with three budgets a power law with an offset fits exactly: whether the law holds cannot be tested"
        )
    if len(plan.seeds) < 2:
        lines.append("one seed: how far the laws are known cannot be said")
    doubtful = [
        f"{row} ({metric.name})" for metric in metrics for row, law in metric.laws.items() if law.misfit < ALPHA
    ]
    if doubtful:
        lines.append(f"a power law does not fit within the noise of the seeds: {', '.join(doubtful)}")
    turned = [
        f"{row} ({metric.name}) after {budget:,.6g}" for metric in metrics for row, budget in metric.turned.items()
    ]
    if turned:
        lines.append(
            f"worse with a larger budget, so that no law is fitted: {', '.join(turned)} {ladder.unit}; such a row overfits, "
            "or its settings do not suit a longer run"
        )
    return lines


def passes_caveats(found: Mapping[Rung, Comparison]) -> list[str]:
    lines = [
        "laws are of new words at one number of passes; more passes are as many times the operations, and no more text"
    ]
    read = {
        rung.budget: max(row["words"] for row in each.costs.values()) / rung.passes
        for rung, each in found.items()
        if rung.passes is not None
    }
    smaller = [f"{budget:,.6g} ({words:,.0f})" for budget, words in read.items() if words < 0.98 * budget]
    if smaller:
        lines.append(f"documents are whole, so that a text has fewer words than its budget: {', '.join(smaller)}")
    return lines


def settings_caveats(plan: ResolvedPlan, found: Mapping[Rung, Comparison]) -> list[str]:
    """What is the same at all budgets, and what was not chosen for each."""
    lines = []
    if plan.parameters is not None:
        lines.append(
            f"all budgets have models of one size ({plan.parameters:,.0f} parameters): no size was chosen for its budget"
        )
    if any(row.recipe.train.schedule.name == "trapezoid" for each in found.values() for row in each.plan.rows):
        lines.append(
            "runs with a trapezoid schedule go on from the start of a shorter run of the same seed where they can: results and "
            "costs are those of runs of their own, but part of the costs was spent only once"
        )
    if plan.search is None:
        lines.append(
            "settings were not searched for at each budget: a row may fall behind because its settings fit another one"
        )
    return lines


# ---- predictions


def make_predictions(ladder: LadderConfig, found: Mapping[Rung, Comparison]) -> list[Prediction]:
    """found: without what is predicted."""
    seeds = len(plan_of(found).seeds)
    return [
        Prediction(metric.name, row, budget, metric.back(law.predict(budget, seeds)))
        for metric in ladder_metrics(ladder, found)
        for row, law in metric.laws.items()
        for budget in ladder.predict
    ]


def read_predictions(folder: Path, ladder: LadderConfig, metrics: Sequence[LadderMetric]) -> list[Prediction]:
    """As they were written, with what was measured since. Changed ones are refused."""
    path = folder / PREDICTIONS
    if not ladder.predict:
        return []
    remedy = "restore it: predictions that were changed after the results are none"
    record = read_record(path, remedy)
    if record.pop("whole", None) != digest_of(record):
        raise DataError(f"{path} was changed (its SHA-256 is not the recorded one): {remedy}")
    by_name = {metric.name: metric for metric in metrics}
    predictions = []
    for each in record["predictions"]:
        interval = Interval(each["value"], each.get("low", -math.inf), each.get("high", math.inf))
        seeds = (
            by_name[each["metric"]].values.get(each["row"], {}).get(each["budget"])
            if each["metric"] in by_name
            else None
        )
        measured = None if not seeds else float(np.mean(seeds))
        predictions.append(Prediction(each["metric"], each["row"], each["budget"], interval, measured))
    return predictions
