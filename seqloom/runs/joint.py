"""Several tasks on one body: their files, and the functions that train them together.

A plan, in TOML, names the tasks. The first one is the main one: by it the best weights are chosen, and training stops early.

    smoothing = 0.5                     # steps in proportion to examples^0.5; 1 unless it is given

    [[tasks]]
    name = "ner"
    task = "tag"
    train = ["ner.conll"]
    valid = ["ner-dev.conll"]
    test = ["ner-test.conll"]
    settings = ["task.crf=true"]

    [[tasks]]
    name = "chunks"
    task = "tag"
    train = ["chunks.conll"]
    weight = 0.5                        # λ; 0 leaves the task out
    settings = ["task.layers=1"]        # it reads the first layer

Paths are relative to the plan.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from pydantic import Field

from seqloom.batches.joint import Joint
from seqloom.batches.languages import passes, shares
from seqloom.batches.plan import Batches
from seqloom.config import Config, build, override, read_toml
from seqloom.errors import DataError, UsageError
from seqloom.plugins import Plugin, open_plugin
from seqloom.recipes.library import find_recipe, task_sections
from seqloom.recipes.schema import Recipe, build_recipe, called
from seqloom.runs.dataset import Dataset
from seqloom.runs.examples import ExampleFiles, LabelledFiles
from seqloom.runs.first_weights import transfer_from, vectors_from
from seqloom.runs.load import Trained
from seqloom.runs.options import RunKeywords, RunOptions, TrainKeywords
from seqloom.runs.training import (
    layout_of,
    open_start,
    train_run,
    with_report,
)
from seqloom.runs.transfer_recipe import check_transfer, recipe_after
from seqloom.runs.vocabularies import check_two_vocabularies, learn_tokenizer
from seqloom.tasks import BESIDE_OTHERS, TASKS, task_class
from seqloom.tasks.several import OfTask
from seqloom.tokens.learn import TokenizerOptions
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.share import Share

OF_THE_PLAN = {"name": "task", "called": "name", "weight": "weight"}  # keys of a section that a plan has of its own


class PlannedTask(Config):
    """One of several tasks."""

    task: str = Field(description="Name of the task: classify, regress, pair, choose, tag, span or cross-view.")
    name: str | None = Field(None, description="Name of its own, as predict --task takes it; task unless it is given.")
    train: tuple[str, ...] = Field(min_length=1, description="Files of training examples, relative to the plan.")
    valid: tuple[str, ...] = Field(
        (), description="Files of validation examples; by those of the first task the best weights are chosen."
    )
    test: tuple[str, ...] = Field((), description="Files of test examples, scored once at the end.")
    weight: float = Field(1.0, ge=0, description="Weight λ of its loss; 0 leaves the task out.")
    settings: tuple[str, ...] = Field((), description="Settings of the task, as task.crf=true.")
    columns: dict[str, str] = Field({}, description="Columns of its files, by the fields of the task.")
    encoding: str | None = Field(None, description="Encoding of files that are not UTF-8.")

    @property
    def called(self) -> str:
        return self.name or self.task

    def files(self, folder: Path) -> dict[str, list[Path]]:
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: [folder / name for name in names] for split, names in named.items() if names}

    def section(self, values: dict[str, Any]) -> dict[str, Any]:
        """The section of a recipe for it. values: the one that it starts from."""
        whole: dict[str, Any] = {"task": dict(values)}
        for assignment in self.settings:
            if not assignment.startswith("task."):
                raise UsageError(
                    f"the settings of {self.called} are of its task alone: {assignment!r} does not begin with task."
                )
            override(whole, assignment)
            name = assignment.partition("=")[0].strip().removeprefix("task.")
            if name in OF_THE_PLAN:
                raise UsageError(
                    f"the settings of {self.called}: {assignment!r} is no setting of its task: give the plan's key "
                    f"'{OF_THE_PLAN[name]}' instead"
                )
        return whole["task"] | {"name": self.task, "called": self.called, "weight": self.weight}


class TasksPlan(Config):
    """Tasks that are learnt together."""

    tasks: tuple[PlannedTask, ...] = Field(min_length=2, description="The tasks, the main one first.")
    smoothing: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Exponent α: a task has steps in proportion to its training examples to the power of α.",
    )

    @property
    def main(self) -> PlannedTask:
        return self.tasks[0]


class OpenedPlan:
    """A plan of tasks, and the folder that its paths are relative to."""

    def __init__(self, plan: TasksPlan, folder: Path):
        self.plan, self.folder = plan, folder
        known = [name for name in TASKS if task_class(name).reads == "labelled"]
        for number, each in enumerate(plan.tasks):
            allowed = [*known, *BESIDE_OTHERS] if number else known
            if each.task not in allowed:
                raise UsageError(
                    f"{each.called}: 'task' = {each.task!r} cannot be one of several here: choose {', '.join(allowed)}"
                )
            if each.task in BESIDE_OTHERS and (each.valid or each.test):
                raise UsageError(
                    f"{each.called}: {each.task} reads no labels and is not scored: leave valid and test out"
                )

    @classmethod
    def read(cls, plan: "str | Path | TasksPlan | OpenedPlan") -> "OpenedPlan":
        if isinstance(plan, OpenedPlan):
            return plan
        if isinstance(plan, TasksPlan):
            return cls(plan, Path())
        return cls(build(TasksPlan, read_toml(Path(plan)), source=str(plan)), Path(plan).parent)

    def recipe(self, main: Recipe, how: str) -> Recipe:
        """The recipe of all, from that of the main task. how: as in `task_sections`."""
        assert main.task is not None
        starts = [main.task, *(task_sections(each.task, main.model, how)["task"] for each in self.plan.tasks[1:])]
        sections = [each.section(start) for each, start in zip(self.plan.tasks, starts, strict=True)]
        values = main.model_dump() | {"name": f"{main.name}-{len(sections)}-tasks", "tasks": sections}
        values["batches"] |= {"smoothing": self.plan.smoothing}
        return build_recipe(values, main.name)

    def files(self) -> dict[str, dict[str, list[Path]]]:
        """Of each task, by its name."""
        return {each.called: each.files(self.folder) for each in self.plan.tasks}

    def layouts(self) -> dict[str, dict[str, Any]]:
        return {each.called: layout_of(each.task, each.columns or None, each.encoding) for each in self.plan.tasks}

    def check_tokenizer(self, options: TokenizerOptions) -> None:
        """Raises DataError where a vocabulary of words is to be learnt and tasks differ in what a word is."""
        wanted = {each.called: task_class(each.task).parted_by for each in self.plan.tasks}
        if options.from_tokenizer is None and options.tokenizer == "word" and len(set(wanted.values())) > 1:
            said = ", ".join(f"{name} words between {parted}" for name, parted in wanted.items())
            raise DataError(
                f"the tasks want different tokenizers ({said}): use --tokenizer bpe, or one for all by --from-tokenizer"
            )


class JointFiles(ExampleFiles):
    """The files of several tasks on one body, by the names of the tasks."""

    def __init__(
        self,
        recipe: Recipe,
        files: dict[str, dict[str, list[Path]]],
        tokenizer: Tokenizer,
        layouts: dict[str, dict[str, Any]],
    ):
        self.parts: dict[str, LabelledFiles] = {}
        for section in recipe.tasks:
            name = called(section)
            alone = recipe.model_copy(update={"tasks": (self.with_others(section),)})
            if self.parts:  # what is fitted or watched is of the main task
                alone = alone.model_copy(update={"train": recipe.train.model_copy(update={"watch": "auto"})})
                if section.get("calibrate") or section.get("threshold_class") is not None:
                    raise UsageError(
                        f"{name}: 'task.calibrate' and 'task.threshold_class' are for the main task: leave them out"
                    )
            self.parts[name] = LabelledFiles(alone, files[name], tokenizer, **layouts[name])
        self.main = next(iter(self.parts.values()))
        self.weights = [float(section.get("weight", 1.0)) for section in recipe.tasks]
        active = [len(part.splits["train"]) * (weight > 0) for part, weight in zip(self.all, self.weights, strict=True)]
        often = iter(passes([n for n in active if n], recipe.batches.smoothing).tolist())
        self.passes = [next(often) if n else 0.0 for n in active]
        read = iter(shares([n for n in active if n], recipe.batches.smoothing).tolist())
        self.shares = [next(read) if n else 0.0 for n in active]
        steps = max(sum(self.joint().steps_before(1)), 1) if recipe.train.eval_every == 0 else recipe.train.eval_every
        train = self.main.recipe.train.model_copy(update={"eval_every": steps})
        tasks = tuple(part.recipe.tasks[0] for part in self.all)
        super().__init__(recipe.model_copy(update={"tasks": tasks, "train": train}), self.main.files, tokenizer)
        self.splits = self.main.splits

    def with_others(self, section: dict[str, Any]) -> dict[str, Any]:
        """A section with what follows from the files of the task that it looks at, if it looks at one."""
        cls: Any = task_class(section["name"])
        known = {name: part.recipe.tasks[0] for name, part in self.parts.items()}
        return cls.complete(section, known)

    @property
    def all(self) -> list[LabelledFiles]:
        return list(self.parts.values())

    @property
    def num_tokens(self) -> int:
        return round(sum(often * part.num_tokens for often, part in zip(self.passes, self.all, strict=True)))

    @property
    def words(self) -> float:
        return sum(often * part.words for often, part in zip(self.passes, self.all, strict=True))

    @property
    def summary(self) -> str:
        each = zip(self.parts.items(), self.shares, strict=True)
        return ", ".join(
            f"{len(part.splits['train']):,} examples of {name} ({share:.0%})" for (name, part), share in each
        )

    def joint(self, shapes: str = "free") -> Joint:
        accumulate = self.main.recipe.train.accumulate
        return Joint([part.batches(1.0, shapes) for part in self.all], self.passes, accumulate, OfTask)  # type: ignore[misc]

    def batches(self, epochs: float, shapes: str) -> Batches:
        return self.joint(shapes)

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        """The main task, and of the others their loss and score."""
        found = [
            (name, part.evaluate(head, device, share))
            for (name, part), head, weight in zip(self.parts.items(), learner.tasks, self.weights, strict=True)
            if part.validates and weight
        ]
        (_, main), *others = found
        return main | {"tasks": {name: {key: each[key] for key in ("loss", "score")} for name, each in others}}

    def calibrate(self, run: Any) -> None:
        self.main.calibrate(run)

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        """The scores of the main task, and those of the others by their names."""
        others = {
            name: part.score(run.for_task(name), split, share)
            for (name, part), weight in list(zip(self.parts.items(), self.weights, strict=True))[1:]
            if split in part.files and weight
        }
        return self.main.score(run, split, share) | ({"tasks": others} if others else {})

    def source(self) -> dict[str, Any]:
        parts = {name: part.source() for name, part in self.parts.items()}
        fingerprint = "+".join(part["fingerprint"] for part in parts.values())
        return self.main.source() | {"tasks": parts, "fingerprint": fingerprint}

    def describe(self) -> dict[str, Any]:
        parts = {name: part.describe() for name, part in self.parts.items()}
        others = {
            f"{name}, {split}": sizes
            for name, part in list(parts.items())[1:]
            for split, sizes in part["splits"].items()
        }
        main = self.main.describe()
        return main | {
            "splits": main["splits"] | others,
            "sources": [source for part in parts.values() for source in part["sources"]],
            "epoch": {"tokens": self.num_tokens, "words": self.words},
        }


def train_tasks(
    recipe: str | Recipe,
    plan: str | Path | TasksPlan | OpenedPlan,
    out: str | Path,
    *,
    vectors: str | Path | None = None,
    settings: list[str] | None = None,
    plugin: str | Path | Plugin | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[TrainKeywords],
) -> Trained:
    """Trains several tasks on one model from scratch and returns the finished run, which predicts the main one.

    Args:
        recipe: as in `train`; its task is the main one.
        plan: a TOML file with the tasks, or a TasksPlan, whose paths are then those of the files.
        out: the run folder to write.
        vectors: as in `train`.
        settings: changes of the recipe, as "train.optim.lr=0.001"; of tasks those of the main one.
        plugin: a file with code of your own.
        options: a RunOptions, for what is the same in several calls.
        keywords: fields of RunOptions that differ from `options`: seed (of the first weights, the order of the data and dropout),
            resume (continue the run that is in `out`), overwrite (delete it and start again), device ("auto", "cpu", "cuda"),
            deterministic (the same bits every time on a GPU), country (whose electricity is counted as CO2), shared (a folder
            for the starts of runs that differ only in their budget), on_log (called with each line of metrics.jsonl as a dict);
            and of the tokenizer: tokenizer (bpe, wordpiece, unigram, word, char, byte), vocab_size, lowercase, from_tokenizer (a
            tokenizer.json to use instead of learning one); source_tokenizer, source_vocab_size and from_source_tokenizer are
            of translators alone.
    """
    opened = OpenedPlan.read(plan)
    given: dict[str, Any] = dict(keywords)
    named = [field.name for field in fields(TokenizerOptions) if field.name in given]
    tokenizer = TokenizerOptions(**{name: given.pop(name) for name in named})
    options, own, main = replace(options, **given), open_plugin(plugin), opened.plan.main
    found = recipe if isinstance(recipe, Recipe) else find_recipe(recipe, settings, own, main.task)
    whole = opened.recipe(found, "scratch")
    opened.check_tokenizer(tokenizer)
    if tokenizer.of_source() is not None:
        check_two_vocabularies(found, main.task)
    files, layouts = opened.files(), opened.layouts()
    texts = (
        text
        for each in opened.plan.tasks
        for text in LabelledFiles.texts(files[each.called]["train"], each.task, **layouts[each.called])
    )
    words = learn_tokenizer(texts, tokenizer, task_class(main.task).parted_by)
    dataset: Dataset = JointFiles(whole, files, words, layouts)
    first = None if vectors is None else vectors_from(Path(vectors), words, dataset.recipe)
    return with_report(train_run(dataset, Path(out), options, first, own), files[main.called], **layouts[main.called])


def finetune_tasks(
    start: str | Path | Trained,
    plan: str | Path | TasksPlan | OpenedPlan,
    out: str | Path,
    *,
    how: str = "finetune",
    settings: list[str] | None = None,
    plugin: str | Path | Plugin | None = None,
    language: str | None = None,
    options: RunOptions = RunOptions(),
    **keywords: Unpack[RunKeywords],
) -> Trained:
    """Trains several tasks with the backbone of another run and returns the finished run, which predicts the main one.

    Args:
        start: the run, or its folder.
        plan: a TOML file with the tasks, or a TasksPlan, whose paths are then those of the files.
        out: the run folder to write.
        how: as in `finetune`.
        settings: changes of the recipe, as "train.optim.lr=0.001"; of tasks those of the main one.
        plugin: the file with code of your own that `start` was trained with.
        language: of the texts, for a model with language embeddings.
        options: a RunOptions, for what is the same in several calls.
        keywords: fields of RunOptions that differ from `options`: seed (of the first weights, the order of the data and dropout),
            resume (continue the run that is in `out`), overwrite (delete it and start again), device ("auto", "cpu", "cuda"),
            deterministic (the same bits every time on a GPU), country (whose electricity is counted as CO2), shared (a folder
            for the starts of runs that differ only in their budget), on_log (called with each line of metrics.jsonl as a dict).
    """
    opened = OpenedPlan.read(plan)
    main = opened.plan.main
    check_transfer(main.task, how)
    before = open_start(start, out, plugin, language)
    options = replace(options, **keywords)
    recipe = opened.recipe(recipe_after(before, main.task, how, settings), how)
    files, layouts = opened.files(), opened.layouts()
    dataset: Dataset = JointFiles(recipe, files, before.source_tokenizer, layouts)
    run = train_run(dataset, Path(out), options, transfer_from(before))
    return with_report(run, files[main.called], **layouts[main.called])
