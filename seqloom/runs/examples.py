"""The files of tasks as datasets: read, tokenised and cut into batches."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from seqloom.batch import EncoderDecoder, Learner
from seqloom.batches.labelled import Examples, LabelledBatches
from seqloom.batches.pairs import EncodedPairs, PairFrame, encode_pairs
from seqloom.batches.passages import Marks
from seqloom.batches.pictures import EncodedCaptions, attach_pictures, encode_captions
from seqloom.batches.plan import Batches
from seqloom.batches.tagged import TaggedPassages, TaggedText, encode_tagged
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.config import named_object
from seqloom.errors import UsageError
from seqloom.evaluate.labelled import class_logits, evaluate_examples, table_of_states, with_states
from seqloom.evaluate.masked import masked_loss
from seqloom.models import model_class
from seqloom.progress import Progress, say
from seqloom.recipes.schema import Recipe
from seqloom.runs.beside import BesideRuns
from seqloom.runs.calibration import fit_calibration, load_calibration, write_calibration
from seqloom.runs.captioner import captioner_size
from seqloom.runs.predictor import LongTexts, held_out_frame, picture_size
from seqloom.runs.translator import Translator
from seqloom.tasks import task_class
from seqloom.text.images import read_captions
from seqloom.text.pairs import read_pairs, repeated_sources
from seqloom.text.tables import PLAIN, Layout
from seqloom.text.tagged import read_tagged
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.loop import Precompute
from seqloom.training.precision import choose_precision
from seqloom.training.share import Share
from seqloom.training.state import Budget
from seqloom.weights import shapes_only

Splits = dict[str, list[Path]]  # train, and what is held out; empty lists are left out


class Encoded(Protocol):
    """One split, tokenised."""

    words: int
    bytes: int

    def __len__(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...


class ExampleFiles:
    """A Dataset of files, read whole; what all kinds of files share."""

    examples_are: str
    splits: dict[str, Any]  # of Encoded
    beside: BesideRuns | None = None
    source_tokenizer: Tokenizer | None = None

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer):
        if recipe.train.watch == "bleu" and "valid" not in files:
            raise UsageError('train.watch = "bleu" needs --valid, whose translation is scored')
        self.recipe, self.files, self.tokenizer = recipe, files, tokenizer

    def __repr__(self) -> str:
        held_out = [f"{len(part):,} {name}" for name, part in self.splits.items() if name != "train"]
        return f"<{type(self).__name__} for {self.recipe.name}: {', '.join([self.summary, *held_out])}>"

    @property
    def num_tokens(self) -> int:
        return self.splits["train"].num_tokens

    @property
    def words(self) -> float:
        return self.splits["train"].words

    @property
    def vocabulary(self) -> PreparedVocabulary:
        return PreparedVocabulary(self.tokenizer)

    @property
    def summary(self) -> str:
        return f"{len(self.splits['train']):,} {self.examples_are} with {self.num_tokens:,} tokens to learn from"

    @property
    def validates(self) -> bool:
        return "valid" in self.files

    def precompute(self, learner: Any, device: torch.device, budget: Budget) -> Precompute | None:
        """Everything is computed when it is read."""

    def calibrate(self, run: Any) -> None:
        """There are no probabilities of classes."""

    @property
    def scored(self) -> tuple[str, ...]:
        return tuple(name for name in self.files if name != "train")

    def source(self) -> dict[str, Any]:
        return {
            "files": {name: [str(file) for file in files] for name, files in self.files.items()},
            "fingerprint": "-".join(part.fingerprint[:16] for part in self.splits.values()),
        }

    def describe(self) -> dict[str, Any]:
        return {
            "splits": {name: counts(part) for name, part in self.splits.items()},
            "sources": [{"name": file.name} for files in self.files.values() for file in files],
            "options": {"tokenizer": self.tokenizer.kind},
            "vocab_size": self.tokenizer.vocab_size,
        }


def counts(part: Encoded) -> dict[str, Any]:
    """The sizes of a split under the names of a manifest; for pairs the words and tokens of the targets."""
    return {"documents": len(part), "words": part.words, "tokens": part.num_tokens, "bytes": part.bytes}


class PairFiles(ExampleFiles):
    """Pairs of a source and a target. source_tokenizer: where sources have a vocabulary of their own; its size goes into the
    recipe."""

    examples_are = "pairs"

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer, source_tokenizer: Tokenizer | None = None):
        if source_tokenizer is not None:
            model_section = recipe.model | {"source_vocab_size": source_tokenizer.vocab_size}
            recipe = recipe.model_copy(update={"model": model_section})
        super().__init__(recipe, files, tokenizer)
        self.source_tokenizer = source_tokenizer
        assert recipe.task is not None
        limit = getattr(recipe.model_config_of(1), "max_len", None)
        lengths = {"train": recipe.batches.length}  # held-out pairs may be as long as the model can read
        model: Any = model_class(recipe.model["name"])
        frame = None
        if issubclass(model, EncoderDecoder):
            frame = PairFrame.of(model, tokenizer, recipe.task.get("start_id"), source_tokenizer)
        self.splits: dict[str, EncodedPairs] = {
            name: encode_pairs(
                read_pairs(paths),
                tokenizer,
                lengths.get(name, limit),
                name,
                frame,
                source_tokenizer,
                translates=frame is not None and name != "train",
            )
            for name, paths in files.items()
        }
        for name in self.splits:
            places = [] if name == "train" else repeated_sources(read_pairs(files[name]), read_pairs(files["train"]))
            if places:
                first = ", ".join(places[:3])
                many = f"1 source of {name} is" if len(places) == 1 else f"{len(places):,} sources of {name} are"
                say(f"warning: {many} in the training text, too (first: {first})")

    @staticmethod
    def texts(files: list[Path], task: str, sides: slice = slice(0, 2)) -> Iterator[str]:
        """sides: of each pair: the source, the target, or both."""
        for pair in read_pairs(files):
            yield from (pair.source, pair.target)[sides]

    def describe(self) -> dict[str, Any]:
        found = super().describe()
        if self.source_tokenizer is not None:
            kind, entries = self.source_tokenizer.kind, self.source_tokenizer.vocab_size
            found["options"]["source_tokenizer"] = f"{kind}, {entries:,} entries"
        return found

    def batches(self, epochs: float, shapes: str) -> Batches:
        return self.recipe.batches.build_pairs(self.splits["train"], shapes)

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        result = named_object(learner.pair_evaluator)(learner, self.splits["valid"], device, share=share)
        if self.recipe.train.watch == "bleu":
            config = {"recipe": self.recipe.model_dump()}
            now = Translator(
                Path("the run in training"), config, learner, self.tokenizer, device, self.source_tokenizer
            )
            result["bleu"] = self.score(now, "valid", share)["bleu"]
        return result

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        if isinstance(run, Translator):
            return run.evaluate(list(read_pairs(self.files[split])), share=share)
        return named_object(run.learner.pair_evaluator)(run.learner, self.splits[split], run.device, share=share)


class CaptionFiles(ExampleFiles):
    """Pictures with captions, each of which is a target."""

    examples_are = "captions"

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer):
        super().__init__(recipe, files, tokenizer)
        assert recipe.task is not None
        limit = getattr(recipe.model_config_of(1), "max_len", None)
        model: Any = model_class(recipe.model["name"])
        frame, size = PairFrame.of(model, tokenizer, recipe.task.get("start_id")), captioner_size(recipe)
        self.rows = {name: read_captions(paths) for name, paths in files.items()}
        self.splits: dict[str, EncodedCaptions] = {
            name: encode_captions(
                rows, tokenizer, recipe.batches.length if name == "train" else limit, name, frame, size
            )
            for name, rows in self.rows.items()
        }
        known = {row.image.resolve() for row in self.rows["train"]}
        for name, rows in self.rows.items():
            places = [row.place for row in rows if row.image.resolve() in known] if name != "train" else []
            if places:
                first = ", ".join(places[:3])
                many = f"1 picture of {name} is" if len(places) == 1 else f"{len(places):,} pictures of {name} are"
                say(f"warning: {many} in the training files, too (first: {first})")

    @staticmethod
    def texts(files: list[Path], task: str) -> Iterator[str]:
        for row in read_captions(files):
            yield from row.captions

    def batches(self, epochs: float, shapes: str) -> Batches:
        return self.recipe.batches.build_captions(self.splits["train"], shapes)

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        return named_object(learner.pair_evaluator)(learner, self.splits["valid"], device, share=share)

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        return run.evaluate(self.rows[split], share=share)


class TaggedFiles(ExampleFiles):
    """Tagged sentences, whose entities are masked."""

    examples_are = "sentences"

    def __init__(self, recipe: Recipe, files: Splits, tokenizer: Tokenizer):
        super().__init__(recipe, files, tokenizer)
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

    def batches(self, epochs: float, shapes: str) -> Batches:
        return self.passages("train")

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        return masked_loss(learner, {"single": self.passages("valid")}, device, share=share, title="validate")

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        return masked_loss(run.learner, {"single": self.passages(split)}, run.device, share=share)


def watched_metric(recipe: Recipe, validated: bool) -> str:
    """The metric that decides which weights are the best. Without validation the last ones are kept."""
    if recipe.train.watch == "score" and not validated:
        raise UsageError(
            f'{recipe.name}: train.watch = "score" needs examples to validate on: give --valid (in a plan the task\'s valid), '
            "or leave train.watch out"
        )
    if recipe.train.watch == "auto":
        return "score" if validated else "loss"
    return recipe.train.watch


class LabelledFiles(ExampleFiles):
    """Texts with labels. What follows from the training files, such as the classes, goes into the recipe.
    chosen: the training examples to train on; the classes are still those of all."""

    examples_are = "examples"

    def __init__(
        self,
        recipe: Recipe,
        files: Splits,
        tokenizer: Tokenizer,
        chosen: Sequence[int] | None = None,
        layout: Layout = PLAIN,
        beside: BesideRuns | None = None,
    ):
        super().__init__(recipe, files, tokenizer)
        assert recipe.task is not None
        self.beside = beside
        cls: Any = task_class(recipe.task["name"])
        self.layout = layout
        self.examples: dict[str, list[Any]] = {
            name: list(cls.read(paths, layout=layout)) for name, paths in files.items()
        }
        task = cls.configure(recipe.task, self.examples["train"])
        if beside is not None:
            given = task.get("beside", {})
            if given.get("dim", 0) not in (0, beside.width):
                raise UsageError(
                    f"{recipe.name}: 'task.beside.dim' = {given['dim']}: the features of these runs are {beside.width} wide: "
                    f"leave it out"
                )
            task["beside"] = {**given, "dim": beside.width}
        elif task.get("beside"):
            raise UsageError(f"{recipe.name}: 'task.beside' is for features from other runs: name them by --beside")
        if chosen is not None:
            self.examples["train"] = [self.examples["train"][i] for i in chosen]
        steps = recipe.steps_an_epoch(len(self.examples["train"]))
        decided = {"eval_every": recipe.train.eval_every or steps, "watch": watched_metric(recipe, "valid" in files)}
        train = recipe.train.model_copy(update=decided)
        if "valid" not in files and (task.get("calibrate") or task.get("threshold_class") is not None):
            raise UsageError("'task.calibrate' and 'task.threshold_class' need --valid, to which they are fitted")
        self.recipe = recipe.model_copy(update={"tasks": (task,), "train": train})
        with shapes_only():
            learner = self.recipe.learner(tokenizer.vocab_size)
        held_out = held_out_frame(learner, tokenizer, recipe)
        assert held_out.limit is not None
        training = held_out._replace(limit=min(recipe.batches.length, held_out.limit), windows=False)
        self.splits: dict[str, Examples] = {}
        for name, examples in self.examples.items():
            learner.check(examples)
            frame = training if name == "train" else held_out
            rows, cut = learner.encode(examples, tokenizer, frame)
            rows = attach_pictures(rows, examples, picture_size(recipe), name)
            if beside is not None:
                rows = beside.attach(rows, [cls.texts_of(example) for example in examples], check=True)
            long = LongTexts()
            long.add(rows, cut, frame)
            long.say(frame, name)
            texts = [text for example in examples for text in cls.texts_of(example)]
            words, size = sum(len(text.split()) for text in texts), sum(len(text.encode()) for text in texts)
            self.splits[name] = Examples(rows, words, size)
        self.say_repeated(cls)

    def say_repeated(self, cls: Any) -> None:
        def key(example: Any) -> Any:
            image = getattr(example, "image", None)
            return tuple(cls.texts_of(example)), None if image is None else image.resolve()

        known = {key(example) for example in self.examples["train"]}
        for name, examples in self.examples.items():
            places = [each.place for each in examples if key(each) in known] if name != "train" else []
            if places:
                first = ", ".join(places[:3])
                many = f"1 example of {name} is" if len(places) == 1 else f"{len(places):,} examples of {name} are"
                say(f"warning: {many} in the training files, too (first: {first})")

    @staticmethod
    def texts(files: list[Path], task: str, layout: Layout = PLAIN) -> Iterator[str]:
        cls: Any = task_class(task)
        for example in cls.read(files, layout=layout):
            texts = cls.texts_of(example)
            # pictures without texts: their labels stand in, so that there is a vocabulary
            yield from texts if any(texts) else [str(example.label)]

    def source(self) -> dict[str, Any]:
        """The columns are kept, so that `predict` finds them in other files."""
        return super().source() | ({"columns": dict(self.layout.columns)} if self.layout.columns else {})

    def batches(self, epochs: float, shapes: str) -> Batches:
        return LabelledBatches(self.splits["train"], self.recipe.batches.examples, fixed=shapes != "free")

    def precompute(self, learner: Any, device: torch.device, budget: Budget) -> Precompute | None:
        """What a frozen model makes of its texts, where they are read more than once. A GPU computes it sooner than it is
        brought there; a run that may stop anywhere, by its time or steps, need not come to all of them."""
        reads_more = learner.beside_at.isdecimal() or self.splits["train"].rows[0][0].picture is not None
        exact = device.type == "cpu" and choose_precision(self.recipe.train.precision, device) == "fp32"
        reads_often = budget == Budget(budget.tokens) and self.num_tokens < budget.tokens
        if not learner.frozen or reads_more or not exact or not reads_often:
            return None
        try:
            tables: dict[str, np.ndarray] = {
                name: table_of_states(learner, self.splits[name]) for name in ("train", "valid") if name in self.splits
            }
        except OSError:  # a full disk
            return None
        learner.reads_kept = True
        return partial(self.keep_states, learner, tables, device)

    def keep_states(
        self, learner: Any, tables: dict[str, np.ndarray], device: torch.device, check: Callable[[], None]
    ) -> int:
        """Gives examples the states of the frozen model. Returns the operations for those to learn from; as everywhere, those of
        evaluation are not counted."""
        operations, many = 0, sum(len(self.splits[name]) for name in tables)
        with Progress("features", total=many, unit="examples") as bar:
            for name, table in tables.items():
                part = self.splits[name]
                part.rows, added = with_states(learner, part, table, device, bar, check)
                operations += added if name == "train" else 0
        return operations

    def calibrate(self, run: Any) -> None:
        learner = run.learner
        if not getattr(learner, "calibrate", False) and getattr(learner, "threshold_class", None) is None:
            return
        gold = np.array([learner.labels.index(str(each.label)) for each in self.examples["valid"]])
        record = fit_calibration(learner, class_logits(learner, self.splits["valid"], run.device), gold)
        write_calibration(run.folder, learner, record)
        load_calibration(run.folder, learner)

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        return evaluate_examples(learner, self.splits["valid"], self.examples["valid"], device, share)

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        return evaluate_examples(
            run.learner, self.splits[split], self.examples[split], run.device, share, f"score {split}"
        )


DATASETS: dict[str, Any] = {
    "pairs": PairFiles,
    "pictures": CaptionFiles,
    "tagged": TaggedFiles,
    "labelled": LabelledFiles,
}  # by what a task reads


def dataset_class(task: type[Learner], name: str) -> Any:
    if task.reads not in DATASETS:
        raise UsageError(f"the task {name} reads {task.reads}, for which there are no files")
    return DATASETS[task.reads]
