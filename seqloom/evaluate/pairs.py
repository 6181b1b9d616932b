"""Evaluation on sentence pairs: retrieval of translations by their vectors, and the loss of hidden words."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, exact, to_device
from seqloom.batches.pairs import EncodedPairs, pair_batch
from seqloom.objectives.translation_lm import TranslationLM, apart
from seqloom.randomness import derive_seed
from seqloom.training.share import ALONE, Share

PAIRS = 64  # in a batch


@torch.inference_mode()
def side_vectors(
    backbone: Backbone, pairs: EncodedPairs, device: torch.device, share: Share = ALONE
) -> tuple[Tensor, Tensor]:
    """(N, D) each: the mean of the top states over the words of a source, and of its target, each read alone."""

    def means_of(number: int) -> list[list[list[float]]]:
        index = numbers(number, pairs)
        passage = to_device(apart(pair_batch(pairs, index)), device)
        hidden, n = backbone(passage.batch).hidden.float(), 2 * len(index)
        text = passage.places >= 0
        sums = hidden.new_zeros(n, hidden.shape[1]).index_add(0, passage.batch.owner[text], hidden[text])
        means = sums / torch.bincount(passage.batch.owner[text], minlength=n).clamp(min=1)[:, None]
        return [side.tolist() for side in means.split(len(index))]

    found = list(share.each(batches(pairs), means_of))
    source, target = (torch.tensor([row for sides in found for row in sides[i]]) for i in range(2))
    return source, target


def batches(pairs: EncodedPairs) -> int:
    return -(-len(pairs) // PAIRS)


def numbers(batch: int, pairs: EncodedPairs) -> np.ndarray:
    """Of the pairs in a batch."""
    return np.arange(batch * PAIRS, min((batch + 1) * PAIRS, len(pairs)))


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
    learner: TranslationLM, pairs: EncodedPairs, device: torch.device, share: Share = ALONE
) -> dict[str, Any]:
    """The loss of words hidden in each side, read alone, and retrieval."""
    nats, targets = 0.0, 0
    hidden_nats = hidden_count = right = 0.0

    def add_up(number: int) -> tuple[float, int, float, float, float]:
        index = numbers(number, pairs)
        rng = torch.Generator().manual_seed(derive_seed(0, int(index[0])))
        example = super(TranslationLM, learner).corrupt(apart(pair_batch(pairs, index)), rng)
        losses, sums = learner.losses(to_device(example, device))
        chosen = int((example.targets != IGNORE).sum())
        hidden, many, right = (float(sums[name]) for name in ("hidden_nats", "hidden", "accuracy"))
        return float(exact(losses).sum()), chosen, hidden, many, right

    with torch.inference_mode():
        for own_nats, own_targets, own_hidden_nats, own_hidden, own_right in share.each(batches(pairs), add_up):
            nats, targets = nats + own_nats, targets + own_targets
            hidden_nats, hidden_count = hidden_nats + own_hidden_nats, hidden_count + own_hidden
            right += own_right
    perplexity = float(np.exp(min(hidden_nats / max(hidden_count, 1), 700.0)))
    found: dict[str, Any] = {"loss": nats / max(targets, 1), "masked_perplexity": perplexity}
    found |= {"accuracy": right / max(hidden_count, 1), "masked_targets": learner.measured_targets}
    return found | retrieval(*side_vectors(learner.backbone, pairs, device, share))
