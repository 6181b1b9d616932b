"""Convolutions over the tokens of each sequence, none of which looks over its border."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import Context, Ragged
from seqloom.blocks.grid import from_grid, to_grid


class Convolutions(nn.Module):
    """Filters of several widths side by side, then ReLU: (T, dim) → (T, as many as there are filters). A layer of a Stack.

    filters: (width, how many). A filter stands over its token, half of it (the larger half) behind; what is outside of the
    sequence is zero.
    """

    def __init__(self, dim: int, filters: Sequence[tuple[int, int]], dropout: float = 0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.widths = [width for width, _ in filters]
        self.filters = nn.ModuleList(nn.Conv1d(dim, many, width) for width, many in filters)

    def forward(
        self, x: Tensor, batch: Ragged, state: Any = None, context: Context | None = None, maps: bool = False
    ) -> tuple[Tensor, None, None]:
        if maps:
            raise ValueError("convolutions look at their neighbours alike: they have no weights to show")
        grid = to_grid(self.dropout(x), batch).transpose(1, 2)  # (N, dim, L), zeros behind the end of a sequence
        found = [
            each(nn.functional.pad(grid, ((width - 1) // 2, width // 2)))
            for each, width in zip(self.filters, self.widths, strict=True)
        ]
        return from_grid(torch.cat(found, 1).relu().transpose(1, 2), batch), None, None
