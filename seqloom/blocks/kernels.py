"""The one file that names an attention kernel. q, k, v: (T, H, E) each, over the sequences of one ragged batch.

reference   plain matmuls on the grid; gives the attention weights
padded      the grid and PyTorch's fused attention; any device, attention dropout
varlen      straight on the ragged row; CUDA in half precision
cached      new tokens against the keys and values of what was read before; on CUDA a single one by a kernel of our own
looked_up   new tokens of several hypotheses against the keys and values of the source that they share

Queries may look at another batch than their own: `keys` has its borders then, k and v are (S, H, E).
"""

import importlib.util
import inspect
from collections.abc import Callable
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import Borders, Ragged
from seqloom.blocks.grid import from_grid, lengths, to_grid


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    dropout: float = 0.0,
    maps: bool = False,
    keys: Borders | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The fastest kernel that gives what is asked for: (T, H, E), and the weights (N, H, L, L) with maps=True."""
    keys = batch if keys is None else keys
    if maps:
        return reference(q, k, v, batch, causal=causal, dropout=dropout, keys=keys)
    # a full grid needs no gather, and PyTorch has faster kernels for it
    if dropout == 0.0 and not (batch.is_full and keys.is_full) and varlen_takes(q):
        return varlen(q, k, v, batch, causal=causal, keys=keys), None
    return padded(q, k, v, batch, causal=causal, dropout=dropout, keys=keys), None


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    dropout: float = 0.0,
    keys: Borders | None = None,
) -> tuple[Tensor, Tensor]:
    keys = batch if keys is None else keys
    q = to_grid(q, batch).transpose(1, 2)  # (N, H, L, E)
    k, v = (to_grid(x, keys).transpose(1, 2) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~visible(batch, causal, keys), float("-inf")).softmax(-1)
    out = F.dropout(weights, dropout) @ v
    return from_grid(out.transpose(1, 2), batch), weights


def visible(batch: Borders, causal: bool, keys: Borders) -> Tensor:
    """(N or 1, 1, L, L) which key each query may look at. Rows after the end see key 0, so that they stay finite."""
    place = torch.arange(keys.max_len, device=batch.owner.device)
    if causal:
        return (place[None, :] <= place[:, None])[None, None]
    last = (lengths(keys) - 1).clamp(min=0)
    return (place[None, :] <= last[:, None])[:, None, None, :].expand(-1, 1, batch.max_len, -1)


def padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    dropout: float = 0.0,
    keys: Borders | None = None,
) -> Tensor:
    keys = batch if keys is None else keys
    q = to_grid(q, batch).transpose(1, 2)
    k, v = (to_grid(x, keys).transpose(1, 2) for x in (k, v))
    # a causal query never reaches the empty cells behind its sequence, so causality is mask enough
    mask = None if causal or keys.is_full else visible(batch, False, keys)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return from_grid(out.transpose(1, 2), batch)


HAS_VARLEN = False
if torch.backends.cuda.is_built():  # elsewhere it would only load torch's compiler, for nothing
    with suppress(ImportError):
        from torch.nn.attention.varlen import varlen_attn

        HAS_VARLEN = True
        # the way to say "causal" changed between releases
        _CAUSAL, _FULL = (
            ({"window_size": (-1, 0)}, {"window_size": (-1, -1)})
            if "window_size" in inspect.signature(varlen_attn).parameters
            else ({"is_causal": True}, {"is_causal": False})
        )


def varlen_takes(q: Tensor) -> bool:
    half = q.dtype in (torch.bfloat16, torch.float16)
    return HAS_VARLEN and q.is_cuda and half and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256


def varlen(q: Tensor, k: Tensor, v: Tensor, batch: Borders, *, causal: bool, keys: Borders | None = None) -> Tensor:
    keys = batch if keys is None else keys
    options = _CAUSAL if causal else _FULL
    return varlen_attn(q, k, v, batch.offsets, keys.offsets, batch.max_len, keys.max_len, **options)  # type: ignore[return-value]


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


def looked_up(
    q: Tensor, batch: Ragged, kept: Tensor, sizes: Tensor, maps: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Attention of new tokens (T, H, E) to the sources of their sequences, and the weights (T, H, S) with maps=True.

    kept (N, S, 2, H, E): keys and values of N sources of `sizes` (N,) tokens. The batch has K sequences for each of them,
    which stand together: to a kernel they are more queries of the same source.
    """
    sources, longest = kept.shape[:2]
    query = to_grid(q, batch).reshape(sources, -1, *q.shape[1:]).transpose(1, 2)  # (N, H, K · L, E)
    key, value = (kept[:, :, i].transpose(1, 2) for i in (0, 1))
    seen = (torch.arange(longest, device=q.device) < sizes[:, None])[:, None, None]
    weights = None
    if maps:
        scores = query @ key.transpose(-1, -2) / q.shape[-1] ** 0.5
        shares = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out = shares @ value
        grid = shares.transpose(1, 2).reshape(batch.num_sequences, batch.max_len, q.shape[1], longest)
        weights = from_grid(grid, batch)
    else:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    return from_grid(out.transpose(1, 2).reshape(batch.num_sequences, batch.max_len, *q.shape[1:]), batch), weights
