"""Predictions of a task for labelled texts, with their loss and scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from seqloom.batch import to_device
from seqloom.batches.labelled import Examples, batch_of
from seqloom.batches.plan import portions
from seqloom.evaluate.perplexity import Stop, never
from seqloom.progress import Progress
from seqloom.tasks.transfer import Transfer


@torch.inference_mode()
def predict_examples(
    learner: Transfer,
    examples: Examples,
    asked: Sequence[Any],
    device: torch.device,
    stop: Stop = never,
    title: str = "predict",
    batch_tokens: int = 16384,
) -> tuple[list[dict[str, Any]], float]:
    """The prediction for each example, in their order, and the mean loss (NaN where no label is known)."""
    predictions: list[dict[str, Any]] = [{}] * len(asked)
    sizes = np.array([sum(len(row.ids) for row in rows) for rows in examples.rows])
    order = np.argsort(sizes, kind="stable")  # similar lengths together
    total = count = 0.0
    with Progress(title, total=len(order), unit="examples") as bar:
        for part in portions([sizes[order]], [batch_tokens]) if len(order) else ():
            stop()
            index = order[part]
            rows = [examples.rows[i] for i in index]
            example = to_device(batch_of(rows), device)
            logits = learner.logits(learner.features(example.batch)[0], example)
            loss = learner.loss(logits, example)
            total, count = total + float(loss.total), count + float(loss.count)
            found = learner.predictions(logits, example, [asked[i] for i in index], rows)
            for i, prediction in zip(index, found, strict=True):
                predictions[i] = prediction
            bar.advance(len(index))
    return predictions, total / count if count else float("nan")


def evaluate_examples(
    learner: Transfer,
    examples: Examples,
    asked: Sequence[Any],
    device: torch.device,
    stop: Stop = never,
    title: str = "validate",
) -> dict[str, Any]:
    """Loss and scores; `score` is the task's main metric."""
    predictions, loss = predict_examples(learner, examples, asked, device, stop, title)
    scores = learner.scores(asked, predictions)
    return {"loss": loss, "score": scores[learner.main_metric], **scores}
