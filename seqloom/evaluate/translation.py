"""The loss of a translator, or of a captioner, on held-out pairs."""

import math
from typing import Any

import numpy as np
import torch

from seqloom.batch import IGNORE, exact, to_device
from seqloom.batches.pairs import EncodedPairs
from seqloom.batches.pictures import EncodedCaptions
from seqloom.progress import Progress
from seqloom.training.share import ALONE, Share


def cut_batches(pairs: EncodedPairs | EncodedCaptions, budget: int) -> list[np.ndarray]:
    """The numbers of the pairs in batches, pairs of similar lengths together, as many as fit into the grid."""
    order = pairs.by_length()
    widest = pairs.widths[order]
    batches, done = [], 0
    while done < len(order):
        room = np.maximum.accumulate(widest[done:]) * np.arange(1, len(order) - done + 1)
        many = max(int(np.searchsorted(room, budget, side="right")), 1)
        batches.append(order[done : done + many])
        done += many
    return batches


@torch.inference_mode()
def target_log_probs(
    learner: Any, pairs: EncodedPairs | EncodedCaptions, device: torch.device, budget: int = 8192
) -> np.ndarray:
    """(pairs,) the log-probability of each target given its source, its end included."""
    found = np.zeros(len(pairs))
    for index in cut_batches(pairs, budget):
        batch = to_device(pairs.batch(index), device)
        losses = exact(learner.losses(batch))
        sums = losses.new_zeros(len(index)).index_add_(0, batch.target.owner, losses)
        found[index] = -sums.cpu().numpy()
    return found


@torch.inference_mode()
def pair_loss(
    learner: Any,
    pairs: EncodedPairs | EncodedCaptions,
    device: torch.device,
    budget: int = 8192,
    share: Share = ALONE,
) -> dict[str, float]:
    """The loss of the true translations, in nats per token, with the end of each."""
    batches = cut_batches(pairs, budget)
    total, count = 0.0, 0

    def add_up(number: int) -> tuple[float, int, int]:
        batch = to_device(pairs.batch(batches[number]), device)
        losses = learner.losses(batch)
        return exact(losses).sum().item(), int((batch.targets != IGNORE).sum()), len(batches[number])

    with Progress("validate", total=len(pairs), unit="pairs") as bar:
        for nats, targets, many in share.each(len(batches), add_up):
            total, count = total + nats, count + targets
            bar.advance(many)
    loss = total / count
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "tokens": count}
