"""A recipe: everything that determines a run except the data and the seed. Frozen, closed, and the same in TOML and JSON."""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self

from pydantic import Field, ValidationError, model_validator

from seqloom.batch import EncoderDecoder
from seqloom.batches.cells import CellBatches
from seqloom.batches.pairs import EncodedPairs, PairBatches
from seqloom.batches.passages import Marks, Passages
from seqloom.batches.pictures import CaptionBatches, EncodedCaptions
from seqloom.batches.plan import Batches, Packed, Streams
from seqloom.batches.sentences import keep_borders
from seqloom.batches.store import Split
from seqloom.config import Config, build, problems, unknown_name
from seqloom.errors import SeqloomError, UsageError
from seqloom.models import MODELS, OWN, model_class
from seqloom.objectives import OBJECTIVES, fitting_objectives, objective_class
from seqloom.plugins import Plugin
from seqloom.tasks import BESIDE_OTHERS, TASKS, fitting_tasks, task_class
from seqloom.tasks.several import Several
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.loop import TrainConfig
from seqloom.training.state import Budget

LARGEST = 1 << 24  # of a model's numbers: no product of two overflows


class BatchesConfig(Config):
    """packed: `budget` tokens a batch in sequences of at most `length`; streams: `streams` rows of `length` tokens; pairs:
    texts of about one length with what they are turned into, at most `budget` tokens on either side; passages: pieces of
    documents with their special tokens, alone or as two parts, as the objective wants them; labelled: `examples` texts a
    batch, of at most `length` tokens each, special ones included; pictures: captions of one length with their pictures, at most
    `budget` tokens of captions; cells: `budget` cells of the table that says how often two
    words stand near each other."""

    kind: Literal["packed", "streams", "pairs", "passages", "labelled", "cells", "pictures"] = Field(
        "packed",
        description="How batches are made: text packed to a number of tokens, parallel streams of text, pairs of texts, "
        "passages with special tokens, labelled examples, cells of a table of counts, or pictures with captions.",
    )
    budget: int = Field(8192, ge=1, description="The most tokens of a batch, on either side for pairs; or its cells.")
    streams: int = Field(32, ge=1, description="Number of parallel streams.")
    length: int = Field(128, ge=1, description="The most tokens of a sequence; tokens of each stream in a batch.")
    vary: bool = Field(
        False,
        description="Vary the length of stream batches around length, anew in every epoch; a step's rate goes with its length.",
    )
    reset: bool = Field(
        False,
        description="Start every document in a stream with an empty state, as evaluation does; else the state is carried on.",
    )
    short: int = Field(
        0, ge=0, description="Length of passages in the first part of a run; 0: that of the rest (BERT used 128)."
    )
    short_share: float = Field(0.9, ge=0, le=1, description="Share of the run that has short passages (BERT used 0.9).")
    examples: int = Field(32, ge=1, description="Labelled examples in a batch.")
    backward: bool = Field(
        False, description="Read labelled texts from their end, for a backbone trained on reversed text."
    )
    smoothing: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Exponent α of the shares of several languages or tasks: each is read in proportion to its tokens, or its "
        "examples, to the power of α.",
    )

    @property
    def tokens(self) -> int:
        """The tokens of a full batch of plain text. Many batches of cells stand for one token."""
        return {"streams": self.streams * self.length, "cells": 1}.get(self.kind, self.budget)

    def build(self, split: Split) -> Batches:
        if self.kind == "packed":
            return Packed(split, self.budget, self.length)
        return Streams(split, self.streams, self.length, self.vary, self.reset)

    def build_passages(self, split: Split, tokenizer: Tokenizer, form: Any, epochs: float) -> Passages:
        return Passages(
            split,
            Marks.of(tokenizer),
            form,
            self.budget,
            self.length,
            (self.short, self.short_share),
            epochs,
            keep_borders,
        )

    def build_cells(
        self, split: Split, specials: Sequence[int], window: int, passes: int, epochs: float
    ) -> CellBatches:
        return CellBatches(split, specials, self.budget, window, passes, epochs)

    def build_captions(self, captions: EncodedCaptions, shapes: str) -> CaptionBatches:
        return CaptionBatches(captions, self.budget, self.length, shapes)

    def build_pairs(self, pairs: EncodedPairs, shapes: str) -> PairBatches:
        return PairBatches(pairs, self.budget, self.length, shapes)


class Countable(Protocol):
    """A text whose tokens and words, of an epoch, are known: tokens as `Sizes` counts them, special ones apart."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def words(self) -> float: ...


class BudgetConfig(Config):
    """The limits of a run: it ends with the first that is reached. Words are counted by their ratio to the tokens that the
    objective reads in an epoch, without special tokens: so many words are as much text for every objective."""

    tokens: float | None = Field(None, gt=0, description="Stop after this many tokens.")
    words: float | None = Field(None, gt=0, description="Stop after this many words of text.")
    minutes: float | None = Field(None, gt=0, description="Stop after this many minutes of training.")
    epochs: float | None = Field(None, gt=0, description="Stop after this many passes over the training text.")
    flops: float | None = Field(None, gt=0, description="Stop after this many floating-point operations.")
    steps: int | None = Field(None, gt=0, description="Stop after this many optimizer steps.")

    @model_validator(mode="after")
    def has_an_end(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("needs at least one of tokens, words, minutes, epochs, steps, flops")
        return self

    def resolve(self, split: Countable) -> Budget:
        ends = [
            self.tokens,
            self.words and self.words * split.num_tokens / max(split.words, 1),
            self.epochs and self.epochs * split.num_tokens,
        ]
        tokens = min((end for end in ends if end), default=float("inf"))
        never = float("inf")
        return Budget(tokens, self.minutes or never, self.steps or never, self.flops or never)


class ValidConfig(Config):
    """The measurement during training. Of several languages each has an equal part of the limit."""

    limit: int = Field(
        200_000, ge=0, description="Evaluate on the first tokens of the validation split, this many; 0: on all."
    )
    stride: int | None = Field(
        None, gt=0, description="Tokens between the starts of two windows; disjoint windows unless it is given."
    )
    warmup: int | None = Field(
        None,
        ge=1,
        description="Tokens that recurrent models read uncounted before each part of a long document; unless "
        "given, documents are read from their start.",
    )


# what an objective or task reads, and the kinds of batches that have it; others are called as what is read
BATCH_KINDS = {"excerpts": ("packed", "streams"), "tagged": ("passages",)}
NEXT_TOKEN = {"name": "next-token"}
ENTRY = ("called", "weight")  # of each of several tasks
LISTS = {"objectives": "objective", "tasks": "task"}  # and how one of them is written


def with_lists(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a recipe with its objective or task as a list of one."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        several = next((several for several, one in LISTS.items() if one == key), None)
        if several is None or (several in values and value is not None):
            found[key] = value
        elif value is not None:
            found[several] = [value]
    return found


class Recipe(Config):
    name: str = Field(description="Name of the recipe.")
    model: dict[str, Any] = Field(description="The model: its name and the keys of its config.")
    objectives: tuple[dict[str, Any], ...] = Field(
        (),
        description="What is learnt from plain text: the name of an objective and its keys. "
        "One of them, written as [objective]; next-token unless given.",
    )
    tasks: tuple[dict[str, Any], ...] = Field(
        (),
        description="What is learnt from labelled examples: the name of a task and its keys. "
        "One of them, written as [task]; of several, which share a model, each has a name of its own (called) and a weight.",
    )
    batches: BatchesConfig = Field(BatchesConfig(), description="How batches are made.")
    train: TrainConfig = Field(TrainConfig(), description="How the model is trained.")
    budget: BudgetConfig = Field(description="When training stops: at the first limit that is reached.")
    valid: ValidConfig = Field(ValidConfig(), description="How the model is evaluated during training.")

    @model_validator(mode="before")
    @classmethod
    def learns_something(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = with_lists(values)
        return values if values.get("objectives") or values.get("tasks") else values | {"objectives": [NEXT_TOKEN]}

    @property
    def objective(self) -> dict[str, Any] | None:
        return next(iter(self.objectives), None)

    @property
    def task(self) -> dict[str, Any] | None:
        return next(iter(self.tasks), None)

    def plain(self, exclude_defaults: bool = False) -> dict[str, Any]:
        """The values as people write them: the objective or task as one section."""
        values = self.model_dump(exclude_defaults=exclude_defaults)
        found: dict[str, Any] = {}
        for key, value in values.items():
            if key in LISTS and len(value) < 2:
                found |= {LISTS[key]: value[0]} if value else {}
            else:
                found[key] = value
        return found

    @property
    def learns(self) -> str:
        """The name of its objective or task."""
        chosen = self.objective or self.task
        assert chosen is not None
        return chosen["name"]

    def steps_an_epoch(self, examples: int) -> int:
        """The steps of an epoch of labelled examples; the last may be incomplete."""
        return -(-examples // (self.batches.examples * self.train.accumulate))

    def model_config_of(self, vocab_size: int) -> Any:
        cls: Any = model_class(self.model["name"])
        return build(cls.Config, without_name(self.model) | {"vocab_size": vocab_size}, "model", self.name)

    @property
    def count_based(self) -> bool:
        """Whether it learns by counting: without steps, rates and initial weights."""
        return self.objective is not None and objective_class(self.learns).count_based

    @property
    def objective_config(self) -> Any:
        """The settings of its objective."""
        assert self.objective is not None
        return build(objective_class(self.learns).Config, without_name(self.objective), "objective", self.name)  # type: ignore[attr-defined]

    @property
    def own_code(self) -> bool:
        return self.model["name"] in OWN

    def learner(self, vocab_size: int, plugin: Plugin | None = None) -> Any:
        """An Objective or a Task. plugin: the user's own code, where the model is made of it."""
        model: Any = model_class(self.model["name"])
        config = self.model_config_of(vocab_size)
        backbone = model(config, plugin) if self.own_code else model(config)
        if self.objective is not None:
            learner: Any = objective_class(self.objective["name"])
            return learner(backbone, build(learner.Config, without_name(self.objective), "objective", self.name))
        kinds: list[Any] = [task_class(section["name"]) for section in self.tasks]
        settings = [
            build(kind.Config, task_settings(section), "task", self.name)
            for kind, section in zip(kinds, self.tasks, strict=True)
        ]
        if kinds[0].reads == "labelled" and isinstance(backbone, EncoderDecoder):
            backbone = backbone.view(settings[0].view)
        made = [kind(backbone, own) for kind, own in zip(kinds, settings, strict=True)]
        if len(made) == 1:
            return made[0]
        names = [called(section) for section in self.tasks]
        weights = [float(section.get("weight", 1.0)) for section in self.tasks]
        return Several(backbone, dict(zip(names, made, strict=True)), weights)


def fill_defaults(values: Any, vocab_size: int | None = None) -> Any:
    """A stored recipe with the fields that were added later, whose defaults mean "as before"; anything else is left as it is.
    vocab_size: with those of its model, too, which depend on it."""
    try:
        recipe = Recipe.model_validate(values)
        found = json.loads(recipe.model_dump_json())
        if vocab_size is None:
            return found
        model = json.loads(recipe.model_config_of(vocab_size).model_dump_json())
    except (ValidationError, SeqloomError, LookupError, TypeError):  # damaged: that is said where it is compared
        return values
    return found | {"model": found["model"] | model}


def without_name(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}


def task_settings(section: dict[str, Any]) -> dict[str, Any]:
    """The keys of a task's own config."""
    return {key: value for key, value in section.items() if key not in ("name", *ENTRY)}


def called(section: dict[str, Any]) -> str:
    """The name of one of several tasks."""
    return section.get("called") or section["name"]


def build_recipe(values: dict[str, Any], source: str) -> Recipe:
    """Builds a recipe from plain values. Raises UsageError with everything that is wrong with them, in one line."""
    values = with_lists(values)
    found = problems(Recipe, values)
    found += section_problems(values, "model", MODELS | OWN, model_class)
    found += section_problems(values, "objective", OBJECTIVES, objective_class)
    found += task_problems(values.get("tasks"))
    if not found:
        recipe = Recipe.model_validate(values)
        found = [*batch_problems(recipe), *misfits(recipe), *limit_problems(recipe)]
    if found:
        raise UsageError(f"{source}: " + "; ".join(found))
    return recipe


def task_problems(sections: Any) -> list[str]:
    """What is wrong with the tasks, each and together."""
    if not isinstance(sections, list | tuple):
        return []
    found: list[str] = []
    for number, section in enumerate(sections):
        own = task_settings(section) | {"name": section.get("name")} if isinstance(section, dict) else section
        found += section_problems({"task": own}, "task", TASKS | BESIDE_OTHERS if number else TASKS, task_class)
    if found or len(sections) < 2:
        return found
    names = [called(section) for section in sections]
    for name, section in zip(names, sections, strict=True):
        weight = section.get("weight", 1.0)
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name):
            found.append(f"'tasks.called' = {name!r}: give it a name of letters, digits, dots, - and _")
        elif names.count(name) > 1:
            found.append(f"'tasks.called': two tasks are called {name!r}: give each a name of its own")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
            found.append(f"'tasks.weight' = {weight!r} of {name}: give 0, or a positive number")
        if task_class(section["name"]).reads != "labelled":
            found.append(f"'tasks.name' = \"{section['name']}\": it shares no model with other tasks")
    if not found and not sections[0].get("weight", 1.0):
        found.append(f"'tasks.weight' = 0 of {names[0]}, the main task: only others can be left out")
    return list(dict.fromkeys(found))


def section_problems(values: dict[str, Any], section: str, known: dict[str, str], find: Any) -> list[str]:
    """What is wrong with the section of the model, the objective or the task. known: the names it may have."""
    found: list[str] = []
    part = values.get(section)
    several = values.get(f"{section}s")
    if isinstance(several, list | tuple):
        if len(several) > 1:
            found.append(f"'{section}s' has {len(several)} entries: a run has one {section}")
        part = next(iter(several), None)
    if not isinstance(part, dict):
        return found
    name = part.get("name")
    if name is None:
        return [*found, f"'{section}.name' is missing (known: {', '.join(known)})"]
    if not isinstance(name, str) or name not in known:
        return [*found, unknown_name(section, f"{section}.name = {name}", str(name), list(known))]
    cls: Any = find(name)
    own = without_name(part)
    if "vocab_size" in cls.Config.model_fields:
        own.setdefault("vocab_size", 1)
    found += problems(cls.Config, own, section)
    found += [
        f"'{section}.{key}' is more than {LARGEST:,}, the largest size there is"
        for key, value in own.items()
        if isinstance(value, int) and value > LARGEST
    ]
    return found


def batch_problems(recipe: Recipe) -> list[str]:
    """Settings of the batches that do not go with their kind."""
    batches = recipe.batches
    found = []
    if batches.kind == "streams" and not model_class(recipe.model["name"]).carries:
        found.append(
            f"'batches.kind' = \"streams\" is for recurrent models, which carry a state from batch to batch; "
            f'{recipe.model["name"]} has none: use "packed"'
        )
    if batches.kind == "packed" and batches.vary:
        found.append("'batches.vary' = true is for batches.kind = \"streams\": leave it out")
    if batches.kind not in ("streams", "packed") and batches.reset:
        found.append("'batches.reset' = true is for batches.kind = \"streams\": leave it out")
    if batches.kind in ("streams", "pairs", "pictures", "cells") and batches.smoothing != 1:
        found.append(f"'batches.smoothing' is not for batches.kind = \"{batches.kind}\": leave it out")
    return found


def limit_problems(recipe: Recipe) -> list[str]:
    """A budget that counting cannot end by, and batches longer than the model's context."""
    found = []
    endless = recipe.budget.model_dump(exclude_none=True).keys() & {"minutes", "steps", "flops"}
    if recipe.count_based and endless:
        found.append(
            f"'budget.{min(endless)}': counting has no steps and takes no operations: give tokens, words or epochs"
        )
    limit = getattr(recipe.model_config_of(1), "max_len", None)
    if limit is not None and recipe.batches.length > limit:
        found.append(
            f"'batches.length' = {recipe.batches.length} is longer than the context of the model, "
            f"'model.max_len' = {limit}: lower the one or raise the other"
        )
    return found


def misfits(recipe: Recipe) -> list[str]:
    """What does not fit together: the model, its objective or task, and the batches."""
    cls: Any = model_class(recipe.model["name"])
    if recipe.objective is not None and recipe.task is not None:
        return ["'objective' and 'task': a run learns from plain text or from labelled examples: leave one of them out"]
    kind = "task" if recipe.task is not None else "objective"
    learner: Any = (task_class if kind == "task" else objective_class)(recipe.learns)
    fits = learner.fits(cls)
    if not fits and kind == "task" and not fitting_tasks(cls):
        return [
            f"'task.name' = \"{recipe.learns}\": the model {recipe.model['name']} learns no tasks: choose another model"
        ]
    found = [
        f"'tasks.name' = \"{section['name']}\" is not for the model {recipe.model['name']}"
        for section in recipe.tasks[1:]
        if not task_class(section["name"]).fits(cls)
    ]
    if fits:
        found += [*kind_problems(recipe, learner), *short_passages(recipe)]
    else:
        hint = suggest_learner(kind, cls)
        found.append(f"'{kind}.name' = \"{recipe.learns}\" is not for the model {recipe.model['name']}{hint}")
    return [*found, *watch_problems(recipe)]


def suggest_learner(kind: str, model: Any) -> str:
    """What a model can learn instead of what does not fit it: of the same kind (objective or task) if there is any."""
    fitting = {"objective": fitting_objectives, "task": fitting_tasks}
    for each in sorted(fitting, key=lambda name: name != kind):
        for name in fitting[each](model):
            return f': use "{name}" ([{each}] name = "{name}")'
    return ""


def kind_problems(recipe: Recipe, learner: Any) -> list[str]:
    """Batches of a kind that its objective or task does not read."""
    kinds = BATCH_KINDS.get(learner.reads, (learner.reads,))
    if recipe.batches.kind in kinds:
        return []
    return [f'\'batches.kind\' = "{recipe.batches.kind}" is not for {recipe.learns}: use "{kinds[0]}"']


def watch_problems(recipe: Recipe) -> list[str]:
    """A score that decides which weights are kept, and how often it is measured, which do not go with what is learnt."""
    found = []
    if recipe.train.watch == "bleu" and recipe.learns != "translate":
        found.append(f'\'train.watch\' = "bleu" is for translation, not for {recipe.learns}: use "loss"')
    labelled = recipe.batches.kind == "labelled"
    if recipe.train.watch in ("auto", "score") and not labelled:
        found.append(
            f"'train.watch' = \"{recipe.train.watch}\" is for tasks that predict labels, not for {recipe.learns}: "
            'use "loss"'
        )
    if not recipe.train.eval_every and not labelled:
        found.append("'train.eval_every' = 0 is for tasks that predict labels: give a number of steps")
    return found


def short_passages(recipe: Recipe) -> list[str]:
    batches, ends = recipe.batches, recipe.budget.model_dump(exclude_none=True)
    if not batches.short:
        return []
    if batches.kind != "passages":
        return [f"'batches.short' = {batches.short} is for batches.kind = \"passages\": leave it out"]
    found = []
    if batches.short >= batches.length:
        found.append(f"'batches.short' = {batches.short} is not shorter than 'batches.length' = {batches.length}")
    if not ends.keys() & {"tokens", "words", "epochs"}:
        found.append(
            "'batches.short' needs a budget in tokens, words or epochs: when the run goes over to long passages follows from it"
        )
    return found
