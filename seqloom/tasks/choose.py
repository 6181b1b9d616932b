"""Which of several texts goes on with a text. Zellers et al., 2018 (SWAG); read as in Devlin et al., 2018: a sequence for each
choice, a score for each sequence, one softmax over the choices of a question."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from seqloom.batch import Labelled, Loss, wide
from seqloom.batches.labelled import Frame
from seqloom.blocks.pooling import log_softmax_within
from seqloom.metrics.labels import label_scores
from seqloom.tasks.classify import Classify
from seqloom.tasks.transfer import Encoded, Rows, encode_texts
from seqloom.text.labelled import Example
from seqloom.tokens.tokenizer import Tokenizer


class Choose(Classify):
    """Picks one of several continuations."""

    files = "choose"
    fields = ("text", "choices")

    def outputs(self) -> int:
        return 1

    @classmethod
    def survey(cls, examples: Sequence[Example]) -> dict[str, Any]:
        return {}

    @classmethod
    def check_against(cls, examples: Sequence[Example], about: Mapping[str, Any]) -> None:
        """Every question brings its own choices."""

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        """The label of a sequence is 1 where its choice is right, else 0."""
        labels = [[np.int64(i == example.label) for i in range(len(example.texts) - 1)] for example in examples]
        return encode_texts(
            examples, tokenizer, frame, lambda texts: [[texts[0], choice] for choice in texts[1:]], labels
        )

    def logits(self, features: Tensor, example: Labelled) -> Tensor:
        """(N,) log-probabilities among the choices of a question."""
        scores = wide(super().logits(features, example)[:, 0])
        # no more questions than sequences, and filler
        return log_softmax_within(scores, example.groups, len(scores) + 1)

    def label_weights(self, example: Labelled) -> Tensor:
        return example.labels == 1  # one of an example's choices

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        right = self.label_weights(example)
        return Loss(-(logits * right).sum(), right.sum())

    def predictions(
        self, logits: Tensor, example: Labelled, asked: Sequence[Example], rows: Rows
    ) -> list[dict[str, Any]]:
        values = iter(logits.exp().tolist())
        probabilities = [[next(values) for _ in each] for each in rows]
        return [choice_of(row) for row in probabilities]

    def ensemble(self, predictions: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        return [
            choice_of(np.mean([each["probabilities"] for each in same], axis=0).tolist())
            for same in zip(*predictions, strict=True)
        ]

    @classmethod
    def scores(cls, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return label_scores([str(each.label) for each in examples], [str(each["label"]) for each in predictions])


def choice_of(probabilities: Sequence[float]) -> dict[str, Any]:
    """The most likely choice, as `predict` writes it."""
    return {"label": int(np.argmax(probabilities)), "probabilities": [round(p, 6) for p in probabilities]}
