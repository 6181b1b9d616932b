"""Learning rates over a run: a factor of the recipe's rate, from the step and the share of the budget that is spent."""

import math
from typing import Literal

from pydantic import Field

from seqloom.config import Config


class ScheduleConfig(Config):
    name: Literal["constant", "cosine", "linear", "slanted", "trapezoid", "inverse_sqrt", "plateau"] = Field(
        "cosine", description="Shape of the learning rate over the run."
    )
    warmup: int = Field(100, ge=0, description="Steps in which the rate rises from 0 to lr.")
    floor: float = Field(0.1, ge=0, le=1, description="Last rate as a share of lr.")
    rise: float = Field(0.1, gt=0, lt=1, description="Share of the run in which a slanted rate rises.")
    fall: float = Field(0.2, gt=0, lt=1, description="Share of the run in which the rate of a trapezoid falls.")
    factor: float = Field(0.5, gt=0, lt=1, description="Factor of the rate when a plateau is met.")
    patience: int = Field(1, ge=0, description="Evaluations without gain that count as a plateau.")


def rate_factor(config: ScheduleConfig, step: int, spent: float, drops: int) -> float:
    """step counts from 0; spent in [0, 1]; drops: how often a plateau was met."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    spent = min(max(spent, 0.0), 1.0)
    match config.name:
        case "cosine":
            decay = config.floor + (1 - config.floor) * 0.5 * (1 + math.cos(math.pi * spent))
        case "linear":
            decay = config.floor + (1 - config.floor) * (1 - spent)
        case "slanted":
            # a triangle, soon at its top (Howard & Ruder, 2018); with floor 0 what BERT is fine-tuned with
            up = spent / config.rise if spent < config.rise else (1 - spent) / (1 - config.rise)
            decay = config.floor + (1 - config.floor) * up
        case "trapezoid":
            # constant until it falls, so that runs with different budgets are the same run until the shortest falls
            decay = config.floor + (1 - config.floor) * min(1.0, (1 - spent) / config.fall)
        case "inverse_sqrt":
            # full at the end of the warm-up, then falling with the root of the step (Vaswani et al., 2017)
            decay = math.sqrt(max(config.warmup, 1) / max(step + 1, config.warmup, 1))
        case "plateau":
            decay = max(config.factor**drops, config.floor)
        case _:
            decay = 1.0
    return warm * decay
