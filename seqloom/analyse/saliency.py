"""Which tokens an answer hangs on: gates m on the embedded tokens, 1 as they are, 0 nothing, and what the answer does with them.

gradient     ∂f/∂m at m = 1: the gradient of the answer times the input
integrated   the mean of ∂f/∂m from m = 0 to m = 1, which sums to f(1) − f(0) over the tokens (Sundararajan et al., 2017,
             arXiv 1703.01365). The integral is refined until it does
occlusion    f(1) − f(1 without the token): exact for one token, blind to tokens that stand for one another

An erasure test says whether any of it means something: the answer must fall more where the tokens with the highest values are
taken away than where others are (comprehensiveness; DeYoung et al., 2020, arXiv 1911.03429).

f is a log-probability: of a class, a tag, the next token, a word in a gap, a token of a translation; or a predicted number.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.batch import exact
from seqloom.errors import UsageError

METHODS = ("gradient", "integrated", "occlusion")
COMPLETE = 1e-3  # how far the sum of integrated gradients may be from f(1) − f(0)
FIRST_STEPS, MOST_STEPS = 32, 1024
NEAR_ZERO = 6  # the power that m goes with: a LayerNorm with a tiny ε answers to m below 1e-5 already
ERASED = 0.2  # the share of tokens that the erasure test takes away
DRAWS = 20  # of random tokens beside them


class Question(NamedTuple):
    """An answer of a model about one text."""

    tokens: list[str]  # all that go through the embedding
    own: np.ndarray  # (T,) which of them belong to the text
    embedding: nn.Module  # (T, D) of them
    answer: Callable[[], Tensor]  # ()
    name: str  # of the answer


class Saliency(NamedTuple):
    """What was found for one question."""

    question: Question
    value: float  # f(1)
    empty: float  # f(0): no token of the text is seen
    values: dict[str, np.ndarray]  # by method (own tokens,)
    steps: int  # of the integral

    @property
    def words(self) -> list[str]:
        return [token for token, own in zip(self.question.tokens, self.question.own, strict=True) if own]

    @property
    def gap(self) -> float:
        """How far the integrated gradients are from complete."""
        return abs(float(self.values["integrated"].sum()) - (self.value - self.empty))

    @property
    def completeness(self) -> str:
        """The gap in words."""
        if self.gap <= COMPLETE * max(1.0, abs(self.value - self.empty)):
            return f"complete to {self.gap:.1e}"
        return f"not complete, off by {self.gap:.1e}: the answer jumps somewhere between no text and the text"


def gated(question: Question, gates: Tensor) -> Tensor:
    """The answer with each embedded token times its gate."""
    calls = []

    def gate(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        calls.append(output.shape)
        return output * gates[:, None].to(output.dtype)

    hook = question.embedding.register_forward_hook(gate)
    try:
        found = question.answer()
    finally:
        hook.remove()
    assert calls == [calls[0]] and calls[0][0] == len(gates), "the embedding is read once, all tokens together"
    return found


def gradient_at(question: Question, gates: np.ndarray) -> np.ndarray:
    """(T,) ∂f/∂m"""
    m = torch.tensor(gates, device=device_of(question), requires_grad=True)
    with torch.enable_grad():
        (found,) = torch.autograd.grad(gated(question, m), m)
    return exact(found).cpu().numpy()


def device_of(question: Question) -> torch.device:
    return next(question.embedding.parameters()).device


@torch.no_grad()
def value_at(question: Question, gates: np.ndarray) -> float:
    return float(exact(gated(question, torch.tensor(gates, device=device_of(question)))))


def find_saliency(question: Question) -> Saliency:
    own = np.asarray(question.own, bool)
    if not own.any():
        raise UsageError("there is no token of the text that the answer could hang on")
    ones = np.ones(len(own))
    full, empty = value_at(question, ones), value_at(question, ones * ~own)
    integrated, steps = integrate(question, own, full - empty)
    singles = [full - value_at(question, np.where(np.arange(len(own)) == i, 0.0, 1.0)) for i in np.flatnonzero(own)]
    values = {
        "gradient": gradient_at(question, ones)[own], "integrated": integrated, "occlusion": np.array(singles),
    }  # fmt: skip
    return Saliency(question, full, empty, values, steps)


def integrate(question: Question, own: np.ndarray, difference: float) -> tuple[np.ndarray, int]:
    """(own tokens,) by the rule of Gauss and Legendre over u, m = u⁶, with twice as many points until it is complete."""
    steps = FIRST_STEPS
    while True:
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        total = np.zeros(int(own.sum()))
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            speed = NEAR_ZERO * node ** (NEAR_ZERO - 1)  # dm/du
            total += weight * speed * gradient_at(question, np.where(own, node**NEAR_ZERO, 1.0))[own]
        if abs(total.sum() - difference) <= COMPLETE * max(1.0, abs(difference)) / 2 or steps >= MOST_STEPS:
            return total, steps
        steps *= 2


class Erasure(NamedTuple):
    """How much the answer falls when tokens are taken away."""

    erased: int
    falls: dict[str, float]  # by method, of the tokens that it names
    random: np.ndarray  # (draws,) of as many tokens at random


def erase(found: Saliency, share: float = ERASED, seed: int = 0) -> Erasure:
    own = np.flatnonzero(found.question.own)
    count = max(round(share * len(own)), 1)

    def fall(chosen: np.ndarray) -> float:
        gates = np.ones(len(found.question.own))
        gates[own[chosen]] = 0.0
        return found.value - value_at(found.question, gates)

    falls = {name: fall(np.argsort(-values, kind="stable")[:count]) for name, values in found.values.items()}
    random = np.random.default_rng(seed)
    return Erasure(count, falls, np.array([fall(random.permutation(len(own))[:count]) for _ in range(DRAWS)]))
