"""One vector for a whole sequence, and one for a token out of all layers.

`choose`: the layers of table 7 of the BERT paper, see `evaluate.encode`.
`concat` stands the last state, the maximum and the mean side by side: ULMFiT, Howard & Ruder, 2018 (arXiv 1801.06146).
`ScalarMix`: ELMo, Peters et al., 2018 (arXiv 1802.05365).
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import Borders, wide
from seqloom.config import unknown_name
from seqloom.errors import UsageError

POOLS = ("first", "last", "mean", "max", "concat")
LAYERS = ("embedding", "last", "second-to-last", "sum", "sum4", "concat4", "mix", "all")


def pool(states: Tensor, batch: Borders, how: str, own: Tensor | None = None) -> Tensor:
    """(T, …, D) → (N, …, D), with "concat" (N, …, 3D). own: (T,), which tokens count; all where it is not given. A sequence
    without any is zeros. Nothing asks the device how many there are."""
    if how not in POOLS:
        raise ValueError(f"pooling {how!r}: choose {', '.join(POOLS)}")
    if how == "concat":
        return torch.cat([pool(states, batch, each, own) for each in ("last", "max", "mean")], -1)
    t, n, owner = states.shape[0], batch.num_sequences, batch.owner
    own = torch.ones_like(owner, dtype=torch.bool) if own is None else own
    empty = states.new_zeros(n, *states.shape[1:])
    if not t:
        return empty
    broad = (-1, *[1] * (states.ndim - 1))  # one number a row, over all of its columns
    count = torch.zeros(n, dtype=torch.long, device=owner.device).index_add(0, owner, own.long()).view(broad)
    if how == "mean":
        total = wide(empty).index_add(0, owner, wide(states).masked_fill(~own.view(broad), 0))
        return (total / count.clamp(min=1)).to(states.dtype)
    if how == "max":
        rows = states.masked_fill(~own.view(broad), -torch.inf)
        found = empty.scatter_reduce(0, owner.view(broad).expand_as(rows), rows, "amax", include_self=False)
    else:
        place = torch.arange(t, device=owner.device)
        if how == "first":
            spots = torch.full_like(count.view(-1), t - 1).scatter_reduce(0, owner, place.where(own, t - 1), "amin")
        else:
            spots = torch.zeros_like(count.view(-1)).scatter_reduce(0, owner, place.where(own, 0), "amax")
        found = states[spots]
    return found.where(count > 0, 0)


def pool_words(states: Tensor, places: Tensor, how: str) -> Tensor:
    """(T, D) → (W, D), how "first" or "mean". places: (W, 2), the first token of each word and the one behind its last, in their
    order. Nothing asks the device how many tokens a word has."""
    first, behind = places.unbind(1)
    if how == "first":
        return states[first]
    token = torch.arange(states.shape[0], device=states.device)
    word = torch.searchsorted(first.contiguous(), token, right=True) - 1  # the last one that begins here or before
    word = word.clamp(min=0)
    inside = (token >= first[word]) & (token < behind[word])
    total = wide(states).new_zeros(places.shape[0], states.shape[1])
    total = total.index_add(0, word, wide(states).masked_fill(~inside[:, None], 0))
    return (total / (behind - first)[:, None]).to(states.dtype)


def log_softmax_within(scores: Tensor, owner: Tensor, groups: int) -> Tensor:
    """(T, …) → (T, …): log-probabilities among the rows of one owner (T,), of which there are `groups`. −∞ stays so."""
    index = owner.view(-1, *[1] * (scores.ndim - 1)).expand_as(scores)
    empty = (groups, *scores.shape[1:])
    largest = scores.new_full(empty, -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    scores = scores - largest.clamp(min=torch.finfo(scores.dtype).min).gather(0, index)
    return scores - scores.new_zeros(empty).scatter_add(0, index, scores.exp()).log().gather(0, index)


class ScalarMix(nn.Module):
    """γ · Σ s_j h_j over the embedding and all layers, s by a softmax: learnt with a task, at first the plain mean.

    norm: every layer is normalised before it is weighted, as the paper tries, over its D numbers and with nothing learnt.
    """

    def __init__(self, num_layers: int, norm: bool = False):
        super().__init__()
        self.norm = norm
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Tensor:
        """(layers,) how much each counts: they sum to 1."""
        return wide(self.weights).softmax(0)

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """(T, D) each → (T, D)"""
        widths = [layer.shape[-1] for layer in layers]
        if len(layers) != len(self.weights) or len(set(widths)) > 1:
            raise ValueError(f"a mix of {len(self.weights)} layers of one width was given {widths}")
        if self.norm:
            layers = [F.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        shares = self.gamma * self.shares
        return sum((share * layer for share, layer in zip(shares, layers, strict=True)), torch.zeros_like(layers[0]))


def choose(states: tuple[Tensor, ...], layers: str) -> Tensor:
    """states: the embedding and every layer, (T, D) each; of "last" alone only that one."""
    check_layers(layers, len(states) - 1)
    if layers == "last":
        return states[-1]
    if layers == "embedding":
        return states[0]
    if layers == "second-to-last":
        return states[-2]
    if layers == "concat4":
        return torch.cat(states[-4:], 1)
    chosen: dict[str, Any] = {"sum": states[1:], "sum4": states[-4:], "mix": states, "all": states}
    if layers in chosen:
        widths = [state.shape[1] for state in chosen[layers]]
        if len(set(widths)) > 1:
            raise UsageError(f"--layers {layers}: the layers are {widths} wide and cannot be combined: name one")
        stacked = torch.stack(chosen[layers], 1)
        return stacked if layers == "all" else stacked.mean(1) if layers == "mix" else stacked.sum(1)
    return states[int(layers)]


def check_layers(layers: str, depth: int, option: str = "--layers", allowed: Sequence[str] = LAYERS) -> None:
    """Raises UsageError for layers that a model with so many layers does not have."""
    needed = {"second-to-last": 2, "sum4": 4, "concat4": 4}.get(layers, 0)
    if depth < needed:
        raise UsageError(f"{option} {layers} needs {needed} layers, this model has {depth}: choose another")
    if layers in allowed:
        return
    if not layers.isdecimal():
        raise UsageError(unknown_name(option, layers, layers, [*allowed, "a number"]))
    if int(layers) > depth:
        above = "layer 1" if depth == 1 else f"the layers 1 to {depth}"
        raise UsageError(f"{option} {layers}: this model has {above}, and 0, the embedding")
