"""What a reader must know before believing a difference, computed from the plan and the results; and what was held fixed.

Every caveat is a function of what was found. It returns its sentences, none where it does not apply.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from seqloom.comparison.measured import MeasuredRow, measure_of
from seqloom.comparison.measurement import carries_over, common_context, own_context
from seqloom.comparison.metric import Metric
from seqloom.comparison.records import DOCUMENTS, ResolvedPlan, Row
from seqloom.comparison.text_measure import NAMES
from seqloom.comparison.tuning import RowSearch
from seqloom.config import flatten
from seqloom.evaluate.suites import SUITES
from seqloom.runs.folder import numeric_settings, plain

UNEQUAL = 1.05  # costs whose ratio is larger are not equal
WORSE = 0.15  # nats a target: seeds differ by less, and the chosen trial was a lucky one

Failures = Mapping[str, tuple[int, str]]  # exit codes and reasons, by job


class Findings(NamedTuple):
    rows: Sequence[MeasuredRow]
    plan: ResolvedPlan
    costs: Mapping[str, Mapping[str, float]]  # by row
    failures: Failures
    metrics: Sequence[Metric]
    empty_metrics: Sequence[Metric]  # that no row has
    searches: Mapping[str, RowSearch] = {}  # of rows whose settings were searched for

    @property
    def trained(self) -> list[MeasuredRow]:
        return [each for each in self.rows if not each.row.is_count_based]


def find_caveats(found: Findings) -> list[str]:
    return [line for caveat in CAVEATS for line in caveat(found)]


def failed_jobs(found: Findings) -> list[str]:
    lines = [f"{name} failed: {reason}" for name, (_, reason) in found.failures.items()]
    there = {f"{each.name}, seed {seed}" for each in found.rows for seed in each.results} | found.failures.keys()
    every = [f"{row.name}, seed {seed}" for row in found.plan.rows for seed in found.plan.seeds]
    lacking = [name for name in every if name not in there]
    return lines + ([f"no result yet: {'; '.join(lacking)}"] if lacking else [])


def unfinished_seeds(found: Findings) -> list[str]:
    few = [each.name for each in found.rows if len(each.results) < len(found.plan.seeds)]
    return [f"not all seeds are finished for: {', '.join(few)}"] if few else []


def single_seed(found: Findings) -> list[str]:
    if all(len(each.results) > 1 for each in found.trained):
        return []
    return ["one seed: nothing can be concluded from differences between rows, however large they look"]


def no_test_split(found: Findings) -> list[str]:
    if all(result.held_out.split != "valid" for each in found.rows for result in each.results.values()):
        return []
    return ["the text has no test split: rows are measured on the valid split, which also chose their weights"]


def different_tokenizers(found: Findings) -> list[str]:
    if len({each.run.tokenizer for each in found.rows}) < 2:
        return []
    return ["tokenizers differ: losses per token cannot be compared across them, bits per byte can"]


def unequal_costs(found: Findings) -> list[str]:
    lines = []
    for name in ("parameters", "tokens", "words"):
        rows = found.trained if name == "parameters" else found.rows
        values = {each.name: found.costs[each.name][name] for each in rows}
        if values and max(values.values()) > UNEQUAL * max(min(values.values()), 1e-9):
            shown = ", ".join(f"{row} {value:,.0f}" for row, value in values.items())
            lines.append(f"{name} could not be held fixed: {shown}")
    return lines


def count_based_sizes(found: Findings) -> list[str]:
    counting = [each.name for each in found.rows if each.row.is_count_based]
    return [f"{name} is count-based: its size is the number of n-grams in the text" for name in counting]


def unscaled_widths(found: Findings) -> list[str]:
    return [f"{each.name}: {each.row.ungrown}" for each in found.rows if each.row.ungrown]


def different_definitions(found: Findings) -> list[str]:
    rows_by_definition: dict[str, list[str]] = {}
    for each in found.rows:
        rows_by_definition.setdefault(each.first.definition, []).append(each.name)
    if len(rows_by_definition) < 2:
        return []
    shown = "; ".join(f"{definition}: {', '.join(names)}" for definition, names in rows_by_definition.items())
    return [f"each model scores sentences by what it has learnt: {shown}"]


def different_contexts(found: Findings) -> list[str]:
    rows = [each.row for each in found.rows]
    common = common_context(rows)
    lines = []
    if common is not None:
        measure = measure_of(found.rows)
        own = {row.name: own_context(row) for row in rows if row.objective_class.has_next_word}
        shown = ", ".join(
            f"{name} {'whole documents' if context is None else f'{context:,} tokens'}" for name, context in own.items()
        )
        lines.append(
            f"{measure.name} are at each row's own context ({shown}); '{measure.at(common)}' are at the same for all"
        )
    carried = [row.name for row in rows if carries_over(row)]
    if carried and len(carried) < len(rows):
        lines.append(
            f"the state of {', '.join(carried)} was carried from document to document in training, and so it is in measuring; "
            f"other rows begin every document anew"
        )
    return lines


def late_questions(found: Findings) -> list[str]:
    late = [question.name for question in found.plan.questions if question.late]
    if not late:
        return []
    return [f"asked after there were results, perhaps because something stood out: {'; '.join(late)}"]


def unequal_search(found: Findings) -> list[str]:
    """What was tuned, and what of that was not alike."""
    search, trained = found.plan.search, found.trained
    if search is None:
        return ["settings were not tuned, which may favour some rows"] if len(trained) > 1 else []
    lines = []
    if search.finalists:
        lines.append(
            f"settings were chosen by the {search.finalists} best trials with {search.budget:.3g} of the budget, run again with "
            f"all of it: what only a long run gains from was not found"
        )
    elif search.budget < 1:
        lines.append(
            f"settings were chosen by trials with {search.budget:.3g} of the budget, and steps of warm-up as they are: what is "
            f"best for a short run may not be best for a long one"
        )
    if search.method in ("random", "halving"):
        lines.append(
            f"that another search would have found other settings is in the intervals of {measure_of(found.rows).name} and "
            f"masked perplexity, not in those of suites and tasks"
        )
    else:
        lines.append(f"rows are compared as this search ({search.method}) tunes them: its luck is in no interval")
    without = [each.name for each in found.rows if not each.row.search]
    if without:
        lines.append(f"settings were not searched for, as there are none to train with: {', '.join(without)}")
    lines += [
        f"{each.name} was searched in narrower ranges: {each.row.narrowed}" for each in trained if each.row.narrowed
    ]
    for name, each in found.searches.items():
        lines += [f"{name}: {edge}: a wider range may have a better one" for edge in each.edges]
        failed = sum(1 for one in each.trials if one.result.valid_loss is None)
        if failed:
            lines.append(f"{name}: {failed} of {len(each.trials)} trials broke off, their numbers not finite")
    return lines


def broken_settings(found: Findings) -> list[str]:
    """Runs that ended worse than the shorter trial that their settings were chosen by."""
    lines = []
    for each in found.trained:
        search = found.searches.get(each.name)
        if search is None or search.chosen is None:
            continue
        before = search.chosen.result.score
        worse = {seed: one.metrics.valid_loss for seed, one in each.results.items()}
        shown = [
            f"seed {seed}: {loss:.4g}" for seed, loss in worse.items() if loss is not None and loss > before + WORSE
        ]
        if shown:
            lines.append(
                f"{each.name} ended with a higher validation loss than the trial that its settings were chosen by "
                f"({', '.join(shown)}; the trial: {before:.4g}): they are at the edge of what is stable, and the row is not tuned"
            )
    return lines


def untuned_transfer(found: Findings) -> list[str]:
    """Tasks have settings too, the same for all rows, which may suit one row better than another."""
    lines = []
    for task in found.plan.tasks:
        settings = ", ".join(task.settings) or "the defaults of the task"
        how = task.how if task.recipe is None else f"{task.how} {task.recipe}"
        lines.append(f"{task.name}: all rows were transferred with {settings} ({how}), which were not searched for")
    return lines


def learnt_together(found: Findings) -> list[str]:
    """Rows that learn all tasks on one body differ from others in more than that."""
    joint = [each.name for each in found.rows if each.row.joint is not None]
    if not joint:
        return []
    return [
        f"{', '.join(joint)}: all tasks were learnt in one run, whose weights were chosen by {found.plan.tasks[0].name}, if it "
        f"has validation files; other rows have a run, and a choice, for each task"
    ]


def uncorrected_metrics(found: Findings) -> list[str]:
    if len(found.metrics) < 2 or len(found.rows) < 2:
        return []
    return [
        f"p values are corrected within each metric, not across the {len(found.metrics)} metrics: with more metrics a difference "
        f"by chance in one of them is more likely"
    ]


def different_settings(found: Findings) -> list[str]:
    tables = {each.name: training_settings(each.row) for each in found.trained}
    lines = []
    for key in dict.fromkeys(key for table in tables.values() for key in table):
        searched = [each.name for each in found.trained if key in each.row.search]
        if len(searched) == len(found.trained):
            values = ", ".join(f"{name} {table[key]}" for name, table in tables.items())
            lines.append(f"{key} was searched for each row, and chosen: {values}")
            continue
        chosen = {name: table[key] for name, table in tables.items() if key in table}
        if len({json.dumps(value) for value in chosen.values()}) > 1:
            lines.append(f"{key} differs: {', '.join(f'{name} {value}' for name, value in chosen.items())}")
    return lines


def metrics_without_rows(found: Findings) -> list[str]:
    asked = [metric for metric in found.empty_metrics if metric.name not in NAMES]
    return [f"no row has {each.name}: {reason}" for each in asked for reason in dict.fromkeys(each.missing.values())]


def intervals_without_items(found: Findings) -> list[str]:
    """Intervals that could cover more than they do."""
    lines = []
    rows = {each.name: each for each in found.rows}
    for metric in found.metrics:
        if metric.name.startswith(NAMES) and next(iter(metric.values.values())).ndim == 1:
            old = [row for row in metric.values if not has_documents(rows[row])]
            why = f"{', '.join(old)} measured by an earlier version, without single documents" if old else ""
            why = why or "it has fewer than two documents"
            lines.append(f"intervals of {metric.name} are for other seeds on the same text only: {why}")
        if metric.name in SUITES and SUITES[metric.name].sets is not None and metric.sets is None:
            lines.append(
                f"intervals of {metric.name} treat its items as independent: the file that groups them into sets is missing"
            )
    return lines


def has_documents(row: MeasuredRow) -> bool:
    return all(f"{DOCUMENTS}.{measure_of([row]).total}" in each for each in row.items.values())


CAVEATS: tuple[Callable[[Findings], list[str]], ...] = (
    failed_jobs,
    unfinished_seeds,
    single_seed,
    no_test_split,
    different_tokenizers,
    unequal_costs,
    count_based_sizes,
    unscaled_widths,
    different_definitions,
    different_contexts,
    late_questions,
    unequal_search,
    broken_settings,
    untuned_transfer,
    learnt_together,
    uncorrected_metrics,
    different_settings,
    metrics_without_rows,
    intervals_without_items,
)


# ---- what was held fixed


def training_settings(row: Row) -> dict[str, object]:
    """What decides a training beside the model and its objective; nothing for count-based models."""
    if row.is_count_based:
        return {}
    batches, train = row.recipe.batches, numeric_settings(plain(row.recipe.model_dump()))["train"]
    found: dict[str, object] = {"batches.kind": batches.kind, "batches.length": batches.length}
    found["tokens per step"] = batches.tokens * train["accumulate"]
    if batches.short:
        found |= {"batches.short": batches.short, "batches.short_share": batches.short_share}
    return found | flatten({name: value for name, value in train.items() if name != "log_every"}, "train.")


def find_fixed(rows: Iterable[MeasuredRow], plan: ResolvedPlan) -> list[str]:
    rows = list(rows)
    budget = ", ".join(f"{value:,.6g} {name}" for name, value in plan.budget.items())
    found = [f"budget: {budget}", f"seeds: {', '.join(map(str, plan.seeds))}"]
    if plan.parameters is not None:
        sizes = "; ".join(f"{each.name}: {each.row.solved}" for each in rows)
        found.append(f"parameters: {plan.parameters:,.0f} ({sizes})")
    if len({each.run.data.fingerprint for each in rows}) == 1:
        found.append("the text and its tokens")
    tables = [training_settings(each.row) for each in rows if not each.row.is_count_based]
    if tables:
        same = [key for key in tables[0] if all(key in table and table[key] == tables[0][key] for table in tables)]
        found += [f"{key} = {tables[0][key]}" for key in same if tables[0][key] is not None]
    return found
