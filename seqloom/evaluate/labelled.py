"""Predictions of a task for labelled texts, with their loss and scores."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch

from seqloom.batch import Labelled, exact, to_device
from seqloom.batches.labelled import Examples, Features, Row, batch_of, new_table
from seqloom.batches.plan import portions
from seqloom.cost import total
from seqloom.progress import Progress
from seqloom.tasks.transfer import Rows, Transfer
from seqloom.training.share import ALONE, Share


@torch.inference_mode()
def predict_examples(
    learner: Transfer,
    examples: Examples,
    asked: Sequence[Any],
    device: torch.device,
    share: Share = ALONE,
    title: str | Progress = "predict",
    batch_tokens: int = 16384,
) -> tuple[list[dict[str, Any]], float]:
    """The prediction for each example, in their order, and the mean loss (NaN where no label is known). title: of the progress,
    or one of several calls, which is advanced."""
    predictions: list[dict[str, Any]] = [{}] * len(asked)
    total = count = 0.0
    batches = batches_of(examples, batch_tokens)

    def predict(number: int) -> tuple[float, float, list[dict[str, Any]]]:
        rows, example, logits = logits_of(learner, examples, batches[number], device)
        loss = learner.loss(logits, example)
        found = learner.predictions(logits, example, [asked[i] for i in batches[number]], rows)
        return float(loss.total), float(loss.count), found

    own = nullcontext(title) if isinstance(title, Progress) else Progress(title, total=len(asked), unit="examples")
    with own as bar:
        found = share.each(len(batches), predict)
        for index, (own_total, own_count, some) in zip(batches, found, strict=True):
            total, count = total + own_total, count + own_count
            for i, prediction in zip(index, some, strict=True):
                predictions[i] = prediction
            bar.advance(len(index))
    return predictions, total / count if count else float("nan")


def batches_of(examples: Examples, batch_tokens: int = 16384) -> list[np.ndarray]:
    """The numbers of the examples in each batch: similar lengths together."""
    sizes = np.array([sum(len(row.ids) for row in rows) for rows in examples.rows])
    order = np.argsort(sizes, kind="stable")
    return [order[part] for part in portions([sizes[order]], [batch_tokens])] if len(order) else []


def logits_of(
    learner: Transfer, examples: Examples, index: np.ndarray, device: torch.device
) -> tuple[Rows, Labelled, torch.Tensor]:
    """The rows of some examples, the batch and its logits."""
    rows = [examples.rows[i] for i in index]
    example = to_device(batch_of(rows), device)
    return rows, example, learner.logits(learner.features(example.batch)[0], example)


@torch.inference_mode()
def with_states(
    learner: Transfer,
    examples: Examples,
    table: np.ndarray,
    device: torch.device,
    bar: Progress,
    check: Callable[[], None],
) -> tuple[list[list[Row]], int]:
    """The rows of examples with the states of the frozen backbone that are used, and the operations that took. table: where they
    are written, a row for each token; check: called now and then, raises where this should end."""
    learner.eval()
    flat = [row for rows in examples.rows for row in rows]
    borders = np.cumsum([0, *(len(row.ids) for row in flat)])
    first = np.cumsum([0, *map(len, examples.rows)])  # row of each example
    operations, cost_of = 0, total(learner.backbone)
    for index in batches_of(examples):
        check()
        example = to_device(batch_of([examples.rows[i] for i in index]), device)
        found = learner.kept_states(example.batch).cpu().numpy()
        reached = 0
        for i in index:
            begin, end = borders[first[i]], borders[first[i + 1]]
            table[begin:end] = found[reached : reached + end - begin]
            reached += end - begin
        operations += cost_of.forward(example.sizes())
        bar.advance(len(index))
    kept = (
        row._replace(states=Features(table, np.arange(begin, end)))
        for row, begin, end in zip(flat, borders, borders[1:], strict=False)
    )
    return [list(islice(kept, len(rows))) for rows in examples.rows], operations


def table_of_states(learner: Transfer, examples: Examples) -> np.ndarray:
    """Room for the states of all tokens. OSError where there is none."""
    width = learner.chosen_width * learner.num_states
    return new_table(sum(len(row.ids) for rows in examples.rows for row in rows), width)


@torch.inference_mode()
def class_logits(learner: Any, examples: Examples, device: torch.device) -> np.ndarray:
    """(examples, classes) logits of a task with classes, in the order of the examples."""
    found = np.zeros((len(examples), len(learner.labels)))
    for index in batches_of(examples):
        rows, _, logits = logits_of(learner, examples, index, device)
        found[index] = exact(learner.example_logits(logits, rows)).cpu().numpy()
    return found


def evaluate_examples(
    learner: Transfer,
    examples: Examples,
    asked: Sequence[Any],
    device: torch.device,
    share: Share = ALONE,
    title: str = "validate",
) -> dict[str, Any]:
    """Loss and scores; `score` is the task's main metric."""
    predictions, loss = predict_examples(learner, examples, asked, device, share, title)
    scores = learner.scores(asked, predictions)
    return {"loss": loss, "score": scores[learner.main_metric], **scores}
