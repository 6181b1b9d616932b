"""Regression: a number for a text, or for two, such as how good or how similar they are.

The loss is the squared error of numbers that are standardised to mean 0 and standard deviation 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor

from seqloom.batch import Backbone, Labelled, Loss, wide
from seqloom.batches.labelled import Frame
from seqloom.errors import DataError
from seqloom.metrics.labels import number_scores
from seqloom.tasks.classify import Classify
from seqloom.tasks.transfer import Encoded, Rows, encode_texts
from seqloom.text.labelled import Example
from seqloom.tokens.tokenizer import Tokenizer


class Regress(Classify):
    """Predicts a number for a text."""

    main_metric = "pearson"
    files = "regress"
    about_pictures = False
    fields = ("text", "text2")

    class Config(Classify.Config):
        mean: float = Field(
            0.0,
            allow_inf_nan=False,
            description="Mean of the training numbers, which is subtracted; found in the training files.",
        )
        spread: float = Field(
            1.0,
            gt=0,
            allow_inf_nan=False,
            description="Standard deviation of the training numbers, by which they are divided; found in the training files.",
        )

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.mean, self.spread = config.mean, config.spread

    def outputs(self) -> int:
        return 1

    @classmethod
    def survey(cls, examples: Sequence[Example]) -> dict[str, Any]:
        numbers = np.array([example.label for example in examples], np.float64)
        if numbers.std() == 0:
            raise DataError(
                f"{examples[0].place}: all {len(numbers):,} labels are {numbers[0]:g}: there is nothing to predict"
            )
        return {"mean": float(numbers.mean()), "spread": float(numbers.std())}

    @classmethod
    def check_against(cls, examples: Sequence[Example], about: Mapping[str, Any]) -> None:
        """Any number may come."""

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        numbers = [np.nan if example.label is None else float(example.label) for example in examples]
        labels = [[np.float32((number - self.mean) / self.spread)] for number in numbers]
        return encode_texts(examples, tokenizer, frame, lambda texts: [texts], labels)

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        known = ~example.labels.isnan()
        errors = wide(logits)[:, 0] - example.labels.where(known, 0.0)
        return Loss((errors.square() * known).sum(), known.sum())

    def predictions(
        self, logits: Tensor, example: Labelled, asked: Sequence[Example], rows: Rows
    ) -> list[dict[str, Any]]:
        counts = [len(each) for each in rows]
        values = wide(logits)[: sum(counts), 0].split(counts)
        found = [{"label": windows.mean().item() * self.spread + self.mean} for windows in values]
        return self.with_windows(found, rows)

    def ensemble(self, predictions: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        return [{"label": sum(each["label"] for each in same) / len(same)} for same in zip(*predictions, strict=True)]

    @classmethod
    def scores(cls, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return number_scores([float(each.label or 0) for each in examples], [each["label"] for each in predictions])
