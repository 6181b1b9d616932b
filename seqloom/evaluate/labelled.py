"""Predictions of a task for labelled texts, with their loss and scores."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from seqloom.batch import Labelled, exact, to_device
from seqloom.batches.labelled import Examples, batch_of
from seqloom.batches.plan import portions
from seqloom.evaluate.perplexity import Stop, never
from seqloom.progress import Progress
from seqloom.tasks.transfer import Rows, Transfer


@torch.inference_mode()
def predict_examples(
    learner: Transfer,
    examples: Examples,
    asked: Sequence[Any],
    device: torch.device,
    stop: Stop = never,
    title: str | Progress = "predict",
    batch_tokens: int = 16384,
) -> tuple[list[dict[str, Any]], float]:
    """The prediction for each example, in their order, and the mean loss (NaN where no label is known). title: of the progress,
    or one of several calls, which is advanced."""
    predictions: list[dict[str, Any]] = [{}] * len(asked)
    total = count = 0.0
    for index, rows, example, logits in batch_logits(learner, examples, device, stop, title, batch_tokens):
        loss = learner.loss(logits, example)
        total, count = total + float(loss.total), count + float(loss.count)
        found = learner.predictions(logits, example, [asked[i] for i in index], rows)
        for i, prediction in zip(index, found, strict=True):
            predictions[i] = prediction
    return predictions, total / count if count else float("nan")


def batch_logits(
    learner: Transfer, examples: Examples, device: torch.device, stop: Stop, title: str | Progress, batch_tokens: int
) -> Iterator[tuple[np.ndarray, Rows, Labelled, torch.Tensor]]:
    """Batches of examples: their numbers, their rows, the batch and its logits."""
    sizes = np.array([sum(len(row.ids) for row in rows) for rows in examples.rows])
    order = np.argsort(sizes, kind="stable")  # similar lengths together
    own = nullcontext(title) if isinstance(title, Progress) else Progress(title, total=len(order), unit="examples")
    with own as bar:
        for part in portions([sizes[order]], [batch_tokens]) if len(order) else ():
            stop()
            index = order[part]
            rows = [examples.rows[i] for i in index]
            example = to_device(batch_of(rows), device)
            yield index, rows, example, learner.logits(learner.features(example.batch)[0], example)
            bar.advance(len(index))


@torch.inference_mode()
def class_logits(learner: Any, examples: Examples, device: torch.device) -> np.ndarray:
    """(examples, classes) logits of a task with classes, in the order of the examples."""
    found = np.zeros((len(examples), len(learner.labels)))
    for index, rows, _, logits in batch_logits(learner, examples, device, never, "calibrate", 16384):
        found[index] = exact(learner.example_logits(logits, rows)).cpu().numpy()
    return found


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
