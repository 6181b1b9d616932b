"""The one file that names an attention kernel. q, k, v: (T, H, E) each, over the sequences of one ragged batch.

reference   plain matmuls on the grid; gives the attention weights
padded      the grid and PyTorch's fused attention; any device, attention dropout
varlen      straight on the ragged row; CUDA in half precision
cached      new tokens against the keys and values of what was read before; on CUDA a single one by a kernel of our own
"""

import importlib.util
import inspect
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import Ragged
from seqloom.blocks.grid import from_grid, lengths, to_grid


def attend(
    q: Tensor, k: Tensor, v: Tensor, batch: Ragged, *, causal: bool, dropout: float = 0.0, maps: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The fastest kernel that gives what is asked for: (T, H, E), and the weights (N, H, L, L) with maps=True."""
    if maps:
        return reference(q, k, v, batch, causal=causal, dropout=dropout)
    # a full grid needs no gather, and PyTorch has faster kernels for it
    if dropout == 0.0 and not batch.is_full and varlen_takes(q):
        return varlen(q, k, v, batch, causal=causal), None
    return padded(q, k, v, batch, causal=causal, dropout=dropout), None


def reference(
    q: Tensor, k: Tensor, v: Tensor, batch: Ragged, *, causal: bool, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    q, k, v = (to_grid(x, batch).transpose(1, 2) for x in (q, k, v))  # (N, H, L, E)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~visible(batch, causal), float("-inf")).softmax(-1)
    out = F.dropout(weights, dropout) @ v
    return from_grid(out.transpose(1, 2), batch), weights


def visible(batch: Ragged, causal: bool) -> Tensor:
    """(N or 1, 1, L, L) which key each query may look at. Rows after the end see key 0, so that they stay finite."""
    place = torch.arange(batch.max_len, device=batch.ids.device)
    if causal:
        return (place[None, :] <= place[:, None])[None, None]
    last = (lengths(batch) - 1).clamp(min=0)
    return (place[None, :] <= last[:, None])[:, None, None, :].expand(-1, 1, batch.max_len, -1)


def padded(q: Tensor, k: Tensor, v: Tensor, batch: Ragged, *, causal: bool, dropout: float = 0.0) -> Tensor:
    q, k, v = (to_grid(x, batch).transpose(1, 2) for x in (q, k, v))
    # a causal query never reaches the empty cells behind its sequence, so causality is mask enough
    mask = None if causal or batch.is_full else visible(batch, causal=False)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return from_grid(out.transpose(1, 2), batch)


try:
    from torch.nn.attention.varlen import varlen_attn

    HAS_VARLEN = True
    # the way to say "causal" changed between releases
    _CAUSAL, _FULL = (
        ({"window_size": (-1, 0)}, {"window_size": (-1, -1)})
        if "window_size" in inspect.signature(varlen_attn).parameters
        else ({"is_causal": True}, {"is_causal": False})
    )
except ImportError:
    HAS_VARLEN = False


def varlen_takes(q: Tensor) -> bool:
    half = q.dtype in (torch.bfloat16, torch.float16)
    return HAS_VARLEN and q.is_cuda and half and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256


def varlen(q: Tensor, k: Tensor, v: Tensor, batch: Ragged, *, causal: bool) -> Tensor:
    borders, longest = batch.offsets, batch.max_len
    return varlen_attn(q, k, v, borders, borders, longest, longest, **(_CAUSAL if causal else _FULL))  # type: ignore[return-value]


HAS_TRITON = importlib.util.find_spec("triton") is not None


def few_rows_kernel() -> Callable[..., Tensor]:
    from seqloom.blocks.decode_kernel import few_rows_linear

    return few_rows_linear


def one_token_kernel() -> Callable[..., Tensor]:
    from seqloom.blocks.decode_kernel import one_token  # triton is there on CUDA machines only

    return one_token


def cached(qkv: Tensor, batch: Ragged, past: Tensor) -> Tensor:
    """Causal attention of new tokens (T, 3, H, E) over everything up to their absolute position.

    past (N, capacity, 2, H, E), keys and values, is extended in place; the token at position p is in place p.
    """
    if batch.max_len == 1 and qkv.is_cuda and qkv.dtype == past.dtype != torch.float64 and HAS_TRITON:
        return one_token_kernel()(qkv, past, batch.positions)
    read = past if batch.reach is None else past[:, : batch.reach + 1]
    seen = None
    if batch.reach is not None and batch.ids.shape[0] == 1:  # one token of one sequence sees all there is
        past[:, batch.reach] = qkv[:, 1:]
    else:
        past[batch.owner, batch.positions] = qkv[:, 1:].to(past.dtype)
        place = torch.arange(read.shape[1], device=qkv.device)
        seen = (place <= to_grid(batch.positions, batch)[:, :, None])[
            :, None
        ]  # (N, 1, L, ·); empty cells have position 0
    query = to_grid(qkv[:, 0], batch).transpose(1, 2)
    out = F.scaled_dot_product_attention(
        query, read[:, :, 0].transpose(1, 2), read[:, :, 1].transpose(1, 2), attn_mask=seen
    )
    return from_grid(out.transpose(1, 2), batch)
