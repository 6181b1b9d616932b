"""Evaluation of GloVe on held-out text: how far the model is off the logarithms of what is counted there.

A text of another size has all counts larger or smaller by about one factor: the weighted mean of the errors is taken off first.
"""

from typing import Any

import numpy as np
import torch

from seqloom.batch import exact, to_device
from seqloom.batches.cells import Table
from seqloom.batches.plan import Selection
from seqloom.errors import DataError
from seqloom.evaluate.evaluators import HeldOutText
from seqloom.evaluate.windows import WindowEvaluator
from seqloom.progress import Progress
from seqloom.training.share import ALONE, Share

AT_ONCE = 1 << 16  # cells


class HeldOutCells:
    """The counts of a held-out text, or of its first tokens; counted once."""

    def __init__(self, text: HeldOutText, is_word: np.ndarray, window: int):
        self.split, self.is_word, self.window = text.split, is_word, window
        self.tables: dict[int, Table] = {}

    def table(self, limit: int | None) -> Table:
        starts, lengths = self.split.offsets[:-1], np.diff(self.split.offsets)
        tokens = int(lengths.sum()) if limit is None else min(limit, int(lengths.sum()))
        if tokens not in self.tables:
            taken = np.clip(tokens - (np.cumsum(lengths) - lengths), 0, lengths)
            chosen = Selection(starts[taken > 0], taken[taken > 0])
            self.tables[tokens] = Table(self.split, chosen, self.is_word, self.window)
        if not len(self.tables[tokens]):
            raise DataError("no two words of the held-out text stand near each other: hold out more text")
        return self.tables[tokens]


class CellEvaluator(WindowEvaluator):
    def prepare(self, text: HeldOutText) -> HeldOutCells:
        return HeldOutCells(text, ~self.learner.specials.cpu().numpy(), self.learner.window)

    @torch.no_grad()
    def measure(
        self, prepared: Any, limit: int | None = None, share: Share = ALONE, title: str = "evaluate"
    ) -> dict[str, Any]:
        table: Table = prepared.table(limit)

        def add_up(number: int) -> tuple[float, float, float, int]:
            places = np.arange(number * AT_ONCE, min((number + 1) * AT_ONCE, len(table)))
            cells = table.read(places, 0)
            errors, weights = (exact(each) for each in self.learner.errors(to_device(cells, self.device)))
            sums = weights.sum(), (weights * errors).sum(), (weights * errors**2).sum()
            return *(float(each) for each in sums), int((cells.values > 0).sum())  # type: ignore[return-value]

        found = np.zeros(4)
        with Progress(title, total=float(len(table)), unit="cells") as bar:
            for sums in share.each(-(-len(table) // AT_ONCE), add_up):
                found += sums
                bar.advance(AT_ONCE)
        weight, first, second, cells = found.tolist()
        return {
            "loss": max(second - first**2 / weight, 0.0) / 2 / max(cells, 1),
            "cells": int(cells),
            "tokens": table.tokens,
        }
