"""From a plan to what a job needs: rows with complete recipes, their sizes solved for, and everything checked before training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqloom.comparison.folder import slug
from seqloom.comparison.plan import (
    BESIDE,
    JointConfig,
    PlanConfig,
    RowConfig,
    TaskConfig,
    budget_of,
    row_name,
    task_name,
    tokens_of,
)
from seqloom.comparison.records import Row
from seqloom.comparison.search import Range, illegal_values, row_ranges
from seqloom.comparison.solve import describe_unscaled, solve_size
from seqloom.errors import DataError, UsageError
from seqloom.models import model_class
from seqloom.objectives import objective_class
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.corpus import Corpus, held_out_text
from seqloom.runs.examples import LabelledFiles, watched_metric
from seqloom.runs.training import files_of
from seqloom.runs.transfer_recipe import recipe_with
from seqloom.tasks import task_class
from seqloom.weights import shapes_only

Examples = dict[tuple[str, str], list[Any]]  # the training examples of a task, by its name and the hash of a tokenizer


def resolve_rows(plan: PlanConfig, folders: dict[tuple[str, int | None], Path], together: bool = True) -> list[Row]:
    """Rows with complete recipes, their sizes solved for where the plan asks for it. folders: the prepared text of each
    vocabulary. together: all widths of a model are scaled."""
    found, wrong = [], []
    read: Examples = {}
    for row in plan.rows:
        data = folders[tokens_of(plan, row)]
        try:
            found.append(resolve_row(plan, row, data, read, together))
        except UsageError as error:
            wrong.append(f"row {row_name(row)!r}: {error}")
    if wrong:
        raise UsageError("; ".join(wrong))
    return found


def resolve_row(plan: PlanConfig, row: RowConfig, data: Path, read: Examples, together: bool) -> Row:
    recipe = find_recipe(row.recipe, [*plan.settings, *row.settings])
    values = recipe.model_dump() | {"budget": budget_of(plan).model_dump()}
    values["train"]["milestones"] = bool(plan.milestones)
    recipe = build_recipe(values, row.recipe)
    text = Corpus.open(recipe, data)
    budget = recipe.budget.resolve(text)
    least = 1 if recipe.count_based else recipe.batches.tokens
    if budget.tokens < least:
        raise UsageError(
            f"the budget of {budget.tokens:,.0f} tokens is smaller than one batch of {least:,}: raise it, or lower "
            f"batches.budget or batches.streams"
        )
    try:
        text.batches(budget.tokens / text.num_tokens)
        check_held_out(text)
    except DataError as error:
        raise DataError(f"row {row_name(row)!r}: {error}") from error
    for task in plan.tasks:
        check_task(task, recipe, text, read)
    solution, wanted = "", {}
    if plan.parameters is not None:
        wanted = {"parameters": plan.parameters}
    elif plan.budget.flops is not None and budget.tokens != float("inf"):
        wanted = {"flops": plan.budget.flops, "tokens": budget.tokens}
    before = recipe
    if wanted:
        recipe, solution = solve_size(recipe, text, row.grow, plan.tolerance, together=together, **wanted)
    ranges = search_ranges(plan, row, recipe, text)
    return Row(
        name=row_name(row),
        recipe=recipe,
        data=str(data),
        fingerprint=text.fingerprint,
        solved=solution,
        ungrown=describe_unscaled(before, recipe),
        place=slug(row_name(row)),
        search={name: (*each.values, *([each.scale] if each.scale else [])) for name, each in ranges.items()},
        narrowed=describe_narrowed(plan, ranges) if ranges else "",
        joint=JointConfig() if row.joint is True else row.joint or None,
    )


def search_ranges(plan: PlanConfig, row: RowConfig, recipe: Recipe, text: Corpus) -> dict[str, Range]:
    """The ranges of a row, every value of which its recipe takes; none where nothing is searched for. A count-based row has no
    settings to train with."""
    if plan.search is None or recipe.count_based:
        return {}
    if not text.validates:
        raise DataError(f"row {row_name(row)!r}: a search chooses by the valid split, and {text.first.folder} has none")
    ranges = row_ranges(plan.search, row.search)
    wrong = list(illegal_values(recipe, ranges, row.recipe))
    if wrong:
        raise UsageError("search: " + "; ".join(wrong))
    return ranges


def describe_narrowed(plan: PlanConfig, ranges: Mapping[str, Range]) -> str:
    assert plan.search is not None
    found = []
    for name, each in plan.search.ranges().items():
        if name not in ranges:
            found.append(f"{name} was not searched")
        elif ranges[name] != each:
            found.append(f"{name} from {ranges[name]}, not from {each}")
    return "; ".join(found)


def check_held_out(text: Corpus) -> None:
    """Objectives over pairs of sentences reject held-out text that has none, as they do training text."""
    if text.recipe.batches.kind != "passages":
        return
    form = objective_class(text.recipe.learns).form
    for name in text.first.splits:
        split = text.first.split(name)
        if name == "train" or not split.num_documents:
            continue
        try:
            for each in {form, "single"}:
                held_out_text(text.recipe, split, text.tokenizer, None).passages(each)
        except DataError as error:
            raise DataError(f"{text.first.folder}, its {name} split: {error}") from error


def check_task(task: TaskConfig, row: Recipe, text: Corpus, read: Examples) -> None:
    """Find what is wrong with a task before any row is trained. A model that does not fit the task has no score for it. read: the
    examples that were read for earlier rows, which are shared by rows with one tokenizer."""
    cls: Any = task_class(task.task)
    if not cls.fits(model_class(row.model["name"])):
        return
    if task.how == BESIDE:  # another model learns it, and `plan` has checked that
        return
    source = f"task {task_name(task)!r}"
    recipe = recipe_with(row, task.task, task.how, task.settings, source, text.first.backward)
    watched_metric(recipe, bool(task.valid))
    key = task_name(task), text.tokenizer.hash
    if key not in read:
        files = files_of(train=task.train, valid=task.valid, test=task.test)
        read[key] = LabelledFiles(recipe, files, text.tokenizer).examples["train"]
    with shapes_only():
        whole = cls.configure(recipe.task, read[key])
        recipe.model_copy(update={"tasks": (whole,)}).learner(text.vocab_size)
