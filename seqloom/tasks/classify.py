"""Text classification: one linear layer over one vector for the whole text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, Labelled, Loss, wide
from seqloom.batches.labelled import Frame
from seqloom.config import unknown_name
from seqloom.errors import DataError, UsageError
from seqloom.metrics.labels import label_scores
from seqloom.tasks.transfer import Encoded, Rows, Summary, Transfer, encode_texts, label_layer
from seqloom.text.labelled import Example, example_of, read_labelled
from seqloom.text.tables import PLAIN, Layout, say_once
from seqloom.tokens.tokenizer import Tokenizer

CLASSES = ("classify", "pair")  # tasks that predict one of several classes
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Classify(Transfer):
    """Predicts the class of a text."""

    main_metric = "accuracy"
    over_targets = ("summary", "head")  # they run once a text, not over every token
    files: ClassVar[str] = "classify"  # how its files are read
    about_pictures = True

    class Config(Transfer.Config):
        labels: tuple[str, ...] = Field(
            (), max_length=10_000, description="The classes; taken from the training files unless they are given."
        )
        pool: Literal["summary", "first", "last", "mean", "max", "concat"] = Field(
            "summary", description="How the states of a text become one vector; summary: as the model itself has it."
        )
        class_weights: Literal["none", "balanced"] | dict[str, Weight] = Field(
            "none",
            description="Weights of the classes in the training loss: none, balanced (every class counts as much in all), or a "
            "table such as {spam = 5.0}, where others have 1. They are scaled so that their mean over the examples is 1.",
        )
        calibrate: bool = Field(
            False,
            description="Fit a temperature to the validation files after training, by which predictions divide their logits.",
        )
        long_texts: Literal["cut", "windows"] = Field(
            "cut",
            description="How held-out texts longer than the model reads are read: cut after as many tokens as it reads, or in "
            "windows, whose probabilities (numbers, for regress) are averaged. Training texts are cut.",
        )
        threshold_class: str | None = Field(
            None,
            description="Class that is predicted where its probability is above a threshold, which is chosen on the validation "
            "files for the best F1 of that class; none: the most likely class is predicted.",
        )

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.labels = list(config.labels)
        self.summary = Summary(backbone, self.width, config.pool, self.is_top)
        self.head = label_layer(self.summary.width, self.outputs())
        self.calibrate, self.threshold_class, self.long_texts = (
            config.calibrate,
            config.threshold_class,
            config.long_texts,
        )
        check_settings(self.files, config)
        self.temperature = 1.0
        self.threshold: tuple[str, float] | None = None  # a class, and the least probability with which it is predicted
        self.weights: Tensor | None
        self.register_buffer("weights", self.class_weights(config.class_weights), persistent=False)
        if config.threshold_class is not None and self.labels and config.threshold_class not in self.labels:
            raise UsageError(
                unknown_name(
                    "class in 'task.threshold_class'", config.threshold_class, config.threshold_class, self.labels
                )
            )

    def class_weights(self, weights: str | Mapping[str, float]) -> Tensor | None:
        """(classes,) weights in the loss, if there are any. "balanced" has become a table where examples are known."""
        if isinstance(weights, str):
            return None
        for name in weights if self.labels else ():
            if name not in self.labels:
                raise UsageError(unknown_name("class in 'task.class_weights'", name, name, self.labels))
        return torch.tensor([weights.get(label, 1.0) for label in self.labels])

    def outputs(self) -> int:
        return len(self.labels)

    @classmethod
    def read(cls, paths: Sequence[Path], need_labels: bool = True, layout: Layout = PLAIN) -> Iterator[Any]:
        return read_labelled(paths, cls.files, need_labels, layout)

    @classmethod
    def column_fields(cls, need_labels: bool) -> dict[str, str]:
        return {"text": "text", "label": "label"} | ({"pair": cls.fields[1]} if len(cls.fields) > 1 else {})

    @classmethod
    def of_row(cls, row: dict[str, Any], place: str) -> Example:
        return example_of(row, cls.files, place, need_labels=False)

    @classmethod
    def survey(cls, examples: Sequence[Example]) -> dict[str, Any]:
        labels = sorted({str(example.label) for example in examples})
        if len(labels) < 2:
            raise DataError(
                f"{examples[0].place}: all {len(examples):,} examples are of the class {labels[0]!r}: there is nothing to predict"
            )
        remark_on_labels(labels)
        return {"labels": labels}

    @classmethod
    def configure(cls, task: Mapping[str, Any], examples: Sequence[Example]) -> dict[str, Any]:
        """Class weights become numbers whose mean over the examples is 1."""
        found = super().configure(task, examples)
        weights = found.get("class_weights", "none")
        if cls.files in CLASSES and (weights == "balanced" or isinstance(weights, Mapping)):
            counts = Counter(str(example.label) for example in examples)
            given = {label: 1 / n for label, n in counts.items()} if weights == "balanced" else weights
            if unknown := [name for name in given if name not in found["labels"]]:
                raise UsageError(
                    unknown_name("class in 'task.class_weights'", unknown[0], unknown[0], list(found["labels"]))
                )
            mean = sum(n * given.get(label, 1.0) for label, n in counts.items()) / len(examples)
            found["class_weights"] = {label: round(given.get(label, 1.0) / mean, 6) for label in found["labels"]}
        return found

    @classmethod
    def check_against(cls, examples: Sequence[Example], about: Mapping[str, Any]) -> None:
        labels = about["labels"]
        for example in examples:
            if example.label not in labels:
                known = ", ".join(labels[:10]) + (" …" if len(labels) > 10 else "")
                raise DataError(f"{example.place}: the label {example.label!r} is not in the training files ({known})")

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        number = {label: i for i, label in enumerate(self.labels)}
        labels = [[np.int64(number.get(str(example.label), IGNORE))] for example in examples]
        return encode_texts(examples, tokenizer, frame, lambda texts: [texts], labels)

    def logits(self, features: Tensor, example: Labelled) -> Tensor:
        """(N, classes)"""
        return self.head(self.dropout(self.summary(features, example)))

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        weights = self.weights if self.training else None  # held-out losses stay comparable
        total = F.cross_entropy(wide(logits), example.labels, weights, ignore_index=IGNORE, reduction="sum")
        return Loss(total, (example.labels != IGNORE).sum())

    def predictions(
        self, logits: Tensor, example: Labelled, asked: Sequence[Example], rows: Rows
    ) -> list[dict[str, Any]]:
        scores = self.example_logits(logits, rows)
        scores = scores if self.temperature == 1 else scores / self.temperature
        found = [self.prediction_of(row) for row in scores.softmax(1).tolist()]
        return self.with_windows(found, rows)

    def example_logits(self, logits: Tensor, rows: Rows) -> Tensor:
        """(examples, classes): of an example in several windows the logarithm of their mean probabilities."""
        counts = [len(each) for each in rows]
        if max(counts) == 1:
            return wide(logits)[: len(counts)]
        parts = wide(logits).softmax(1)[: sum(counts)].split(counts)
        return torch.stack([part.mean(0) for part in parts]).log()

    def with_windows(self, predictions: list[dict[str, Any]], rows: Rows) -> list[dict[str, Any]]:
        """Predictions with the number of windows that each is of, where long texts are read in windows."""
        if self.long_texts == "cut":
            return predictions
        return [each | {"windows": len(windows)} for each, windows in zip(predictions, rows, strict=True)]

    def prediction_of(self, probabilities: Sequence[float]) -> dict[str, Any]:
        """The most likely class, or that of the threshold where it is above it; and the probability of each."""
        order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
        best = order[0]
        if self.threshold is not None:
            chosen = self.labels.index(self.threshold[0])
            others = [i for i in order if i != chosen]
            best = chosen if probabilities[chosen] >= self.threshold[1] or not others else others[0]
        rounded = {label: round(p, 6) for label, p in zip(self.labels, probabilities, strict=True)}
        return {"label": self.labels[best], "probabilities": rounded}

    def ensemble(self, predictions: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        mean = np.mean([[list(each["probabilities"].values()) for each in run] for run in predictions], axis=0)
        return [self.prediction_of(row) for row in mean.tolist()]

    @classmethod
    def scores(cls, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return label_scores([str(each.label) for each in examples], [each["label"] for each in predictions])


def remark_on_labels(labels: Sequence[str]) -> None:
    """Says which classes are probably one, or the rest of a broken row."""
    known: dict[str, str] = {}
    for label in labels:
        first = known.setdefault(" ".join(label.lower().split()), label)
        if first != label:
            say_once(f"warning: the labels {first!r} and {label!r} differ in case or blanks only, and are two classes")
        if len(label.splitlines()) > 1:
            say_once(f"warning: the label {label!r} has a line break: is a quote missing in its file?")


def check_settings(task: str, config: Classify.Config) -> None:
    """Raises UsageError for settings that have no effect in a task."""
    defaults = {"class_weights": "none", "calibrate": False, "threshold_class": None}
    unused = {
        name: CLASSES for name, value in defaults.items() if task not in CLASSES and getattr(config, name) != value
    }
    unused |= (
        {"long_texts": ("classify", "regress")} if task in ("pair", "choose") and config.long_texts != "cut" else {}
    )
    for name, tasks in unused.items():
        raise UsageError(f"'task.{name}' is for {' and '.join(tasks)}, not for {task}: leave it out")
