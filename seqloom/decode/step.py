"""The step interface: a model and its output layer as a function from tokens to the distribution of the next one.

Everything that decodes goes through it: keys and values in static caches, recurrent states, whatever a model carries.
"""

from typing import Protocol

import torch
from torch import Tensor

from seqloom.batch import Backbone, Ragged, State, ragged


class OutputLayer(Protocol):
    """hidden (n, D) → scores (n, V)."""

    @property
    def device(self) -> torch.device: ...
    def __call__(self, hidden: Tensor) -> Tensor: ...


class Stepper:
    """n sequences of one model, in step. Scores are (n, V), in fp32."""

    def __init__(self, backbone: Backbone, softmax: OutputLayer):
        self.backbone, self.softmax = backbone, softmax
        self.device = softmax.device

    def start(self, prompts: list[list[int]], capacity: int) -> tuple[Tensor, State]:
        """Reads the prompts (none of them empty); no sequence will be longer than `capacity` tokens."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        ids = torch.tensor([token for prompt in prompts for token in prompt], device=self.device)
        output = self.backbone(ragged(ids, lengths), state=self.backbone.start(len(prompts), capacity))
        assert output.state is not None
        return self.scores(output.hidden[lengths.cumsum(0) - 1]), output.state

    def step(self, tokens: Tensor, positions: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token (n,) for every sequence, at its position (n,)."""
        n = tokens.shape[0]
        rows = torch.arange(n + 1, device=self.device)
        output = self.backbone(Ragged(tokens, positions, rows[:-1], rows.int(), max_len=1), state=state)
        assert output.state is not None
        return self.scores(output.hidden), output.state

    def scores(self, hidden: Tensor) -> Tensor:
        return self.softmax(hidden).float()
