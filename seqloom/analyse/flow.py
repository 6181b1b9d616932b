"""Gradient flow through time: how much of the last word's loss reaches the state t steps before.

‖∂loss(T) / ∂s(t)‖ for t = T … T − K, averaged over windows of a text, where s is each part of each layer's state: h (in
Jordan's network its decaying sum) and an LSTM's cell c, whatever way the loss depends on them (on c through h, too). It
falls where gradients vanish and grows where they explode (Hochreiter, 1991; Bengio et al., 1994; Pascanu et al., 2013,
arXiv 1211.5063). Of a Transformer the states are what its layers hand on, at every depth and distance. Beside it the
eigenvalues of the recurrent matrices, which say how it must go where the network is nearly linear. Clipping shrinks the
whole gradient by one factor and so lowers every curve alike.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import Ragged, exact, ragged
from seqloom.blocks.cells import TorchCell
from seqloom.blocks.recurrent import RecurrentLayer
from seqloom.errors import DataError, UsageError
from seqloom.objectives.next_token import NextToken

PARTS = ("h", "c")  # of a cell's state
Norms = Callable[[], dict[str, list[float]]]


class Flow(NamedTuple):
    name: str
    norms: dict[str, list[float]]  # layer{i}.h, layer{i}.c: at 0, 1, … K steps before the last
    norm: float  # of the gradient by all weights, of the mean loss of the last words
    clip: float  # the training's limit of that; 0: none
    windows: int
    eigenvalues: dict[str, np.ndarray]  # layer{i}.{gate}, complex

    @property
    def shrink(self) -> float:
        """What clipping multiplies the gradient by."""
        return min(1.0, self.clip / self.norm) if self.clip and self.norm else 1.0


def cut_windows(texts: Iterator[list[int]], end_id: int, size: int, count: int) -> Tensor:
    """(n ≤ count, size) tokens: the first windows of the texts laid end to end, the end token before each."""
    flat: list[int] = []
    for ids in texts:
        flat += [end_id, *ids]
        if len(flat) >= size * count:
            break
    n = min(count, len(flat) // size)
    if n == 0:
        raise DataError(
            f"the text has {len(flat)} tokens, a window takes {size}: give a longer text or a smaller --back"
        )
    return torch.tensor(flat[: n * size]).view(n, size)


def gradient_flow(name: str, learner: NextToken, windows: Tensor, clip: float = 0.0) -> Flow:
    """windows (n, K + 2): K + 1 tokens to read and the one that the loss is about. Leaves no gradients behind."""
    if learner.count_based:
        raise UsageError(f"{name} counts words and has no gradients: choose another run")
    was_training = learner.training
    learner.eval()
    with torch.enable_grad():
        loss, norms_after = (through_states if learner.backbone.recurrent else through_layers)(name, learner, windows)
        loss.backward()
    norms = norms_after()
    gradients = [parameter.grad for parameter in learner.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients).item() / len(windows)
    learner.zero_grad(set_to_none=True)
    learner.train(was_training)
    if not norms:
        raise UsageError(f"{name} carries the words themselves as its state: no gradient flows through it")
    return Flow(name, norms, norm, clip, len(windows), eigenvalues(learner))


def through_states(name: str, learner: NextToken, windows: Tensor) -> tuple[Tensor, Norms]:
    """The loss of the last words of a recurrent model, and what gives the norms by its states once gradients are there."""
    backbone = learner.backbone
    states: list[list[tuple[Tensor, ...]]] = []  # step by step, layer by layer
    state = backbone.start(len(windows), windows.shape[1])
    rows = torch.arange(len(windows) + 1, device=windows.device)
    for t in range(windows.shape[1] - 1):
        batch = Ragged(windows[:, t], torch.full_like(rows[:-1], t), rows[:-1], rows.int(), max_len=1)
        # maps=True takes the loop, in which what a layer hands on and its state are one tensor
        output = backbone(batch, state=state, maps=True)
        state = output.state
        own = [tuple(part for part in layer if part.is_floating_point()) for layer in map(parts_of, state.own)]
        for part in (part for layer in own for part in layer):
            part.retain_grad()
        states.append(own)

    def norms() -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for own in reversed(states):
            for i, layer in enumerate(own):
                for symbol, tensor in zip(PARTS, layer, strict=False):
                    # the last state of a layer that hands on something else is read by nobody
                    value = math.nan if tensor.grad is None else tensor.grad.norm(dim=1).mean().item()
                    found.setdefault(f"layer{i}.{symbol}", []).append(value)
        return found

    return learner.softmax(output.hidden, windows[:, -1], each=True).sum(), norms


def through_layers(name: str, learner: NextToken, windows: Tensor) -> tuple[Tensor, Norms]:
    """The same for a model that reads all tokens at once: its states are what its layers hand on, at every distance."""
    if not learner.has_next_word:
        raise UsageError(
            f"{name} has no probability of the next word, whose loss could be followed back: choose another run"
        )
    n, size, limit = len(windows), windows.shape[1] - 1, learner.backbone.max_len
    if limit is not None and size > limit:
        raise UsageError(f"--back {size - 1}: {name} reads {limit} tokens: {limit - 1} steps back at most")
    lengths = torch.full((n,), size, device=windows.device)
    output = learner.backbone(ragged(windows[:, :-1].flatten(), lengths, size), layers=True)
    for layer in output.layers:
        layer.retain_grad()
    last = torch.arange(1, n + 1, device=windows.device) * size - 1

    def norms() -> dict[str, list[float]]:
        names = ["embedding", *(f"layer{i}" for i in range(len(output.layers) - 1))]
        found = {}
        for each, layer in zip(names, output.layers, strict=True):
            if layer.grad is not None:
                by_place = layer.grad.view(n, size, -1).norm(dim=2).mean(0)
                found[f"{each}.h"] = by_place.flip(0).tolist()
        return found

    return learner.softmax(output.hidden[last], windows[:, -1], each=True).sum(), norms


def parts_of(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


@torch.no_grad()
def eigenvalues(learner: torch.nn.Module) -> dict[str, np.ndarray]:
    """Eigenvalues of h → h through each gate's block of the recurrent matrix, and through the projection where there is one."""
    found = {}
    layers = [module for module in learner.modules() if isinstance(module, RecurrentLayer)]
    for i, layer in enumerate(layers):
        if not isinstance(layer.cell, TorchCell):  # a cell of the user's own: unknown what its matrices are
            continue
        kernel = layer.cell.kernel
        for gate, block in zip(layer.gates, kernel.weight_hh_l0.split(kernel.hidden_size), strict=False):
            square = kernel.weight_hr_l0 @ block if kernel.proj_size else block
            found[f"layer{i}.{gate}"] = torch.linalg.eigvals(exact(square).cpu()).numpy()
    return found
