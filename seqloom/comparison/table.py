"""The results of a comparison: a metric for every column of the table, answers to questions, curves and costs.

A metric has a number for each seed, or for each seed and item of a test that all rows have taken. Rows without such a number have
a reason. Rows are compared by a metric only if it means the same for all of them. A row in which nothing is random has items
alone: its seeds are copies.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.comparison.caveats import Failures, Findings, find_caveats, find_fixed
from seqloom.comparison.folder import sets_path
from seqloom.comparison.long_form import LongRow, long_rows
from seqloom.comparison.measured import MeasuredRow, measure_of, read_rows
from seqloom.comparison.measurement import common_context, forms_of
from seqloom.comparison.metric import ALPHA, Metric
from seqloom.comparison.plan import PriceConfig
from seqloom.comparison.records import (
    COMMON,
    COSTS,
    DOCUMENTS,
    JobResult,
    Number,
    QuestionRecord,
    ResolvedPlan,
    SuiteRecord,
)
from seqloom.comparison.text_measure import NAMES, TextMeasure
from seqloom.comparison.tuning import RowSearch, search_of, tuned
from seqloom.errors import ModelError
from seqloom.evaluate.suites import find_suite
from seqloom.metrics.best_of import selection_component
from seqloom.metrics.differences import Difference
from seqloom.metrics.intervals import ratio_items
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.replaced import ReplacedToken
from seqloom.runs.results import import_optional, one_line
from seqloom.training.log import read_log

NOTHING = np.zeros(0)
MASKED = "masked perplexity"
INFILLED = "infilled perplexity"
FORMS = {"single": "", "next": ", pairs for the next sentence", "order": ", pairs for sentence order"}
NO_ORDER = "it has no probability of the next token"


class Answer(NamedTuple):
    """What a metric says to a question: the first row minus the second, and p corrected for all questions that it answers."""

    question: str
    metric: str
    rows: tuple[str, str]
    difference: Difference
    p_adjusted: float
    better: str | None  # of the two; None if the difference is not significant

    def record(self) -> dict[str, Any]:
        return {
            "question": self.question, "metric": self.metric, "figure": self.metric, "rows": list(self.rows),
            **self.difference.interval.record(), "p": self.difference.p, "p_adjusted": self.p_adjusted,
            "better": self.better,
        }  # fmt: skip


class Curves(NamedTuple):
    """The training log of a row, the mean over its seeds: the loss by several measures of effort."""

    meaning: str  # of the loss: only rows with the same are drawn together
    loss: list[float]
    tokens: list[float]
    flops: list[float]
    seconds: list[float]
    joules: list[float]


class Comparison(NamedTuple):
    name: str
    rows: list[str]
    seeds: dict[str, list[int]]  # those that are finished
    costs: dict[str, dict[str, float]]  # of a row, the mean over its seeds
    energy: list[str]  # how it was measured
    metrics: list[Metric]
    answers: list[Answer]
    curves: dict[str, Curves]
    milestones: dict[str, dict[str, list[tuple[float, float]]]]  # by suite and row: words, accuracy
    by_category: dict[str, dict[str, dict[str, float]]]  # by suite, row and category of item: accuracy, mean over seeds
    samples: dict[str, str]
    held: list[str]
    caveats: list[str]
    plan: ResolvedPlan
    versions: Mapping[str, str | None]
    searches: Mapping[str, RowSearch] = {}  # of rows whose settings were searched for

    @property
    def unfinished(self) -> list[str]:
        """The rows and seeds of the plan that have no result, whether they failed or were not run yet."""
        return [
            f"{row.name}, seed {seed}"
            for row in self.plan.rows
            for seed in self.plan.seeds
            if seed not in self.seeds.get(row.name, ())
        ]

    def record(self) -> dict[str, Any]:
        """comparison.json. Keys of earlier versions are kept for now: figures, figure, kinds, not_told_apart_from_the_best."""
        metrics = [metric_record(metric) for metric in self.metrics]
        return {
            "name": self.name, "seeds": self.seeds, "costs": self.costs, "energy_methods": self.energy,
            "metrics": metrics, "figures": metrics, "answers": [each.record() for each in self.answers],
            "search": {row: each.record() for row, each in self.searches.items()},
            "milestones": self.milestones, "by_category": self.by_category, "kinds": self.by_category,
            "held_fixed": self.held, "caveats": self.caveats,
            "samples": self.samples, "versions": self.versions, "plan": self.plan.record(),
        }  # fmt: skip

    def __repr__(self) -> str:
        rows = f"{len(self.rows)} row{'s' * (len(self.rows) != 1)} ({', '.join(self.rows)})"
        counts = sorted({len(seeds) for seeds in self.seeds.values()})
        seeds = " to ".join(map(str, counts[:1] + counts[1:][-1:]))
        best = [f"{metric.name}: {best_in_words(metric)}" for metric in self.metrics if metric.values]
        return one_line(f"<comparison {self.name}: {rows}, {seeds} seeds; {'; '.join(best)}>")

    def _repr_html_(self) -> str:
        from seqloom.comparison.report import notebook_table

        return notebook_table(self)

    def to_pandas(self, items: bool = False) -> Any:
        """A DataFrame in long form: one score for each row, seed and metric, or, by `items`, one for each item as well."""
        pandas = import_optional("pandas", "to_pandas")
        return pandas.DataFrame(list(long_rows(self.metrics, self.seeds, items)), columns=list(LongRow._fields))


def best_in_words(metric: Metric) -> str:
    best = metric.leaders()
    return f"best {best[0]}" if len(best) == 1 else f"no single best among {', '.join(best)}"


def metric_record(metric: Metric) -> dict[str, Any]:
    rows = {}
    for name, values in metric.values.items():
        means = values if values.ndim == 1 else values.mean(1)
        rows[name] = metric.interval(name).record() | {"values": [float(value) for value in means]}
        if metric.has_sampled_sets:
            rows[name]["by_item"] = metric.interval(name, by_item=True).record()
    differences = [
        {"rows": [a, b], **found.interval.record(), "p": found.p, "p_adjusted": p}
        for a, b, found, p in metric.differences
    ]
    best = metric.leaders()
    return {
        "name": metric.name, "lower_is_better": metric.lower, "method": metric.method(),
        "deterministic": sorted(metric.deterministic & set(metric.values)), "rows": rows, "missing": metric.missing,
        "not_significantly_different_from_best": best, "not_told_apart_from_the_best": best,
        "differences": differences,
    }  # fmt: skip


def collect(folder: Path, plan: ResolvedPlan, failures: Failures) -> Comparison:
    try:
        return summarise(folder, plan, failures)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{folder / 'results'}: a result, or a metrics.jsonl or config.json in {folder / 'runs'}, is damaged "
            f"({type(error).__name__}: {str(error)[:200]}): remove the result that was changed last and rerun the same command"
        ) from error


def summarise(folder: Path, plan: ResolvedPlan, failures: Failures) -> Comparison:
    plan = plan.model_copy(update={"rows": tuple(tuned(folder, plan, row) or row for row in plan.rows)})
    searches = {row.name: found for row in plan.rows if (found := search_of(folder, plan, row)) is not None}
    rows = read_rows(folder, plan)
    every = [with_selection(each, searches) for each in every_metric(folder, plan, rows)]
    metrics, empty = [each for each in every if each.values], [each for each in every if not each.values]
    costs = {each.name: mean_costs(each.results.values(), plan.price) for each in rows}
    return Comparison(
        name=plan.name,
        rows=[each.name for each in rows],
        seeds={each.name: list(each.results) for each in rows},
        costs=costs,
        energy=sorted({result.metrics.energy_method for each in rows for result in each.results.values()}),
        metrics=metrics,
        answers=answer_questions(plan.questions, metrics),
        searches=searches,
        curves={each.name: read_curves(each) for each in rows if not each.row.is_count_based},
        milestones=milestone_curves(plan.suites, rows),
        by_category=accuracy_by_category(plan.suites, rows),
        samples={each.name: each.first.sample for each in rows},
        held=find_fixed(rows, plan),
        caveats=find_caveats(Findings(rows, plan, costs, failures, metrics, empty, searches)),
        plan=plan,
        versions=rows[0].run.versions if rows else plan.versions,
    )


def every_metric(folder: Path, plan: ResolvedPlan, rows: Sequence[MeasuredRow]) -> list[Metric]:
    """The columns, also those that no row has."""
    return [
        text_metric(rows),
        *common_metric(rows),
        *masked_metrics(rows, forms_of([each.row for each in rows])),
        *infilled_metrics(rows),
        *(suite_metric(suite, rows, read_sets(folder, suite)) for suite in plan.suites),
        *(task_metric(task.name, rows) for task in plan.tasks),
    ]


def answer_questions(questions: Sequence[QuestionRecord], metrics: Sequence[Metric]) -> list[Answer]:
    """One question after the other, by every metric that both rows have."""
    found: dict[str, list[Answer]] = {question.name: [] for question in questions}
    for metric in metrics:
        asked = [question for question in questions if all(row in metric.values for row in question.rows)]
        differences = metric.compare_rows([question.rows for question in asked])
        for question, (first, second, each, p) in zip(asked, differences, strict=True):
            better = None if p >= ALPHA else first if (each.interval.value < 0) == metric.lower else second
            found[question.name].append(Answer(question.name, metric.name, (first, second), each, p, better))
    return [answer for each in found.values() for answer in each]


def mean_costs(results: Iterable[JobResult], price: PriceConfig | None) -> dict[str, float]:
    metrics = [result.metrics for result in results]
    found = {name: float(np.mean([getattr(each, name) for each in metrics])) for name in COSTS}
    if price is not None:
        # results of earlier versions have no share of the device
        shares = [each.seconds if each.device_seconds is None else each.device_seconds for each in metrics]
        found["price"] = float(np.mean(shares)) / 3600 * price.hour
    return found


# ---- metrics


def deterministic_rows(rows: Iterable[MeasuredRow]) -> frozenset[str]:
    return frozenset(each.name for each in rows if each.is_deterministic)


def text_metric(rows: Sequence[MeasuredRow]) -> Metric:
    """Each row at its own context."""
    measure = measure_of(rows)
    values, missing = {}, {}
    for each in rows:
        found = [measure.of(result.held_out) for result in each.results.values()]
        if None not in found:
            values[each.name] = np.array(found, float)
        else:
            missing[each.name] = no_measure(each)
    metric = Metric(measure.name, True, values, missing, deterministic_rows(rows), "documents")
    return by_document(metric, rows, DOCUMENTS, measure)


def no_measure(row: MeasuredRow) -> str:
    masked = issubclass(row.row.objective_class, MaskedLM)
    if row.row.objective_class.reads == "passages" and not masked:
        return "it has no probability of the next word"
    return NO_ORDER if masked else "its tokenizer does not account for every byte"


def common_metric(rows: Sequence[MeasuredRow]) -> list[Metric]:
    """All left-to-right rows at the same context; nothing where they have the same one anyway."""
    context = common_context([each.row for each in rows])
    if context is None:
        return []
    measure = measure_of(rows)
    values, missing = {}, {}
    for each in rows:
        found = [result.common for result in each.results.values()]
        scores = [measure.of(one) for one in found if one is not None and one.tokens_of_context == context]
        if len(scores) == len(found) and None not in scores:
            values[each.name] = np.array(scores, float)
        elif None in scores or not each.row.objective_class.has_next_word:
            missing[each.name] = no_measure(each)
        else:
            missing[each.name] = "it was measured before by another version, or at another context"
    metric = Metric(measure.at(context), True, values, missing, deterministic_rows(rows), "documents")
    return [by_document(metric, rows, COMMON, measure)]


def by_document(metric: Metric, rows: Sequence[MeasuredRow], name: str, measure: TextMeasure) -> Metric:
    """The metric with the scores of single documents, where all rows have those of the same ones. name: of their items."""
    measured = {each.name: list(each.items.values()) for each in rows if each.name in metric.values}
    sizes = [items.get(f"{name}.{measure.size}", NOTHING) for seeds in measured.values() for items in seeds]
    if not sizes or len(sizes[0]) < 2 or not all(np.array_equal(each, sizes[0]) for each in sizes):
        return metric
    scores: dict[str, np.ndarray] = {}
    for row, values in metric.values.items():
        totals = np.stack([items[f"{name}.{measure.total}"] for items in measured[row]])
        scores[row], df = ratio_items(totals, sizes[0].astype(float))
        # items are summed in single precision: the value is that of the run
        scores[row] += (values - scores[row].mean(1))[:, None]
    return replace(metric, values=scores, df=df)


def masked_metrics(rows: Sequence[MeasuredRow], forms: Sequence[str]) -> list[Metric]:
    """One for single passages, and one for each other form that a row has learnt from."""
    found = masked_metrics_of(rows, "single")
    for form in forms:
        if form != "single":
            found += masked_metrics_of(rows, form)
    return found


def masked_metrics_of(rows: Sequence[MeasuredRow], form: str) -> list[Metric]:
    """One for every vocabulary and every way to mask tokens, with all that decides which are masked where: only perplexities of
    the same predictions are comparable."""
    groups: dict[tuple[Any, ...], dict[str, np.ndarray]] = {}
    unmeasured = {}
    for each in rows:
        cls: Any = each.row.objective_class
        if not issubclass(cls, MaskedLM) or issubclass(cls, ReplacedToken):
            continue
        masks = cls.Config(**{name: value for name, value in each.row.objective.items() if name != "name"})
        batches = each.row.recipe.batches
        key = (f"{100 * masks.rate:g}% by {masks.unit}", masks.keep, masks.random, masks.static)
        group = groups.setdefault((*key, batches.length, batches.budget, each.run.tokenizer), {})
        found = [masked_perplexity(result, form) for result in each.results.values()]
        if None in found:
            unmeasured[each.name] = "it was measured by an earlier version"
        else:
            group[each.name] = np.array(found, float)
    metrics = []
    for number, ((masking, *_), values) in enumerate(groups.items(), 1):
        title = MASKED + FORMS[form] + (f" ({number}: {masking})" if len(groups) > 1 else "")
        missing = {
            each.name: "its generator predicts the masked tokens"
            if issubclass(each.row.objective_class, ReplacedToken)
            else unmeasured.get(each.name, "it predicts other tokens")
            for each in rows
            if each.name not in values
        }
        metrics.append(Metric(title, True, values, missing))
    return metrics


def masked_perplexity(result: JobResult, form: str) -> Number | None:
    """None where an earlier version has not measured it."""
    if result.held_out.masked_perplexity is None:
        raise ValueError("a result has no masked_perplexity")
    return (
        result.held_out.masked_perplexity_by_form.get(form) if form != "single" else result.held_out.masked_perplexity
    )


def infilled_metrics(rows: Sequence[MeasuredRow]) -> list[Metric]:
    """Of rows that restore whole texts, by one noise for all. One for every vocabulary and size of passages and batches."""
    groups: dict[tuple[Any, ...], dict[str, np.ndarray]] = {}
    for each in rows:
        found = [result.held_out.infilled_perplexity for result in each.results.values()]
        if None not in found:
            batches = each.row.recipe.batches
            key = (batches.length, batches.budget, each.run.tokenizer)
            groups.setdefault(key, {})[each.name] = np.array(found, float)
    metrics = []
    for number, values in enumerate(groups.values(), 1):
        missing = {each.name: "it restores no whole texts" for each in rows if each.name not in values}
        metrics.append(Metric(INFILLED + (f" ({number})" if len(groups) > 1 else ""), True, values, missing))
    return metrics


def with_selection(metric: Metric, searches: Mapping[str, RowSearch]) -> Metric:
    """With the luck of a random search in its intervals, where the metric is a function of the loss that trials have: another
    search would have found other settings. Trials that are spread over a range leave little to luck."""
    if not metric.name.startswith((*NAMES, MASKED)):
        return metric
    found = {}
    for row, values in metric.values.items():
        search = searches.get(row)
        if search is not None and search.curve and search.chosen is not None:
            value, loss = float(values.mean()), search.chosen.result.score
            # a perplexity is the exponential of a loss
            slope = value / loss if metric.name.startswith(NAMES) else value
            found[row] = selection_component(search.first_losses, lower=True, scale=slope)
    return replace(metric, selection=found) if found else metric


def suite_metric(suite: SuiteRecord, rows: Sequence[MeasuredRow], sets: np.ndarray | None = None) -> Metric:
    values, missing = {}, {}
    for each in rows:
        reasons = [result.suites[suite.name].refused for result in each.results.values()]
        if any(reasons):
            missing[each.name] = next(reason for reason in reasons if reason)
        else:
            values[each.name] = np.stack([items[suite.name] for items in each.items.values()]).astype(float)
    same = sets is not None and all(scores.shape[1:] == sets.shape for scores in values.values())
    return Metric(
        suite.name,
        False,
        values,
        missing,
        deterministic_rows(rows),
        outcomes=True,
        sets=sets if same else None,
        fixed_sets=suite.name == "pairs",
    )


def read_sets(folder: Path, suite: SuiteRecord) -> np.ndarray | None:
    """The number of the set of each item of a suite; None where it has no sets, or its file is missing."""
    known = find_suite(suite.suite)
    packed = sets_path(folder, suite.name)  # an archive has no suites, but knows their sets
    if known.sets is not None and packed.exists():
        return np.load(packed, allow_pickle=False)
    path = folder / suite.data
    if known.sets is None or not path.exists():
        return None
    return np.unique(known.sets(known.read(path)), return_inverse=True)[1].reshape(-1)


def task_metric(name: str, rows: Sequence[MeasuredRow]) -> Metric:
    """No row is deterministic: what is learnt from labelled examples begins with random weights."""
    values, missing = {}, {}
    for each in rows:
        found = [result.tasks[name] for result in each.results.values()]
        scores = [task.score for task in found if task.score is not None]
        if len(scores) == len(found):
            values[each.name] = np.array(scores, float)
        else:
            missing[each.name] = next(task.refused for task in found if task.refused is not None)
    return Metric(name, False, values, missing)


# ---- curves


def loss_meaning(row: MeasuredRow) -> str:
    """Losses are comparable where the same tokens are predicted in the same way."""
    settings = {key: value for key, value in row.row.objective.items() if key not in ("tie", "bias")}
    return json.dumps([settings, row.run.tokenizer], sort_keys=True)


def read_curves(row: MeasuredRow) -> Curves:
    """Runs of several seeds have the same steps; where one has fewer, the mean ends with it."""
    logs = [[line for line in read_log(run) if "loss" in line] for run in row.runs.values()]
    count = min(map(len, logs))
    every = max(count // 80, 1)  # as many points as can be seen

    def mean(name: str) -> list[float]:
        table = np.array([[line[name] for line in log[:count]] for log in logs], float).mean(0)
        whole = count // every * every
        return [float(value) for value in table[:whole].reshape(-1, every).mean(1)]

    return Curves(loss_meaning(row), *(mean(name) for name in ("loss", "tokens", "flops", "seconds", "joules")))


def milestone_curves(
    suites: Sequence[SuiteRecord], rows: Sequence[MeasuredRow]
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for suite in suites:
        for each in rows:
            points: dict[float, list[float]] = {}
            for result in each.results.values():
                for milestone in result.milestones:
                    accuracy = milestone.suites.get(suite.name)
                    if accuracy is not None:
                        points.setdefault(milestone.words, []).append(accuracy)
            if points:
                line = [(float(words), float(np.mean(values))) for words, values in sorted(points.items())]
                found.setdefault(suite.name, {})[each.name] = line
    return found


def accuracy_by_category(
    suites: Sequence[SuiteRecord], rows: Sequence[MeasuredRow]
) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for suite in suites:
        for each in rows:
            scores = [result.suites[suite.name].by_category for result in each.results.values()]
            known = [categories for categories in scores if categories]
            if known and len(known) == len(scores):
                means = {name: float(np.mean([categories[name] for categories in known])) for name in known[0]}
                found.setdefault(suite.name, {})[each.name] = means
    return found


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names of the points that no other one beats in both numbers, by the first of them; lower is better."""
    best, found = math.inf, []
    for name, (_, value) in sorted(points.items(), key=lambda each: each[1]):
        if value < best:
            best = value
            found.append(name)
    return found
