"""LSTM and GRU over a full grid with every gate kept, forward and backward written out.

PyTorch's kernels give the hidden states alone. This loop keeps all gates and still does little a step: one matrix
product and one element-wise function, compiled into one kernel on a GPU; what the weights learn is summed in one product
after the loop. Element-wise work is in fp32, and so is the cell; products are in the type of the inputs.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.batch import wide

Values = tuple[Tensor, ...]


def lstm_step(x: Tensor, u: Tensor, cell: Tensor) -> Values:
    """x, u (N, 4 D): what is read and what comes from h; cell (N, D). The new cell, the new h, all gates (N, 5, D)."""
    i, f, g, o = (wide(x) + wide(u)).chunk(4, dim=-1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cell = f * cell + i * g
    return cell, (o * torch.tanh(cell)).to(x.dtype), torch.stack((i, f, g, o, cell), dim=1).to(x.dtype)


def lstm_back(gates: Tensor, u: Tensor, before: Tensor, d_h: Values, d_gates: Tensor | None, d_cell: Tensor) -> Any:
    """`before`: the cell that was read; d_h: the gradient by the new h from the step after and from above. Returns the
    derivatives by x, by u, by `before`, and by the h before as far as it passes no matrix."""
    i, f, g, o, cell = wide(gates).unbind(1)
    squashed, by_h = torch.tanh(cell), sum(wide(d) for d in d_h)
    d_i, d_f, d_g, d_o, d_c = (0.0,) * 5 if d_gates is None else wide(d_gates).unbind(1)
    d_c = d_c + d_cell + by_h * o * (1 - squashed * squashed)
    d_i, d_f, d_g, d_o = d_i + d_c * g, d_f + d_c * before, d_g + d_c * i, d_o + by_h * squashed
    d_pre = torch.cat((d_i * i * (1 - i), d_f * f * (1 - f), d_g * (1 - g * g), d_o * o * (1 - o)), dim=-1)
    d_pre = d_pre.to(gates.dtype)
    return d_pre, d_pre, d_c * f, None


def gru_step(x: Tensor, u: Tensor, cell: Tensor) -> Values:
    """As above with 3 D; the cell is h itself, before it is rounded. Gates (N, 4, D)."""
    (xr, xu, xc), (hr, hu, hc) = wide(x).chunk(3, dim=-1), wide(u).chunk(3, dim=-1)
    reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xu + hu)
    candidate = torch.tanh(xc + reset * hc)
    h = candidate + update * (cell - candidate)
    return h, h.to(x.dtype), torch.stack((reset, update, candidate, h), dim=1).to(x.dtype)


def gru_back(gates: Tensor, u: Tensor, before: Tensor, d_h: Values, d_gates: Tensor | None, d_cell: Tensor) -> Any:
    reset, update, candidate, _ = wide(gates).unbind(1)
    d_reset, d_update, d_candidate, d_new = (0.0,) * 4 if d_gates is None else wide(d_gates).unbind(1)
    by_h = d_cell + d_new + sum(wide(d) for d in d_h)
    d_candidate = (d_candidate + by_h * (1 - update)) * (1 - candidate * candidate)
    d_update = (d_update + by_h * (before - candidate)) * update * (1 - update)
    d_reset = (d_reset + d_candidate * wide(u).chunk(3, dim=-1)[2]) * reset * (1 - reset)
    d_x = torch.cat((d_reset, d_update, d_candidate), dim=-1).to(gates.dtype)
    d_u = torch.cat((d_reset, d_update, d_candidate * reset), dim=-1).to(gates.dtype)
    return d_x, d_u, torch.zeros_like(before), (by_h * update).to(gates.dtype)


STEPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lstm": (lstm_step, lstm_back),
    "gru": (gru_step, gru_back),
}


@cache
def steps_of(kind: str, compiled: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    forward, backward = STEPS[kind]
    return (torch.compile(forward), torch.compile(backward)) if compiled else (forward, backward)


class GatedScan(torch.autograd.Function):
    """x (L, N, G D) what the gates read, U (G D, D), b (G D), h and cell at the start → h (L, N, D), all gates
    (L, N, ·, D), the last h and cell. For the GRU the cell is h."""

    @staticmethod
    def forward(ctx: Any, kind: str, x: Tensor, weight: Tensor, bias: Tensor, h: Tensor, cell: Tensor) -> Values:
        forward, _ = steps_of(kind, x.is_cuda)
        narrow, shift = weight.to(x.dtype), bias.to(x.dtype)
        held, last = wide(cell), h.to(x.dtype)
        outputs, gates, products, cells = [], [], [], []
        for now in x.unbind(0):
            product = torch.addmm(shift, last, narrow.T)
            cells.append(held)
            products.append(product)
            held, last, seen = forward(now, product, held)
            outputs.append(last)
            gates.append(seen)
        hidden, kept = torch.stack(outputs), torch.stack(gates)
        # the LSTM's products are in its gates; the GRU's candidate needs its own part of them
        extra = [torch.stack(products)] if kind == "gru" else []
        ctx.save_for_backward(narrow, h, hidden, kept, torch.stack(cells), *extra)
        ctx.kind, ctx.types = kind, (weight.dtype, bias.dtype, h.dtype, cell.dtype)
        ctx.set_materialize_grads(False)
        return hidden, kept, last.to(h.dtype), held.to(cell.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_hidden: Tensor | None, d_kept: Tensor | None, d_last: Tensor | None, d_held: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        narrow, first, hidden, kept, cells, *products = ctx.saved_tensors
        _, backward = steps_of(ctx.kind, hidden.is_cuda)
        d_h = torch.zeros_like(hidden[0]) if d_last is None else d_last.to(hidden.dtype)
        d_cell = torch.zeros_like(cells[0]) if d_held is None else d_held.to(cells.dtype)
        by_x, by_u = [], []
        for t in range(hidden.shape[0] - 1, -1, -1):
            gradients = (d_h,) if d_hidden is None else (d_h, d_hidden[t])
            product = products[0][t] if products else kept[t]
            d_x, d_u, d_cell, direct = backward(
                kept[t], product, cells[t], gradients, None if d_kept is None else d_kept[t], d_cell
            )
            d_h = d_u @ narrow if direct is None else torch.addmm(direct, d_u, narrow)
            by_x.append(d_x)
            by_u.append(d_u)
        grads = torch.stack(by_x[::-1])
        flat = (grads if ctx.kind == "lstm" else torch.stack(by_u[::-1])).flatten(0, 1)
        before = torch.cat((first.to(hidden.dtype).unsqueeze(0), hidden[:-1])).flatten(0, 1)
        weight_type, bias_type, h_type, cell_type = ctx.types
        return (
            None,
            grads,
            (flat.T @ before).to(weight_type),
            flat.sum(0, dtype=bias_type),
            d_h.to(h_type),
            d_cell.to(cell_type),
        )
