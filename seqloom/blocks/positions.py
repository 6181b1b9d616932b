"""Where a token stands, as a vector to be added to its embedding."""

import torch
from torch import Tensor, nn

from seqloom.batch import Ragged


class LearnedPositions(nn.Embedding):
    """One trained vector for each of max_len places."""

    def forward(self, batch: Ragged) -> Tensor:  # type: ignore[override]
        return super().forward(batch.positions)


class SinusoidPositions(nn.Module):
    """Fixed sines and cosines of geometrically spaced wavelengths. Vaswani et al., 2017 (arXiv 1706.03762), 3.5.

    Sines in the first half, cosines in the second, as the authors' own code and Marian lay them; the formula of the
    paper has them in turn, which is the same up to the order of the dimensions."""

    values: Tensor

    def __init__(self, max_len: int, dim: int):
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = torch.arange(max_len, dtype=torch.float64)[:, None] * rates
        values = torch.cat((angles.sin(), angles.cos()), dim=1)[:, :dim]
        self.register_buffer("values", values.to(torch.get_default_dtype()), persistent=False)

    def forward(self, batch: Ragged) -> Tensor:
        return self.values[batch.positions]
