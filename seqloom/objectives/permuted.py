"""Permutation language modelling: tokens are predicted in a random order, each from those before it in that order, whichever
side they stand on. Yang et al., 2019 (arXiv 1906.08237).

Only some tokens are predicted, the last ones of the order (partial prediction): the others are given, and see each other. What
is predicted comes in runs of one token to `span`, shorter ones more often (by 1/n), which stand anywhere. Every sequence of an
excerpt also holds its last target, which may be predicted as the other tokens, and ends with the token that stands for a whole
text: it has a place in the order and no loss. A memory keeps neither, since the next segment begins with that target. Half of the
documents show the end token before them, as texts do that are continued, and half hide it: texts of tasks have none.

In the order of the text it is a left-to-right model, with perplexity, continuations and all else that such models have
(`left_to_right`).

Departures: the order is over a whole sequence (the authors': within blocks of 256 tokens), runs are of tokens, not of words, and
stand anywhere, not each in the middle of six times as many tokens; no second segment, neither the next one nor another, is read
in pre-training, so there is no separator but the end of a document; nothing is read backward; `rate` is of a batch's tokens, not
of each sequence.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from seqloom.batch import (
    APART,
    IGNORE,
    Backbone,
    Excerpt,
    Joints,
    Loss,
    Output,
    Ragged,
    Sizes,
    State,
    Vocabulary,
    with_penalty,
)
from seqloom.blocks.softmax import Softmax
from seqloom.blocks.two_streams import IdentityOrder, Queries, TwoStreamBackbone
from seqloom.config import Config as BaseConfig
from seqloom.objectives.next_token import LeftToRight, Streamed

HIDDEN = 0.5  # the share of documents that do not show the end token before them


class Permuted(NamedTuple):
    """Sequences with an order, and what is predicted in them."""

    batch: Ragged
    queries: Queries
    targets: Tensor  # (Q,) IGNORE in filler
    text: Tensor  # (N,) tokens of text in each sequence
    joints: Joints | None

    def sizes(self) -> Sizes:
        lengths = self.text[self.text > 0] + self.queries.spare
        read, targets = int(lengths.sum()), int((self.targets != IGNORE).sum())
        pairs = int((lengths * lengths).sum())
        return Sizes(int(self.text.sum()), pairs, read, targets, lengths=tuple(lengths.tolist()))


class PermutedLM(Streamed):
    """Predicts tokens in a random order."""

    has_next_word = fills_gaps = True
    evaluator = "seqloom.evaluate.permuted:PermutedEvaluator"
    backbone: TwoStreamBackbone
    second_stream = ("backbone",)  # it runs over targets, too

    class Config(BaseConfig):
        rate: float = Field(
            1 / 6, gt=0, le=1, description="Share of the tokens that are predicted; the others are given."
        )
        span: int = Field(
            5,
            ge=1,
            le=100,
            description="Longest run of tokens that are predicted; shorter ones are more likely, by 1/n.",
        )

    frame_ids: Tensor

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        """Models with two streams."""
        return super().fits(model) and issubclass(model, TwoStreamBackbone)

    def __init__(self, backbone: TwoStreamBackbone, config: Config):
        super().__init__()
        self.backbone, self.rate, self.span = backbone, config.rate, config.span
        self.softmax = Softmax(backbone.dim, backbone.vocab_size, backbone.table, bias=True)
        self.softmax.init_weights(std=0.02, tied=True)
        self.register_buffer("frame_ids", torch.full((3,), -1))

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.frame_ids.copy_(torch.tensor(vocabulary.frame()))
        self.validate_loaded()

    def validate_loaded(self) -> None:
        """Keeps on the host what data workers need."""
        self.whole, _, self.end = numbers = self.frame_ids.tolist()
        if not all(0 <= number < self.backbone.vocab_size for number in numbers):
            raise ValueError(f"the special tokens have the numbers {numbers}, outside the vocabulary")

    def initial_loss(self) -> float:
        return math.log(self.backbone.vocab_size)

    def left_to_right(self) -> LeftToRight:
        return InOrder(self.backbone.in_order(), self.softmax)

    # ---- orders

    def corrupt(self, cut: Excerpt, rng: torch.Generator) -> Permuted:
        drawn = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        old, n = cut.batch, cut.batch.num_sequences
        spare = 2  # the last target, and the token of the whole text
        place = (
            torch.arange(len(old.ids)) + spare * old.owner
        )  # each sequence moves on by what the ones before it gained
        behind = (old.offsets[1:].long() + spare * torch.arange(n))[:, None] + torch.arange(spare)
        # the last target of each sequence; of filler, and of what is empty, any token
        last = cut.targets[(old.offsets[1:].long() - 1).clamp(min=0)].clamp(min=0)
        total = len(old.ids) + spare * n
        ids, owner = torch.zeros(total, dtype=torch.long), torch.zeros(total, dtype=torch.long)
        ids[place], owner[place] = old.ids, old.owner
        ids[behind] = torch.stack((last, torch.full_like(last, self.whole)), 1)
        owner[behind] = torch.arange(n)[:, None].expand(-1, spare)
        offsets = old.offsets + spare * torch.arange(n + 1, dtype=torch.int32)
        segments = torch.zeros(total, dtype=torch.long)
        segments[behind[:, -1]] = APART
        sizes = old.offsets.diff().numpy().astype(np.int64)
        counts = shares(sizes, self.rate)
        chosen = torch.from_numpy(np.flatnonzero(draw_runs(sizes, counts, self.span, drawn)))
        where = place[chosen] + 1  # a target stands behind the token that it follows
        order = torch.full((total,), -1)
        ordered = torch.cat((where, behind[:, -1]))
        order[ordered] = torch.from_numpy(drawn.permutation(len(ordered)))
        heads = offsets[:-1].long()
        starts = heads[(ids[heads] == self.end) & (old.offsets.diff() > 0)]
        order[starts[torch.from_numpy(drawn.random(len(starts)) < HIDDEN)]] = len(ordered)  # none comes after it
        borders = torch.from_numpy(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        queries = Queries(where, owner[where], borders, math.ceil(self.rate * old.max_len), spare)
        positions = torch.arange(total) - offsets[:-1].long()[owner]
        batch = Ragged(ids, positions, owner, offsets, old.max_len + spare, segments=segments, order=order)
        text = torch.bincount(old.owner[cut.targets != IGNORE], minlength=n)
        return Permuted(batch, queries, cut.targets[chosen], text, cut.joints)

    # ---- predicting

    def forward(self, example: Permuted, carry: State | None = None) -> Loss:
        state = self.state_before(example, carry)
        output: Output = self.backbone(example.batch, state=state, queries=example.queries)
        total = self.softmax(output.query, example.targets)
        loss = Loss(total, (example.targets != IGNORE).sum(), carry=self.state_after(example, output))
        return with_penalty(loss, output)

    def losses(self, example: Permuted) -> tuple[Tensor, Tensor]:
        """(Q,) −log p of every target, in fp32 at least, and whether it is the most likely token."""
        query = self.backbone(example.batch, queries=example.queries).query
        return self.softmax(query, example.targets, each=True), self.softmax(query).argmax(1) == example.targets

    def gap_scores(self, batch: Ragged, places: list[int], gaps: list[int], done: int) -> Tensor:
        """(K · places, V) of what may stand at some gaps of K texts of one length. The first `done` gaps are filled, each after
        those before it; no other is seen."""
        count, length = batch.num_sequences, batch.max_len
        order = torch.full((length,), -1, device=batch.ids.device)
        order[gaps] = torch.arange(len(gaps), device=order.device).clamp(max=done)
        row, many = torch.arange(count, device=order.device), len(places)
        where = (row[:, None] * length + torch.tensor(places, device=order.device)).flatten()
        borders = many * torch.arange(count + 1, dtype=torch.int32, device=order.device)
        queries = Queries(where, row.repeat_interleave(many), borders, many)
        segments = torch.zeros_like(order)
        segments[-1] = APART
        asked = batch._replace(order=order.repeat(count), segments=segments.repeat(count))
        return self.softmax(self.backbone(asked, queries=queries).query)


class InOrder(LeftToRight):
    """The model in the order of the text, and the output layer of the whole."""

    def __init__(self, backbone: IdentityOrder, softmax: Softmax):
        super().__init__()
        self.backbone, self.softmax = backbone, softmax
        self.training = backbone.training


def shares(sizes: np.ndarray, rate: float) -> np.ndarray:
    """(N,) how many tokens of each sequence are predicted, in all ⌈rate · T⌉: so a batch of one shape has as many in every step,
    and a sequence of L at most ⌈rate · L⌉."""
    ends = np.ceil(np.cumsum(sizes) * rate - 1e-9).astype(np.int64)  # 18 / 6 may be a bit more than 3
    return np.diff(ends, prepend=0)


def draw_runs(sizes: np.ndarray, counts: np.ndarray, longest: int, rng: np.random.Generator) -> np.ndarray:
    """(T,) which tokens are predicted: `counts` (N,) of each sequence, in runs that stand anywhere in it."""
    total = int(counts.sum())
    lengths = np.arange(1, longest + 1)
    drawn = rng.choice(lengths, total, p=(1 / lengths) / (1 / lengths).sum())
    # runs laid end to end, cut where a sequence has enough
    ends = np.unique(np.concatenate((np.cumsum(drawn), np.cumsum(counts))))
    ends = ends[(ends > 0) & (ends <= total)]
    runs = np.diff(ends, prepend=0)
    owner = np.searchsorted(np.cumsum(counts), ends - 1, side="right")
    # of each sequence its runs and its other tokens, in random order
    rest = np.repeat(np.arange(len(sizes)), sizes - counts)
    owners, parts = np.concatenate((owner, rest)), np.concatenate((runs, np.ones(len(rest), np.int64)))
    mixed = np.lexsort((rng.random(len(owners)), owners))
    return np.repeat(mixed < len(runs), parts[mixed])
