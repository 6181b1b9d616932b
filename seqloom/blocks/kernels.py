"""The one file that names an attention kernel. q, k, v: (T, H, E) each, over the sequences of one ragged batch.

reference   plain matmuls on the grid; gives the attention weights
row_weights the weights of some queries, beside any kernel
padded      the grid and PyTorch's fused attention; any device, attention dropout, a bias, any visibility; where a compiler is
            at work and texts are short, written out
banded      a window by blocks: work and memory grow with length × window; any device, attention dropout
varlen      straight on the ragged row; CUDA in half precision; all tokens or a window of them
cached      new tokens against the keys and values of what was read before; on CUDA a single one by a kernel of our own
cross_attend_cached   new tokens of several hypotheses against the keys and values of the source that they share

Queries may look at another batch than their own: `keys` has its borders then, k and v are (S, H, E).
"""

import importlib.util
import inspect
import math
from collections.abc import Callable
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import Borders, MapRows, Ragged, Words
from seqloom.blocks.grid import from_grid, lengths, to_grid

# (sequence, query, key) → whether it may be looked at: numbers of sequences and places in them, as tensors that broadcast
Visible = Callable[[Tensor, Tensor, Tensor], Tensor]
SHORT = 64  # keys and queries for which a compiler's kernels are faster than fused attention


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    dropout: float = 0.0,
    maps: bool | MapRows = False,
    keys: Borders | None = None,
    bias: Tensor | None = None,
    visible: Visible | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The fastest kernel that gives what is asked for: (T, H, E), and the weights (N, H, L, K) with maps=True, those of some
    queries (R, H, K) with maps=MapRows.

    bias (N or 1, H or 1, L, K) is added to the scores; it may be learnt.
    visible hides what it says False of, beside what causal and window hide. A query that sees nothing gets zeros.
    window: a token sees itself and the window − 1 tokens before it; if not causal, as many after it too.
    """
    keys = batch if keys is None else keys
    if window is not None and window >= max(batch.max_len, keys.max_len):
        window = None  # it hides nothing
    if maps is True:
        return reference(
            q, k, v, batch, causal=causal, dropout=dropout, keys=keys, bias=bias, visible=visible, window=window
        )
    weights = None
    if maps:
        weights = row_weights(
            q, k, batch, maps.tokens, causal=causal, keys=keys, bias=bias, visible=visible, window=window
        )
    plain = bias is None and visible is None
    # a full grid needs no gather, and PyTorch has faster kernels for it; with a window it has none
    ragged = window is not None or not (batch.is_full and keys.is_full)
    if dropout == 0.0 and ragged and plain and varlen_takes(q, window):
        return varlen(q, k, v, batch, causal=causal, keys=keys, window=window), weights
    if window is not None and plain and keys is batch and (2 if causal else 3) * window < batch.max_len:
        return banded(q, k, v, batch, causal=causal, window=window, dropout=dropout), weights
    out = padded(q, k, v, batch, causal=causal, dropout=dropout, keys=keys, bias=bias, visible=visible, window=window)
    return out, weights


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    dropout: float = 0.0,
    keys: Borders | None = None,
    bias: Tensor | None = None,
    visible: Visible | None = None,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    keys = batch if keys is None else keys
    q = to_grid(q, batch).transpose(1, 2)  # (N, H, L, E)
    k, v = (to_grid(x, keys).transpose(1, 2) for x in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if bias is not None:
        scores = scores + bias
    seen, blind = visibility(batch, causal, keys, visible, window)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    if blind is not None:
        weights = weights.masked_fill(blind, 0.0)
    out = F.dropout(weights, dropout) @ v
    return from_grid(out.transpose(1, 2), batch), weights


def row_weights(
    q: Tensor,
    k: Tensor,
    batch: Borders,
    rows: Tensor,
    *,
    causal: bool,
    keys: Borders,
    bias: Tensor | None = None,
    visible: Visible | None = None,
    window: int | None = None,
) -> Tensor:
    """(R, H, K) the weights of the queries with these numbers, which rise. On a grid of their own: nothing is L × L."""
    owner = batch.owner[rows]
    counts = torch.bincount(owner, minlength=batch.num_sequences)
    chosen = Words(owner, F.pad(counts.cumsum(0), (1, 0)).int(), int(counts.max()))
    place = to_grid(rows - batch.offsets[:-1].long()[owner], chosen)[:, None, :, None]  # (N, 1, R', 1) in its sequence
    query, key = to_grid(q[rows], chosen).transpose(1, 2), to_grid(k, keys).transpose(1, 2)
    scores = query @ key.transpose(-1, -2) / q.shape[-1] ** 0.5
    if bias is not None:
        whole = bias.expand(place.shape[0], -1, -1, -1)
        scores = scores + whole.gather(2, place.expand(-1, whole.shape[1], -1, whole.shape[3]))
    seen, blind = visibility(batch, causal, keys, visible, window, place)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    if blind is not None:
        weights = weights.masked_fill(blind, 0.0)
    return from_grid(weights.transpose(1, 2), chosen)


def visibility(
    batch: Borders,
    causal: bool,
    keys: Borders,
    visible: Visible | None = None,
    window: int | None = None,
    query: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(N or 1, 1, L, K) which key each query may look at, and (N, 1, L, 1) which queries see nothing, where there can be such:
    in the mask they see everything, so that softmax stays finite. query (N, 1, L, 1): their places; all unless given."""
    device = batch.owner.device
    if query is None:
        query = torch.arange(batch.max_len, device=device)[None, None, :, None]
    key = torch.arange(keys.max_len, device=device)
    if causal:
        seen = key <= query
    else:
        last = (lengths(keys) - 1).clamp(min=0)
        seen = (key <= last[:, None])[:, None, None, :].expand(-1, 1, query.shape[2], -1)
    if window is not None:
        seen = seen & ((query - key).abs() < window)
    if visible is not None:
        seen = seen & visible(torch.arange(batch.num_sequences, device=device)[:, None, None, None], query, key)
    elif causal or window is None:  # of the rest even rows after the end see something
        return seen, None
    blind = ~seen.any(-1, keepdim=True)
    return seen | blind, blind


def padded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    dropout: float = 0.0,
    keys: Borders | None = None,
    bias: Tensor | None = None,
    visible: Visible | None = None,
    window: int | None = None,
) -> Tensor:
    keys = batch if keys is None else keys
    q = to_grid(q, batch).transpose(1, 2)
    k, v = (to_grid(x, keys).transpose(1, 2) for x in (k, v))
    plain = bias is None and visible is None and window is None
    mask, blind = None, None
    # a causal query never reaches the empty cells behind its sequence, so causality is mask enough
    if not (plain and (causal or keys.is_full)):
        mask, blind = visibility(batch, causal, keys, visible, window)
    if bias is not None and mask is not None:
        mask = bias.to(q.dtype).masked_fill(~mask, float("-inf"))
    width, (q, k, v) = q.shape[-1], whole_blocks(q, k, v)
    mixed = written_out if is_short_for_a_compiler(q, k) else F.scaled_dot_product_attention
    out = mixed(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal and plain, scale=1 / math.sqrt(width))[
        ..., :width
    ]
    if blind is not None:
        out = out.masked_fill(blind, 0.0)
    return from_grid(out.transpose(1, 2), batch)


def is_short_for_a_compiler(q: Tensor, k: Tensor) -> bool:
    return q.is_cuda and max(q.shape[-2], k.shape[-2]) <= SHORT and torch.compiler.is_compiling()


def written_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """As PyTorch's, with the scores in memory. Tiles of fused kernels are mostly empty where texts are short, and a compiler
    makes one kernel of all that lies between the two products."""
    scores = (q * scale) @ k.transpose(-1, -2)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None:
        scores = scores + attn_mask if attn_mask.is_floating_point() else scores.masked_fill(~attn_mask, float("-inf"))
    return F.dropout(scores.softmax(-1), dropout_p) @ v


def whole_blocks(*parts: Tensor) -> list[Tensor]:
    """With zeros behind the numbers of a head, up to a multiple of 8: a GPU's kernels for 16 bits take no other widths, and what
    is left, all scores written out, is slower."""
    more = -parts[0].shape[-1] % 8 if parts[0].is_cuda and parts[0].element_size() == 2 else 0
    return [F.pad(part, (0, more)) for part in parts] if more else list(parts)


def banded(
    q: Tensor, k: Tensor, v: Tensor, batch: Borders, *, causal: bool, window: int, dropout: float = 0.0
) -> Tensor:
    """Queries in blocks of `window`, each over its own block and the one before it; if not causal, the one after it, too."""
    n, length = batch.num_sequences, batch.max_len
    blocks = -(-length // window)
    q, k, v = (F.pad(to_grid(x, batch), (0, 0, 0, 0, 0, blocks * window - length)) for x in (q, k, v))
    q = q.view(n * blocks, window, *q.shape[2:]).transpose(1, 2)  # (N · B, H, W, E)
    k, v = (beside_blocks(x, window, blocks, causal).transpose(1, 2) for x in (k, v))
    seen, blind = band_mask(batch, window, blocks, causal)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=dropout)
    out = out.masked_fill(blind, 0.0).transpose(1, 2).reshape(n, blocks * window, *out.shape[1:2], out.shape[3])
    return from_grid(out[:, :length], batch)


def beside_blocks(x: Tensor, window: int, blocks: int, causal: bool) -> Tensor:
    """(N, B · W, H, E) → (N · B, 2 W or 3 W, H, E): each block behind the one before it and, if not causal, before the next."""
    x = F.pad(x, (0, 0, 0, 0, window, 0 if causal else window)).view(x.shape[0], -1, window, *x.shape[2:])
    around = [x[:, i : i + blocks] for i in range(2 if causal else 3)]
    return torch.cat(around, 2).flatten(0, 1)


def band_mask(batch: Borders, window: int, blocks: int, causal: bool) -> tuple[Tensor, Tensor]:
    """(N · B, 1, W, 2 W or 3 W) which key each query may look at, and (N · B, 1, W, 1) which queries see nothing: in the mask
    they see everything, so that softmax stays finite."""
    device = batch.owner.device
    place = torch.arange(window, device=device)
    query = torch.arange(blocks, device=device)[:, None, None] * window + place[:, None]  # (B, W, 1)
    key = (torch.arange(blocks, device=device)[:, None] - 1) * window + torch.arange(
        (2 if causal else 3) * window, device=device
    )
    key = key[:, None]  # (B, 1, K)
    back = query - key
    near = (back >= 0 if causal else back > -window) & (back < window) & (key >= 0)
    seen = near & (key < lengths(batch)[:, None, None, None])
    blind = ~seen.any(-1, keepdim=True)
    return (seen | blind).flatten(0, 1)[:, None], blind.flatten(0, 1)[:, None]


HAS_VARLEN = HAS_WINDOWS = False
if torch.backends.cuda.is_built():  # elsewhere it would only load torch's compiler, for nothing
    with suppress(ImportError):
        from torch.nn.attention.varlen import varlen_attn

        HAS_VARLEN = True
        # the way to say "causal" changed between releases, and windows came with it
        HAS_WINDOWS = "window_size" in inspect.signature(varlen_attn).parameters


def varlen_takes(q: Tensor, window: int | None = None) -> bool:
    half = q.dtype in (torch.bfloat16, torch.float16)
    known = HAS_VARLEN and (window is None or HAS_WINDOWS)
    fits = known and q.is_cuda and half and q.shape[-1] % 8 == 0 and q.shape[-1] <= 256
    # GPUs that train in fp16 because they have no bf16 do not have this kernel either
    return fits and (q.dtype == torch.bfloat16 or torch.cuda.get_device_capability(q.device) >= (8, 0))


def varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Borders,
    *,
    causal: bool,
    keys: Borders | None = None,
    window: int | None = None,
) -> Tensor:
    keys = batch if keys is None else keys
    before = -1 if window is None else window - 1
    options = {"window_size": (before, 0 if causal else before)} if HAS_WINDOWS else {"is_causal": causal}
    return varlen_attn(q, k, v, batch.offsets, keys.offsets, batch.max_len, keys.max_len, **options)  # type: ignore[return-value]


HAS_TRITON = importlib.util.find_spec("triton") is not None


def few_rows_kernel() -> Callable[..., Tensor]:
    from seqloom.blocks.decode_kernel import few_rows_linear

    return few_rows_linear


def one_token_kernel() -> Callable[..., Tensor]:
    from seqloom.blocks.decode_kernel import one_token  # triton is there on CUDA machines only

    return one_token


def cached(
    qkv: Tensor, batch: Ragged, past: Tensor, window: int | None = None, maps: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Causal attention of new tokens (T, 3, H, E) over everything up to their absolute position, or over a window of it.

    past (N, capacity, 2, H, E), keys and values, is extended in place; the token at position p is in place p. With a window,
    which is the capacity then, it is a ring: the token at position p is in place p modulo the window.
    maps=True gives the weights, too: (T, H, capacity) by place; with a window (T, H, window), the last one of a token on
    itself, the one before it on the token before it, and so on.
    """
    if window is not None:
        return ringed(qkv, batch, past, window, maps)
    one = batch.max_len == 1 and qkv.is_cuda and qkv.dtype == past.dtype != torch.float64 and HAS_TRITON
    if one and not maps:
        return one_token_kernel()(qkv, past, batch.positions), None
    read = past if batch.max_position is None or maps else past[:, : batch.max_position + 1]
    seen = None
    if (
        batch.max_position is not None and batch.ids.shape[0] == 1 and not maps
    ):  # one token of one sequence sees all there is
        past[:, batch.max_position] = qkv[:, 1:]
    else:
        past[batch.owner, batch.positions] = qkv[:, 1:].to(past.dtype)
        place = torch.arange(read.shape[1], device=qkv.device)
        seen = (place <= to_grid(batch.positions, batch)[:, :, None])[
            :, None
        ]  # (N, 1, L, ·); empty cells have position 0
    out, weights = over_kept(to_grid(qkv[:, 0], batch), read, seen, maps)
    return from_grid(out, batch), None if weights is None else from_grid(weights, batch)


def ringed(qkv: Tensor, batch: Ragged, past: Tensor, window: int, maps: bool) -> tuple[Tensor, Tensor | None]:
    """`cached` with a window. Of several new tokens the later ones would overwrite what the first ones still see: all are
    looked at beside the ring, and put into it afterwards."""
    device, position = qkv.device, batch.positions
    place = torch.arange(past.shape[1], device=device)
    first = position[batch.offsets[:-1].long().clamp(max=position.shape[0] - 1)][:, None]  # (N, 1)
    own = first + torch.arange(batch.max_len, device=device)  # (N, L) positions of new tokens, of empty cells too
    if batch.max_len == 1:
        past[batch.owner, position % window] = qkv[:, 1:].to(past.dtype)
        read = past if batch.max_position is None else past[:, : batch.max_position + 1]
        held = (own - (own - place) % window)[:, : read.shape[1]]
    else:
        read = torch.cat((past, to_grid(qkv[:, 1:], batch).to(past.dtype)), 1)
        before = first - 1
        held = torch.cat((before - (before - place) % window, own), 1)  # (N, W + L) whose keys and values these are
        kept = position > own[:, 0][batch.owner] + lengths(batch)[batch.owner] - 1 - window
        past[batch.owner[kept], position[kept] % window] = qkv[kept, 1:].to(past.dtype)
    back = own[:, :, None] - held[:, None]  # (N, L, ·) how many tokens before each
    seen = ((held[:, None] >= 0) & (back >= 0) & (back < window))[:, None]
    out, weights = over_kept(to_grid(qkv[:, 0], batch), read, seen, maps)
    if weights is None:
        return from_grid(out, batch), None
    column = (
        (window - 1 - back).clamp(0, window - 1)[:, :, None].expand_as(weights)
    )  # of what is not seen the weight is 0
    band = weights.new_zeros(*weights.shape[:-1], window).scatter_add(-1, column, weights)
    return from_grid(out, batch), from_grid(band, batch)


def over_kept(query: Tensor, read: Tensor, seen: Tensor | None, maps: bool) -> tuple[Tensor, Tensor | None]:
    """Queries (N, L, H, E) over keys and values (N, K, 2, H, E): (N, L, H, E), and the weights (N, L, H, K) with maps=True."""
    query, key, value = query.transpose(1, 2), read[:, :, 0].transpose(1, 2), read[:, :, 1].transpose(1, 2)
    if not maps:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen).transpose(1, 2), None
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    weights = (scores if seen is None else scores.masked_fill(~seen, float("-inf"))).softmax(-1)
    return (weights @ value).transpose(1, 2), weights.transpose(1, 2)


def cross_attend_cached(
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
