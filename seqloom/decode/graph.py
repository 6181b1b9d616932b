"""Steps on a GPU: small kernels, hundreds of them, each waiting for the host. A CUDA graph launches them all at once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


class Recorded:
    """function(given, carried) → (made, carried), recorded for the shapes of its arguments, and replayed.

    `carried` is what goes in and comes out, a state: it is taken over, and what is made of it is put back into its place.
    Whatever a call returns is overwritten by the next one. The function is run once before it is recorded, on the same
    arguments: it may extend caches, which does no harm when done twice, but change nothing else in place.
    """

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Any]], given: Any, carried: Any):
        self.given, self.carried = pytree.tree_map_only(Tensor, torch.clone, given), carried
        self.leaves = tensors((self.given, carried))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up in a first call, which no graph may hold
            function(self.given, carried)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.made, after = function(self.given, carried)
            for old, new in zip(tensors(carried), tensors(after), strict=True):
                if new is not old:  # caches are extended in place, recurrent states are new
                    old.copy_(new)

    def takes(self, given: Any, carried: Any) -> bool:
        leaves = tensors((given, carried))
        return len(leaves) == len(self.leaves) and all(
            a.shape == b.shape for a, b in zip(leaves, self.leaves, strict=True)
        )

    def __call__(self, given: Any, carried: Any) -> tuple[Any, Any]:
        for ours, new in zip(self.leaves, tensors((given, carried)), strict=True):
            if ours is not new:
                ours.copy_(new)
        self.graph.replay()
        return self.made, self.carried
