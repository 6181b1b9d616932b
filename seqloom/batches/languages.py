"""Several texts with one tokenizer, one per language, sampled with smoothed shares.

A language with n training tokens is read in proportion to n^α (Lample & Conneau, 2019, arXiv 1901.07291; α there is 0.5, 0.7
in multilingual BERT, 0.3 in XLM-R): with α = 1 as often as it is there, with less of it small languages more often and large
ones less. An epoch is as many tokens as all languages have.

Every batch is of one language. So the plan of each language stays what it is without the others, full grids and short
passages included, and a whole batch has one language embedding; the shares hold over the batches of an epoch. How many
batches a language has in an epoch is not left to chance: it is read on from where the epoch before has left it, and begun
again only when all of it was read. Which batch is of which language is drawn from (seed, epoch).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from seqloom.batch import Excerpt, Pair, Passage
from seqloom.batches.passages import Passages
from seqloom.batches.plan import Batches, Plan, generator
from seqloom.randomness import derive_seed


def shares(tokens: Sequence[int], smoothing: float) -> np.ndarray:
    """(L,) of what is read, by how many tokens each language has."""
    weight = np.asarray(tokens, np.float64) ** smoothing
    return weight / weight.sum()


def passes(tokens: Sequence[int], smoothing: float) -> np.ndarray:
    """(L,) how often each language is read in an epoch; exactly once where nothing is smoothed."""
    sizes = np.asarray(tokens, np.float64)
    return sizes ** (smoothing - 1) * (sizes.sum() / (sizes**smoothing).sum())


class Spot(NamedTuple):
    """One batch of one language's plan."""

    plan: Plan
    batch: int


class MixedPlan:
    """languages: (M,) whose each batch is."""

    def __init__(self, spots: list[list[Spot]], rng: np.random.Generator):
        self.languages = rng.permutation(np.repeat(np.arange(len(spots)), [len(each) for each in spots]))
        # each in the order of its own plans, in which short passages come before long ones
        rest = [iter(each) for each in spots]
        self.spots = [next(rest[language]) for language in self.languages.tolist()]

    def __len__(self) -> int:
        return len(self.spots)

    def batch(self, i: int) -> Excerpt | Pair | Passage:
        plan, index = self.spots[i]
        return plan.batch(index)


class Mixed:
    """passes: how often each of the batches is read in an epoch."""

    rows = usual = 0

    def __init__(self, batches: Sequence[Batches], passes: np.ndarray):
        self.batches, self.passes = batches, passes

    def plan(self, seed: int, epoch: int) -> MixedPlan:
        spots = [
            batches_between(each, derive_seed(seed, number), epoch * often, (epoch + 1) * often)
            for number, (each, often) in enumerate(zip(self.batches, self.passes.tolist(), strict=True))
        ]
        return MixedPlan(spots, generator(seed, epoch))


def batches_between(batches: Batches, seed: int, begin: float, end: float) -> list[Spot]:
    """The batches from one position to another, both counted in passes through the text."""
    found = []
    for number in range(int(begin), int(np.ceil(end))):
        plan = batches.plan(seed, number)
        first, last = (round(min(max(place - number, 0.0), 1.0) * len(plan)) for place in (begin, end))
        found += [Spot(plan, i) for i in range(first, last)]
    return found


class WithLanguage:
    """Passages with their language as segment ids (XLM)."""

    rows = usual = 0

    def __init__(self, under: Passages, language: int):
        self.under, self.split, self.language = under, under.split, language

    def plan(self, seed: int, epoch: int) -> Plan:
        return WithLanguagePlan(self.under.plan(seed, epoch), self.language)


class WithLanguagePlan:
    def __init__(self, under: Plan, language: int):
        self.under, self.language = under, language

    def __len__(self) -> int:
        return len(self.under)

    def batch(self, i: int) -> Passage:
        passage = self.under.batch(i)
        assert isinstance(passage, Passage)
        batch = passage.batch
        return passage._replace(batch=batch._replace(segments=torch.full_like(batch.ids, self.language)))
