"""Which attention heads and layers a model needs: gates on them, what the loss does, and how many can go.

importance   E |∂L/∂ξ| over texts, ξ a gate on the head's output, or on what a layer adds to what it reads, at ξ = 1: one backward
             pass for all of them (Michel et al., 2019, arXiv 1905.10650)
ablation     how much the loss grows with ξ = 0, head by head and layer by layer: exact for a single one. The rank correlation of
             the two says whether importance can be trusted for this model
pruning      heads are taken away in the order of their importance, the least first, and at random beside it

Layers are few: several are taken away in the order of what each alone costs.

The gates are those of batch.Edit; with all of them at 1 the model computes the same bits as without.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batch import Edit, exact, to_device
from seqloom.blocks.stack import count_heads
from seqloom.errors import UsageError
from seqloom.metrics.labels import correlation, ranks
from seqloom.progress import Progress

STEPS = 10  # of a pruning curve
ORDERS = 3  # at random beside it
Place = tuple[str, int]  # a part of the model and its layer, from 0


class Parts(NamedTuple):
    """The parts of a model whose heads can be gated, and what they are measured on."""

    learner: Any
    modules: dict[str, nn.Module]
    examples: Sequence[Any]
    device: torch.device
    unit: str  # of the loss

    def heads(self) -> dict[Place, int]:
        return {
            (name, layer): count
            for name, module in self.modules.items()
            for layer, count in enumerate(count_heads(module))
            if count
        }

    def depths(self) -> dict[str, int]:
        """The number of layers of each part."""
        return {name: len(count_heads(module)) for name, module in self.modules.items()}


class Importance(NamedTuple):
    """E |∂L/∂ξ|"""

    heads: dict[Place, np.ndarray]  # (heads,) of each layer
    layers: dict[Place, float]


def parts_of(learner: Any) -> dict[str, nn.Module]:
    """A model that reads and one that writes are gated apart."""
    model = learner.backbone
    found = {"encoder": model.encoder, "decoder": model.decoder} if hasattr(model, "decoder") else {"model": model}
    found = {name: module for name, module in found.items() if any(count_heads(module))}
    if not found:
        raise UsageError("this model has no attention heads: there is nothing to take away")
    return found


@contextmanager
def edited(modules: Mapping[str, nn.Module], edits: Any) -> Iterator[None]:
    """While it lasts, each module computes with the edit that edits(name, batch) gives for it."""

    def hook(name: str) -> Any:
        return lambda _module, args, kwargs: (args, kwargs | {"edit": edits(name, args[0])})

    with ExitStack() as stack:
        for name, module in modules.items():
            stack.callback(module.register_forward_pre_hook(hook(name), with_kwargs=True).remove)
        yield


def loss_of(parts: Parts, edits: Any = None) -> float:
    """The mean loss of a target, in bits."""
    total = count = 0.0
    with torch.no_grad(), edited(parts.modules, edits) if edits is not None else ExitStack():
        for example in parts.examples:
            loss = computed(parts, example)
            total, count = total + float(exact(loss.total)), count + float(loss.count)
    return total / count / float(np.log(2))


def computed(parts: Parts, example: Any) -> Any:
    """The loss of a batch; what is drawn on the way is the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return parts.learner(to_device(example, parts.device))


def closed(parts: Parts, off: Sequence[tuple[Place, int]]) -> Any:
    """The edits that take some heads away."""
    heads = parts.heads()
    gates = {place: torch.ones(count, device=parts.device) for place, count in heads.items()}
    for place, head in off:
        gates[place][head] = 0.0
    by_part = {name: {layer: gate for (part, layer), gate in gates.items() if part == name} for name in parts.modules}
    return lambda name, _batch: Edit(heads=by_part[name])


def importance(parts: Parts) -> Importance:
    """Gates of single tokens, summed over a text, give the gradient of its own loss."""
    heads, depths = parts.heads(), parts.depths()
    sums: dict[Place | str, np.ndarray] = {place: np.zeros(count) for place, count in heads.items()}
    sums |= {name: np.zeros(depth) for name, depth in depths.items()}
    texts = 0
    with Progress("importance", total=len(parts.examples), unit="batches") as bar:
        for example in parts.examples:
            gates: dict[Place | str, tuple[Tensor, Tensor]] = {}

            def edits(name: str, batch: Any, gates: dict[Place | str, tuple[Tensor, Tensor]] = gates) -> Edit:
                def open_gates(of: Place | str, count: int) -> Tensor:
                    gate = torch.ones(len(batch.owner), count, device=parts.device, requires_grad=True)
                    gates[of] = gate, batch.owner
                    return gate

                own = {place: count for place, count in heads.items() if place[0] == name}
                found = {place[1]: open_gates(place, count) for place, count in own.items()}
                return Edit(found, open_gates(name, depths[name]).T)

            with torch.enable_grad(), edited(parts.modules, edits):
                loss = computed(parts, example)
                found = torch.autograd.grad(loss.total, [gate for gate, _ in gates.values()])
            size = 0
            for (key, (_, owner)), gradient in zip(gates.items(), found, strict=True):
                size = int(owner.max()) + 1
                each = exact(gradient).new_zeros(size, gradient.shape[1]).index_add_(0, owner, exact(gradient))
                sums[key] += each.abs().sum(0).cpu().numpy()
            texts += size
            bar.advance(1)
    means = {of: total / texts / float(np.log(2)) for of, total in sums.items()}
    layers = {(name, layer): float(means[name][layer]) for name, depth in depths.items() for layer in range(depth)}
    return Importance({place: means[place] for place in heads}, layers)


class HeadReport(NamedTuple):
    """All that was measured."""

    unit: str
    loss: float  # of the whole model
    importance: dict[Place, np.ndarray]
    ablation: dict[Place, np.ndarray]  # growth of the loss without the head
    layers: dict[Place, float]  # and without the whole layer
    pruned: list[tuple[float, float]]  # share of heads that are left, loss
    at_random: list[list[tuple[float, float]]]
    layers_pruned: list[tuple[float, float]]  # share of layers that are left, loss
    layer_importance: dict[Place, float]

    @property
    def rank_correlation(self) -> float:
        """Of the importance of heads and their ablation."""
        a, b = (np.concatenate(list(each.values())) for each in (self.importance, self.ablation))
        return spearman(a, b)

    @property
    def layer_rank_correlation(self) -> float:
        """The same of layers."""
        a, b = (np.array([each[place] for place in self.layers]) for each in (self.layer_importance, self.layers))
        return spearman(a, b)


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """NaN where all numbers of one side are equal."""
    return correlation(ranks(a), ranks(b)) if len(a) > 1 and np.ptp(a) and np.ptp(b) else float("nan")


def study_heads(parts: Parts) -> HeadReport:
    heads = parts.heads()
    whole = loss_of(parts)
    gradients, layer_gradients = importance(parts)
    every = [(place, head) for place, count in heads.items() for head in range(count)]
    orders = [sorted(every, key=lambda each: float(gradients[each[0]][each[1]]))]
    random = np.random.default_rng(0)
    orders += [[every[i] for i in random.permutation(len(every))] for _ in range(ORDERS)]
    depths = parts.depths()
    total = len(every) + 2 * sum(depths.values()) + STEPS * len(orders)
    with Progress("remove heads", total=total, unit="passes") as bar:
        ablation = {place: np.zeros(count) for place, count in heads.items()}
        for place, head in every:
            ablation[place][head] = loss_of(parts, closed(parts, [(place, head)])) - whole
            bar.advance(1)
        layers = {}
        for name, depth in depths.items():
            for layer in range(depth):
                layers[name, layer] = loss_of(parts, without_layers(parts, [(name, layer)])) - whole
                bar.advance(1)
        cheapest = sorted(layers, key=lambda place: layers[place])
        fewer = [(1.0, whole)]
        for count in range(1, len(cheapest) + 1):
            loss = loss_of(parts, without_layers(parts, cheapest[:count]))
            fewer.append((1 - count / len(cheapest), loss))
            bar.advance(1)
        curves = []
        for order in orders:
            points = [(1.0, whole)]
            for step in range(1, STEPS + 1):
                count = round(step / STEPS * len(order))
                points.append((1 - count / len(order), loss_of(parts, closed(parts, order[:count]))))
                bar.advance(1)
            curves.append(points)
    return HeadReport(parts.unit, whole, gradients, ablation, layers, curves[0], curves[1:], fewer, layer_gradients)


def without_layers(parts: Parts, off: Sequence[Place]) -> Any:
    """The edits that have some layers pass on what they read."""

    def edits(part: str, _batch: Any) -> Edit:
        gates = torch.ones(len(count_heads(parts.modules[part])), device=parts.device)
        gates[[layer for name, layer in off if name == part]] = 0.0
        return Edit(layers=gates)

    return edits


# ---- really removed


def keep_heads(backbone: Any, kept: Mapping[int, Sequence[int]]) -> None:
    """Removes all other heads of these layers for good: their rows of the matrices are gone, and their cost. Raises UsageError
    where layers share their weights."""
    stack = backbone.stack
    if stack.repeat > 1:
        raise UsageError("the layers of this model share their weights: its heads can be gated, but not removed")
    for layer, heads in kept.items():
        mixer = stack.layers[layer].mixer
        if not heads:
            raise UsageError(f"layer {layer + 1} would have no head left: keep one at least")
        mixer.keep_heads(torch.tensor(sorted(heads)))


def keep_layers(backbone: Any, kept: Sequence[int]) -> None:
    """Removes all other layers for good."""
    stack = backbone.stack
    stack.layers = nn.ModuleList([stack.layers[i] for i in sorted(kept)])


def best_heads(gradients: Mapping[Place, np.ndarray], count: int, part: str = "model") -> dict[int, list[int]]:
    """Of each layer of a part the `count` most important heads."""
    return {
        layer: sorted(np.argsort(-values, kind="stable")[:count].tolist())
        for (name, layer), values in gradients.items()
        if name == part
    }
