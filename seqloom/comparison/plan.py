"""A plan: rows that differ in what is compared, and everything else that is held fixed.

    name = "recurrence or attention"
    seeds = 3
    parameters = 1e6                      # sizes are solved for; leave it out to take them as the recipes have them
    settings = ["batches.length=64"]      # of every row

    [text]
    files = ["corpus.jsonl"]              # or built_in = true, or prepared = "data"
    vocab_size = 4096

    [budget]
    words = 2e6                           # or tokens, epochs, minutes, flops; tokens and flops: sizes are solved for

    [[rows]]
    recipe = "lstm-tiny"
    [[rows]]
    recipe = "gpt2-tiny"
    settings = ["train.optim.lr=1e-3"]

    [[questions]]                         # what is asked before anything is seen need not be found among all pairs of rows
    name = "Recurrence or attention?"
    rows = ["lstm-tiny", "gpt2-tiny"]

    [suites]
    blimp = "blimp.jsonl"

    [[tasks]]
    task = "classify"
    train = ["train.jsonl"]
    test = ["test.jsonl"]                 # valid = [...]: the best weights are chosen there; without it the last ones are taken

Files are named from where the plan is. A plan is read, checked and resolved into rows with whole recipes before anything is
trained; what it resolves to is plan.json, which is all that a job needs.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from seqloom.comparison.solve import solved, ungrown
from seqloom.config import Config, build, read_toml, unknown_name
from seqloom.errors import DataError, SeqloomError, UsageError
from seqloom.evaluate.suites import SUITES
from seqloom.models import model_class
from seqloom.objectives import objective_class
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import BudgetConfig, Recipe, build_recipe
from seqloom.runs.corpus import Prepared, held_out_passages
from seqloom.runs.examples import LabelledTexts, watched
from seqloom.runs.training import HOWS, files_of, recipe_with
from seqloom.tasks import TASKS, task_class
from seqloom.tokens.learn import check_options
from seqloom.weights import shapes_only

ENDS = ("tokens", "words", "epochs", "minutes", "flops")  # a number of steps is another text for every size of batch
MOST = {"tokens": 1e15, "words": 1e15, "epochs": 1e6, "minutes": 1e7, "flops": 1e30}  # of a budget: more is a slip
MOST_SEEDS = 1000
MOST_PARAMETERS = 1e12


class TextConfig(Config):
    """What all rows learn from. split_field: where documents say themselves which part they belong to."""

    files: tuple[str, ...] = ()
    built_in: bool = False
    prepared: str | None = None
    tokenizer: str = "bpe"
    vocab_size: int | None = Field(None, gt=0)
    lowercase: bool = False
    valid: float = Field(0.05, gt=0, lt=0.5)
    test: float = Field(0.05, gt=0, lt=0.5)
    split_field: str | None = None

    @model_validator(mode="after")
    def one_source(self) -> "TextConfig":
        if bool(self.files) + self.built_in + (self.prepared is not None) != 1:
            raise ValueError("give one of files, built_in and prepared")
        return self


class RowConfig(Config):
    """grow: what is made larger or smaller when the sizes of rows are to be equal."""

    recipe: str
    name: str | None = Field(None, min_length=1, max_length=100)
    settings: tuple[str, ...] = ()
    tokenizer: str | None = None
    vocab_size: int | None = Field(None, gt=0)
    grow: str = "dim"


PARTS = ("train", "valid", "test")  # of the files of a task


class TaskConfig(Config):
    """What rows are to learn once they are trained. valid: by which the best weights are chosen; without it the last ones are
    taken."""

    task: str
    train: tuple[str, ...] = Field(min_length=1)
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = Field(min_length=1)
    name: str | None = None
    how: str = "finetune"
    settings: tuple[str, ...] = ()


class QuestionConfig(Config):
    """Two rows that are to be told apart, if they can be: corrected for the other questions, not for all pairs of rows."""

    name: str = Field(min_length=1, max_length=200)
    rows: tuple[str, str]


class PriceConfig(Config):
    """What an hour of the machine costs."""

    hour: float = Field(gt=0)
    currency: str = Field("USD", min_length=1, max_length=8)


class PlanConfig(Config):
    name: str = Field(min_length=1, max_length=200)
    text: TextConfig
    budget: BudgetConfig
    rows: tuple[RowConfig, ...] = Field(min_length=1)
    seeds: int | tuple[int, ...] = Field(3, description="how many, or which")
    parameters: float | None = Field(None, gt=0, le=MOST_PARAMETERS)
    tolerance: float = Field(0.05, gt=0, lt=1, description="by which solved sizes may miss what they should be")
    settings: tuple[str, ...] = ()
    suites: dict[str, str] = {}  # noqa: RUF012
    pairs: int = Field(0, ge=0, description="minimal pairs that are made from held-out text, of each kind")
    tasks: tuple[TaskConfig, ...] = ()
    questions: tuple[QuestionConfig, ...] = ()
    milestones: bool | tuple[str, ...] = Field(
        False, description="weights at round numbers of words are kept, and measured by all suites or by these"
    )
    price: PriceConfig | None = None
    prompt: str = "The "

    @model_validator(mode="after")
    def ends(self) -> "PlanConfig":
        given = self.budget.model_dump(exclude_none=True)
        if "steps" in given:
            raise ValueError(f"budget.steps is no equal budget, as batches differ: use {', '.join(ENDS)}")
        if len(given) > 1 and not (
            "flops" in given and len(given) == 2 and given.keys() & {"tokens", "words", "epochs"}
        ):
            raise ValueError(
                "the budget has one end; of flops and tokens, words or epochs together the sizes are solved for"
            )
        if len(given) == 2 and self.parameters is not None:
            raise ValueError("sizes are solved for equal parameters or for equal flops: leave one of them out")
        for end, value in given.items():
            if value > MOST[end]:
                raise ValueError(
                    f"budget.{end} = {value:g} is more than {MOST[end]:g}, which no run will end: lower it"
                )
        many = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        if many > MOST_SEEDS:  # before they are written out
            raise ValueError(f"seeds: {many:,} of them are more than {MOST_SEEDS:,}: give fewer")
        chosen = self.chosen_seeds()
        if not chosen or len(set(chosen)) != len(chosen) or min(chosen) < 0:
            raise ValueError("seeds: a number of them, or different numbers of 0 and more")
        return self

    def chosen_seeds(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    def suite_names(self) -> list[str]:
        return [*self.suites, *(["pairs"] if self.pairs else [])]

    def milestone_suites(self) -> list[str]:
        if isinstance(self.milestones, bool):
            return self.suite_names() if self.milestones else []
        return list(self.milestones)


class Row(NamedTuple):
    """One model of the comparison, wholly decided but for its seed."""

    name: str
    recipe: dict[str, Any]
    data: str  # the prepared folder
    fingerprint: str  # of what is in there
    solved: str = ""  # what was solved for, in words
    ungrown: str = ""  # what did not grow with it

    @property
    def place(self) -> str:
        return slug(self.name)


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "row"


def read_plan(path: Path) -> PlanConfig:
    """With every file in it named as seen from here."""
    values = read_toml(path)
    plan = build(PlanConfig, values, source=str(path))
    check(plan, str(path))
    return anchored(plan, path.parent)


def anchored(plan: PlanConfig, folder: Path) -> PlanConfig:
    def seen(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(str(folder / name) for name in names)

    text = plan.text.model_copy(
        update={
            "files": seen(plan.text.files),
            "prepared": plan.text.prepared and str(folder / plan.text.prepared),
        }
    )
    tasks = tuple(each.model_copy(update={split: seen(getattr(each, split)) for split in PARTS}) for each in plan.tasks)
    rows = tuple(
        row.model_copy(update={"recipe": str(folder / row.recipe)}) if row.recipe.endswith(".toml") else row
        for row in plan.rows
    )
    suites = {name: str(folder / where) for name, where in plan.suites.items()}
    return plan.model_copy(update={"text": text, "tasks": tasks, "suites": suites, "rows": rows})


def check(plan: PlanConfig, source: str) -> None:
    """Everything that can be known without the text, all of it at once."""
    found: list[str] = []
    names = [row_name(row) for row in plan.rows]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(f"two rows are called {name!r}: give them names (name = …)")
    places = [slug(name) for name in dict.fromkeys(names)]
    if len(set(places)) < len(places):
        found.append("two rows have names that differ in signs only: give them other names")
    for row in plan.rows:
        if row.recipe.endswith(".toml"):
            continue  # found when it is read, from where the plan is
        try:
            recipe = find_recipe(row.recipe, [*plan.settings, *row.settings])
            if recipe.task is not None:
                raise UsageError(f"{row.recipe} learns from labelled examples: rows learn from plain text")
        except SeqloomError as error:
            found.append(f"row {row_name(row)!r}: {error}")
        if plan.text.prepared is not None and (row.tokenizer is not None or row.vocab_size is not None):
            found.append(
                f"row {row_name(row)!r}: a prepared text has its tokenizer: give [text] files, or leave it out"
            )
    for kind, size in {tokens_of(plan, row) for row in plan.rows}:
        try:
            check_options(kind, size, None)
        except SeqloomError as error:
            found.append(str(error))
    for name in plan.suites:
        if name not in SUITES:
            found.append(f"unknown suite {name!r} (known: {', '.join(SUITES)})")
    for name in plan.milestone_suites():
        if name not in plan.suite_names():
            found.append(
                f"milestones: there is no suite {name!r} in this plan ({', '.join(plan.suite_names()) or 'none'})"
            )
    for task in plan.tasks:
        if task.task not in TASKS or task_class(task.task).reads != "labelled":
            known = [name for name in TASKS if task_class(name).reads == "labelled"]
            found.append(f"unknown task {task.task!r} to transfer to (known: {', '.join(known)})")
        if task.how not in HOWS:
            found.append(f"task {task.task!r}: unknown how {task.how!r} (known: {', '.join(HOWS)})")
    for question in plan.questions:
        for name in question.rows:
            if name not in names:
                found.append(f"question {question.name!r}: {unknown_name('row', name, name, names)}")
        if question.rows[0] == question.rows[1]:
            found.append(f"question {question.name!r} asks about one row twice: give two")
    asked = [frozenset(question.rows) for question in plan.questions]
    if len(set(asked)) < len(asked):
        found.append(
            "two questions are about the same rows: give one, for every question makes all others harder to answer"
        )
    if len({question.name for question in plan.questions}) < len(plan.questions):
        found.append("two questions are called the same: give them other names")
    titles = [task_name(task) for task in plan.tasks]
    if len(set(titles)) < len(titles):
        found.append("two tasks are called the same: give them names (name = …)")
    if found:
        raise UsageError(f"{source}: " + "; ".join(found))


def check_files(plan: PlanConfig) -> None:
    """What a plan names must be there, and suites must be what they should be, before anything is trained."""
    named = {f"suites.{name}": [where] for name, where in plan.suites.items()}
    named |= {f"text.files[{i}]": [name] for i, name in enumerate(plan.text.files)}
    for task in plan.tasks:
        named[f"the task {task_name(task)!r}"] = [*task.train, *task.valid, *task.test]
    missing = [f"{place}: {name}" for place, names in named.items() for name in names if not Path(name).exists()]
    if missing:
        raise UsageError(f"no such file: {'; '.join(missing)} (files are named from where the plan is)")
    for name, where in plan.suites.items():
        SUITES[name].read(Path(where))


def row_name(row: RowConfig) -> str:
    return row.name or Path(row.recipe).stem


def task_name(task: TaskConfig) -> str:
    return task.name or task.task


def tokens_of(plan: PlanConfig, row: RowConfig) -> tuple[str, int | None]:
    """The kind and size of a row's vocabulary."""
    kind = row.tokenizer or plan.text.tokenizer
    size = row.vocab_size or (plan.text.vocab_size if kind == plan.text.tokenizer else None)
    return kind, size


def budget_of(plan: PlanConfig) -> BudgetConfig:
    """Of a run: where sizes are solved so that its text costs so many operations, the text is its end."""
    given = plan.budget.model_dump(exclude_none=True)
    return plan.budget if len(given) == 1 else plan.budget.model_copy(update={"flops": None})


Examples = dict[tuple[str, str], list[Any]]  # that a task is learnt from, by its name and the hash of a tokenizer


def resolve(plan: PlanConfig, folders: dict[tuple[str, int | None], Path], together: bool = True) -> list[Row]:
    """Rows with whole recipes, their sizes solved where that is asked for. folders: the prepared text of each vocabulary.
    together: all widths of a model grow."""
    found, wrong = [], []
    read: Examples = {}
    for row in plan.rows:
        data = folders[tokens_of(plan, row)]
        try:
            found.append(resolved(plan, row, data, read, together))
        except UsageError as error:
            wrong.append(f"row {row_name(row)!r}: {error}")
    if wrong:
        raise UsageError("; ".join(wrong))
    return found


def resolved(plan: PlanConfig, row: RowConfig, data: Path, read: Examples, together: bool) -> Row:
    recipe = find_recipe(row.recipe, [*plan.settings, *row.settings])
    values = recipe.model_dump() | {"budget": budget_of(plan).model_dump()}
    values["train"]["milestones"] = bool(plan.milestones)
    recipe = build_recipe(values, row.recipe)
    text = Prepared.open(recipe, data)
    budget = recipe.budget.resolve(text)
    least = 1 if recipe.learns == "counts" else recipe.batches.tokens
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
    told, wanted = "", {}
    if plan.parameters is not None:
        wanted = {"parameters": plan.parameters}
    elif plan.budget.flops is not None and budget.tokens != float("inf"):
        wanted = {"flops": plan.budget.flops, "tokens": budget.tokens}
    before = recipe
    if wanted:
        recipe, told = solved(recipe, text, row.grow, plan.tolerance, together=together, **wanted)
    return Row(row_name(row), recipe.model_dump(), str(data), text.fingerprint, told, ungrown(before, recipe))


def check_held_out(text: Prepared) -> None:
    """Objectives over pairs of sentences refuse text that has none, in what they are measured on, too."""
    if text.recipe.batches.kind != "passages":
        return
    form = objective_class(text.recipe.learns).form
    for name in text.first.splits:
        split = text.first.split(name)
        if name == "train" or not split.num_documents:
            continue
        try:
            held_out_passages(text.recipe, form, split, text.tokenizer, None)
        except DataError as error:
            raise DataError(f"{text.first.folder}, its {name} split: {error}") from error


def check_task(task: TaskConfig, row: Recipe, text: Prepared, read: Examples) -> None:
    """What is wrong with a task is found before any row is trained. A model that it is not for has no figure of it. read: what
    was read for rows before, for files are the same for all that have one tokenizer."""
    cls: Any = task_class(task.task)
    if not cls.fits(model_class(row.model["name"])):
        return
    source = f"task {task_name(task)!r}"
    recipe = recipe_with(row, task.task, task.how, task.settings, source, text.first.backward)
    watched(recipe, bool(task.valid))
    key = task_name(task), text.tokenizer.hash
    if key not in read:
        files = files_of(train=task.train, valid=task.valid, test=task.test)
        read[key] = LabelledTexts(recipe, files, text.tokenizer).examples["train"]
    with shapes_only():
        whole = cls.survey(read[key]) | recipe.task
        recipe.model_copy(update={"task": whole}).learner(text.vocab_size)
