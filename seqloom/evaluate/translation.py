"""The loss of a translator on held-out pairs."""

import math

import numpy as np
import torch

from seqloom.batch import IGNORE, exact, to_device
from seqloom.batches.pairs import EncodedPairs, pair_batch
from seqloom.evaluate.perplexity import Stop, never
from seqloom.progress import Progress
from seqloom.tasks.translate import Translate


@torch.inference_mode()
def pair_loss(
    learner: Translate,
    pairs: EncodedPairs,
    device: torch.device,
    budget: int = 8192,
    stop: Stop = never,
) -> dict[str, float]:
    """The loss of the true translations, in nats per token, with the end of each."""
    order = np.lexsort((pairs.source.lengths, pairs.target.lengths))  # similar lengths together
    total, count, done = 0.0, 0, 0
    widest = np.maximum(pairs.source.lengths, pairs.target.lengths)[order] + 1
    with Progress("validate", total=len(order), unit="pairs") as bar:
        while done < len(order):
            stop()
            # as many as fit into the grid
            room = np.maximum.accumulate(widest[done:]) * np.arange(1, len(order) - done + 1)
            many = max(int(np.searchsorted(room, budget, side="right")), 1)
            batch = to_device(pair_batch(pairs, order[done : done + many]), device)
            losses = learner.losses(batch)
            total += exact(losses).sum().item()
            count += int((batch.targets != IGNORE).sum())
            done += many
            bar.advance(many)
    loss = total / count
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "tokens": count}
