"""A beam search that remembers what it looked at: every hypothesis that it kept, and what each might have gone on with."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.batch import State
from seqloom.decode.search import Beams, Search

ALTERNATIVES = 5  # next tokens that are remembered of each hypothesis


class Considered(NamedTuple):
    """A beginning that the search kept, with what could follow it."""

    tokens: tuple[int, ...]  # after the prompt
    log_prob: float  # of all of them
    alternatives: tuple[tuple[int, float], ...]  # the likeliest next tokens and their log-probabilities


class TracedSearch(Search):
    """For one prompt. It finds what Search finds; its steps are computed one by one on every device."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.considered: dict[tuple[int, ...], Considered] = {}

    def recorded_step(self, beams: Beams, state: State) -> tuple[Beams, State]:
        return self.step(beams, state)

    def choose(self, beams: Beams, scores: Tensor, attention: Any) -> Beams:
        prompt, made = int(beams.prompt[0]), int(beams.made[0])
        log_probs = self.allowed(beams, scores).view(*beams.sums.shape, -1)
        top = log_probs.topk(min(ALTERNATIVES, log_probs.shape[-1]))
        for group, each in torch.cartesian_prod(*(torch.arange(size) for size in beams.sums.shape[1:])).tolist():
            total = float(beams.sums[0, group, each])
            if total == float("-inf") or bool(beams.done[0, group]):
                continue
            tokens = tuple(beams.seen[0, group, each, prompt : prompt + made].tolist())
            next_ones = zip(top.indices[0, group, each].tolist(), top.values[0, group, each].tolist(), strict=True)
            self.considered[tokens] = Considered(tokens, total, tuple(next_ones))
        return super().choose(beams, scores, attention)
