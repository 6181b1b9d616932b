"""A ladder: one plan at several budgets, a power law fitted to every row, and budgets that are predicted before they are run.

Every budget is a comparison of its own, with its own search and schedules that end with it: a checkpoint of a longer run is not a
run of a smaller budget. With a trapezoid schedule a longer run goes on from where a shorter one began to lower its rate, see
`runs.shared_start`. What is in its folder:

data/            the prepared text, which all budgets share        predictions.json   written before what it predicts is run
budgets/         a comparison for each budget                      report.html  ladder.json  ladder.csv  ladder-*.svg
shared/          starts of runs, until the last budget is run

The budgets of a ladder in words are of new text. Repeated text is another thing: that is a ladder in epochs, or with `passes` one
in both, where every budget is a text of so many words, read once, three times, ten times. Laws are then of one number of passes.
"""

import math
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches.prepare import PREPARED_FILES
from seqloom.batches.store import Store
from seqloom.charts import note
from seqloom.comparison.engines import Where
from seqloom.comparison.folder import comparison_folder, shared_path, slug
from seqloom.comparison.metric import ALPHA, Metric
from seqloom.comparison.plan import LadderConfig, PlanConfig, Rung, check_files
from seqloom.comparison.plans import open_plan
from seqloom.comparison.run import compare, prepare_texts
from seqloom.comparison.table import INFILLED, MASKED, Comparison
from seqloom.errors import DataError, UsageError
from seqloom.files import (
    FolderKind,
    check_clearable,
    clear_folder,
    contents,
    digest_of,
    read_record,
    remove_leftovers,
    sole_owner,
    write_json,
)
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
from seqloom.progress import say
from seqloom.recipes.schema import BudgetConfig
from seqloom.runs.folder import RUN_FILES
from seqloom.runs.results import import_optional, one_line
from seqloom.training.precision import choose_device

LADDER, PREDICTIONS = "ladder.json", "predictions.json"
OWN_FILES = r"(ladder|predictions)\.json|ladder\.csv|report\.html|ladder-[^/]+\.svg"


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


# ---- running


def compare_ladder(
    plan: str | Path | PlanConfig,
    out: str | Path,
    *,
    jobs: int | None = None,
    minutes: float | None = None,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    where: Where | None = None,
) -> Ladder:
    """Run a plan at all budgets of its ladder, or resume it, and return what was found; the page is OUT/report.html.

    Args:
        plan: a TOML file, the name of a built-in plan, or a PlanConfig; with a [ladder].
        out: the folder of the ladder; the comparison of each budget is in OUT/budgets.
        jobs: how many jobs (a row with a seed) run side by side.
        minutes: when to stop; rerun to resume.
        overwrite: delete the ladder that is in `out` and start again.
        device: "auto", "cpu" or "cuda".
        deterministic: use kernels that give the same bits every time on a GPU; slower.
        where: on which engine jobs run (local, ray, slurm), and what each of them asks for; `jobs` goes with it.
    """
    from seqloom.comparison.ladder_report import write_ladder_report

    until = None if minutes is None else time.monotonic() + 60 * minutes
    choose_device(device)
    plan = open_plan(plan)
    if plan.ladder is None:
        raise UsageError(f"{plan.name} has a single budget: it has no ladder")
    check_files(plan)
    folder, ladder = Path(out), plan.ladder
    with sole_owner(folder):
        begin(folder, overwrite)
        check_new_text(plan, folder)
        (folder / "budgets").mkdir(exist_ok=True)
        found: dict[Rung, Comparison] = {}
        for rung in ladder.rungs((*ladder.budgets, *ladder.predict)):
            if rung.budget in ladder.predict:
                predict_once(folder, plan, found)
            say(called(rung, ladder.unit))
            left = None if until is None else max((until - time.monotonic()) / 60, 1e-3)
            found[rung] = compare(
                at_budget(plan, rung), budget_path(folder, ladder.unit, rung), jobs=jobs, minutes=left, device=device,
                deterministic=deterministic, where=where, ladder=folder,
            )  # fmt: skip
        whole = summarise(plan, found, read_predictions(folder, plan, found))
        write_ladder_report(whole, folder)
        shutil.rmtree(shared_path(folder), ignore_errors=True)  # no longer run will come
    return whole


def called(rung: Rung, unit: str) -> str:
    return f"{rung.budget:,.6g} {unit}" + ("" if rung.passes is None else f", {passes_text(rung.passes)}")


def passes_text(passes: float) -> str:
    return f"{passes:g} pass{'' if passes == 1 else 'es'}"


def at_budget(plan: PlanConfig, rung: Rung) -> PlanConfig:
    """The plan of one comparison."""
    assert plan.ladder is not None
    unit = plan.ladder.unit
    change: dict[str, Any] = {"ladder": None, "name": f"{plan.name}: {called(rung, unit)}"}
    if rung.passes is None:
        return plan.model_copy(update=change | {"budget": BudgetConfig(**{unit: rung.budget})})
    part = plan.text.model_copy(update={"words": rung.budget})
    return plan.model_copy(update=change | {"text": part, "budget": BudgetConfig(epochs=rung.passes)})


def budget_path(folder: Path, unit: str, rung: Rung) -> Path:
    passes = "" if rung.passes is None else f" {passes_text(rung.passes)}"
    return folder / "budgets" / slug(f"{rung.budget:.12g} {unit}{passes}")


def ladder_folder(folder: Path) -> FolderKind:
    files = rf"{OWN_FILES}|data/(built-in\.jsonl|[^/]+/(lock|{PREPARED_FILES}))|budgets/[^/]+/lock"
    files += rf"|shared/[^/]+/({RUN_FILES})"
    return FolderKind("a ladder", re.compile(files), ("data", "budgets", "shared"), is_ladder, LADDER)


def is_ladder(folder: Path) -> bool:
    return (folder / LADDER).exists() or (folder / "budgets").is_dir()


def begin(folder: Path, overwrite: bool) -> None:
    if contents(folder, ladder_folder(folder)) and not is_ladder(folder):
        raise UsageError(f"{folder} is not empty and does not hold a ladder of budgets: choose another --out")
    if overwrite:
        budgets = sorted((folder / "budgets").glob("*/"))
        for path in budgets:  # all are looked at before anything is removed
            check_clearable(path, comparison_folder(path))
        for path in budgets:
            clear_folder(path, comparison_folder(path))
        clear_folder(folder, ladder_folder(folder))
    remove_leftovers(folder, ladder_folder(folder))


def check_new_text(plan: PlanConfig, folder: Path) -> None:
    """Budgets in words are of new text: more than there is would be read again."""
    assert plan.ladder is not None
    largest = max((*plan.ladder.budgets, *plan.ladder.predict))
    for path in set(prepare_texts(plan, folder).values()):
        words = Store.open(path).split("train").words
        if plan.ladder.unit == "words" and largest > words:
            raise DataError(
                f"{path}: its training text has {words:,.0f} words, and a budget of {largest:,.0f} would read them again, which "
                f"is not the same as new text: lower the budget, or give the ladder in epochs"
            )


# ---- what was found


def summarise(plan: PlanConfig, found: Mapping[Rung, Comparison], predictions: Sequence[Prediction]) -> Ladder:
    assert plan.ladder is not None
    metrics = ladder_metrics(plan.ladder, found)
    return Ladder(
        name=plan.name,
        unit=plan.ladder.unit,
        budgets=list(plan.ladder.budgets),
        predicted=list(plan.ladder.predict),
        comparisons={rung.key: each for rung, each in found.items()},
        metrics=metrics,
        predictions=list(predictions),
        pairs=compare_pairs(metrics),
        caveats=ladder_caveats(plan, found, metrics),
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
    intervals: dict[str, dict[float, Interval]] = {}
    for budget, metric in by_budget.items():
        for row in metric.values:
            values.setdefault(row, {})[budget] = seed_means(metric, row)
            intervals.setdefault(row, {})[budget] = student(values[row][budget])
    is_log = name.startswith((MASKED, INFILLED))
    losses = {
        row: {
            budget: [math.log(value) if is_log else value for value in seeds]
            for budget, seeds in each.items()
            if budget in ladder.budgets
        }
        for row, each in values.items()
    }
    enough = {row: each for row, each in losses.items() if len(each) >= PARAMETERS}
    best = {row: best_before_worse(each) for row, each in enough.items()} if first.lower else {}
    turned = {row: budget for row, budget in best.items() if budget is not None}
    falling = {row: each for row, each in enough.items() if row not in turned}
    laws = fit_ladders(falling) if first.lower and falling else {}
    whole = name if passes is None else f"{name}, {passes_text(passes)}"
    return LadderMetric(whole, first.lower, values, intervals, laws, is_log, turned, passes, name)


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


def ladder_caveats(plan: PlanConfig, found: Mapping[Rung, Comparison], metrics: Sequence[LadderMetric]) -> list[str]:
    assert plan.ladder is not None
    lines = []
    if len(plan.ladder.budgets) == PARAMETERS:
        lines.append(
            "with three budgets a power law with an offset fits exactly: whether the law holds cannot be tested"
        )
    if len(plan.chosen_seeds()) < 2:
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
            f"worse with a larger budget, so that no law is fitted: {', '.join(turned)} {plan.ladder.unit}; such a row overfits, "
            "or its settings do not suit a longer run"
        )
    if plan.ladder.unit == "epochs":
        lines.append("the budgets are passes over the same text: repeated text is another thing than new text")
    if plan.ladder.passes:
        lines.append(
            "laws are of new words at one number of passes; more passes are as many times the operations, and no more text"
        )
        read = {
            rung.budget: max(row["words"] for row in each.costs.values()) / rung.passes
            for rung, each in found.items()
            if rung.passes is not None
        }
        smaller = [f"{budget:,.6g} ({words:,.0f})" for budget, words in read.items() if words < 0.98 * budget]
        if smaller:
            lines.append(f"documents are whole, so that a text has fewer words than its budget: {', '.join(smaller)}")
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
    lines.append(
        "intervals are for other seeds on the same held-out text; predictions hold if the law does, also beyond its budgets"
    )
    rungs = plan.ladder.rungs((*plan.ladder.budgets, *plan.ladder.predict))
    unfinished = [called(rung, plan.ladder.unit) for rung in rungs if rung not in found]
    return lines + ([f"not finished: {'; '.join(unfinished)}"] if unfinished else [])


# ---- predictions


def make_predictions(plan: PlanConfig, found: Mapping[Rung, Comparison]) -> list[Prediction]:
    assert plan.ladder is not None
    seeds = len(plan.chosen_seeds())
    return [
        Prediction(metric.name, row, budget, metric.back(law.predict(budget, seeds)))
        for metric in ladder_metrics(plan.ladder, found)
        for row, law in metric.laws.items()
        for budget in plan.ladder.predict
    ]


def predict_once(folder: Path, plan: PlanConfig, found: Mapping[Rung, Comparison]) -> None:
    """Written before the first predicted budget is run, and never again."""
    path = folder / PREDICTIONS
    assert plan.ladder is not None
    if path.exists():
        return
    later = plan.ladder.rungs(plan.ladder.predict)
    begun = [called(each, plan.ladder.unit) for each in later if budget_path(folder, plan.ladder.unit, each).exists()]
    if begun:
        raise UsageError(
            f"{folder}: {begun[0]} was run before it was predicted (there is no {PREDICTIONS}): choose "
            f"another --out, or start over with --overwrite"
        )
    record = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "from": list(plan.ladder.budgets),
        "predictions": [each.record() for each in make_predictions(plan, found)],
    }
    write_json(path, record | {"whole": digest_of(record)})
    say(
        f"{path} has the predictions for {', '.join(f'{each:,.6g}' for each in plan.ladder.predict)} {plan.ladder.unit}"
    )


def read_predictions(folder: Path, plan: PlanConfig, found: Mapping[Rung, Comparison]) -> list[Prediction]:
    """As they were written, with what was measured since. Changed ones are refused."""
    path = folder / PREDICTIONS
    assert plan.ladder is not None
    if not plan.ladder.predict:
        return []
    remedy = "restore it: predictions that were changed after the results are none"
    record = read_record(path, remedy)
    if record.pop("whole", None) != digest_of(record):
        raise DataError(f"{path} was changed (its SHA-256 is not the recorded one): {remedy}")
    metrics = {metric.name: metric for metric in ladder_metrics(plan.ladder, found)}
    predictions = []
    for each in record["predictions"]:
        interval = Interval(each["value"], each.get("low", -math.inf), each.get("high", math.inf))
        seeds = (
            metrics[each["metric"]].values.get(each["row"], {}).get(each["budget"])
            if each["metric"] in metrics
            else None
        )
        measured = None if not seeds else float(np.mean(seeds))
        predictions.append(Prediction(each["metric"], each["row"], each["budget"], interval, measured))
    return predictions
