"""Sampling: one loop for greedy and random decoding, for recurrent models and Transformers alike.

Each sample draws from a generator of its own, seeded with (seed, its number): what it says does not depend on how many
others are drawn beside it. A Transformer that has filled its context goes on from the second half of it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.batch import select
from seqloom.batches.loader import mix
from seqloom.decode.rules import NEVER, SampleConfig, forbid_repeats, keep_top_k, keep_top_p, penalise_repetition
from seqloom.decode.step import Stepper


class Drawn(NamedTuple):
    """One new token of one sample."""

    sample: int
    token: int
    log_prob: float  # under the model itself, before any rule
    last: bool


@torch.no_grad()
def sample(
    stepper: Stepper, prompts: list[list[int]], config: SampleConfig, seed: int, end_id: int, banned: list[int]
) -> Iterator[Drawn]:
    """Continues the prompts, token by token; `banned` are never drawn. The end token is given, and ends its sample."""
    limit = stepper.backbone.max_len
    generators = [torch.Generator().manual_seed(mix(seed, i)) for i in range(len(prompts))]
    texts = [list(prompt) for prompt in prompts]  # all that each sample has read
    alive = list(range(len(prompts)))
    capacity = max(len(text) for text in texts) + config.max_new
    scores, state = stepper.start([clipped(text, limit) for text in texts], min(capacity, limit or capacity))
    held = [len(clipped(text, limit)) for text in texts]  # tokens in the state
    for made in range(config.max_new):
        log_probs = scores.log_softmax(1)
        allowed = scores.clone()
        allowed[:, banned] = NEVER
        if made < config.min_new:
            allowed[:, end_id] = NEVER
        chosen = choose(allowed, [texts[i] for i in alive], config, [generators[i] for i in alive])
        tokens = chosen.tolist()
        values = log_probs.gather(1, chosen[:, None]).flatten().tolist()
        for i, token, value in zip(alive, tokens, values, strict=True):
            texts[i].append(token)
            yield Drawn(i, token, value, token == end_id or made + 1 == config.max_new)
        going = [row for row, token in enumerate(tokens) if token != end_id]
        if not going or made + 1 == config.max_new:
            return
        if len(going) < len(alive):  # finished samples leave the batch
            index = torch.tensor(going, device=stepper.device)
            state, chosen = select(state, index), chosen[index]
            alive, held = [alive[row] for row in going], [held[row] for row in going]
        if limit is not None and max(held) >= limit:
            kept = [clipped(texts[i], limit) for i in alive]
            scores, state = stepper.start(kept, limit)
            held = [len(text) for text in kept]
        else:
            scores, state = stepper.step(chosen, torch.tensor(held, device=stepper.device), state)
            held = [n + 1 for n in held]


def clipped(text: list[int], limit: int | None) -> list[int]:
    """What a model with a limited context still reads of a text: all of it, or its last tokens, half the context."""
    return text if limit is None or len(text) < limit else text[-max(1, limit // 2) :]


def choose(scores: Tensor, seen: list[list[int]], config: SampleConfig, generators: list[torch.Generator]) -> Tensor:
    """(n,) the next tokens."""
    if config.repetition_penalty > 1:
        scores = penalise_repetition(scores, seen, config.repetition_penalty)
    if config.no_repeat:
        scores = forbid_repeats(scores, seen, config.no_repeat)
    if config.temperature == 0:
        return scores.argmax(1)
    scores = scores / config.temperature
    if config.top_k is not None:
        scores = keep_top_k(scores, config.top_k)
    if config.top_p is not None:
        scores = keep_top_p(scores, config.top_p)
    points = torch.stack([torch.rand((), dtype=torch.float64, generator=generator) for generator in generators])
    return pick(scores, points.to(scores.device))


def pick(scores: Tensor, points: Tensor) -> Tensor:
    """The token into whose stretch of [0, 1) each point falls, when the probabilities are laid end to end."""
    reached = scores.double().softmax(1).cumsum(1)
    index = torch.searchsorted(reached, (points * reached[:, -1])[:, None], right=True).flatten()
    # a point at the very end must not fall on a ruled-out token behind the last possible one
    last = scores.shape[1] - 1 - (scores > NEVER).flip(1).int().argmax(1)
    return torch.minimum(index, last)
