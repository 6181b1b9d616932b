"""How a captioner looks at a picture: additive attention with a gate on what is seen, soft or hard. Xu et al., 2015.

soft   the mean of the regions by their weights
hard   one region, drawn by the weights in training, the one with the largest weight otherwise. What was drawn has no gradient:
       its log-probability is returned, and learnt from by its reward (REINFORCE; Williams, 1992).
"""

import torch
from torch import Tensor, nn

from seqloom.batch import Ragged
from seqloom.blocks.alignment import AlignedCell, Alignment
from seqloom.blocks.cells import TorchCell
from seqloom.blocks.grid import to_grid


class GatedCell(AlignedCell):
    """What is seen is multiplied by β = σ(w · h + b), so that words can be written without looking."""

    def __init__(self, cell: TorchCell, alignment: Alignment):
        super().__init__(cell, alignment)
        self.gate = nn.Linear(self.dim, 1)

    def look(self, h: Tensor, *memory: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        seen, values = super().look(h, *memory)
        return torch.sigmoid(self.gate(h)) * seen, values


class HardCell(GatedCell):
    """Its second value says which region was drawn, by a 1; all are 0 where the mean was taken."""

    gates = ("alignment", "drawn")

    def __init__(self, cell: TorchCell, alignment: Alignment, mean_share: float):
        super().__init__(cell, alignment)
        self.mean_share = mean_share

    def look(self, h: Tensor, *memory: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        keys, values, behind = memory
        mean, weights = self.alignment(h, keys, values, behind)
        if self.training:
            drawn = draw(weights)
            kept = (torch.rand_like(weights[:, :1]) >= self.mean_share).to(weights.dtype)
        else:
            drawn, kept = weights.argmax(-1), torch.ones_like(weights[:, :1])
        chosen = torch.zeros_like(weights).scatter(1, drawn[:, None], 1.0) * kept
        one = chosen.unflatten(0, (keys.shape[0], -1)).to(values.dtype) @ values
        seen = one.flatten(0, 1) + (1 - kept).to(mean.dtype) * mean
        return torch.sigmoid(self.gate(h)) * seen, (weights, chosen)


def draw(weights: Tensor) -> Tensor:
    """(R,) a place for each row of weights (R, S), by its weight. Nothing in it asks the host."""
    reached = weights.detach().float().cumsum(-1)
    point = torch.rand_like(reached[:, :1]) * reached[:, -1:]
    return (reached <= point).sum(-1).clamp(max=weights.shape[-1] - 1)


def log_choice(weights: Tensor, chosen: Tensor) -> Tensor:
    """(T,) log-probability of the region that was drawn; 0 where none was."""
    drawn = chosen.sum(-1)
    return ((weights * chosen).sum(-1) + (1 - drawn)).clamp(min=1e-20).log()


def entropy(weights: Tensor) -> Tensor:
    """(T,) of the weights over regions."""
    return -(weights * weights.clamp(min=1e-20).log()).sum(-1)


def doubly_stochastic(weights: Tensor, batch: Ragged, real: Tensor | None) -> Tensor:
    """Σ over sequences and their regions of (1 − Σ_t α_ti)²: every region should be looked at once. weights: (T, S); real: (T,),
    the tokens that are text."""
    weights = weights if real is None else weights * real[:, None]
    per_region = to_grid(weights, batch).sum(1)  # (N, S)
    short = (1 - per_region).square().sum(-1)
    if real is not None:
        alive = torch.zeros_like(batch.offsets[1:]).index_add(0, batch.owner, real.int()) > 0
        short = short * alive
    return short.sum()
