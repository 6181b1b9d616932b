"""Layers one after the other, keeping what was asked for: every layer's output, its state, its weights."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, Edit, HeadStyle, Output, Ragged, State, without_state
from seqloom.errors import UsageError


class Stack(nn.Module):
    """Layers with `forward(x, batch, state, context, maps) -> (x, state, weights)` and `start(n, max_len)`. Those with attention
    heads also take gates on them, `heads`.

    repeat: all of them run so many times, one set of weights for the whole depth."""

    def __init__(self, layers: Iterable[nn.Module], top: nn.Module | None = None, repeat: int = 1):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.top = top  # what stands above the last layer: a final norm, a dropout
        self.repeat = repeat
        self.room_before: int | None = None  # the layer that reads features of other models beside its input

    def make_room(self, layer: int, width: int) -> None:
        """Widens what a layer reads by features of so many numbers. Raises UsageError where it cannot."""
        depth = len(self.layers)
        if not layer < depth or self.repeat > 1 or not hasattr(self.layers[layer], "make_room"):
            why = f"it has {depth} layers" if layer >= depth else "its layers are not recurrent"
            raise UsageError(f"no layer of this model can read other features beside what layer {layer} gives: {why}")
        self.layers[layer].make_room(width)  # type: ignore[operator]
        self.room_before = layer

    @property
    def unrolled_layers(self) -> list[nn.Module]:
        """The layers in the order in which they run."""
        return list(self.layers) * self.repeat

    @property
    def units(self) -> list[nn.Module]:
        """Layers whose weights are needed only while they are called, once in a pass: others can be elsewhere meanwhile."""
        return list(self.layers) if self.repeat == 1 else []

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
    ) -> Output:
        course = self.unrolled_layers
        if edit is not None:
            self.check(edit)
        before = state.own if state is not None else [None] * len(course)
        # what a layer looks at: the context itself, or what it has made of it when the state began
        looks_at = state.shared if state is not None and state.shared else [context] * len(course)
        after, outputs, weights, penalties = [], [x], [], []
        for i, (layer, own, shared) in enumerate(zip(course, before, looks_at, strict=True)):
            read = x
            if i == self.room_before:
                assert batch.beside is not None, "this model reads features of other models, and the batch has none"
                x = torch.cat((x, batch.beside.to(x.dtype)), 1)
            gates = {} if edit is None or i not in edit.heads else {"heads": edit.heads[i]}
            x, own, seen, *penalty = layer(x, batch, own, shared, maps, **gates)
            penalties += penalty
            if edit is not None and edit.layers is not None:
                x = torch.lerp(read, x, edit.layers[i][..., None].to(x.dtype))  # exact at both ends
            after.append(own)
            if layers:
                outputs.append(x)
            if maps:
                weights.append(seen)
        if self.top is not None:
            x = self.top(x)
        return Output(
            hidden=x,
            state=None if after[-1] is None else State(tuple(after), state.shared if state is not None else ()),
            layers=tuple(outputs) if layers else (),
            maps=tuple(weights),
            penalty=torch.stack(penalties).sum() if penalties else None,
        )

    def check(self, edit: Edit) -> None:
        depth = len(self.unrolled_layers)
        if edit.layers is not None and edit.layers.shape[0] != depth:
            raise ValueError(f"gates for {edit.layers.shape[0]} layers were given, and there are {depth}")
        for i in edit.heads:
            if not 0 <= i < depth:
                raise ValueError(
                    f"there is no layer {i} whose heads could be gated: layers are numbered 0 to {depth - 1}"
                )
            if not hasattr(self.unrolled_layers[i], "mixer"):
                raise ValueError(f"layer {i} has no attention heads: only whole layers of this model can be gated")

    def start(self, n: int, max_len: int) -> State:
        return State(tuple(layer.start(n, max_len) for layer in self.unrolled_layers))  # type: ignore[operator]


def count_heads(backbone: Any) -> tuple[int, ...]:
    """Of each layer the number of its attention heads, in the order in which they run; 0: it has none."""
    layers = getattr(getattr(backbone, "stack", None), "unrolled_layers", ())
    return tuple(getattr(getattr(layer, "mixer", None), "num_heads", 0) for layer in layers)


class StackedBackbone(Backbone):
    """An embedding under a stack: the frame of most papers. What they differ in, their `__init__` builds."""

    embedding: Any  # batch → (T, D): a TokenEmbedding, nearly always
    stack: Stack
    pooler: nn.Module | None  # of some that read in both directions: `pooled` of it stands for a whole text

    def __init__(self, embedding: nn.Module, stack: Stack, dim: int, pooler: nn.Module | None = None):
        super().__init__()
        self.embedding, self.stack, self.dim, self.pooler = embedding, stack, dim, pooler
        self.init_weights()

    @property
    def gates(self) -> tuple[tuple[str, ...], ...]:
        return tuple(getattr(layer, "gates", ()) for layer in self.stack.unrolled_layers)

    @property
    def characters(self) -> int:
        return getattr(self.embedding, "characters", 0)

    @property
    def table(self) -> nn.Embedding | None:
        return getattr(self.embedding, "token", None)

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
    ) -> Output:
        output = self.stack(self.embedding(batch), batch, state, context, layers, maps, edit)
        # what reads whole texts ends with nothing to go on from, whatever its layers remember
        return output if self.causal else without_state(output)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        return self.stack.start(n, max_len)

    def make_room(self, layer: int, width: int) -> None:
        self.stack.make_room(layer, width)
        self.init_weights()


class BidirectionalBackbone(StackedBackbone):
    """Reads whole texts: every token sees all others, so there is nothing to carry from one to the next."""

    causal, head_style = False, HeadStyle(pooling="first")
    once = ("pooler",)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        raise ValueError(
            f"{type(self).__name__} reads whole texts in both directions: it has no state and cannot write token by token"
        )

    def pooled(self, first: Tensor) -> Tensor:
        """What stands for whole texts, made of the hidden states of their first tokens: (N, D) → (N, D)."""
        if self.pooler is None:
            raise ValueError(f"this {type(self).__name__} has no pooler: set model.pooler = true")
        return torch.tanh(self.pooler(first))
