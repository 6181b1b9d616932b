"""Steps on a CPU: they cost the reading of the weights, once a token, and a layout of oneDNN's own reads twice as fast."""

import copy
from itertools import chain

import torch
from torch import Tensor, nn

from seqloom.blocks.softmax import Softmax


class PackedLinear(nn.Module):
    """A linear map in fp32, equal to F.linear; the packed weight is a copy, so what is learnt later is not seen."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight, bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def can_pack(like: Tensor) -> bool:
    usable = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return usable and like.device.type == "cpu" and like.dtype == torch.float32


def packed(model: nn.Module) -> nn.Module:
    """A model for inference alone: its linear layers and its output layer packed, everything else shared."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    fast = copy.deepcopy(model, shared)
    if isinstance(fast, Softmax):
        return PackedLinear(fast.weight, fast.bias)
    for parent in list(fast.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, PackedLinear(child.weight, child.bias))
    return fast
