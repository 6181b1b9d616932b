"""Masked language modelling: some tokens are hidden, and predicted from both sides. Devlin et al., 2018 (arXiv 1810.04805).

Of the chosen tokens most become the mask token, some another token, and some stay as they are. What is chosen together:

    token    each for itself
    word     all pieces of a word (BERT's later weights; Cui et al., 2019, arXiv 1906.08101)
    span     runs of tokens of geometric length, p = 0.2, cut off above 10 and renormalised: 3.8 in the mean (SpanBERT, Joshi
             et al., 2020, arXiv 1907.10529)

Masks are new in every epoch (Liu et al., 2019, arXiv 1907.11692), or with `static` the same ones for a place of the text,
as BERT's were. Departures: `rate` is of a batch's tokens, not of each sequence: exactly so of single tokens, at most so of
words and spans, which are chosen as long as the next one fits; static masks toss a coin for every place.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batch import (
    IGNORE,
    Backbone,
    Loss,
    Objective,
    Output,
    Passage,
    Ragged,
    Sizes,
    State,
    Vocabulary,
    exact,
    wide,
    with_penalty,
)
from seqloom.blocks.directions import TwoDirections
from seqloom.blocks.feedforward import ACTIVATIONS
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError
from seqloom.randomness import uniform_at

SPAN_END = 0.2  # the chance that a span ends with a token
LONGEST_SPAN = 10


class Masked(NamedTuple):
    """A passage with some tokens hidden."""

    batch: Ragged
    where: Tensor  # (M,) places in the row
    targets: Tensor  # (M,) what stood there; IGNORE where fewer were chosen
    labels: Tensor  # (N,) of the passage
    real: Tensor  # (T,) whether a token is read at all, and not filler
    text: Tensor  # (T,) whether it is none of the special ones either

    def sizes(self) -> Sizes:
        lengths = torch.bincount(self.batch.owner[self.real])
        read, targets = int(lengths.sum()), int((self.targets != IGNORE).sum())
        pairs = int((lengths * lengths).sum())
        return Sizes(int(self.text.sum()), pairs, read, targets, lengths=tuple(lengths[lengths > 0].tolist()))


class MlmHead(nn.Module):
    """The layer from hidden states to the space of the embeddings, before the output layer."""

    def __init__(self, dim: int, width: int, activation: str, eps: float):
        super().__init__()
        self.dense, self.norm = nn.Linear(dim, width), nn.LayerNorm(width, eps=eps)
        self.activation = ACTIVATIONS[activation]

    def init_weights(self) -> None:
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))


class MaskedLM(Objective):
    """Predicts hidden tokens of a passage."""

    reads, form = "passages", "single"
    fills_gaps = True
    evaluator = "seqloom.evaluate.evaluators:MaskedEvaluator"
    over_targets = ("guess",)  # it runs over hidden tokens only

    class Config(BaseConfig):
        rate: float = Field(0.15, gt=0, lt=1, description="Share of the tokens that are chosen to be predicted.")
        keep: float = Field(0.1, ge=0, le=1, description="Share of the chosen tokens that are left as they are.")
        random: float = Field(
            0.1, ge=0, le=1, description="Share of the chosen tokens that are replaced by a random token."
        )
        unit: Literal["token", "word", "span"] = Field(
            "token", description="What is chosen as a whole: single tokens, whole words or spans."
        )
        static: bool = Field(False, description="Choose the same tokens in every epoch.")

        @model_validator(mode="after")
        def shares(self) -> "MaskedLM.Config":
            if self.keep + self.random > 1:
                raise ValueError(f"keep {self.keep} and random {self.random} are more than all")
            if self.static and self.unit == "span":
                raise ValueError('static masks are for unit "token" and "word": spans are drawn anew')
            return self

    mask_id: Tensor
    is_special: Tensor
    continues: Tensor

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        """Models that see both sides of a hidden word at once, in every layer, and begin anew with every passage."""
        both = not model.causal and not issubclass(model, TwoDirections)
        return super().fits(model) and both and not model.carries

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__()
        assert backbone.table is not None
        self.backbone = backbone
        self.rate, self.keep, self.random = config.rate, config.keep, config.random
        self.unit: str = config.unit
        self.fixed = config.static
        width = backbone.table.embedding_dim
        self.guess = MlmHead(backbone.dim, width, backbone.head_style.activation, backbone.head_style.eps)
        self.softmax = Softmax(width, backbone.vocab_size, backbone.table, bias=True)
        self.guess.init_weights()
        self.softmax.init_weights(std=0.02, tied=True)
        size = backbone.vocab_size
        self.register_buffer("mask_id", torch.tensor(-1))
        self.register_buffer("is_special", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("continues", torch.zeros(size, dtype=torch.bool))

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        vocabulary.mask()

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)
        self.mask_id.fill_(vocabulary.mask())
        self.is_special[vocabulary.specials()] = True
        self.continues.copy_(vocabulary.continues())
        self.validate_loaded()

    def validate_loaded(self) -> None:
        """Keeps on the host what data workers need."""
        self.backbone.validate_loaded()
        self.mask = int(self.mask_id)
        if not 0 <= self.mask < self.backbone.vocab_size:
            raise ValueError(f"the mask token has the number {self.mask}, outside the vocabulary")
        self.ordinary = (~self.is_special.cpu()).nonzero().flatten()
        self.inside = self.continues.cpu().numpy()

    def initial_loss(self) -> float:
        return math.log(self.backbone.vocab_size)

    # ---- hiding

    def corrupt(self, cut: Passage, rng: torch.Generator) -> Masked:
        ids, free = cut.batch.ids, cut.places >= 0
        room = -(-int(self.rate * len(ids) * (1.25 if self.fixed else 1.0)) // 8) * 8 + 8  # one shape for all batches
        groups = self.groups(cut, rng)  # (T,) −1: never chosen
        chosen, dice = self.choose(cut, groups, rng)
        where = chosen[:room]
        other = self.ordinary[torch.randint(len(self.ordinary), where.shape, generator=rng)]
        if self.fixed:
            other = self.ordinary[
                torch.from_numpy(uniform_at(cut.places[where].numpy(), 2) * len(self.ordinary)).long()
            ]
        shares = dice[where]
        fresh = torch.where(
            shares < self.keep, ids[where], torch.where(shares < self.keep + self.random, other, self.mask)
        )
        hidden = ids.index_copy(0, where, fresh)
        spare = room - len(where)
        return Masked(
            cut.batch._replace(ids=hidden),
            torch.cat((where, where.new_zeros(spare))),
            torch.cat((ids[where], ids.new_full((spare,), IGNORE))),
            cut.labels,
            real_tokens(cut, free),
            free,
        )

    def groups(self, cut: Passage, rng: torch.Generator) -> np.ndarray:
        """(T,) tokens with one number are chosen together; −1: special tokens and filler."""
        free, ids = (cut.places >= 0).numpy(), cut.batch.ids.numpy()
        before = np.concatenate(([False], free[:-1]))  # whether the token before is text, too
        begins = np.ones(len(ids), bool)
        if self.unit == "word":
            begins = ~(self.inside[ids] & before)
        elif self.unit == "span":
            # the inverse of the distribution; what lies above the longest span is never drawn
            above = 1 - torch.rand(len(ids), generator=rng) * (1 - (1 - SPAN_END) ** LONGEST_SPAN)
            lengths = (above.log() / math.log(1 - SPAN_END)).long().clamp(max=LONGEST_SPAN - 1) + 1
            ends = lengths.cumsum(0).numpy()
            begins = ~before
            begins[ends[ends < len(ids)]] = True
        return np.where(free, np.cumsum(begins), -1)

    def choose(self, cut: Passage, groups: np.ndarray, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """(M,) the chosen places, and (T,) the random numbers that decide how each is hidden."""
        free = groups >= 0
        names, group = np.unique(groups[free], return_inverse=True)
        if self.fixed:
            # a word is chosen by its first place, whatever batch it is in
            first = np.full(len(names), np.iinfo(np.int64).max)
            np.minimum.at(first, group, cut.places.numpy()[free])
            taken = uniform_at(first, 0) < self.rate
            dice = torch.from_numpy(uniform_at(cut.places.numpy(), 1))
        else:
            sizes = np.bincount(group, minlength=len(names))
            order = torch.randperm(len(names), generator=rng).numpy()
            taken = np.zeros(len(names), bool)
            taken[order] = np.cumsum(sizes[order]) <= round(self.rate * int(free.sum()))
            # all tokens of a span are hidden in one way, the pieces of a word each in its own
            many = len(names) if self.unit == "span" else len(groups)
            drawn = torch.rand(many, generator=rng)
            dice = drawn
            if self.unit == "span":
                dice = torch.ones(len(groups))
                dice[torch.from_numpy(np.flatnonzero(free))] = drawn[torch.from_numpy(group)]
        return torch.from_numpy(np.flatnonzero(free)[taken[group]]), dice

    # ---- predicting

    @property
    def reader(self) -> Backbone:
        """The model whose hidden states words are predicted from."""
        return self.backbone

    def forward(self, example: Masked, carry: State | None = None) -> Loss:
        output: Output = self.backbone(example.batch)
        total = self.mlm_loss(output.hidden, example)
        return with_penalty(Loss(total, (example.targets != IGNORE).sum()), output)

    def mlm_loss(self, hidden: Tensor, example: Masked) -> Tensor:
        """The summed loss of the hidden tokens; only they go through the output layer."""
        return self.softmax(self.guess(hidden[example.where]), example.targets)

    def scores(self, hidden: Tensor) -> Tensor:
        """(T, D) → (T, V)"""
        return self.softmax(self.guess(hidden))

    def gap_scores(self, batch: Ragged, places: list[int], gaps: list[int], done: int) -> Tensor:
        """(K · places, V) of what may stand at some gaps of K texts of one length. What is open is a mask token."""
        hidden = self.reader(batch).hidden.view(batch.num_sequences, batch.max_len, -1)
        return self.scores(hidden[:, places].flatten(0, 1))

    def losses(self, example: Masked) -> tuple[Tensor, dict[str, Tensor]]:
        """(M,) −log p of every hidden token, and further sums for the evaluation; `extra`: the rest of the training loss."""
        return self.measure(self.scores(self.backbone(example.batch).hidden[example.where]), example)

    @property
    def measured_targets(self) -> str:
        """Which of the chosen tokens masked perplexity and accuracy count."""
        return "mask tokens" if self.keep + self.random < 1 else "all chosen tokens: none becomes the mask token"

    def measure(self, scores: Tensor, example: Masked) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses, and sums over the tokens that became the mask token: one that was kept can be read off."""
        losses = nn.functional.cross_entropy(wide(scores), example.targets, ignore_index=IGNORE, reduction="none")
        hidden = example.targets != IGNORE
        if self.keep + self.random < 1:
            hidden = hidden & (example.batch.ids[example.where] == self.mask)
        right = (scores.argmax(1) == example.targets) & hidden
        return losses, {
            "accuracy": right.sum(),
            "hidden": hidden.sum(),
            "hidden_nats": exact(losses * hidden).sum(),
        }


def real_tokens(cut: Passage, free: Tensor) -> Tensor:
    """(T,) text and its special tokens: what stands in a sequence that has any text."""
    owner = cut.batch.owner
    has_text = torch.zeros(cut.batch.num_sequences, dtype=torch.bool)
    has_text[owner[free]] = True
    return has_text[owner]


def counts(chosen: Tensor, batch: Ragged) -> Tensor:
    """(T,) → (N,) how many tokens of each sequence are chosen."""
    return torch.zeros(batch.num_sequences, device=chosen.device).index_add(0, batch.owner, chosen.float())


def check_segments(backbone: Backbone, objective: str) -> None:
    if getattr(backbone, "pooler", None) is None:
        raise UsageError(
            f"the objective {objective} reads a whole passage through a pooler, which this model lacks: use bert, albert or "
            f"ernie, or the objective masked"
        )
