"""Text classification: one linear layer over one vector for the whole text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, Labelled, Loss, wide
from seqloom.batches.labelled import Frame
from seqloom.errors import DataError
from seqloom.metrics.labels import label_scores
from seqloom.tasks.transfer import Encoded, Rows, Summary, Transfer, encode_texts, label_layer
from seqloom.text.labelled import Example, example_of, read_labelled
from seqloom.text.tables import PLAIN, Layout
from seqloom.tokens.tokenizer import Tokenizer


class Classify(Transfer):
    """Predicts the class of a text."""

    main_metric = "accuracy"
    over_targets = ("summary", "head")  # they run once a text, not over every token
    files: ClassVar[str] = "classify"  # how its files are read

    class Config(Transfer.Config):
        labels: tuple[str, ...] = Field(
            (), max_length=10_000, description="The classes; taken from the training files unless they are given."
        )
        pool: Literal["summary", "first", "last", "mean", "max", "concat"] = Field(
            "summary", description="How the states of a text become one vector; summary: as the model itself has it."
        )

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.labels = list(config.labels)
        self.summary = Summary(backbone, self.width, config.pool, self.is_top)
        self.head = label_layer(self.summary.width, self.outputs())

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
        return {"labels": labels}

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
        total = F.cross_entropy(wide(logits), example.labels, ignore_index=IGNORE, reduction="sum")
        return Loss(total, (example.labels != IGNORE).sum())

    def predictions(
        self, logits: Tensor, example: Labelled, asked: Sequence[Example], rows: Rows
    ) -> list[dict[str, Any]]:
        return [self.prediction_of(row) for row in wide(logits).softmax(1)[: len(asked)].tolist()]

    def prediction_of(self, probabilities: Sequence[float]) -> dict[str, Any]:
        """The most likely class, and the probability of each."""
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        rounded = {label: round(p, 6) for label, p in zip(self.labels, probabilities, strict=True)}
        return {"label": self.labels[best], "probabilities": rounded}

    def ensemble(self, predictions: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        mean = np.mean([[list(each["probabilities"].values()) for each in run] for run in predictions], axis=0)
        return [self.prediction_of(row) for row in mean.tolist()]

    @classmethod
    def scores(cls, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return label_scores([str(each.label) for each in examples], [each["label"] for each in predictions])
