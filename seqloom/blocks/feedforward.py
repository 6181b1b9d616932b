"""Position-wise networks: the one between two mixers, and the one below an output layer."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "swish": F.silu,
    "tanh": torch.tanh,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class FeedForward(nn.Module):
    def __init__(self, dim: int, ffn_dim: int, activation: str):
        super().__init__()
        self.up = nn.Linear(dim, ffn_dim)
        self.down = nn.Linear(ffn_dim, dim)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class Maxout(nn.Module):
    """Maxout: the larger of two linear units. Goodfellow et al., 2013 (arXiv 1302.4389)."""

    def __init__(self, input_dim: int, dim: int):
        super().__init__()
        self.pieces = nn.Linear(input_dim, 2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.pieces(x).chunk(2, dim=-1)
        return torch.maximum(first, second)
