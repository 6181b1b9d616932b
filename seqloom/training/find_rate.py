"""The learning-rate range test: a short run whose rate rises from next to nothing until the loss breaks out.

Smith, 2017 (arXiv 1506.01186). Two readings of its curve: where the loss falls fastest, and a tenth of the rate at which
it is lowest. The suggestion is the smaller of the two: each is too bold for some model.
"""

import math
from contextlib import closing
from typing import NamedTuple

import torch

from seqloom.batch import Learner, to_device
from seqloom.batches.loader import Cursor, Loader
from seqloom.errors import NumbersError
from seqloom.progress import Progress
from seqloom.randomness import derive_seed
from seqloom.training.gradient import Gradient
from seqloom.training.loop import TrainConfig
from seqloom.training.optim import build_optimizer, step
from seqloom.training.precision import choose_precision

LOW, HIGH, STEPS = 1e-6, 10.0, 120
MEMORY = 0.85  # of the loss that is drawn: single batches say little
BROKEN = 1.0  # nats above the lowest loss: the test ends


class Found(NamedTuple):
    rates: list[float]
    losses: list[float]  # smoothed, a target each
    steepest: float
    tenth: float  # of the rate where the loss is lowest
    suggestion: float


def find_rate(learner: Learner, loader: Loader, config: TrainConfig, device: torch.device, seed: int) -> Found:
    """Runs the range test. It spoils the learner: build another one to train."""
    optimizer = build_optimizer(config.optim, learner)
    differentiate = Gradient(
        learner, choose_precision(config.precision, device), device, compiled=False, recorded=False
    )
    rates: list[float] = []
    losses: list[float] = []
    smooth, carry, rows = 0.0, None, loader.batches.rows
    learner.train()
    with (
        Progress("find the rate", total=STEPS, unit="steps") as bar,
        closing(loader.items(Cursor())) as items,
        torch.random.fork_rng([device] if device.type == "cuda" else []),
    ):
        for i, item in zip(range(STEPS), items, strict=False):
            torch.manual_seed(derive_seed(seed, i))
            rate = LOW * (HIGH / LOW) ** (i / (STEPS - 1))
            for group in optimizer.param_groups:
                group["lr"] = rate
            if item.fresh:
                carry = learner.start(rows) if rows else None
            loss = differentiate(to_device(item.example, device), carry)
            carry = loss.carry if rows else None
            optim = config.optim
            step(optimizer, loss.count, optim.clip, differentiate.scaler, optim.gradient == "mean", optim.row_clip)
            mean = float(loss.total) / max(int(loss.count), 1)
            smooth = MEMORY * smooth + (1 - MEMORY) * mean
            value = smooth / (1 - MEMORY ** (i + 1))
            if not math.isfinite(mean) or (losses and value > min(losses) + BROKEN):
                break
            rates.append(rate)
            losses.append(value)
            bar.advance(1, note=f"rate {rate:.1e}  loss {value:.3f}")
    return read_curve(rates, losses)


def read_curve(rates: list[float], losses: list[float]) -> Found:
    lowest = min(range(len(losses)), key=losses.__getitem__, default=0)
    if lowest < 3:
        raise NumbersError(
            "the loss never fell while the rate rose: no rate follows from this text and recipe; "
            "take more text, a larger batch or harder clipping (--set train.optim.clip=0.5)"
        )
    # the slope over three points: steps between rates are equal on a logarithmic scale
    falls = [losses[i - 1] - losses[i + 1] for i in range(1, lowest)]
    steepest = rates[1 + max(range(len(falls)), key=falls.__getitem__)]
    tenth = rates[lowest] / 10
    return Found(rates, losses, steepest, tenth, float(f"{min(steepest, tenth):.1g}"))
