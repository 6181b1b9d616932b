"""Multi-head self-attention, scaled dot product. Vaswani et al., 2017 (arXiv 1706.03762)."""

from typing import Any

from torch import Tensor, nn

from seqloom.batch import Context, Ragged
from seqloom.blocks import kernels


class SelfAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int, causal: bool, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.head_dim, self.causal, self.dropout = num_heads, dim // num_heads, causal, dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(
        self, x: Tensor, batch: Ragged, state: Any = None, context: Context | None = None, maps: bool = False
    ) -> tuple[Tensor, Any, Tensor | None]:
        qkv = self.qkv(x).view(x.shape[0], 3, self.num_heads, self.head_dim)
        weights = None
        if state is None:
            dropout = self.dropout if self.training else 0.0
            q, k, v = qkv.unbind(1)
            mixed, weights = kernels.attend(q, k, v, batch, causal=self.causal, dropout=dropout, maps=maps)
        elif maps:
            raise ValueError("attention weights are given for whole sequences: call without a state")
        else:
            mixed = kernels.cached(qkv, batch, state)
        return self.out(mixed.reshape(x.shape)), state, weights

    def start(self, n: int, max_len: int) -> Tensor:
        """Room for the keys and values of max_len tokens."""
        return self.out.weight.new_zeros(n, max_len, 2, self.num_heads, self.head_dim)
