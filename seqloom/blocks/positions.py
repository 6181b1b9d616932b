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
        with torch.device("cpu"):  # torch would load its compiler, for seconds, to do so for shapes alone
            rates = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
            angles = torch.arange(max_len, dtype=torch.float64)[:, None] * rates
            values = torch.cat((angles.sin(), angles.cos()), dim=1)[:, :dim]
        like = torch.empty(0)  # of the default type, where the model is built
        self.register_buffer("values", values.to(like), persistent=False)

    def forward(self, batch: Ragged) -> Tensor:
        return self.values[batch.positions]


class AxialPositions(nn.Module):
    """One vector for each row and one for each column of a grid over which places are laid, row by row: a text of rows · columns
    tokens has rows + columns vectors. Kitaev et al., 2020 (arXiv 2001.04451)."""

    def __init__(self, shape: tuple[int, int], dims: tuple[int, int]):
        super().__init__()
        self.rows, self.columns = (nn.Embedding(size, dim) for size, dim in zip(shape, dims, strict=True))

    def forward(self, batch: Ragged) -> Tensor:
        width = self.columns.num_embeddings
        return torch.cat((self.rows(batch.positions // width), self.columns(batch.positions % width)), -1)
