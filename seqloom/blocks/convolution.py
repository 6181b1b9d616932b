"""Convolutions over the tokens of each sequence, none of which looks over its border."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import Context, Ragged
from seqloom.blocks.grid import from_grid, lengths, to_grid


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


class Convolution(nn.Module):
    """One filter bank over the tokens of each sequence, as a matrix product: (T, dim) → (T, out_dim).

    causal: a filter stands over its token and those before it, and remembers them: the state (N, (width − 1) · dilation, dim) is
    what stood there, zeros before a text begins. Otherwise it stands over its token, half of it (the larger half) behind.
    Filters of dilated ones stand over every dilation-th token.
    """

    def __init__(self, dim: int, out_dim: int, width: int, dilation: int = 1, causal: bool = True):
        super().__init__()
        self.dim, self.width, self.dilation, self.causal = dim, width, dilation, causal
        self.span = (width - 1) * dilation  # how far apart the first and the last token are that a filter stands over
        self.before = self.span if causal else (width - 1) // 2 * dilation
        self.filters = nn.Linear(width * dim, out_dim)

    def forward(self, x: Tensor, batch: Ragged, state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The output, and of a causal one the state after it."""
        grid = to_grid(x, batch)  # zeros behind the end of a sequence
        if self.causal:
            state = self.start(batch.num_sequences) if state is None else state
            line = torch.cat((state.to(grid.dtype), grid), 1)
        else:
            line = nn.functional.pad(grid, (0, 0, self.before, self.span - self.before))
        length = batch.max_len
        stands_over = [line[:, i * self.dilation : i * self.dilation + length] for i in range(self.width)]
        found = self.filters(from_grid(torch.cat(stands_over, 2), batch))
        if not self.causal:
            return found, None
        last = lengths(batch)[:, None] + torch.arange(self.span, device=x.device)
        return found, line.gather(1, last[:, :, None].expand(-1, -1, self.dim))

    def start(self, n: int) -> Tensor:
        weight = self.filters.weight
        return torch.zeros(n, self.span, self.dim, dtype=weight.dtype, device=weight.device)


def receptive_field(layers: Iterable[Convolution]) -> int:
    """How many tokens the top of causal convolutions sees: the token itself and those before it."""
    return 1 + sum(layer.span for layer in layers)
