"""What tasks are learnt from: files read, tokenised and cut into batches, and what is measured on those held out."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from seqloom.batch import Learner
from seqloom.batches.labelled import Examples, LabelledBatches
from seqloom.batches.pairs import EncodedPairs, encode_pairs
from seqloom.batches.passages import Marks
from seqloom.batches.plan import Batches
from seqloom.batches.tagged import TaggedPassages, TaggedText, encode_tagged
from seqloom.errors import UsageError
from seqloom.evaluate.labelled import judge
from seqloom.evaluate.masked import HeldOut, masked_loss
from seqloom.evaluate.pairs import parallel_loss
from seqloom.evaluate.translation import pair_loss
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.translation_lm import TranslationLM
from seqloom.progress import say
from seqloom.recipes.schema import Recipe
from seqloom.runs.language_model import Run
from seqloom.runs.predictor import Predictor, held_out_frame, say_cut
from seqloom.runs.translator import Translator
from seqloom.tasks import task_class
from seqloom.text.pairs import read_pairs, repeated
from seqloom.text.tagged import read_tagged
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.weights import shapes_only

Splits = dict[str, list[Path]]  # train, and what is held out; empty lists are left out


class Encoded(Protocol):
    """One split as numbers."""

    words: int
    bytes: int

    def __len__(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...


class Material(Protocol):
    what: str  # its examples are called
    splits: dict[str, Any]  # of Encoded
    recipe: Recipe  # with what follows from the files

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer): ...
    @staticmethod
    def texts(files: list[Path], task: str) -> Iterator[str]:
        """What a tokenizer is learnt from."""

    def batches(self, shapes: str) -> Batches: ...
    def measure(self, learner: Learner, device: torch.device, stop: Callable[[], bool]) -> dict[str, float] | None:
        """The loss on the valid split."""

    def score(self, run: Run | Translator | Predictor, split: str) -> dict[str, Any]:
        """What a finished run is worth on a split."""


class Pairs:
    """Sources and targets."""

    what = "pairs"

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer):
        assert recipe.task is not None
        self.recipe, self.files = recipe, files
        limit = getattr(recipe.model_config_of(1), "max_len", None)
        lengths = {"train": recipe.batches.length}  # held-out pairs may be as long as the model can read
        start = recipe.task.get("start_id")
        self.splits: dict[str, EncodedPairs] = {
            name: encode_pairs(read_pairs(paths), tokenizer, lengths.get(name, limit), name, start)
            for name, paths in files.items()
        }
        for name in self.splits:
            places = [] if name == "train" else repeated(read_pairs(files[name]), read_pairs(files["train"]))
            if places:
                first = ", ".join(places[:3])
                say(f"warning: {len(places):,} sources of {name} are in the training text, too (first: {first})")

    @staticmethod
    def texts(files: list[Path], task: str) -> Iterator[str]:
        for pair in read_pairs(files):
            yield from pair[:2]

    def batches(self, shapes: str) -> Batches:
        return self.recipe.batches.build_pairs(self.splits["train"], shapes)

    def measure(self, learner: Any, device: torch.device, stop: Callable[[], bool]) -> dict[str, float] | None:
        if isinstance(learner, TranslationLM):
            return parallel_loss(learner, self.splits["valid"], device, stop)
        return pair_loss(learner, self.splits["valid"], device, stop=stop)

    def score(self, run: Run | Translator | Predictor, split: str) -> dict[str, Any]:
        if isinstance(run, Translator):
            return run.evaluate(list(read_pairs(self.files[split])))
        assert isinstance(run.learner, TranslationLM)
        return done(parallel_loss(run.learner, self.splits[split], run.device))


class Tagged:
    """Sentences with tags."""

    what = "sentences"

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer):
        self.recipe = recipe
        self.marks = Marks.of(tokenizer)
        self.splits: dict[str, TaggedText] = {
            name: encode_tagged(read_tagged(paths), tokenizer, name) for name, paths in files.items()
        }

    @staticmethod
    def texts(files: list[Path], task: str) -> Iterator[str]:
        return (sentence.text for sentence in read_tagged(files))

    def passages(self, split: str) -> TaggedPassages:
        batches = self.recipe.batches
        return TaggedPassages(self.splits[split], self.marks, "single", batches.budget, batches.length, (0, 0.9), 1.0)

    def batches(self, shapes: str) -> Batches:
        return self.passages("train")

    def measure(self, learner: Any, device: torch.device, stop: Callable[[], bool]) -> dict[str, float] | None:
        return masked_loss(learner, HeldOut(self.passages("valid")), device, stop=stop, title="validate")

    def score(self, run: Run | Translator | Predictor, split: str) -> dict[str, Any]:
        assert isinstance(run.learner, MaskedLM)
        return done(masked_loss(run.learner, HeldOut(self.passages(split)), run.device))


def watched(recipe: Recipe, validated: bool) -> str:
    """What decides which weights are the best. Without validation nothing does: then the last ones are kept."""
    if recipe.train.watch == "score" and not validated:
        raise UsageError(
            f'{recipe.name}: train.watch = "score" needs examples to validate on: give --valid (in a plan the task\'s valid), '
            "or leave train.watch out"
        )
    if recipe.train.watch == "auto":
        return "score" if validated else "loss"
    return recipe.train.watch


class LabelledTexts:
    """Texts that something is told about. What follows from the training files, classes above all, goes into the recipe.
    chosen: of the training examples those that are learnt from; classes are still those of all."""

    what = "examples"

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer, chosen: Sequence[int] | None = None):
        assert recipe.task is not None
        cls: Any = task_class(recipe.task["name"])
        self.examples: dict[str, list[Any]] = {name: list(cls.read(paths)) for name, paths in files.items()}
        task = cls.survey(self.examples["train"]) | recipe.task
        if chosen is not None:
            self.examples["train"] = [self.examples["train"][i] for i in chosen]
        steps = recipe.steps_an_epoch(len(self.examples["train"]))
        decided = {"eval_every": recipe.train.eval_every or steps, "watch": watched(recipe, "valid" in files)}
        train = recipe.train.model_copy(update=decided)
        self.recipe = recipe.model_copy(update={"task": task, "train": train})
        with shapes_only():
            learner = self.recipe.learner(tokenizer.vocab_size)
        told = held_out_frame(learner, tokenizer, recipe)
        assert told.limit is not None
        learnt = told._replace(limit=min(recipe.batches.length, told.limit))
        self.splits: dict[str, Examples] = {}
        for name, examples in self.examples.items():
            learner.check(examples)
            frame = learnt if name == "train" else told
            rows, cut = learner.encode(examples, tokenizer, frame)
            say_cut(cut, frame, name)
            texts = [text for example in examples for text in cls.texts_of(example)]
            words, size = sum(len(text.split()) for text in texts), sum(len(text.encode()) for text in texts)
            self.splits[name] = Examples(rows, words, size)
        self.say_repeated(cls)

    def say_repeated(self, cls: Any) -> None:
        known = {tuple(cls.texts_of(example)) for example in self.examples["train"]}
        for name, examples in self.examples.items():
            places = [each.place for each in examples if tuple(cls.texts_of(each)) in known] if name != "train" else []
            if places:
                first = ", ".join(places[:3])
                say(f"warning: {len(places):,} examples of {name} are in the training files, too (first: {first})")

    @staticmethod
    def texts(files: list[Path], task: str) -> Iterator[str]:
        cls: Any = task_class(task)
        for example in cls.read(files):
            yield from cls.texts_of(example)

    def batches(self, shapes: str) -> Batches:
        return LabelledBatches(self.splits["train"], self.recipe.batches.examples, fixed=shapes != "free")

    def measure(self, learner: Any, device: torch.device, stop: Callable[[], bool]) -> dict[str, Any] | None:
        return judge(learner, self.splits["valid"], self.examples["valid"], device, stop)

    def score(self, run: Any, split: str) -> dict[str, Any]:
        return done(judge(run.learner, self.splits[split], self.examples[split], run.device, title=f"score {split}"))


def done(result: dict[str, Any] | None) -> dict[str, Any]:
    assert result is not None, "nobody asks a measurement after training to stop"
    return result


MATERIALS: dict[str, Any] = {"pairs": Pairs, "tagged": Tagged, "labelled": LabelledTexts}  # by what a learner reads


def material_of(learner: type[Learner], task: str) -> Any:
    if learner.reads not in MATERIALS:
        raise UsageError(f"the task {task} reads {learner.reads}, for which there are no files")
    return MATERIALS[learner.reads]
