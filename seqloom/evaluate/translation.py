"""The loss of a translator on held-out pairs."""

import math

import numpy as np
import torch

from seqloom.batch import IGNORE, exact, to_device
from seqloom.batches.pairs import EncodedPairs, pair_batch
from seqloom.progress import Progress
from seqloom.tasks.translate import Translate
from seqloom.training.share import ALONE, Share


@torch.inference_mode()
def pair_loss(
    learner: Translate,
    pairs: EncodedPairs,
    device: torch.device,
    budget: int = 8192,
    share: Share = ALONE,
) -> dict[str, float]:
    """The loss of the true translations, in nats per token, with the end of each."""
    order = np.lexsort((pairs.source.lengths, pairs.target.lengths))  # similar lengths together
    total, count = 0.0, 0
    widest = np.maximum(pairs.source.lengths, pairs.target.lengths)[order] + pairs.added
    batches, done = [], 0
    while done < len(order):
        # as many as fit into the grid
        room = np.maximum.accumulate(widest[done:]) * np.arange(1, len(order) - done + 1)
        many = max(int(np.searchsorted(room, budget, side="right")), 1)
        batches.append(order[done : done + many])
        done += many

    def add_up(number: int) -> tuple[float, int, int]:
        batch = to_device(pair_batch(pairs, batches[number]), device)
        losses = learner.losses(batch)
        return exact(losses).sum().item(), int((batch.targets != IGNORE).sum()), len(batches[number])

    with Progress("validate", total=len(order), unit="pairs") as bar:
        for nats, targets, many in share.each(len(batches), add_up):
            total, count = total + nats, count + targets
            bar.advance(many)
    loss = total / count
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "tokens": count}
