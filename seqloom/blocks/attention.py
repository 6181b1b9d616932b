"""Multi-head attention, scaled dot product: to the own sequence, or to another one. Vaswani et al., 2017 (arXiv 1706.03762)."""

from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Cache, Context, MapRows, Ragged, Ring
from seqloom.blocks import kernels
from seqloom.blocks.grid import from_grid, lengths, to_grid

# of the Config of every model with attention
HEAD_DIM: Any = Field(None, gt=0, description="Width of one head; dim / num_heads unless it is given.")
WINDOW: Any = Field(
    None,
    gt=0,
    description="Tokens that each token attends to, itself included; encoders attend to as many after it. All unless given.",
)


GLOBAL_EVERY: Any = Field(
    None, gt=0, description="Every so many layers, from the first on, one attends to all tokens and not to the window."
)


def window_of(config: Any, layer: int) -> int | None:
    """The window of a layer, counted from 0; None: it attends to all tokens."""
    return None if config.global_every and layer % config.global_every == 0 else config.window


def windows_fit(config: Any) -> Any:
    """Checks of a Config that there is a window to do without."""
    if config.global_every is not None and config.window is None:
        raise ValueError(f"global_every {config.global_every} is for layers with a window: give window, too")
    return config


def heads_divide_dim(config: Any) -> Any:
    """Checks of a Config that every head has a whole number of dimensions."""
    if config.head_dim is None and config.dim % config.num_heads:
        raise ValueError(f"dim {config.dim} must be a multiple of num_heads {config.num_heads}, or head_dim given")
    return config


class SelfAttention(nn.Module):
    """head_dim: dim / num_heads unless given. window: how many tokens one sees, itself and those before it; if not causal, as
    many after it. None: all."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        causal: bool,
        dropout: float = 0.0,
        head_dim: int | None = None,
        window: int | None = None,
    ):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim or dim // num_heads
        self.causal, self.dropout, self.window = causal, dropout, window
        width = self.num_heads * self.head_dim
        self.qkv = nn.Linear(dim, 3 * width)
        self.out = nn.Linear(width, dim)

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: Any = None,
        context: Context | None = None,
        maps: bool | MapRows = False,
        heads: Tensor | None = None,
    ) -> tuple[Tensor, Any, Tensor | None]:
        """heads (H,) or (T, H): what each head's output is multiplied by."""
        qkv = self.qkv(x).view(x.shape[0], 3, self.num_heads, self.head_dim)
        if state is None:
            dropout = self.dropout if self.training else 0.0
            q, k, v = qkv.unbind(1)
            mixed, weights = kernels.attend(
                q, k, v, batch, causal=self.causal, dropout=dropout, maps=maps, window=self.window
            )
        else:
            mixed, weights = kernels.cached(qkv, batch, state.kept, self.window, bool(maps))
        if heads is not None:
            mixed = mixed * heads[..., None].to(mixed.dtype)
        return self.out(mixed.flatten(1)), state, weights

    def value_norms(self, x: Tensor) -> Tensor:
        """(T, H) how long the vectors are that tokens hand on through each head, by its values and its part of `out`."""
        return value_norms(self.qkv(x).view(x.shape[0], 3, self.num_heads, self.head_dim)[:, 2], self.out)

    def keep_heads(self, heads: Tensor) -> None:
        """Removes all other heads for good."""
        narrow(self.qkv, select_heads(heads, self.num_heads, 3), 3 * self.num_heads, 0)
        narrow(self.out, heads, self.num_heads, 1)
        self.num_heads = len(heads)

    def start(self, n: int, max_len: int) -> Cache | Ring:
        """Room for the keys and values of max_len tokens, or of a window."""
        kept = self.out.weight.new_zeros(n, self.window or max_len, 2, self.num_heads, self.head_dim)
        return Cache(kept) if self.window is None else Ring(kept)


def select_heads(heads: Tensor, num_heads: int, matrices: int) -> Tensor:
    """The rows of so many stacked matrices, each with a block a head, that belong to these heads: of blocks of one row."""
    return (torch.arange(matrices)[:, None] * num_heads + heads).flatten()


def narrow(linear: nn.Linear, blocks: Tensor, count: int, dim: int) -> None:
    """Keeps some of `count` equal blocks of a layer's outputs (dim 0) or inputs (dim 1), in place."""
    weight = linear.weight
    blocks = blocks.to(weight.device)
    shape = (count, -1, weight.shape[1]) if dim == 0 else (weight.shape[0], count, -1)
    kept = weight.detach().view(shape).index_select(dim, blocks)
    linear.weight = nn.Parameter(kept.reshape(-1, weight.shape[1]) if dim == 0 else kept.reshape(weight.shape[0], -1))
    if dim == 0 and linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach().view(count, -1).index_select(0, blocks).flatten())
    linear.out_features, linear.in_features = linear.weight.shape


def value_norms(values: Tensor, out: nn.Linear) -> Tensor:
    """‖v W‖ of values (T, H, E) by each head's part W of the output matrix: (T, H). By WᵀW, which is small."""
    weight = out.weight.view(-1, *values.shape[1:])
    inner = torch.einsum("dhe,dhf->hef", weight, weight)
    return torch.einsum("the,hef,thf->th", values, inner, values).clamp(min=0).sqrt()


class Memory(NamedTuple):
    """What a layer has made of the sources when decoding began."""

    kept: Tensor  # (N, S, 2, H, E) keys and values
    sizes: Tensor  # (N,) tokens of each source


class CrossAttention(nn.Module):
    """Queries from the sequence that is written, keys and values from the one that was read."""

    over_source = ("kv",)

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0, head_dim: int | None = None):
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, head_dim or dim // num_heads, dropout
        width = self.num_heads * self.head_dim
        self.query = nn.Linear(dim, width)
        self.kv = nn.Linear(dim, 2 * width)
        self.out = nn.Linear(width, dim)

    def read(self, context: Context) -> Memory:
        kv = self.kv(context.hidden).view(-1, 2, self.num_heads, self.head_dim)
        return Memory(to_grid(kv, context), lengths(context))

    def forward(
        self, x: Tensor, batch: Ragged, context: Context | Memory, maps: bool | MapRows
    ) -> tuple[Tensor, Tensor | None]:
        """(T, D), and the weights (T, H, S) with maps=True, (R, H, S) with maps=MapRows."""
        q = self.query(x).view(-1, self.num_heads, self.head_dim)
        if isinstance(context, Memory):
            mixed, weights = kernels.cross_attend_cached(q, batch, *context, bool(maps))
        else:
            k, v = self.kv(context.hidden).view(-1, 2, self.num_heads, self.head_dim).unbind(1)
            dropout = self.dropout if self.training else 0.0
            mixed, weights = kernels.attend(q, k, v, batch, causal=False, dropout=dropout, maps=maps, keys=context)
            if maps is True and weights is not None:
                weights = from_grid(weights.transpose(1, 2), batch)
        return self.out(mixed.flatten(1)), weights
