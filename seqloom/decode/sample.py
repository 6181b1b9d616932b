"""Sampling: one loop for greedy and random decoding, for recurrent models and Transformers alike.

Each sample has its own random generator, seeded with (seed, its number), so that it does not depend on how many others there are.
A Transformer that has filled its context continues from the second half of it.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.batch import exact, select
from seqloom.decode.rules import NEVER, NOTHING, SampleConfig, keep_top_k, keep_top_p, limit_repetition
from seqloom.decode.step import Steps
from seqloom.randomness import derive_seed


class SampledToken(NamedTuple):
    """One new token of one sample."""

    sample: int
    token: int
    log_prob: float  # under the model itself, before any rule
    last: bool


class SeenTokens:
    """The tokens that each sample has so far, on the device, for the rules about repetition. One row per running sample."""

    def __init__(self, prompts: list[list[int]], room: int, device: torch.device):
        longest = max(len(prompt) for prompt in prompts)
        rows = [prompt + [NOTHING] * (longest + room - len(prompt)) for prompt in prompts]
        self.ids = torch.tensor(rows, device=device)
        self.lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)

    def append(self, tokens: Tensor) -> None:
        self.ids.scatter_(1, self.lengths[:, None], tokens[:, None])
        self.lengths += 1

    def keep(self, index: Tensor) -> None:
        self.ids, self.lengths = self.ids[index], self.lengths[index]


@torch.inference_mode()
def sample(
    stepper: Steps,
    prompts: list[list[int]],
    config: SampleConfig,
    seed: int,
    end_id: int,
    banned: list[int],
    context: Any = None,
) -> Iterator[SampledToken]:
    """Continue the prompts, token by token; `banned` are never sampled. The end token is given, and ends its sample.

    With a context, which has one source for each prompt, a sample ends when it has filled the model's length.

    On a GPU the next step is launched before the host has read the tokens of this one, so that neither waits for the other.
    """
    batch = SampleBatch(stepper, prompts, config, end_id, banned, context)
    for made in range(config.max_new):
        last = made + 1 == config.max_new
        points = None if config.temperature == 0 else draw_points(seed, batch.samples, made)
        chosen = batch.choose(points, made)
        ahead = not last and batch.can_step_ahead
        tokens, log_probs = batch.read_while_stepping(chosen) if ahead else chosen.tolist()
        yield from batch.append(list(map(int, tokens)), log_probs, last)
        if last or batch.is_finished:
            return
        batch.drop_finished()
        if batch.is_full:
            batch.restart()
        else:
            if not ahead:
                batch.step()
            batch.count_token()


class SampleBatch:
    """The samples that are being written, one per row."""

    def __init__(
        self,
        stepper: Steps,
        prompts: list[list[int]],
        config: SampleConfig,
        end_id: int,
        banned: list[int],
        context: Any,
    ):
        self.stepper, self.config, self.end_id = stepper, config, end_id
        self.limit, device = stepper.limit, stepper.device
        self.window = self.limit if context is None else None  # a context cannot be read again from a later start
        self.texts = [list(prompt) for prompt in prompts]
        self.samples: list[int | None] = list(range(len(prompts)))  # the sample in each row; None: it has ended
        repeats = config.repetition_penalty > 1 or config.no_repeat
        self.seen = SeenTokens(self.texts, config.max_new, device) if repeats else None
        self.banned = torch.tensor(banned, dtype=torch.long, device=device)
        self.banned_early = torch.tensor([*banned, end_id], device=device)  # before min_new tokens
        capacity = max(len(text) for text in self.texts) + config.max_new
        start = [last_window(text, self.window) for text in self.texts]
        self.scores, self.state, _ = stepper.start(start, min(capacity, self.limit or capacity), context)
        self.chosen = torch.empty(0, device=device)
        self.set_positions(start)

    def set_positions(self, texts: list[list[int]]) -> None:
        self.positions = torch.tensor([len(text) for text in texts], device=self.stepper.device)  # tokens in the state
        self.longest = int(self.positions.max())

    def choose(self, points: Tensor | None, made: int) -> Tensor:
        """Choose the next tokens: (2, n) their ids and log-probabilities."""
        allowed = self.scores.index_fill(1, self.banned_early if made < self.config.min_new else self.banned, NEVER)
        self.chosen = choose(allowed, self.seen, self.config, points, self.end_id)
        log_probs = self.scores.log_softmax(1).gather(1, self.chosen[:, None])[:, 0]
        if self.seen is not None:
            self.seen.append(self.chosen)
        return torch.stack((exact(self.chosen), exact(log_probs)))

    @property
    def can_step_ahead(self) -> bool:
        return self.stepper.graphed and (self.limit is None or self.longest < self.limit)

    def read_while_stepping(self, chosen: Tensor) -> list[list[float]]:
        """Copy the chosen tokens to the host while the next step is computed."""
        copied = chosen.to("cpu", non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.step()
        arrived.synchronize()
        return copied.tolist()

    def step(self) -> None:
        self.scores, self.state, _ = self.stepper.step(self.chosen, self.positions, self.state)

    def append(self, tokens: list[int], log_probs: list[float], last: bool) -> Iterator[SampledToken]:
        """Add a token to each running sample."""
        running: list[int | None] = []
        for i, token, log_prob in zip(self.samples, tokens, log_probs, strict=True):
            ended = True
            if i is not None:
                self.texts[i].append(token)
                ended = last or token == self.end_id or self.exceeds_limit(self.texts[i])
                yield SampledToken(i, token, log_prob, ended)
            running.append(None if ended else i)
        self.samples = running

    def exceeds_limit(self, text: list[int]) -> bool:
        """Whether a text is longer than the model can read, where the window cannot be moved."""
        return self.window is None and self.limit is not None and len(text) > self.limit

    @property
    def is_finished(self) -> bool:
        return all(i is None for i in self.samples)

    def drop_finished(self) -> None:
        """Remove the rows of finished samples, if there are enough of them."""
        running = [row for row, i in enumerate(self.samples) if i is not None]
        if len(running) >= self.stepper.worth_keeping * len(self.samples):
            return
        index = torch.tensor(running, device=self.stepper.device)
        self.state, self.chosen = select(self.state, index), self.chosen[index]
        self.positions, self.scores = self.positions[index], self.scores[index]
        self.samples = [self.samples[row] for row in running]
        if self.seen is not None:
            self.seen.keep(index)

    @property
    def is_full(self) -> bool:
        """Whether the context is full and has to move on."""
        return self.window is not None and self.longest >= self.window

    def restart(self) -> None:
        """Read the last half of the context again, so that there is room for new tokens."""
        assert self.window is not None
        kept = [last_window(self.texts[i], self.window) if i is not None else [self.end_id] for i in self.samples]
        self.scores, self.state, _ = self.stepper.start(kept, self.window)
        self.set_positions(kept)

    def count_token(self) -> None:
        after = self.positions + 1
        # rows of finished samples may still be there
        self.positions = after if self.limit is None else after.clamp(max=self.limit - 1)
        self.longest += 1


BLOCK = 64  # random numbers that one generator gives


def draw_points(seed: int, samples: list[int | None], made: int) -> Tensor:
    """(n,) a point in [0, 1) for each sample's next token: a function of the seed, its number and how many it has."""
    block, place = divmod(made, BLOCK)
    return torch.stack([_points(seed, -1 if i is None else i, block)[place] for i in samples])


@lru_cache(maxsize=10_000)
def _points(seed: int, sample: int, block: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, sample, block))
    return torch.rand(BLOCK, dtype=torch.float64, generator=generator)


def last_window(text: list[int], limit: int | None) -> list[int]:
    """The text if it fits into the context, otherwise its last tokens, half the context."""
    return text if limit is None or len(text) < limit else text[-max(1, limit // 2) :]


def choose(scores: Tensor, seen: SeenTokens | None, config: SampleConfig, points: Tensor | None, end_id: int) -> Tensor:
    """(n,) the next tokens: the most likely ones, or those at the points (n,) of the cumulative distribution."""
    if seen is not None:
        scores = limit_repetition(scores, seen.ids, seen.lengths, config, end_id)
    if points is None:
        return scores.argmax(1)
    scores = scores / config.temperature
    if config.top_k is not None:
        scores = keep_top_k(scores, config.top_k)
    if config.top_p is not None:
        scores = keep_top_p(scores, config.top_p)
    return invert_cdf(scores, points)


def invert_cdf(scores: Tensor, points: Tensor) -> Tensor:
    """The token at each point in [0, 1) of the cumulative distribution."""
    reached = exact(scores).softmax(1).cumsum(1)
    points = points.to(reached.device)
    index = torch.searchsorted(reached, (points * reached[:, -1])[:, None], right=True).flatten().to(scores.device)
    # a point at the very end must not select an excluded token after the last possible one
    last = scores.shape[1] - 1 - (scores > NEVER).flip(1).int().argmax(1)
    return torch.minimum(index, last)
