"""Toy models for the search: distributions that hang on all of the text, from a seed alone."""

import random

import torch

from seqloom.batch import Context, State
from seqloom.decode.step import GraphedSteps, Next


class Toy(GraphedSteps):
    """Each text, together with its source, has its own distribution, and its own place to look at.

    The state holds what was read, as a cache does: a search that mixes up its rows gets the wrong distributions.
    """

    device = torch.device("cpu")
    graphed = False
    limit = None

    def __init__(self, vocab: int, seed: int, sharp: float = 2.0, align: bool = False):
        self.vocab, self.seed, self.sharp, self.align = vocab, seed, sharp, align
        self.memory = {}

    def scores(self, source, text) -> tuple[list[float], list[float]]:
        """Of every token after a text, and where it looks."""
        key = (tuple(source), tuple(text))
        if key not in self.memory:
            draw = random.Random(hash((self.seed, *key)))
            row = [self.sharp * draw.gauss(0, 1) for _ in range(self.vocab)]
            looks = torch.tensor([3 * draw.gauss(0, 1) for _ in source]).softmax(0).tolist() if source else []
            self.memory[key] = row, looks
        return self.memory[key]

    def log_probs(self, source, text) -> list[float]:
        return torch.tensor(self.scores(source, text)[0]).log_softmax(0).tolist()

    def start(self, prompts, capacity, context=None) -> Next:
        own = torch.full((len(prompts), capacity + 1), -1)  # how many, and which
        own[:, 0] = torch.tensor([len(prompt) for prompt in prompts])
        for row, prompt in enumerate(prompts):
            own[row, 1 : len(prompt) + 1] = torch.tensor(prompt)
        if context is None:
            shared = ()
        else:
            shared = torch.full((len(prompts), context.max_len), -1)
            for row, source in enumerate(context.hidden[:, 0].long().split(context.offsets.diff().tolist())):
                shared[row, : len(source)] = source
        return self.after(State(own, shared))

    def plain(self, tokens, positions, state) -> Next:
        own = state.own.clone()
        for row, (token, place) in enumerate(zip(tokens.tolist(), positions.tolist(), strict=True)):
            assert own[row, 0] >= place, "the state has not read what stands before this token"
            own[row, 0], own[row, 1 + place] = place + 1, token
        return self.after(State(own, state.shared))

    def after(self, state) -> Next:
        texts = [row[1 : 1 + row[0]] for row in state.own.tolist()]
        if isinstance(state.shared, tuple):
            return Next(torch.tensor([self.scores((), text)[0] for text in texts]), state)
        places = state.shared.shape[1]
        sources = [tuple(i for i in row if i >= 0) for row in state.shared.tolist()]
        each = len(texts) // len(sources)
        found = [self.scores(sources[row // each], text) for row, text in enumerate(texts)]
        looked = torch.tensor([looks + [0.0] * (places - len(looks)) for _, looks in found])
        return Next(torch.tensor([row for row, _ in found]), state, looked if self.align else ())


def context_of(sources: list[list[int]]) -> Context:
    sizes = torch.tensor([len(source) for source in sources])
    offsets = torch.cat((torch.zeros(1, dtype=torch.long), sizes.cumsum(0))).int()
    hidden = torch.tensor([float(i) for source in sources for i in source])[:, None]
    return Context(hidden, torch.arange(len(sources)).repeat_interleave(sizes), offsets, int(sizes.max()))
