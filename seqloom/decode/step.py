"""The step interface: a model and its output layer as a function from tokens to the distribution of the next one.

Everything that decodes goes through it: keys and values in static caches, recurrent states, whatever a model carries.
"""

import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.batch import Backbone, Context, Output, Ragged, State, ragged
from seqloom.decode.graph import Recorded, tensors
from seqloom.decode.linear import fast_linear, for_steps

KEPT_GRAPHS = 4  # of steps for different numbers of rows


class OutputLayer(Protocol):
    """hidden (n, D) → scores (n, V)."""

    @property
    def device(self) -> torch.device: ...
    def __call__(self, hidden: Tensor) -> Tensor: ...


class Next(NamedTuple):
    """What comes after n sequences; valid until the next step."""

    scores: Tensor  # (n, V) of the next token, in fp32: log-probabilities up to a number for each row
    state: State
    attention: Any = ()  # (n, S) the attention to each source position, if it was asked for and the model has one


class Steps(Protocol):
    """What decoding uses: one model, or an ensemble."""

    device: torch.device
    graphed: bool  # steps are recorded as CUDA graphs
    limit: int | None  # the longest sequence that it can read

    @property
    def worth_keeping(self) -> float: ...  # finished sequences are dropped when less than this share is left
    def empty(self, n: int, capacity: int) -> State: ...
    def start(self, prompts: list[list[int]], capacity: int, context: Any = None) -> Next: ...
    def step(self, tokens: Tensor, positions: Tensor, state: State) -> Next: ...
    def plain(self, tokens: Tensor, positions: Tensor, state: State) -> Next: ...


class GraphedSteps:
    """Steps that are recorded as CUDA graphs where it pays; `plain` computes one step."""

    device: torch.device
    graphed: bool
    graphs: list[Recorded]  # those of the last shapes

    def step(self, tokens: Tensor, positions: Tensor, state: State) -> Next:
        """One more token (n,) for every sequence, at its position (n,)."""
        if not self.graphed:
            return self.plain(tokens, positions, state)
        given = (tokens, positions)
        graph = next((each for each in self.graphs if each.takes(given, state)), None)
        if graph is None:
            graph = Recorded(self._recorded, given, state)
            self.graphs = [graph, *self.graphs][:KEPT_GRAPHS]
        (scores, attention), state = graph(given, state)
        return Next(scores, state, attention)

    def _recorded(self, given: tuple[Tensor, Tensor], state: State) -> tuple[tuple[Tensor, Any], State]:
        scores, after, attention = self.plain(*given, state)
        return (scores, attention), after

    def plain(self, tokens: Tensor, positions: Tensor, state: State) -> Next:
        raise NotImplementedError

    @property
    def worth_keeping(self) -> float:
        """At once, or rarely where a smaller batch means a new graph."""
        return 0.5 if self.graphed else 1.0


class Stepper(GraphedSteps):
    """n sequences of one model, step by step. align: return the attention to the source with every step."""

    def __init__(self, backbone: Backbone, softmax: OutputLayer, align: bool = False):
        self.backbone, self.softmax, self.align, self.graphs = backbone, softmax, align, []
        self.characters: Tensor | None = None  # (T, C) of the prompts end to end, for a model that reads them
        self.device, self.limit = softmax.device, backbone.max_len
        self.graphed = (
            self.device.type == "cuda" and backbone.learns_from != "counts"
        )  # a graph has fixed shapes, counts have none
        self.body: Any = backbone
        self.head: Any = softmax
        linear = None if backbone.learns_from == "counts" else fast_linear(next(backbone.parameters()))
        if linear is not None:
            self.body, self.head = for_steps(backbone, linear), for_steps(self.head, linear)

    def empty(self, n: int, capacity: int) -> State:
        """The state of sequences that have read nothing."""
        return self.backbone.start(n, capacity, None)

    def start(self, prompts: list[list[int]], capacity: int, context: Context | None = None) -> Next:
        """Reads the prompts (none of them empty, one for each source); no sequence will be longer than `capacity`."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        ids = torch.tensor([token for prompt in prompts for token in prompt], device=self.device)
        batch = ragged(ids, lengths)._replace(chars=self.characters)
        state = self.backbone.start(len(prompts), capacity, context)
        output = self.backbone(batch, state=state, maps=self.shows(state))
        ends = lengths.cumsum(0) - 1
        assert output.state is not None
        return Next(self.softmax(output.hidden[ends]).float(), output.state, alignment(output, ends))

    def plain(self, tokens: Tensor, positions: Tensor, state: State) -> Next:
        rows = torch.arange(tokens.shape[0] + 1, device=self.device)
        reach = None if self.device.type == "cuda" else int(positions.max())
        batch = Ragged(tokens, positions, rows[:-1], rows.int(), max_len=1, max_position=reach)
        output = self.body(batch, state=state, maps=self.shows(state))
        return Next(self.head(output.hidden).float(), output.state, alignment(output))

    def shows(self, state: State) -> bool:
        return self.align and bool(tensors(state.shared))


def alignment(output: Output, places: Tensor | None = None) -> Any:
    """(n, S) the cross-attention of the top layer, averaged over its heads; () if the model has none."""
    if not output.cross:
        return ()
    weights = output.cross[-1] if places is None else output.cross[-1][places]
    return weights.float().mean(1)


class Ensemble(GraphedSteps):
    """Several models with one vocabulary as one: the mean of their probabilities. `context` is a list, one for each."""

    def __init__(self, members: list[Stepper]):
        self.members, self.graphs = members, []
        self.device = members[0].device
        self.graphed = all(member.graphed for member in members)
        self.limit = min((member.limit for member in members if member.limit is not None), default=None)

    def empty(self, n: int, capacity: int) -> State:
        states = [member.empty(n, capacity) for member in self.members]
        return State(tuple(state.own for state in states), tuple(state.shared for state in states))

    def start(self, prompts: list[list[int]], capacity: int, context: list[Context] | None = None) -> Next:
        contexts = [None] * len(self.members) if context is None else context
        return average_members([m.start(prompts, capacity, c) for m, c in zip(self.members, contexts, strict=True)])

    def plain(self, tokens: Tensor, positions: Tensor, state: State) -> Next:
        states = [State(own, shared) for own, shared in zip(state.own, state.shared, strict=True)]
        return average_members([m.plain(tokens, positions, s) for m, s in zip(self.members, states, strict=True)])


def average_members(each: list[Next]) -> Next:
    scores = torch.stack([one.scores.log_softmax(1) for one in each]).logsumexp(0) - math.log(len(each))
    known = [one.attention for one in each if isinstance(one.attention, Tensor)]
    state = State(tuple(one.state.own for one in each), tuple(one.state.shared for one in each))
    return Next(scores, state, torch.stack(known).mean(0) if known else ())
