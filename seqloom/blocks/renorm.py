"""Batch renormalisation. Ioffe, 2017 (arXiv 1702.03275)."""

import torch
from torch import Tensor, nn

MOVES = 0.1  # how far a batch moves the running moments
MOST_SCALE, MOST_SHIFT = 3.0, 5.0  # r and d of the paper
EPS = 1e-5


class BatchRenorm(nn.Module):
    """Each feature less its running mean, by its running deviation, in training as in use. The gradient is that of batch
    normalisation: what all rows of a batch have in common is not learnt from. Unlike batch normalisation it suits batches
    whose rows are alike in something, as captions of one length are."""

    mean: Tensor
    variance: Tensor

    def __init__(self, dim: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("variance", torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)"""
        wide = x.to(self.mean.dtype)
        return (self.normalised(wide) * self.weight + self.bias).to(x.dtype)

    def normalised(self, x: Tensor) -> Tensor:
        if not self.training:
            return (x - self.mean) / (self.variance + EPS).sqrt()
        mean = x.mean(0)
        deviation = (x.var(0, correction=0) + EPS).sqrt()
        with torch.no_grad():
            self.mean.lerp_(mean, MOVES)
            self.variance.lerp_((x - self.mean).square().mean(0), MOVES)
            running = (self.variance + EPS).sqrt()
            scale = (deviation / running).clamp(1 / MOST_SCALE, MOST_SCALE)
            shift = ((mean - self.mean) / running).clamp(-MOST_SHIFT, MOST_SHIFT)
        return (x - mean) / deviation * scale + shift
