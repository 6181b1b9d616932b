"""Two language models in one: each token from those before it, and again from those after it. Peters et al., 2018 (arXiv
1802.05365).

Both directions read a stretch of text with the token on either side of it, from no state, and share one output layer. Of the
tokens t0 … tn the forward half predicts t1 … tn, and the backward half t0 … t(n−1): over a document and the ends of text around
it both predict every word once and an end. Each is a proper distribution with a perplexity of its own; their sum is learnt
from, and there is no distribution of both together. So nothing is generated or continued by it: the forward half could, but
half a model is not what was trained, and an LSTM of that size says the same.
"""

import math
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from seqloom.batch import (
    IGNORE,
    Backbone,
    Excerpt,
    Loss,
    Objective,
    Ragged,
    Sizes,
    State,
    Vocabulary,
    with_penalty,
)
from seqloom.blocks.directions import OneDirection, TwoDirections
from seqloom.errors import ModelError
from seqloom.objectives.next_token import LeftToRight, NextToken, output_layer


class Surrounded(NamedTuple):
    """Stretches of text, each with the token before it and its own last one, and what each direction predicts."""

    batch: Ragged
    following: Tensor  # (T,) IGNORE at the last token of each sequence
    preceding: Tensor  # (T,) IGNORE at the first one

    def sizes(self) -> Sizes:
        lengths = torch.bincount(self.batch.owner[self.following != IGNORE])
        lengths = lengths[lengths > 0]
        tokens, read = int(lengths.sum()), lengths + 1
        return Sizes(tokens, int((read * read).sum()), int(read.sum()), 2 * tokens, lengths=tuple(read.tolist()))


class Bidirectional(Objective):
    evaluator = "seqloom.evaluate.both_directions:BothDirectionsEvaluator"
    backbone: TwoDirections

    class Config(NextToken.Config):
        tie: bool = Field(False, description="Share the input embeddings with the output layer, where there are any.")
        output: bool = Field(
            True,
            description="Whether there is an output layer; published weights come without, and serve as features alone.",
        )

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return super().fits(model) and issubclass(model, TwoDirections)

    def __init__(self, backbone: TwoDirections, config: Config):
        super().__init__()
        self.backbone = backbone
        self.softmax = output_layer(backbone, config, backbone.dim // 2) if config.output else None
        if self.softmax is not None:
            self.softmax.init_weights(std=0.2, tied=config.tie)  # as of all recurrent models
        if config.softmax == "adaptive":
            self.static = False  # how many targets are in which cluster is asked of the device

    def initial_loss(self) -> float:
        """What an untrained model must score, nearly: every token equally likely."""
        return math.log(self.backbone.vocab_size)

    def corrupt(self, cut: Excerpt, rng: torch.Generator) -> Surrounded:
        return surround(cut)

    def forward(self, example: Surrounded, carry: State | None = None) -> Loss:
        output = self.backbone(example.batch)
        targets = torch.cat((example.following, example.preceding))
        total = self.output_layer()(torch.cat(output.hidden.chunk(2, dim=1)), targets)
        return with_penalty(Loss(total, (targets != IGNORE).sum()), output)

    def output_layer(self) -> torch.nn.Module:
        if self.softmax is None:
            raise ModelError(
                "this model has no output layer (objective.output = false) and predicts no words: use its layers, by "
                "'embed' or 'finetune', or train one that has"
            )
        return self.softmax

    def direction(self, backward: bool) -> "Direction":
        """One half, which is a left-to-right model; the backward one reads mirrored texts."""
        return Direction(self.backbone.direction(backward), self.output_layer())

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)
        if self.softmax is not None:
            self.softmax.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.backbone.validate_loaded()
        if self.softmax is not None:
            self.softmax.validate_loaded()


class Direction(LeftToRight):
    """A half of a model and the output layer of the whole: measured and asked as any left-to-right model is."""

    def __init__(self, backbone: OneDirection, softmax: torch.nn.Module):
        super().__init__()
        self.backbone, self.softmax = backbone, softmax
        self.training = backbone.training


def surround(cut: Excerpt) -> Surrounded:
    """Every sequence of an excerpt, empty ones too, gets one token more, its last target: so shapes follow from shapes."""
    batch, targets = cut.batch, cut.targets
    n, t = batch.num_sequences, batch.ids.shape[0]
    offsets = batch.offsets.long()
    own = torch.arange(t) + batch.owner  # where a token goes: one place further for every sequence before its own
    last = offsets[1:] + torch.arange(n)
    empty = offsets[1:] == offsets[:-1]
    final = targets[(offsets[1:] - 1).clamp(min=0)].masked_fill(empty, IGNORE)

    def laid(rows: Tensor, behind: Tensor) -> Tensor:
        found = rows.new_zeros(t + n, *rows.shape[1:])
        found[own], found[last] = rows, behind.to(rows.dtype)
        return found

    ids = laid(batch.ids, final.clamp(min=0))
    following = laid(targets, torch.full_like(final, IGNORE))
    # what a token follows is what it is predicted from the other way, and where there is a target there is a token
    before = torch.full_like(following, IGNORE)
    known = (following[:-1] != IGNORE).nonzero()[:, 0]
    before[known + 1] = ids[known]
    chars = None
    if batch.chars is not None:
        assert cut.last_chars is not None
        chars = laid(batch.chars, cut.last_chars)
    owner = laid(batch.owner, torch.arange(n))
    borders = batch.offsets + torch.arange(n + 1, dtype=torch.int32)
    places = torch.arange(t + n) - borders[:-1].long()[owner]
    return Surrounded(Ragged(ids, places, owner, borders, batch.max_len + 1, chars=chars), following, before)
