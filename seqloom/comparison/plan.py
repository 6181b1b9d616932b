"""A plan: the rows to compare, and everything else that is held fixed.

    name = "recurrence or attention"
    seeds = 3
    parameters = 1e6                      # sizes are solved for; leave it out to take them as the recipes have them
    settings = ["batches.length=64"]      # for every row

    [text]
    files = ["corpus.jsonl"]              # or built_in = true, or prepared = "data"
    vocab_size = 4096

    [budget]
    words = 2e6                           # or tokens, epochs, minutes, flops; with flops and tokens sizes are solved for

    [ladder]                              # instead of [budget]: one comparison at each budget, and fits over them
    words = [5e5, 1.5e6, 5e6]             # or tokens, epochs, flops
    passes = [1, 3, 10]                   # with words: how often each of these texts is read; leave it out to read it once
    predict = [1.7e7]                     # predicted from the others before it is run

    [search]                              # of the settings of every row, see `search`; leave it out to search for none
    trials = 8
    settings = {train.optim.lr = [1e-4, 3e-3, "log"]}

    [[rows]]
    recipe = "lstm-tiny"
    [[rows]]
    recipe = "gpt2-tiny"
    settings = ["model.num_layers=2"]

    [[questions]]                         # asked before any result is seen, and corrected for the other questions alone
    name = "Recurrence or attention?"
    rows = ["lstm-tiny", "gpt2-tiny"]

    [suites]
    blimp = "blimp.jsonl"

    [[tasks]]
    task = "classify"
    train = ["train.jsonl"]
    test = ["test.jsonl"]                 # valid = [...] chooses the best weights; without it the last ones are taken

A row with `joint = true` (or `joint = {smoothing = 0.5, weights = {chunks = 0.5}}`) learns all tasks on one body.
Paths are relative to the plan. A plan is read, checked and resolved into rows with complete recipes (`resolve`) before anything
is trained.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from seqloom.comparison.folder import slug
from seqloom.comparison.search import FIRST_SEED, SearchConfig, conflicts, row_ranges
from seqloom.config import Config, build, problems, read_toml, unknown_name
from seqloom.errors import SeqloomError, UsageError
from seqloom.evaluate.suites import SUITES
from seqloom.models import model_class
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import BudgetConfig, Recipe, task_settings
from seqloom.runs.transfer_recipe import HOWS, check_task
from seqloom.tasks import TASKS, task_class
from seqloom.tasks.transfer import check_beside, make_room
from seqloom.text.music import is_music
from seqloom.text.survey import SPLITS
from seqloom.tokens.learn import check_options
from seqloom.weights import shapes_only

ENDS = ("tokens", "words", "epochs", "minutes", "flops")  # a number of steps is another text for every size of batch
MOST = {"tokens": 1e15, "words": 1e15, "epochs": 1e6, "minutes": 1e7, "flops": 1e30}  # a larger budget is a typo
LADDER_UNITS = ("words", "tokens", "epochs", "flops")
MOST_BUDGETS = 20
MOST_SEEDS = 1000
MOST_PARAMETERS = 1e12
BESIDE = "beside"  # how a task is learnt by another model, with features of the row


class TextConfig(Config):
    """What all rows learn from."""

    files: tuple[str, ...] = Field((), description="Text files to prepare, relative to the plan.")
    built_in: bool = Field(False, description="Use the text that ships with Python.")
    prepared: str | None = Field(None, description="Folder made by seqloom prepare, in place of files.")
    tokenizer: str = Field(
        "bpe", description="Kind of tokenizer: bpe, wordpiece, unigram, word, char or byte; of songs events or grid."
    )
    vocab_size: int | None = Field(
        None, gt=0, description="Size of the vocabulary; the tokenizer's default unless it is given."
    )
    lowercase: bool = Field(False, description="Convert all text to lower case.")
    words: float | None = Field(
        None,
        gt=0,
        description="Words of training text to use, in whole documents chosen at random; all unless it is given.",
    )
    valid: float = Field(0.05, gt=0, lt=0.5, description="Fraction of the text held out for validation.")
    test: float = Field(0.05, gt=0, lt=0.5, description="Fraction of the text held out for the test.")
    split_field: str | None = Field(None, description="Field of each document that names its split.")

    @model_validator(mode="after")
    def one_source(self) -> "TextConfig":
        if bool(self.files) + self.built_in + (self.prepared is not None) != 1:
            raise ValueError("give one of files, built_in and prepared")
        return self


class JointConfig(Config):
    """How a row learns all tasks on one body."""

    smoothing: float = Field(
        1.0, ge=0, le=1, description="Exponent α: a task has steps in proportion to its examples to the power of α."
    )
    weights: dict[str, float] = Field(
        {}, description="Weight λ of the loss of tasks, by their names; 1 unless it is given, 0 leaves a task out."
    )


class RowConfig(Config):
    """One model of a comparison."""

    recipe: str = Field(description="Built-in recipe or TOML file of the row.")
    name: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Name of the row in the table; that of the recipe unless it is given.",
    )
    settings: tuple[str, ...] = Field((), description="Recipe settings of this row, as path=value.")
    tokenizer: str | None = Field(None, description="Kind of tokenizer of this row; that of [text] unless it is given.")
    vocab_size: int | None = Field(
        None, gt=0, description="Size of this row's vocabulary; that of [text] unless it is given."
    )
    joint: bool | JointConfig = Field(
        False,
        description="Learn all tasks of the plan on one body, in one run in place of one for each; by the first of them the best "
        "weights are chosen.",
    )
    grow: str = Field("dim", description="Key of [model] that is changed to make all rows the same size.")
    search: dict[str, Any] = Field(
        {},
        description="Narrower ranges than those of [search] for this row, or false for a setting that is not searched.",
    )


class TaskConfig(Config):
    """A task that trained rows are transferred to."""

    task: str = Field(description="Name of the task: classify, regress, pair, choose, tag or span.")
    train: tuple[str, ...] = Field(min_length=1, description="Files of training examples, relative to the plan.")
    valid: tuple[str, ...] = Field(
        (),
        description="Files of validation examples, by which the best weights are chosen; without them the last "
        "weights are taken.",
    )
    test: tuple[str, ...] = Field(min_length=1, description="Files of test examples.")
    name: str | None = Field(None, description="Name of the task in the table; task unless it is given.")
    how: str = Field(
        "finetune",
        description="What to train: finetune, features or gradual, as in finetune --how; or beside: another model, which reads "
        "features of the row, as in train --beside.",
    )
    recipe: str | None = Field(None, description='Built-in recipe of that other model, with how = "beside".')
    settings: tuple[str, ...] = Field((), description="Recipe settings of the task, as path=value.")


class QuestionConfig(Config):
    """Whether two rows differ significantly: corrected for the other questions, not for all pairs of rows."""

    name: str = Field(min_length=1, max_length=200, description="The question, as it is shown in the report.")
    rows: tuple[str, str] = Field(description="Names of the two rows that are compared.")


class Rung(NamedTuple):
    """One budget of a ladder."""

    budget: float
    passes: float | None = None  # over a text of so many words, where a ladder has both

    @property
    def key(self) -> "float | tuple[float, float]":
        return self.budget if self.passes is None else (self.budget, self.passes)


class LadderConfig(Config):
    """Budgets in one unit, each smaller than the next; then those that are predicted before they are run."""

    words: tuple[float, ...] = Field((), description="Budgets in words, from the smallest to the largest.")
    tokens: tuple[float, ...] = Field((), description="Budgets in tokens, from the smallest to the largest.")
    epochs: tuple[float, ...] = Field((), description="Budgets in epochs, from the smallest to the largest.")
    flops: tuple[float, ...] = Field(
        (), description="Budgets in floating-point operations, from the smallest to the largest."
    )
    predict: tuple[float, ...] = Field(
        (), description="Larger budgets that are predicted from the others before they are run."
    )
    passes: tuple[float, ...] = Field(
        (),
        description="With budgets in words: how often each text of so many words is read, from once to most; the smaller texts "
        "lie within the larger ones. Unless it is given, a budget is read once.",
    )

    @model_validator(mode="after")
    def rises(self) -> "LadderConfig":
        given = [unit for unit in LADDER_UNITS if getattr(self, unit)]
        if len(given) != 1:
            raise ValueError(f"give the budgets of a ladder in one unit: {', '.join(LADDER_UNITS)}")
        budgets = [*self.budgets, *self.predict]
        if len(self.budgets) < 2 or len(budgets) > MOST_BUDGETS:
            raise ValueError(f"a ladder has 2 to {MOST_BUDGETS} budgets, not {len(budgets)}")
        if self.predict and len(self.budgets) < 3:
            raise ValueError("predict: three budgets are needed to predict another one")
        if any(low >= high for low, high in itertools.pairwise([0.0, *budgets])):
            raise ValueError(
                f"budgets are given from the smallest to the largest, not {', '.join(f'{each:g}' for each in budgets)}"
            )
        if self.passes and self.unit != "words":
            raise ValueError(f"passes go with budgets in words, not in {self.unit}")
        if len(self.passes) > MOST_BUDGETS or any(low >= high for low, high in itertools.pairwise([0.0, *self.passes])):
            given = [f"{each:g}" for each in self.passes]
            raise ValueError(f"passes are up to {MOST_BUDGETS}, from the fewest to the most, not {', '.join(given)}")
        return self

    @property
    def unit(self) -> str:
        return next(unit for unit in LADDER_UNITS if getattr(self, unit))

    @property
    def budgets(self) -> tuple[float, ...]:
        found: tuple[float, ...] = getattr(self, self.unit)
        return found

    def rungs(self, budgets: Sequence[float]) -> list[Rung]:
        return [Rung(budget, passes) for budget in budgets for passes in (self.passes or (None,))]


class PriceConfig(Config):
    """The price of the machine, by the hour."""

    hour: float = Field(gt=0, description="Price of the machine for an hour.")
    currency: str = Field("USD", min_length=1, max_length=8, description="Currency of the price.")


class PlanConfig(Config):
    name: str = Field(
        min_length=1, max_length=200, description="Name of the comparison, shown as the title of the report."
    )
    text: TextConfig = Field(description="The text that all rows learn from.")
    budget: BudgetConfig = Field(
        description="Budget of every run: one of tokens, words, epochs, minutes and flops; "
        "or flops with one of the first three, and sizes are solved for equal operations."
    )
    ladder: LadderConfig | None = Field(None, description="Several budgets in place of [budget].")
    rows: tuple[RowConfig, ...] = Field(
        min_length=1, description="The rows to compare, each a model with its settings."
    )
    seeds: int | tuple[int, ...] = Field(
        3, description="How many seeds each row has (counted from 0), or a list of seeds."
    )
    parameters: float | None = Field(
        None,
        gt=0,
        le=MOST_PARAMETERS,
        description="Number of parameters that every row is given by changing its width; "
        "the recipes' own sizes unless it is given.",
    )
    tolerance: float = Field(0.05, gt=0, lt=1, description="How far the size of a row may be off, as a fraction.")
    settings: tuple[str, ...] = Field((), description="Recipe settings of all rows, as path=value.")
    search: SearchConfig | None = Field(
        None, description="Search for settings, the same for every row; none unless it is given."
    )
    suites: dict[str, str] = Field(
        {}, description="Suites and their files: blimp, agreement, lambada, copy, analogies, similarity."
    )
    pairs: int = Field(0, ge=0, description="Number of minimal pairs of each kind to make from held-out text.")
    tasks: tuple[TaskConfig, ...] = Field((), description="Tasks that every row is transferred to.")
    questions: tuple[QuestionConfig, ...] = Field(
        (), description="Comparisons of two rows that are asked before any result is seen."
    )
    milestones: bool | tuple[str, ...] = Field(
        False,
        description="Keep the weights at round numbers of words, and evaluate them on all suites or on those named.",
    )
    price: PriceConfig | None = Field(None, description="Price of the machine, for the costs in the report.")
    prompt: str = Field("The ", description="Prompt of the samples in the report.")

    @model_validator(mode="before")
    @classmethod
    def largest_budget(cls, values: Any) -> Any:
        """A ladder stands in place of the budget."""
        ladder = values.get("ladder") if isinstance(values, dict) else None
        if not isinstance(ladder, dict) or problems(LadderConfig, ladder):
            return (
                values if not isinstance(ladder, dict) else {"budget": {"epochs": 1}, **values}
            )  # what is wrong with it is said by its own check
        if "budget" in values:
            raise ValueError("give [budget] or [ladder], not both")
        found = LadderConfig.model_validate(ladder)
        return values | {"budget": {found.unit: max((*found.budgets, *found.predict))}}

    @model_validator(mode="after")
    def ends(self) -> "PlanConfig":
        given = self.budget.model_dump(exclude_none=True)
        if "steps" in given:
            raise ValueError(f"budget.steps is not an equal budget, as batches differ: use {', '.join(ENDS)}")
        if len(given) > 1 and not (
            "flops" in given and len(given) == 2 and given.keys() & {"tokens", "words", "epochs"}
        ):
            raise ValueError(
                "give one budget, or flops with one of tokens, words and epochs: then sizes are solved for"
            )
        if len(given) == 2 and self.parameters is not None:
            raise ValueError("sizes are solved for equal parameters or for equal flops, not for both: leave one out")
        for end, value in given.items():
            if value > MOST[end]:
                raise ValueError(
                    f"budget.{end} = {value:g} is more than {MOST[end]:g}, which no run will reach: lower it"
                )
        many = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        if many > MOST_SEEDS:  # before they are listed
            raise ValueError(f"seeds: {many:,} are more than {MOST_SEEDS:,}: give fewer")
        chosen = self.chosen_seeds()
        if not chosen or len(set(chosen)) != len(chosen) or min(chosen) < 0:
            raise ValueError("seeds: give how many (at least 1), or a list of different numbers from 0 on")
        if self.ladder is not None and self.ladder.passes and self.text.words is not None:
            raise ValueError(
                "ladder.passes: each budget says how many words of the text are read, so leave text.words out"
            )
        if self.search is not None and max(chosen) >= FIRST_SEED:
            raise ValueError(f"seeds: {max(chosen)} is one of the trials': give seeds below {FIRST_SEED:,}")
        return self

    def chosen_seeds(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    def suite_names(self) -> list[str]:
        return [*self.suites, *(["pairs"] if self.pairs else [])]

    def milestone_suites(self) -> list[str]:
        if isinstance(self.milestones, bool):
            return self.suite_names() if self.milestones else []
        return list(self.milestones)


def read_plan(path: Path) -> PlanConfig:
    """With the paths in it relative to the working folder."""
    values = read_toml(path)
    plan = build(PlanConfig, values, source=str(path))
    check(plan, str(path))
    return resolve_paths(plan, path.parent)


def resolve_paths(plan: PlanConfig, folder: Path) -> PlanConfig:
    def below(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(str(folder / name) for name in names)

    text = plan.text.model_copy(
        update={
            "files": below(plan.text.files),
            "prepared": plan.text.prepared and str(folder / plan.text.prepared),
        }
    )
    tasks = tuple(
        each.model_copy(update={split: below(getattr(each, split)) for split in SPLITS}) for each in plan.tasks
    )
    rows = tuple(
        row.model_copy(update={"recipe": str(folder / row.recipe)}) if row.recipe.endswith(".toml") else row
        for row in plan.rows
    )
    suites = {name: str(folder / where) for name, where in plan.suites.items()}
    return plan.model_copy(update={"text": text, "tasks": tasks, "suites": suites, "rows": rows})


def check(plan: PlanConfig, source: str) -> None:
    """Everything that can be known without the text, all of it at once."""
    found = [problem for find in CHECKS for problem in find(plan)]
    if found:
        raise UsageError(f"{source}: " + "; ".join(found))


def row_name_problems(plan: PlanConfig) -> list[str]:
    names = [row_name(row) for row in plan.rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    found = [f"two rows are called {name!r}: give them names (name = …)" for name in twice]
    places = [slug(name) for name in dict.fromkeys(names)]
    if len(set(places)) < len(places):
        found.append("two rows have names that differ only in punctuation: give them other names")
    return found


def recipe_problems(plan: PlanConfig) -> list[str]:
    """Recipes in files are checked when they are read, from where the plan is."""
    found: list[str] = []
    for row in plan.rows:
        if row.recipe.endswith(".toml"):
            continue
        try:
            recipe = find_recipe(row.recipe, [*plan.settings, *row.settings])
            if recipe.task is not None:
                raise UsageError(f"{row.recipe} learns from labelled examples: rows learn from plain text")
        except SeqloomError as error:
            found.append(f"row {row_name(row)!r}: {error}")
        if plan.text.prepared is not None and (row.tokenizer is not None or row.vocab_size is not None):
            found.append(
                f"row {row_name(row)!r}: a prepared text has its own tokenizer: give [text] files, or leave out the row's "
                f"tokenizer and vocab_size"
            )
    return found


def tokenizer_problems(plan: PlanConfig) -> list[str]:
    found: list[str] = []
    kinds = dict.fromkeys(tokens_of(plan, row) for row in plan.rows)
    for kind, size in kinds:
        try:
            check_options(kind, size, None)
        except SeqloomError as error:
            found.append(str(error))
    if len(kinds) > 1 and (music := [kind for kind, _ in kinds if is_music(kind)]):
        found.append(
            f"tokenizer {music[0]}: rows are ranked by nats per event, whose events must be the same for all rows"
        )
    return found


def suite_problems(plan: PlanConfig) -> list[str]:
    found = [f"unknown suite {name!r} (known: {', '.join(SUITES)})" for name in plan.suites if name not in SUITES]
    names = plan.suite_names()
    known = ", ".join(names) or "none"
    unknown = [name for name in plan.milestone_suites() if name not in names]
    return found + [f"milestones: this plan has no suite {name!r} (it has: {known})" for name in unknown]


def task_problems(plan: PlanConfig) -> list[str]:
    found: list[str] = []
    for task in plan.tasks:
        cls: Any = task_class(task.task) if task.task in TASKS else None
        if cls is None or cls.reads != "labelled":
            known = [name for name in TASKS if task_class(name).reads == "labelled"]
            found.append(f"unknown task {task.task!r} to transfer to (known: {', '.join(known)})")
            continue
        if task.how not in (*HOWS, BESIDE):
            found.append(f"task {task.task!r}: unknown how {task.how!r} (known: {', '.join((*HOWS, BESIDE))})")
        if task.how == BESIDE and not cls.finds_spots:
            found.append(f'task {task.task!r}: how = "{BESIDE}" is for classify, regress, pair, choose and tag')
        if (task.how == BESIDE) != (task.recipe is not None):
            found.append(f'task {task.task!r}: give how = "{BESIDE}" and a recipe together, or neither')
        elif task.recipe is not None:
            found += beside_problems(task)
    return found


def beside_problems(task: TaskConfig) -> list[str]:
    try:
        check_room(beside_recipe(task))
    except UsageError as error:
        return [f"task {task.task!r}: {error}"]
    return []


def beside_recipe(task: TaskConfig) -> Recipe:
    """Of the model that learns a task with the features of rows."""
    assert task.recipe is not None
    recipe = find_recipe(task.recipe, list(task.settings), None, task.task)
    check_task(recipe, task.task)
    return recipe


def check_room(recipe: Recipe) -> None:
    """Raises UsageError where features of rows cannot enter the model: that is to be said before the rows are trained."""
    assert recipe.task is not None
    cls: Any = task_class(recipe.task["name"])
    settings = build(cls.Config, task_settings(recipe.task), "task", recipe.name)
    found = settings.model_copy(update={"beside": settings.beside.model_copy(update={"dim": 1})})  # any width
    check_beside(found)
    if found.beside.at.isdecimal():
        with shapes_only():
            body = model_class(recipe.model["name"])(recipe.model_config_of(1000))
            make_room(body, int(found.beside.at), 1)


def joint_problems(plan: PlanConfig) -> list[str]:
    """Rows that learn all tasks in one run need tasks that can be learnt so."""
    joint = {row_name(row): row.joint for row in plan.rows if row.joint}
    if not joint:
        return []
    found: list[str] = []
    names = [task_name(task) for task in plan.tasks]
    if len(names) < 2:
        found.append(f"row {next(iter(joint))!r}: joint is for plans with two tasks or more")
    for row, settings in joint.items():
        weights = settings.weights if isinstance(settings, JointConfig) else {}
        found += [f"row {row!r}: {problem}" for problem in weight_problems(weights, names)]
    if any(task.how == BESIDE for task in plan.tasks):
        found.append(f'joint rows learn tasks on their own body: how = "{BESIDE}" has another one')
    own = {tuple(each for each in task.settings if not each.startswith("task.")) for task in plan.tasks}
    if len({task.how for task in plan.tasks}) > 1 or len(own) > 1:
        found.append(
            "joint rows learn all tasks in one run: give all tasks one how, and the same settings but for task.…"
        )
    return found


def weight_problems(weights: Mapping[str, float], names: list[str]) -> list[str]:
    """Weights that the losses of tasks of these names cannot have."""
    unknown = [name for name in weights if name not in names]
    found = [f"joint.weights: {unknown_name('task', name, name, names)}" for name in unknown]
    found += [f"joint.weights.{name} = {value:g}: give 0 or more" for name, value in weights.items() if value < 0]
    if names and not weights.get(names[0], 1.0):
        found.append(f"joint.weights.{names[0]} = 0: by this task the weights are chosen")
    return found


def question_problems(plan: PlanConfig) -> list[str]:
    found: list[str] = []
    names = [row_name(row) for row in plan.rows]
    for question in plan.questions:
        unknown = [name for name in question.rows if name not in names]
        found += [f"question {question.name!r}: {unknown_name('row', name, name, names)}" for name in unknown]
        if question.rows[0] == question.rows[1]:
            found.append(f"question {question.name!r} asks about one row twice: give two rows")
    pairs = [frozenset(question.rows) for question in plan.questions]
    if len(set(pairs)) < len(pairs):
        found.append(
            "two questions are about the same rows: give one, because every question makes all others harder to answer"
        )
    if len({question.name for question in plan.questions}) < len(plan.questions):
        found.append("two questions have the same name: give them other names")
    return found


def search_problems(plan: PlanConfig) -> list[str]:
    """A setting is searched for or held fixed, and rows narrow the ranges of the plan."""
    if plan.search is None:
        return [f"row {row_name(row)!r}: search: the plan has no [search]" for row in plan.rows if row.search]
    solved = plan.parameters is not None or len(plan.budget.model_dump(exclude_none=True)) == 2
    found: list[str] = []
    for row in plan.rows:
        try:
            ranges = row_ranges(plan.search, row.search)
        except ValueError as error:
            found.append(f"row {row_name(row)!r}: search: {error}")
            continue
        reasons = [conflicts(name, row.settings, solved) for name in ranges]
        found += [f"row {row_name(row)!r}: {reason}" for reason in reasons if reason and reason not in found]
    reasons = [conflicts(name, plan.settings, solved) for name in plan.search.ranges()]
    return [*(f"search: {reason}" for reason in reasons if reason), *found]


def task_name_problems(plan: PlanConfig) -> list[str]:
    names = [task_name(task) for task in plan.tasks]
    return ["two tasks have the same name: give them names (name = …)"] if len(set(names)) < len(names) else []


CHECKS: tuple[Callable[[PlanConfig], list[str]], ...] = (
    row_name_problems,
    recipe_problems,
    tokenizer_problems,
    suite_problems,
    task_problems,
    joint_problems,
    question_problems,
    task_name_problems,
    search_problems,
)


def check_files(plan: PlanConfig) -> None:
    """Every file that a plan names must exist, and suites must be readable, before anything is trained."""
    named = {f"suites.{name}": [where] for name, where in plan.suites.items()}
    named |= {f"text.files[{i}]": [name] for i, name in enumerate(plan.text.files)}
    for task in plan.tasks:
        named[f"the task {task_name(task)!r}"] = [*task.train, *task.valid, *task.test]
    missing = [f"{place}: {name}" for place, names in named.items() for name in names if not Path(name).exists()]
    if missing:
        raise UsageError(f"no such file: {'; '.join(missing)} (paths are relative to the plan)")
    for name, where in plan.suites.items():
        SUITES[name].read(Path(where))


def row_name(row: RowConfig) -> str:
    return row.name or Path(row.recipe).stem


def task_name(task: TaskConfig) -> str:
    return task.name or task.task


def tokens_of(plan: PlanConfig, row: RowConfig) -> tuple[str, int | None]:
    """The kind of a row's tokenizer, and the size of its vocabulary."""
    kind = row.tokenizer or plan.text.tokenizer
    size = row.vocab_size or (plan.text.vocab_size if kind == plan.text.tokenizer else None)
    return kind, size


def budget_of(plan: PlanConfig) -> BudgetConfig:
    """The budget of a run: where sizes are solved for flops, the amount of text alone ends it."""
    given = plan.budget.model_dump(exclude_none=True)
    return plan.budget if len(given) == 1 else plan.budget.model_copy(update={"flops": None})
