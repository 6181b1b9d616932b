"""Sampling: one loop for greedy and random decoding, for recurrent models and Transformers alike.

Each sample draws from a generator of its own, seeded with (seed, its number): what it says does not depend on how many
others are drawn beside it. A Transformer that has filled its context goes on from the second half of it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.batch import select
from seqloom.decode.rules import NEVER, NOTHING, SampleConfig, keep_top_k, keep_top_p, restrain
from seqloom.decode.step import Steps
from seqloom.randomness import derive_seed


class Drawn(NamedTuple):
    """One new token of one sample."""

    sample: int
    token: int
    log_prob: float  # under the model itself, before any rule
    last: bool


class Texts:
    """All that each sample has read, on the device: what the rules look at. Rows are samples that still go on."""

    def __init__(self, prompts: list[list[int]], room: int, device: torch.device):
        longest = max(len(prompt) for prompt in prompts)
        rows = [prompt + [NOTHING] * (longest + room - len(prompt)) for prompt in prompts]
        self.seen = torch.tensor(rows, device=device)
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)

    def append(self, tokens: Tensor) -> None:
        self.seen.scatter_(1, self.lengths[:, None], tokens[:, None])
        self.lengths += 1

    def keep(self, index: Tensor) -> None:
        self.seen, self.lengths = self.seen[index], self.lengths[index]


@torch.inference_mode()
def sample(
    stepper: Steps,
    prompts: list[list[int]],
    config: SampleConfig,
    seed: int,
    end_id: int,
    banned: list[int],
    context: Any = None,
) -> Iterator[Drawn]:
    """Continues the prompts, token by token; `banned` are never drawn. The end token is given, and ends its sample.

    With a context, of one source for each prompt, a sample that has filled the model's length ends there.

    On a GPU the next step is on its way before the host has read the tokens of this one: neither waits for the other.
    """
    limit, device = stepper.limit, stepper.device
    texts = [list(prompt) for prompt in prompts]
    alive: list[int | None] = list(range(len(prompts)))  # the sample in each row; None: it has ended
    capacity = max(len(text) for text in texts) + config.max_new
    read = Texts(texts, config.max_new, device) if config.repetition_penalty > 1 or config.no_repeat else None
    never = torch.tensor(banned, dtype=torch.long, device=device)
    too_early = torch.tensor([*banned, end_id], device=device)
    slides = limit if context is None else None
    begin = [clipped(text, slides) for text in texts]
    scores, state, _ = stepper.start(begin, min(capacity, limit or capacity), context)
    held = torch.tensor([len(text) for text in begin], device=device)  # tokens in the state
    most = int(held.max())
    for made in range(config.max_new):
        last = made + 1 == config.max_new
        allowed = scores.index_fill(1, too_early if made < config.min_new else never, NEVER)
        points = None if config.temperature == 0 else draw_points(seed, alive, made).to(device)
        chosen = choose(allowed, read, config, points, end_id)
        drawn = torch.stack((chosen.double(), scores.log_softmax(1).gather(1, chosen[:, None])[:, 0].double()))
        if read is not None:
            read.append(chosen)
        ahead = stepper.graphed and not last and (limit is None or most < limit)
        if ahead:
            drawn = drawn.to("cpu", non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
            scores, state, _ = stepper.step(chosen, held, state)
            arrived.synchronize()
        numbers, log_probs = drawn.tolist()
        ended = []
        for i, token, log_prob in zip(alive, map(int, numbers), log_probs, strict=True):
            if i is not None:
                texts[i].append(token)
                full = context is not None and limit is not None and len(texts[i]) > limit
                ended.append(last or full or token == end_id)
                yield Drawn(i, token, log_prob, ended[-1])
            else:
                ended.append(True)
        alive = [None if over else i for i, over in zip(alive, ended, strict=True)]
        going = [row for row, i in enumerate(alive) if i is not None]
        if not going or last:
            return
        if len(going) < stepper.worth_keeping * len(alive):  # finished samples leave the batch
            index = torch.tensor(going, device=device)
            state, chosen, held, scores = select(state, index), chosen[index], held[index], scores[index]
            alive = [alive[row] for row in going]
            if read is not None:
                read.keep(index)
        if slides is not None and most >= slides:
            kept = [clipped(texts[i], slides) if i is not None else [end_id] for i in alive]
            scores, state, _ = stepper.start(kept, slides)
            held = torch.tensor([len(text) for text in kept], device=device)
            most = int(held.max())
            continue
        if not ahead:
            scores, state, _ = stepper.step(chosen, held, state)
        held = (
            held + 1 if limit is None else (held + 1).clamp(max=limit - 1)
        )  # those that have ended may still be there
        most += 1


BLOCK = 64  # draws of one generator


def draw_points(seed: int, samples: list[int | None], made: int) -> Tensor:
    """(n,) a point in [0, 1) for each sample's next token: a function of the seed, its number and how many it has."""
    block, place = divmod(made, BLOCK)
    return torch.stack([_points(seed, -1 if i is None else i, block)[place] for i in samples])


@lru_cache(maxsize=10_000)
def _points(seed: int, sample: int, block: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, sample, block))
    return torch.rand(BLOCK, dtype=torch.float64, generator=generator)


def clipped(text: list[int], limit: int | None) -> list[int]:
    """What a model with a limited context still reads of a text: all of it, or its last tokens, half the context."""
    return text if limit is None or len(text) < limit else text[-max(1, limit // 2) :]


def choose(scores: Tensor, read: Texts | None, config: SampleConfig, points: Tensor | None, end_id: int) -> Tensor:
    """(n,) the next tokens: the likeliest ones, or those at the points (n,) of the distribution."""
    if read is not None:
        scores = restrain(scores, read.seen, read.lengths, config, end_id)
    if points is None:
        return scores.argmax(1)
    scores = scores / config.temperature
    if config.top_k is not None:
        scores = keep_top_k(scores, config.top_k)
    if config.top_p is not None:
        scores = keep_top_p(scores, config.top_p)
    return pick(scores, points)


def pick(scores: Tensor, points: Tensor) -> Tensor:
    """The token into whose stretch of [0, 1) each point falls, when the probabilities are laid end to end."""
    reached = scores.double().softmax(1).cumsum(1)
    index = torch.searchsorted(reached, (points * reached[:, -1])[:, None], right=True).flatten()
    # a point at the very end must not fall on a ruled-out token behind the last possible one
    last = scores.shape[1] - 1 - (scores > NEVER).flip(1).int().argmax(1)
    return torch.minimum(index, last)
