"""Linear layers for steps. They cost the reading of the weights, once a token, and matrix kernels are not made for it.

On a CPU a layout of oneDNN's own is read twice as fast; on a GPU in fp32 a kernel of our own keeps all of it busy.
"""

import copy
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.blocks.kernels import HAS_TRITON, few_rows_kernel
from seqloom.blocks.softmax import Softmax


class StepLinear(nn.Module):
    """Equal to F.linear in fp32, up to the order of its sums."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight, bias


class PackedLinear(StepLinear):
    """The packed weight is a copy: what is learnt later is not seen."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


class FewRowsLinear(StepLinear):
    ROWS = range(16, 257)  # for fewer PyTorch's matrix-vector kernels are as fast, for more its matrix kernels

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2 and x.shape[0] in self.ROWS:
            return few_rows_kernel()(x, self.weight, self.bias)
        return nn.functional.linear(x, self.weight, self.bias)


def fast_linear(like: Tensor) -> type[StepLinear] | None:
    """What is fastest for weights like this one; None: PyTorch's own."""
    if like.dtype != torch.float32:
        return None
    if like.is_cuda:
        return FewRowsLinear if HAS_TRITON else None
    usable = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return PackedLinear if usable and like.device.type == "cpu" else None


def for_steps(model: Any, linear: type[StepLinear]) -> nn.Module:
    """A model for steps alone: its linear layers or its output layer replaced, everything else shared."""
    if isinstance(model, Softmax):
        return linear(model.weight, model.bias)
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    fast = copy.deepcopy(model, shared)
    for parent in list(fast.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, linear(child.weight, child.bias))
            elif isinstance(child, nn.Dropout):
                setattr(parent, name, nn.Identity())
    return fast
