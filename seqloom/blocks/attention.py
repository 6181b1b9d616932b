"""Multi-head attention, scaled dot product: to the own sequence, or to another one. Vaswani et al., 2017 (arXiv 1706.03762)."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from seqloom.batch import Cache, Context, Ragged
from seqloom.blocks import kernels
from seqloom.blocks.grid import from_grid, lengths, to_grid


def heads_divide_dim(config: Any) -> Any:
    """Of a Config with both: every head has a whole number of dimensions."""
    if config.dim % config.num_heads:
        raise ValueError(f"dim {config.dim} must be a multiple of num_heads {config.num_heads}")
    return config


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
            mixed = kernels.cached(qkv, batch, state.kept)
        return self.out(mixed.reshape(x.shape)), state, weights

    def start(self, n: int, max_len: int) -> Cache:
        """Room for the keys and values of max_len tokens."""
        return Cache(self.out.weight.new_zeros(n, max_len, 2, self.num_heads, self.head_dim))


class Memory(NamedTuple):
    """What a layer has made of the sources when decoding began."""

    kept: Tensor  # (N, S, 2, H, E) keys and values
    sizes: Tensor  # (N,) tokens of each source


class CrossAttention(nn.Module):
    """Queries from the sequence that is written, keys and values from the one that was read."""

    over_source = ("kv",)

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, dim // num_heads, dropout
        self.query = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)

    def read(self, context: Context) -> Memory:
        kv = self.kv(context.hidden).view(-1, 2, self.num_heads, self.head_dim)
        return Memory(to_grid(kv, context), lengths(context))

    def forward(self, x: Tensor, batch: Ragged, context: Context | Memory, maps: bool) -> tuple[Tensor, Tensor | None]:
        """(T, D), and the weights (T, H, S) with maps=True."""
        q = self.query(x).view(-1, self.num_heads, self.head_dim)
        if isinstance(context, Memory):
            mixed, weights = kernels.looked_up(q, batch, *context, maps)
        else:
            k, v = self.kv(context.hidden).view(-1, 2, self.num_heads, self.head_dim).unbind(1)
            dropout = self.dropout if self.training else 0.0
            mixed, grid = kernels.attend(q, k, v, batch, causal=False, dropout=dropout, maps=maps, keys=context)
            weights = None if grid is None else from_grid(grid.transpose(1, 2), batch)
        return self.out(mixed.reshape(x.shape)), weights
