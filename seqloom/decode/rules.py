"""What may come next: each rule takes scores (n, V) and returns scores, with −inf where a token is ruled out."""

import torch
from pydantic import Field
from torch import Tensor

from seqloom.config import Config

NEVER = float("-inf")


class SampleConfig(Config):
    """temperature 0 is greedy. top_p keeps the fewest tokens that have that share of the probability together."""

    temperature: float = Field(1.0, ge=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)
    max_new: int = Field(200, ge=1, le=1_000_000)
    min_new: int = Field(0, ge=0)
    repetition_penalty: float = Field(1.0, ge=1, le=10)  # on tokens that the sequence holds (Keskar et al., 2019)
    no_repeat: int = Field(0, ge=0, le=100)  # no n-gram of this length twice


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """The k highest scores; equal ones at the border by the lower id."""
    if k >= scores.shape[1]:
        return scores
    kept = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.full_like(scores, NEVER).scatter(1, kept, scores.gather(1, kept))


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """The fewest tokens, the likeliest first, whose probabilities sum to p or more; always one."""
    ordered, index = scores.sort(dim=1, descending=True, stable=True)
    share = ordered.double().softmax(1)
    before = share.cumsum(1) - share  # what the likelier tokens have together
    return torch.full_like(scores, NEVER).scatter(1, index, ordered.masked_fill(before >= p, NEVER))


def penalise_repetition(scores: Tensor, seen: list[list[int]], penalty: float) -> Tensor:
    scores = scores.clone()
    for row, tokens in zip(scores, seen, strict=True):
        index = torch.tensor(sorted(set(tokens)), device=scores.device)
        values = row[index]
        row[index] = torch.where(values > 0, values / penalty, values * penalty)
    return scores


def forbid_repeats(scores: Tensor, seen: list[list[int]], size: int) -> Tensor:
    """No n-gram of `size` tokens comes twice in a sequence."""
    scores = scores.clone()
    for row, tokens in zip(scores, seen, strict=True):
        begin = tokens[len(tokens) - size + 1 :] if size > 1 else []
        if len(tokens) < size - 1:
            continue
        for i in range(len(tokens) - size + 1):
            if tokens[i : i + size - 1] == begin:
                row[tokens[i + size - 1]] = NEVER
    return scores
