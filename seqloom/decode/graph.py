"""Steps on a GPU: small kernels, hundreds of them, each waiting for the host. A CUDA graph launches them all at once."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from seqloom.batch import State

Step = Callable[[Tensor, Tensor, State], tuple[Tensor, State]]


class GraphedStep:
    """One step, recorded for n sequences and the size of their state, and replayed.

    Whatever it returns is overwritten by the next call.
    """

    def __init__(self, step: Step, tokens: Tensor, positions: Tensor, state: State):
        self.tokens, self.positions, self.state = tokens.clone(), positions.clone(), state
        self.leaves = pytree.tree_leaves(state)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up in a first call, which no graph may hold
            step(self.tokens, self.positions, state)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.scores, after = step(self.tokens, self.positions, state)
            for old, new in zip(self.leaves, pytree.tree_leaves(after), strict=True):
                if new is not old:  # caches are extended in place, recurrent states are new
                    old.copy_(new)

    def takes(self, tokens: Tensor, state: State) -> bool:
        leaves = pytree.tree_leaves(state)
        return tokens.shape == self.tokens.shape and all(
            a.shape == b.shape for a, b in zip(leaves, self.leaves, strict=True)
        )

    def __call__(self, tokens: Tensor, positions: Tensor, state: State) -> tuple[Tensor, State]:
        self.tokens.copy_(tokens)
        self.positions.copy_(positions)
        for ours, given in zip(self.leaves, pytree.tree_leaves(state), strict=True):
            if ours is not given:
                ours.copy_(given)
        self.graph.replay()
        return self.scores, self.state
