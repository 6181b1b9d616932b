"""Sampling: one loop for greedy and random decoding, for recurrent models and Transformers alike.

Each text that is continued has its own rules and its own random numbers, a function of its seed, its number under that seed and
how many tokens it has, so that it does not depend on which others are continued at the same time: texts may join and leave
between two steps. A Transformer that has filled its context continues from the second half of it.
"""

import copy
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.batch import State, exact, join, replace, select, to_device
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
        self.ids = upload(rows, device)
        self.lengths = upload([len(prompt) for prompt in prompts], device)

    def append(self, tokens: Tensor) -> None:
        self.ids.scatter_(1, self.lengths[:, None], tokens[:, None])
        self.lengths += 1

    def keep(self, index: Tensor) -> None:
        self.ids, self.lengths = self.ids[index], self.lengths[index]

    def of(self, index: Tensor) -> "SeenTokens":
        """Those of some rows."""
        found = copy.copy(self)
        found.keep(index)
        return found


@dataclass(eq=False)
class Row:
    """A text that is being continued."""

    text: list[int]  # grows; at first the prompt, which is not empty
    config: SampleConfig
    seed: int = 0
    number: int = 0  # of the sample under that seed
    made: int = 0  # new tokens
    chars: Tensor | None = None  # (L, C) of the prompt, for a model that reads characters

    @property
    def is_last(self) -> bool:
        """Whether its next token is the last that it may have."""
        return self.made + 1 >= self.config.max_new

    @property
    def limits_repetition(self) -> bool:
        return self.config.repetition_penalty > 1 or bool(self.config.no_repeat)


class Drawn(NamedTuple):
    """One new token of a row."""

    row: Row
    token: int
    log_prob: float  # under the model itself, before any rule
    last: bool


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
    """
    rows = Rows(stepper, end_id, banned)
    rows.admit([Row(list(prompt), config, seed, i) for i, prompt in enumerate(prompts)], context)
    while rows.running:
        for row, token, log_prob, last in rows.draw():
            yield SampledToken(row.number, token, log_prob, last)
        rows.advance()


class Rows:
    """The texts that are being continued, one per row. They are given new tokens by `draw` and read them by `advance`, one after
    the other; between these, others may be admitted, and any may be removed.

    Where texts come and go (`steady`), the row of one that has left stays for the next one, and there is room for longer ones:
    tensors keep their shapes, a step on a GPU its recorded graph, and no state is copied because of others. A short prompt that
    comes to them is read in their next steps, a token in each: reading it alone costs more than such a step.

    On a GPU the next step is launched before the host has read the tokens of this one, so that neither waits for the other.
    """

    def __init__(self, stepper: Steps, end_id: int, banned: Sequence[int], steady: bool = False):
        self.stepper, self.end_id, self.steady = stepper, end_id, steady
        self.limit, device = stepper.limit, stepper.device
        self.window = self.limit
        self.rows: list[Row | None] = []  # None: it has ended, or was removed
        self.held: list[int] = []  # how many tokens of each row are in the state
        self.rules: Rules | None = None  # of all rows; None: they have changed
        self.seen: SeenTokens | None = None  # where a rule asks for it
        self.banned = torch.tensor(banned, dtype=torch.long, device=device)
        self.scores = self.chosen = torch.empty(0, device=device)
        self.positions = torch.empty(0, dtype=torch.long, device=device)
        self.idle: list[int] = []  # rows without a text when they were counted last
        self.idle_places = self.positions
        self.state: Any = None
        self.unread: dict[int, list[int]] = {}  # by rows: what is left to read of their prompts, the first token last
        self.is_ahead = False  # the step after the last draw has been launched

    @property
    def running(self) -> list[Row]:
        return [row for row in self.rows if row is not None]

    # ---- joining and leaving

    def admit(self, fresh: Sequence[Row], context: Any = None) -> None:
        """Reads the prompts of further rows. context: with one source for each of them; only the first rows may have one."""
        if context is not None:
            self.window = None  # a context cannot be read again from a later start
        texts = [last_window(row.text, self.window) for row in fresh]
        capacity = max(len(text) + row.config.max_new for text, row in zip(texts, fresh, strict=True))
        capacity = max(ROOM, round_up(capacity, 2)) if self.steady else capacity
        capacity = min(capacity, self.limit or capacity)
        in_steps = context is None and self.can_read_in_steps(texts, fresh)
        if in_steps:
            state = self.stepper.empty(len(fresh), capacity)
            scores = self.scores.new_zeros(len(fresh), self.scores.shape[1])
        else:
            scores, state, _ = self.start(texts, capacity, fresh, context)
        places = [i for i, row in enumerate(self.rows) if row is None][: len(fresh)]
        places += range(len(self.rows), len(self.rows) + len(fresh) - len(places))
        size = max(len(self.rows), places[-1] + 1)
        self.extend(round_up(size, FEWER) if self.steady and self.stepper.graphed else size, scores, state)
        self.put(places, fresh, [0 if in_steps else len(text) for text in texts], scores, state)
        if in_steps:
            self.unread |= {i: text[::-1] for i, text in zip(places, texts, strict=True)}
        self.note_seen()

    def can_read_in_steps(self, texts: list[list[int]], fresh: Sequence[Row]) -> bool:
        return (
            self.steady
            and bool(self.running)
            and max(map(len, texts)) <= SHORT
            and not any(row.limits_repetition or row.chars is not None for row in fresh)
        )

    def extend(self, size: int, scores: Tensor, state: State) -> None:
        """As many rows as that: the new ones without a text, holding copies of one of a state."""
        count = size - len(self.rows)
        if not count:
            return
        index = torch.zeros(count, dtype=torch.long, device=self.stepper.device)
        scores, state, positions = scores[index], select(state, index), index
        if self.rows:
            state, scores = join(self.state, state), torch.cat((self.scores, scores))
            positions = torch.cat((self.positions, index))
        self.state, self.scores, self.positions = state, scores, positions
        self.rows, self.held = [*self.rows, *[None] * count], [*self.held, *[0] * count]

    def put(self, places: list[int], rows: Sequence[Row | None], held: list[int], scores: Tensor, state: State) -> None:
        """Rows in the places of others, with all that was read of them."""
        index = upload(places, self.stepper.device, torch.long)
        self.state = replace(self.state, index, state)
        self.scores.index_copy_(0, index, scores)
        self.positions.index_copy_(0, index, upload(held, self.stepper.device))
        for i, row, size in zip(places, rows, held, strict=True):
            self.rows[i], self.held[i] = row, size
            self.unread.pop(i, None)
        self.rules = None

    def start(self, texts: list[list[int]], capacity: int, rows: Sequence[Row], context: Any = None) -> Any:
        spelt = [row.chars for row in rows if row.chars is not None]
        if spelt:
            self.stepper.characters = torch.cat(spelt).to(self.stepper.device)  # type: ignore[attr-defined]
        return self.stepper.start(texts, capacity, context)

    def note_seen(self) -> None:
        running = self.running
        if any(row.limits_repetition for row in running):
            texts = [row.text if row is not None else [self.end_id] for row in self.rows]
            room = max(row.config.max_new - row.made for row in running) + SHORT  # what is read in steps is noted twice
            self.seen = SeenTokens(texts, room, self.stepper.device)
        else:
            self.seen = None

    def remove(self, row: Row) -> None:
        i = self.rows.index(row)
        self.rows[i] = None
        self.unread.pop(i, None)

    def compact(self, kept: list[int]) -> None:
        """Keep these rows alone."""
        if len(kept) == len(self.rows):
            return
        index = upload(kept, self.stepper.device, torch.long)
        self.rows, self.held, self.rules = [self.rows[i] for i in kept], [self.held[i] for i in kept], None
        self.unread = {after: self.unread[i] for after, i in enumerate(kept) if i in self.unread}
        if not kept:
            self.state, self.seen = None, None
            return
        self.state, self.scores, self.positions = select(self.state, index), self.scores[index], self.positions[index]
        if self.chosen.shape[0] > max(kept):
            self.chosen = self.chosen[index]
        if self.seen is not None:
            self.seen.keep(index)

    def drop_idle(self) -> None:
        """Rows without a text go where they cost more than a smaller batch does."""
        running = [i for i, row in enumerate(self.rows) if row is not None]
        if not self.steady:
            if len(running) < self.stepper.worth_keeping * len(self.rows):
                self.compact(running)
            return
        idle = [i for i, row in enumerate(self.rows) if row is None]
        if self.stepper.graphed:  # a graph for a few sizes, far apart
            fewer = round_up(len(running), FEWER)
            if fewer * FEWER < len(self.rows):
                self.compact([*running, *idle[: fewer - len(running)]])
        elif len(idle) > IDLE_SHARE * len(self.rows):
            self.compact(running)

    # ---- the next tokens

    def draw(self) -> list[Drawn]:
        """A new token for every running row that has read its prompt, in its text then. Rows whose last one it is have left."""
        reading = set(self.unread)
        chosen = self.choose()
        self.is_ahead = self.can_step_ahead and not all(row.is_last for row in self.running)
        tokens, log_probs = self.read_while_stepping(chosen) if self.is_ahead else chosen.tolist()
        return self.append(list(map(int, tokens)), log_probs, reading)

    def choose(self) -> Tensor:
        """Choose the next tokens: (2, n) their ids and log-probabilities."""
        rules = self.rules = self.rules or Rules.of(self.rows, self.stepper.device)
        allowed = self.scores.index_fill(1, self.banned, NEVER)
        early = [i for i in rules.begin_long if (row := self.rows[i]) is not None and row.made < row.config.min_new]
        if early:
            allowed[early, self.end_id] = NEVER
        if self.seen is not None:
            for config, places in rules.repeating:
                seen = self.seen.of(places)
                allowed[places] = limit_repetition(allowed[places], seen.ids, seen.lengths, config, self.end_id)
        self.chosen = choose(allowed, rules, self.points() if rules.draws else None)
        if self.unread:
            self.read_on()
        log_probs = self.scores.log_softmax(1).gather(1, self.chosen[:, None])[:, 0]
        if self.seen is not None:
            self.seen.append(self.chosen)
        return torch.stack((exact(self.chosen), exact(log_probs)))

    def read_on(self) -> None:
        """Rows that have not read their prompts read its next token, whatever was chosen."""
        tokens = {i: left.pop() for i, left in self.unread.items()}
        self.unread = {i: left for i, left in self.unread.items() if left}
        places, values = (upload(list(each), self.chosen.device) for each in (tokens, tokens.values()))
        self.chosen = self.chosen.index_copy(0, places, values)

    def points(self) -> Tensor:
        """(n,) a random number for each row."""
        return torch.tensor([0.0 if row is None else draw_point(row) for row in self.rows], dtype=torch.float64)

    @property
    def can_step_ahead(self) -> bool:
        return self.stepper.graphed and (self.limit is None or self.longest < self.limit)

    @property
    def longest(self) -> int:
        return max(held for row, held in zip(self.rows, self.held, strict=True) if row is not None)

    def read_while_stepping(self, chosen: Tensor) -> list[list[float]]:
        """Copy the chosen tokens to the host while the next step is computed."""
        copied = chosen.to("cpu", non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self.step()
        arrived.synchronize()
        return copied.tolist()

    def append(self, tokens: list[int], log_probs: list[float], reading: set[int]) -> list[Drawn]:
        drawn = []
        for i, (token, log_prob) in enumerate(zip(tokens, log_probs, strict=True)):
            row = self.rows[i]
            if row is None or i in reading:
                continue
            last = row.is_last or token == self.end_id
            row.text.append(token)
            row.made += 1
            last = last or self.exceeds_limit(row.text)
            drawn.append(Drawn(row, token, log_prob, last))
            if last:
                self.rows[i] = None
        return drawn

    def exceeds_limit(self, text: list[int]) -> bool:
        """Whether a text is longer than the model can read, where the window cannot be moved."""
        return self.window is None and self.limit is not None and len(text) > self.limit

    # ---- reading them

    def advance(self) -> None:
        """Read the tokens that were drawn last."""
        if not self.running:
            self.compact([])
            return
        self.drop_idle()
        full = self.full
        if len(full) < len(self.running):
            if not self.is_ahead:
                self.step()
            self.count_token()
        if full:
            self.read_again(full)

    @property
    def full(self) -> list[int]:
        """The rows that have filled their context."""
        if self.window is None:
            return []
        return [
            i
            for i, (row, held) in enumerate(zip(self.rows, self.held, strict=True))
            if row is not None and held >= self.window
        ]

    def step(self) -> None:
        self.scores, self.state, _ = self.stepper.step(self.chosen, self.positions, self.state)

    def count_token(self) -> None:
        """Rows without a text may still be there: they read their first place again and again."""
        after = self.positions + 1
        idle = [i for i, row in enumerate(self.rows) if row is None]
        if idle and idle != self.idle:
            self.idle, self.idle_places = idle, upload(idle, self.stepper.device)
        if idle:
            after.index_fill_(0, self.idle_places, 0)
        self.positions = after if self.limit is None else after.clamp(max=self.limit - 1)
        self.held = [held + 1 for held in self.held]

    def read_again(self, full: list[int]) -> None:
        """Read the last half of the context of some rows again, so that there is room for new tokens."""
        assert self.window is not None
        rows = [self.rows[i] for i in full]
        kept = [last_window(row.text, self.window) for row in rows if row is not None]
        scores, state, _ = self.start(kept, self.window, [])
        self.put(full, rows, [len(text) for text in kept], scores, state)


class Rules(NamedTuple):
    """How the next tokens of rows are chosen, for all of them at once."""

    greedy: Tensor | None  # (n,) rows that take the likeliest token; None: there are none
    temperature: Tensor  # (n, 1)
    top_k: Tensor | None  # (n, 1) where one has a limit
    top_p: Tensor | None  # (n, 1) where one has a limit
    draws: bool  # there are rows that are not greedy
    begin_long: list[int]  # rows that may not end at once
    repeating: list[tuple[SampleConfig, Tensor]]  # rules about repetition, and the rows that have them

    @classmethod
    def of(cls, rows: Sequence[Row | None], device: torch.device) -> "Rules":
        """Those of rows; where there is no text, those that cost least."""
        usual = next(row.config for row in rows if row is not None)
        configs = [usual if row is None else row.config for row in rows]

        def column(values: list[Any], kind: torch.dtype = torch.float32) -> Tensor:
            return upload(values, device, kind)[:, None]

        greedy = [config.temperature == 0 for config in configs]
        some_k, some_p = (any(getattr(config, name) for config in configs) for name in ("top_k", "top_p"))
        return cls(
            upload(greedy, device) if any(greedy) else None,
            column([max(config.temperature, COLDEST) if config.temperature else 1.0 for config in configs]),
            column([config.top_k or ALL for config in configs], torch.long) if some_k else None,
            column([config.top_p or ALL for config in configs], torch.float64) if some_p else None,
            not all(greedy),
            [i for i, config in enumerate(configs) if config.min_new],
            [(configs[places[0]], upload(places, device)) for places in repeating_alike(rows)],
        )


def repeating_alike(rows: Sequence[Row | None]) -> list[list[int]]:
    """The places of rows with the same rules about repetition."""
    groups: dict[tuple[float, int], list[int]] = {}
    for i, row in enumerate(rows):
        if row is not None and row.limits_repetition:
            groups.setdefault((row.config.repetition_penalty, row.config.no_repeat), []).append(i)
    return list(groups.values())


def upload(values: list[Any], device: torch.device, kind: torch.dtype | None = None) -> Tensor:
    """A tensor that is copied without waiting for what a GPU still computes: a step may be under way."""
    return to_device(torch.tensor(values, dtype=kind), device)


COLDEST = 1e-30  # a temperature; scores that are divided by a lower one are infinite, and have no distribution
ALL = 1 << 40  # of a vocabulary, or of a probability: no limit
SHORT = 8  # tokens of a prompt that is read in the steps of others
ROOM = 64  # tokens that rows have room for where texts come and go
FEWER = 4  # from one size of a recorded step to the next
IDLE_SHARE = 0.25  # of the rows that may wait for another text
BLOCK = 64  # random numbers that one generator gives


def draw_point(row: Row) -> float:
    """A point in [0, 1) for the next token of a row: a function of its seed, its number and how many it has."""
    block, place = divmod(row.made, BLOCK)
    return _points(row.seed, row.number, block)[place]


@lru_cache(maxsize=10_000)
def _points(seed: int, sample: int, block: int) -> "array[float]":
    generator = torch.Generator().manual_seed(derive_seed(seed, sample, block))
    return array("d", torch.rand(BLOCK, dtype=torch.float64, generator=generator).tolist())


def round_up(count: int, base: int) -> int:
    """To a power of the base."""
    found = 1
    while found < count:
        found *= base
    return found


def last_window(text: list[int], limit: int | None) -> list[int]:
    """The text if it fits into the context, otherwise its last tokens, half the context."""
    return text if limit is None or len(text) < limit else text[-max(1, limit // 2) :]


def choose(scores: Tensor, rules: Rules, points: Tensor | None) -> Tensor:
    """(n,) the next tokens: the most likely ones, or those at the points (n,) of the cumulative distribution."""
    if points is None:
        return scores.argmax(1)
    shaped = scores / rules.temperature
    if rules.top_k is not None:
        shaped = keep_top_k(shaped, rules.top_k)
    if rules.top_p is not None:
        shaped = keep_top_p(shaped, rules.top_p)
    drawn = invert_cdf(shaped, points)
    return drawn if rules.greedy is None else torch.where(rules.greedy, scores.argmax(1), drawn)


def invert_cdf(scores: Tensor, points: Tensor) -> Tensor:
    """The token at each point in [0, 1) of the cumulative distribution."""
    place = torch.device("cpu") if scores.device.type == "mps" else scores.device  # Apple GPUs have no fp64
    shares, points = scores.softmax(1).to(place), to_device(points, place)
    if place.type == "cuda" or shares.shape[0] == 1 or shares.numel() < FEW:
        reached = shares.cumsum(1, dtype=torch.float64)
        return place_above(reached, (points * reached[:, -1])[:, None])[:, 0].to(scores.device)
    # on a CPU cumulative sums of many numbers take thirty times as long as sums: first find the block, then the place in it
    n, size = shares.shape
    whole = size - size % SUMMED
    blocks = shares[:, :whole].view(n, -1, SUMMED).sum(2, dtype=torch.float64)
    reached = torch.cat((blocks, shares[:, whole:].sum(1, keepdim=True, dtype=torch.float64)), 1).cumsum(1)
    wanted = (points * reached[:, -1])[:, None]
    block = place_above(reached, wanted)
    wanted = wanted - torch.where(block > 0, reached.gather(1, (block - 1).clamp(min=0)), 0.0)
    tokens = block * SUMMED + torch.arange(SUMMED)
    inside = (
        shares.gather(1, tokens.clamp(max=size - 1)).masked_fill(tokens >= size, 0.0).cumsum(1, dtype=torch.float64)
    )
    return (block * SUMMED + place_above(inside, wanted))[:, 0].to(scores.device)


SUMMED = 64  # shares that are summed before any of them is looked at
FEW = 1 << 15  # shares whose cumulative sums torch does not divide among threads


def place_above(reached: Tensor, wanted: Tensor) -> Tensor:
    """(n, 1) the first place of each row (n, ·) of rising sums that is above the wanted one (n, 1), or where the last sum is
    reached: a point at the very end must not select an excluded token after the last possible one."""
    last = reached[:, -1:]
    wanted = torch.minimum(wanted, torch.nextafter(last, torch.zeros_like(last)))
    return torch.searchsorted(reached, wanted, right=True)
