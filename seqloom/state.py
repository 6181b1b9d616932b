"""What a model carries from one call to the next, and what is done with it. Part of the contract: imported from `batch`.

Dim 0 of every tensor is the sequence. N sequences, T tokens, L the longest; see `batch` for the other letters.
"""

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree = TypeVar("Tree")


class Joints(NamedTuple):
    """How the sequences of a batch continue N streams, where each document is a sequence of its own."""

    first: Tensor  # (N,) the first sequence of each stream in this batch
    last: Tensor  # (N,) its last one
    goes_on: Tensor  # (N,) whether the first one continues a document of the batch before


class State(NamedTuple):
    """What a model remembers of what it has read. Dim 0 of every tensor is the sequence, so beam search is one `select`.

    Where a decoder attends to sources, `own` may have several rows for each row of `shared`: the K hypotheses of source i
    are rows K·i to K·i + K − 1. A search reorders `own` only.
    A call uses up the state that it is given: key/value caches are extended in place.
    """

    own: Any = ()  # one entry for each layer: h and c, keys and values, memory
    shared: Any = ()  # what all hypotheses of one source share: its keys and values, computed once


class Cache(NamedTuple):
    """The part of a State that keeps something of every token, at its position. Dim 1 is the capacity."""

    kept: Tensor  # (n, capacity, …)


class Ring(NamedTuple):
    """The part of a State that keeps something of the last `window` tokens, that of position p at p modulo window. It never
    needs more room."""

    kept: Tensor  # (n, window, …)


def select(state: Tree, index: Tensor) -> Tree:
    """Reorders, repeats or drops the sequences of a state."""
    return pytree.tree_map_only(Tensor, lambda t: t.index_select(0, index), state)


def join(first: Tree, second: Tree) -> Tree:
    """The sequences of one state followed by those of another of the same model. Caches get the larger capacity."""

    def joined(a: Any, b: Any) -> Any:
        if isinstance(a, Cache):
            capacity = max(a.kept.shape[1], b.kept.shape[1])
            return Cache(torch.cat((widen(a, capacity).kept, widen(b, capacity).kept)))
        return torch.cat((a, b.to(a.dtype)))

    return pytree.tree_map(joined, first, second, is_leaf=lambda part: isinstance(part, Cache))


def replace(state: Tree, index: Tensor, other: Tree) -> Tree:
    """A state with sequences of another one in the places (n,) of its own, which are overwritten. Caches get the larger
    capacity."""

    def replaced(a: Any, b: Any) -> Any:
        if isinstance(a, Cache):
            capacity = max(a.kept.shape[1], b.kept.shape[1])
            a, b = widen(a, capacity), widen(b, capacity)
            a.kept.index_copy_(0, index, b.kept.to(a.kept.dtype))
        else:
            a.index_copy_(0, index, b.to(a.dtype))
        return a

    return pytree.tree_map(replaced, state, other, is_leaf=lambda part: isinstance(part, Cache))


def join_streams(fresh: Tree, carried: Tree, joints: Joints) -> Tree:
    """The state of all sequences of a batch: the carried one for those that continue a stream, a fresh one for the others."""

    def joined(new: Tensor, old: Tensor) -> Tensor:
        goes_on = joints.goes_on.view(-1, *[1] * (old.dim() - 1))
        return new.index_copy(0, joints.first, torch.where(goes_on, old.to(new.dtype), new[joints.first]))

    return pytree.tree_map(joined, fresh, carried)


def widen(state: Tree, capacity: int) -> Tree:
    """Makes room for more tokens in the caches of a state."""

    def wider(part: Any) -> Any:
        if not isinstance(part, Cache):
            return part
        n, held, *rest = part.kept.shape
        if held == capacity:
            return part
        return Cache(torch.cat((part.kept, part.kept.new_zeros(n, capacity - held, *rest)), 1))

    return pytree.tree_map(wider, state, is_leaf=lambda part: isinstance(part, Cache))


def detach(state: Tree) -> Tree:
    return pytree.tree_map_only(Tensor, lambda t: t.detach(), state)
