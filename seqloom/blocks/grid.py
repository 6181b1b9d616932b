"""Ragged row ⇄ grid: (T, …) ⇄ (N, L, …), where a kernel wants one row a sequence. Where all sequences are full it is a view."""

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.batch import Borders


def cells(batch: Borders) -> Tensor:
    """(T,) where each token stands in the flattened grid. Counted from the borders: positions may be absolute."""
    column = torch.arange(batch.owner.shape[0], device=batch.owner.device) - batch.offsets[:-1].long()[batch.owner]
    return batch.owner * batch.max_len + column


def to_grid(x: Tensor, batch: Borders) -> Tensor:
    """(T, …) → (N, L, …), zeros after the end of a sequence."""
    n, length = batch.num_sequences, batch.max_len
    if batch.is_full:
        return x.view(n, length, *x.shape[1:])
    grid = x.new_zeros(n * length, *x.shape[1:]).index_copy(0, cells(batch), x)
    return grid.view(n, length, *x.shape[1:])


def from_grid(grid: Tensor, batch: Borders) -> Tensor:
    """(N, L, …) → (T, …)"""
    if batch.is_full:
        return grid.reshape(-1, *grid.shape[2:])
    return grid.reshape(-1, *grid.shape[2:]).index_select(0, cells(batch))


def lengths(batch: Borders) -> Tensor:
    return batch.offsets.diff().long()


class FullGrid(NamedTuple):
    """Borders of n sequences of one length."""

    owner: Tensor
    offsets: Tensor
    max_len: int

    @classmethod
    def of(cls, n: int, length: int, device: torch.device) -> "FullGrid":
        owner = torch.arange(n, device=device).repeat_interleave(length)
        return cls(owner, torch.arange(n + 1, device=device, dtype=torch.int32) * length, length)

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        return True
