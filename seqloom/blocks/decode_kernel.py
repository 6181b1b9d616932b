"""Attention of one new token over what was read before, in one Triton kernel: CUDA only, imported where it is used.

PyTorch's own attention reads a static cache to its end, through a mask; this one stops at each sequence's last token, and
writes the new key and value on the way.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _one_token(
    qkv, past, positions, out, capacity, scale,
    H: tl.constexpr, E: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a sequence and head, with a running maximum so that nothing of the length of the text is kept."""
    n, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    e = tl.arange(0, WIDTH)
    inside = e < E
    position = tl.load(positions + n)
    new = qkv + (n * 3 * H + h) * E + e
    query = tl.load(new, mask=inside, other=0.0).to(tl.float32) * scale
    new_key, new_value = tl.load(new + H * E, mask=inside, other=0.0), tl.load(new + 2 * H * E, mask=inside, other=0.0)
    place = past + ((n * capacity + position) * 2 * H + h) * E + e
    tl.store(place, new_key, mask=inside)
    tl.store(place + H * E, new_value, mask=inside)
    highest = tl.sum(query * new_key.to(tl.float32), 0)
    mass = 1.0
    mixed = new_value.to(tl.float32)
    for begin in range(0, position, BLOCK):
        row = begin + tl.arange(0, BLOCK)
        before = row < position
        cell = past + (((n * capacity + row) * 2 * H + h) * E)[:, None] + e[None, :]
        held = before[:, None] & inside[None, :]
        key = tl.load(cell, mask=held, other=0.0).to(tl.float32)
        value = tl.load(cell + H * E, mask=held, other=0.0).to(tl.float32)
        score = tl.where(before, tl.sum(key * query[None, :], 1), float("-inf"))
        top = tl.maximum(highest, tl.max(score, 0))
        weight, shrink = tl.exp(score - top), tl.exp(highest - top)
        mixed = mixed * shrink + tl.sum(weight[:, None] * value, 0)
        mass = mass * shrink + tl.sum(weight, 0)
        highest = top
    tl.store(out + (n * H + h) * E + e, mixed / mass, mask=inside)


def one_token(qkv: Tensor, past: Tensor, positions: Tensor) -> Tensor:
    """qkv (N, 3, H, E) of the new tokens; past (N, capacity, 2, H, E) is extended in place. Returns (N, H, E)."""
    n, _, heads, width = qkv.shape
    assert qkv.is_contiguous() and past.is_contiguous()
    positions = positions.contiguous()  # one position for all hypotheses of one source is a single number in memory
    out = torch.empty(n, heads, width, dtype=qkv.dtype, device=qkv.device)
    many = n * heads >= 256  # enough programs to hide each other's waiting; else each takes larger blocks
    _one_token[(n, heads)](
        qkv, past, positions, out, past.shape[1], width**-0.5,
        H=heads, E=width, WIDTH=triton.next_power_of_2(width), BLOCK=64 if many else 256, num_warps=2 if many else 8,
    )  # fmt: skip
    return out


@triton.jit
def _few_rows(
    x, weight, bias, out, rows, gives, reads, part,
    HAS_BIAS: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """One program for N outputs of M rows, summed over one part of what is read. Three tensor-core products of half the
    bits each are nearly as exact as one in fp32."""
    row, column = tl.program_id(1) * M + tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    first = tl.program_id(2) * part
    last = tl.minimum(first + part, reads)
    for begin in range(first, last, K):
        k = begin + tl.arange(0, K)
        a = tl.load(x + row[:, None] * reads + k[None, :], mask=(row < rows)[:, None] & (k < last)[None, :], other=0.0)
        b = tl.load(
            weight + column[:, None].to(tl.int64) * reads + k[None, :],
            mask=(column < gives)[:, None] & (k < last)[None, :],
            other=0.0,
        )
        total = tl.dot(a, tl.trans(b), total, input_precision="tf32x3")
    if HAS_BIAS:
        shift = tl.load(bias + column, mask=column < gives, other=0.0)
        total += tl.where(tl.program_id(2) == 0, shift, 0.0)[None, :]
    place = (tl.program_id(2) * rows + row[:, None]).to(tl.int64) * gives + column[None, :]
    tl.store(out + place, total, mask=(row < rows)[:, None] & (column < gives)[None, :])


def few_rows_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (n, D) · weightᵀ (V, D) + bias in fp32, for the rows of a batch that decodes: libraries leave most of the GPU
    idle then. Where there are few outputs, several programs share each sum."""
    (rows, reads), gives = x.shape, weight.shape[0]
    m, n, k, parts = (64, 64, 32, 1) if gives > 8192 else (64, 32, 64, 1 if gives > 1024 else 4)  # the best of an H200
    out = torch.empty(parts, rows, gives, dtype=x.dtype, device=x.device)
    _few_rows[(triton.cdiv(gives, n), triton.cdiv(rows, m), parts)](
        x.contiguous(), weight, bias, out, rows, gives, reads, triton.cdiv(triton.cdiv(reads, parts), k) * k,
        HAS_BIAS=bias is not None, M=m, N=n, K=k, num_warps=4, num_stages=4,
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(0)
