"""Evaluation on sentence pairs: retrieval of translations by their vectors, and the loss of hidden words."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, exact, to_device
from seqloom.batches.pairs import EncodedPairs, pair_batch
from seqloom.evaluate.perplexity import Stop, never
from seqloom.objectives.translation_lm import TranslationLM, apart
from seqloom.randomness import derive_seed

PAIRS = 64  # in a batch


@torch.inference_mode()
def side_vectors(backbone: Backbone, pairs: EncodedPairs, device: torch.device) -> tuple[Tensor, Tensor]:
    """(N, D) each: the mean of the top states over the words of a source, and of its target, each read alone."""
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    for start in range(0, len(pairs), PAIRS):
        index = np.arange(start, min(start + PAIRS, len(pairs)))
        passage = to_device(apart(pair_batch(pairs, index)), device)
        hidden, n = backbone(passage.batch).hidden.float(), 2 * len(index)
        text = passage.places >= 0
        sums = hidden.new_zeros(n, hidden.shape[1]).index_add(0, passage.batch.owner[text], hidden[text])
        means = sums / torch.bincount(passage.batch.owner[text], minlength=n).clamp(min=1)[:, None]
        for part, rows in zip(found, means.split(len(index)), strict=True):
            part.append(rows)
    return torch.cat(found[0]), torch.cat(found[1])


def retrieval(source: Tensor, target: Tensor) -> dict[str, float]:
    """The share of sources whose own translation is the nearest by cosine, and the other way round; ties count half."""
    a, b = (torch.nn.functional.normalize(exact(side), dim=1) for side in (source, target))
    alike = a @ b.T
    own = alike.diagonal()

    def share(scores: Tensor) -> float:
        others = scores.clone().fill_diagonal_(-2.0).amax(1)
        return float((exact(own > others) + 0.5 * exact(own == others)).mean())

    return {"retrieval_accuracy": share(alike), "retrieval_accuracy_back": share(alike.T)}


def parallel_loss(
    learner: TranslationLM, pairs: EncodedPairs, device: torch.device, stop: Stop = never
) -> dict[str, Any]:
    """The loss of words hidden in each side, read alone, and retrieval."""
    nats, targets = 0.0, 0
    hidden_nats = hidden_count = right = 0.0
    with torch.inference_mode():
        for start in range(0, len(pairs), PAIRS):
            stop()
            index = np.arange(start, min(start + PAIRS, len(pairs)))
            example = super(TranslationLM, learner).corrupt(
                apart(pair_batch(pairs, index)), torch.Generator().manual_seed(derive_seed(0, start))
            )
            losses, sums = learner.losses(to_device(example, device))
            nats += float(exact(losses).sum())
            targets += int((example.targets != IGNORE).sum())
            hidden_nats += float(sums["hidden_nats"])
            hidden_count += float(sums["hidden"])
            right += float(sums["accuracy"])
    perplexity = float(np.exp(min(hidden_nats / max(hidden_count, 1), 700.0)))
    found: dict[str, Any] = {"loss": nats / max(targets, 1), "masked_perplexity": perplexity}
    found |= {"accuracy": right / max(hidden_count, 1), "masked_targets": learner.measured_targets}
    return found | retrieval(*side_vectors(learner.backbone, pairs, device))
