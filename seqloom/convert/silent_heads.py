"""Heads that say nothing, for models whose heads are fewer than dim / head_dim: `transformers` has no other number of them.

A pruned run computes the same with the removed heads put back as zeros: their values are zero, and nothing of them is added.
"""

from typing import Any

import torch
from torch import Tensor

QKV, OUT = ".mixer.qkv.", ".mixer.out.weight"


def add_silent_heads(values: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Sizes and weights with as many heads as fill the width; as they are where that cannot be, or is so already."""
    width, heads, dim = values.get("head_dim"), values.get("num_heads"), values.get("dim")
    crossed = any(".cross." in name for name in tensors)
    if not width or not heads or not dim or width * heads >= dim or dim % width or crossed:
        return values, tensors
    lacking = dim // width - heads
    found = {name: widen(name, tensor, heads, lacking) for name, tensor in tensors.items()}
    return values | {"num_heads": dim // width, "head_dim": None}, found


def widen(name: str, tensor: Tensor, heads: int, lacking: int) -> Tensor:
    if QKV in name:  # queries, keys and values under each other, a block a head
        blocks = tensor.view(3, heads, -1, *tensor.shape[1:])
        filler = blocks.new_zeros(3, lacking, *blocks.shape[2:])
        return torch.cat((blocks, filler), 1).reshape(-1, *tensor.shape[1:])
    if name.endswith(OUT):
        return torch.cat((tensor, tensor.new_zeros(len(tensor), tensor.shape[1] // heads * lacking)), 1)
    return tensor
