"""Rules for the next token: each takes scores (n, V) and returns scores, with −inf for excluded tokens.

No number of the host's becomes a tensor on the way (`where` does that, `masked_fill` does not): CUDA graphs hold them."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqloom.batch import exact
from seqloom.config import Config

NEVER = float("-inf")


class Limits(Config):
    """Limits for every way of decoding."""

    max_new: int = Field(200, ge=1, le=1_000_000)
    min_new: int = Field(0, ge=0)
    repetition_penalty: float = Field(1.0, ge=1, le=10)  # on tokens that the sequence holds (Keskar et al., 2019)
    no_repeat: int = Field(0, ge=0, le=100)  # no n-gram of this length twice


class SampleConfig(Limits):
    """temperature 0 is greedy. top_p keeps the fewest tokens that have that share of the probability together."""

    temperature: float = Field(1.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)


class BeamConfig(Limits):
    """How hypotheses Y are searched and scored: log P(Y) / lp(Y) + β Σ_i log min(Σ_j p_ij, 1), by default their mean
    log-probability. |Y| counts the end token, and p_ij is how much the choice of token j looked at source place i.

    stop "exact": a source is done when no running hypothesis can beat the worst of its K finished ones any more;
    "first": as soon as it has K. groups > 1: diverse beams (Vijayakumar et al., 2016, arXiv 1610.02424).
    """

    beam: int = Field(4, ge=1, le=100_000)
    n_best: int = Field(1, ge=1)
    length_penalty: float = Field(1.0, ge=0, le=100)  # α; 0: the plain sum
    length_form: Literal["mean", "gnmt"] = "mean"  # |Y|^α, or ((5 + |Y|) / 6)^α (Wu et al., 2016, arXiv 1609.08144)
    coverage_penalty: float = Field(0.0, ge=0, le=100)  # β of the same paper
    groups: int = Field(1, ge=1)
    diversity: float = Field(0.5, ge=0, le=1000)  # what a token costs for each earlier group's hypothesis that takes it
    stop: Literal["exact", "first"] = "exact"

    @model_validator(mode="after")
    def sizes_fit(self) -> Self:
        if self.n_best > self.beam:
            raise ValueError(
                f"n_best = {self.n_best} is more than a beam of {self.beam} finds: lower it, or raise beam"
            )
        if self.beam % self.groups:
            raise ValueError(f"a beam of {self.beam} cannot be divided into {self.groups} equal groups")
        return self


def keep_top_k(scores: Tensor, k: int | Tensor) -> Tensor:
    """The k highest scores, k being (n, 1) or a number for all; equal ones at the border by the lower id."""
    ordered, index = scores.sort(dim=1, descending=True, stable=True)
    behind = torch.arange(scores.shape[1], device=scores.device) >= k
    return torch.full_like(scores, NEVER).scatter(1, index, ordered.masked_fill(behind, NEVER))


def keep_top_p(scores: Tensor, p: float | Tensor) -> Tensor:
    """The fewest tokens, the likeliest first, whose probabilities sum to p or more; always one. p: (n, 1), or one for all."""
    ordered, index = scores.sort(dim=1, descending=True, stable=True)
    share = exact(ordered).softmax(1)
    before = share.cumsum(1) - share  # what the likelier tokens have together
    behind = before >= (p.to(before.device) if isinstance(p, Tensor) else p)
    return torch.full_like(scores, NEVER).scatter(1, index, ordered.masked_fill(behind.to(ordered.device), NEVER))


NOTHING = -1  # fills a row of `seen` (n, L), the tokens that each sequence holds, behind its length


def limit_repetition(scores: Tensor, seen: Tensor, lengths: Tensor, limits: Limits, end_id: int) -> Tensor:
    """Apply the rules about repetition. The end token before a text is its border and does not count as a token of it, so that no
    rule keeps a text from ending."""
    seen = seen.masked_fill(seen == end_id, NOTHING)
    if limits.repetition_penalty > 1:
        scores = penalise_repetition(scores, seen, limits.repetition_penalty)
    if limits.no_repeat:
        scores = forbid_repeats(scores, seen, lengths, limits.no_repeat)
    return scores


def penalise_repetition(scores: Tensor, seen: Tensor, penalty: float) -> Tensor:
    return torch.where(holds(seen, scores), torch.where(scores > 0, scores / penalty, scores * penalty), scores)


def forbid_repeats(scores: Tensor, seen: Tensor, lengths: Tensor, size: int) -> Tensor:
    """No n-gram of `size` tokens comes twice in a sequence."""
    if seen.shape[1] < size:
        return scores
    begin = lengths[:, None] + torch.arange(1 - size, 0, device=seen.device)  # where the n-gram to come stands
    last = seen.gather(1, begin.clamp(min=0)).masked_fill(begin < 0, NOTHING)
    grams = seen.unfold(1, size, 1)  # (n, L − size + 1, size)
    same = (grams[..., :-1] == last[:, None]).all(2) & (last != NOTHING).all(1, keepdim=True)
    return scores.masked_fill(holds(grams[..., -1].masked_fill(~same, NOTHING), scores), NEVER)


def holds(tokens: Tensor, scores: Tensor) -> Tensor:
    """(n, V) which of the vocabulary are among the tokens (n, L) of a row."""
    n, size = scores.shape
    found = torch.zeros(n, size + 1, dtype=torch.bool, device=scores.device)
    return found.scatter_(1, tokens.masked_fill(tokens == NOTHING, size), True)[:, :size]
