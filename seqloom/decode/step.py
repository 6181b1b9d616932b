"""The step interface: a model and its output layer as a function from tokens to the distribution of the next one.

Everything that decodes goes through it: keys and values in static caches, recurrent states, whatever a model carries.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from seqloom.batch import Backbone, Ragged, State, ragged
from seqloom.decode.graph import GraphedStep
from seqloom.decode.linear import fast_linear, for_steps


class OutputLayer(Protocol):
    """hidden (n, D) → scores (n, V)."""

    @property
    def device(self) -> torch.device: ...
    def __call__(self, hidden: Tensor) -> Tensor: ...


class Stepper:
    """n sequences of one model, in step. Scores are (n, V), in fp32, and hold until the next step."""

    def __init__(self, backbone: Backbone, softmax: OutputLayer):
        self.backbone, self.softmax = backbone, softmax
        self.characters: Tensor | None = None  # (T, C) of the prompts end to end, for a model that reads them
        self.device = softmax.device
        self.graphed = self.device.type == "cuda" and not backbone.counted  # a graph has fixed shapes, counts have none
        # finished sequences are dropped when less than this share is left: at once, or rarely where that means a new graph
        self.worth_keeping = 0.5 if self.graphed else 1.0
        self.body: Any = backbone
        self.head: Any = softmax
        linear = None if backbone.counted else fast_linear(next(backbone.parameters()))
        if linear is not None:
            self.body, self.head = for_steps(backbone, linear), for_steps(self.head, linear)
        self.graph: GraphedStep | None = None

    def start(self, prompts: list[list[int]], capacity: int) -> tuple[Tensor, State]:
        """Reads the prompts (none of them empty); no sequence will be longer than `capacity` tokens."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        ids = torch.tensor([token for prompt in prompts for token in prompt], device=self.device)
        batch = ragged(ids, lengths)._replace(chars=self.characters)
        output = self.backbone(batch, state=self.backbone.start(len(prompts), capacity))
        assert output.state is not None
        return self.softmax(output.hidden[lengths.cumsum(0) - 1]).float(), output.state

    def step(self, tokens: Tensor, positions: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (n,) for every sequence, at its position (n,)."""
        if not self.graphed:
            return self.plain(tokens, positions, state)
        if self.graph is None or not self.graph.takes(tokens, state):
            self.graph = GraphedStep(self.plain, tokens, positions, state)
        return self.graph(tokens, positions, state)

    def plain(self, tokens: Tensor, positions: Tensor, state: State) -> tuple[Tensor, State]:
        rows = torch.arange(tokens.shape[0] + 1, device=self.device)
        reach = None if self.device.type == "cuda" else int(positions.max())
        batch = Ragged(tokens, positions, rows[:-1], rows.int(), max_len=1, reach=reach)
        output = self.body(batch, state=state)
        return self.head(output.hidden).float(), output.state
