"""The thread that owns a model. Texts that are being written join and leave between two steps; other work is done between them,
calls of one kind together.

What anybody gets does not depend on who else asks: see `decode.sample.Rows`. A step that fails ends those that were in it, and
nothing else.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from seqloom.batch import pack, to_device, wide
from seqloom.decode.sample import Row, Rows, upload
from seqloom.decode.stream import TextStream
from seqloom.errors import SeqloomError, explain

PREFILL = 4096  # tokens of new prompts that are read at once, so that those who write do not wait long
CALL_TOKENS = 8192  # of calls that are computed together
# new texts are gathered so long while others are written: one prompt costs as much to read as eight
ADMIT_SECONDS = 0.02
SCORED_ROWS = 1024  # tokens whose distributions are computed at once


class Full(Exception):
    """Too many wait, or the server is closing."""


class Prompt(NamedTuple):
    """A text as the model reads it, the end token before it."""

    ids: list[int]
    unknown: list[str]  # the unknown words in it
    given: int  # how many of the last tokens the caller gave
    text: str
    begins: list[int]  # where the text of each of those begins, if it was asked


class Candidate(NamedTuple):
    token: int
    log_prob: float


class Piece(NamedTuple):
    """What a text has got by one step. end: empty, or why it ends: stop, length, timeout or error."""

    text: str
    token: int
    log_prob: float
    best: list[Candidate]
    begin: int = 0  # characters that were written before the token
    end: str = ""
    error: str = ""


class StopStrings:
    """Cuts a text before the first of some strings. Text that may be the beginning of one is held back."""

    def __init__(self, strings: Sequence[str]):
        self.strings, self.held = [each for each in strings if each], ""

    def push(self, piece: str) -> tuple[str, bool]:
        """The text that is sure by now, and whether a string has come."""
        if not self.strings:
            return piece, False
        text = self.held + piece
        places = [place for each in self.strings if (place := text.find(each)) >= 0]
        if places:
            return text[: min(places)], True
        keep = max((self.begun(text, each) for each in self.strings), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    @staticmethod
    def begun(text: str, string: str) -> int:
        """How many characters of a string stand at the end of a text."""
        longest = min(len(string) - 1, len(text))
        return next((size for size in range(longest, 0, -1) if text.endswith(string[:size])), 0)

    def close(self) -> str:
        return self.held


@dataclass(eq=False)
class Writing:
    """A text to be continued. emit is called in the engine's thread, with one Piece for each token."""

    row: Row
    emit: Callable[[Piece], None]
    stops: StopStrings
    prompt: str = ""  # the text that is continued
    num_best: int = 0  # candidates that are wanted with each token
    deadline: float = float("inf")
    cancelled: bool = False
    stream: TextStream | None = None
    asked: float = 0.0
    length: int = 0  # characters that were written


@dataclass(eq=False)
class Call:
    """Anything else: work(items) gives a result for each item. Calls with equal keys are done together."""

    key: tuple[Any, ...]
    items: list[Any]
    work: Callable[[list[Any]], Sequence[Any]]
    done: Callable[[list[Any] | Exception], None]
    tokens: int = 1
    cancelled: bool = False


@dataclass
class Counts:
    """For /metrics."""

    total: Counter[str] = field(default_factory=Counter)
    busy_seconds: float = 0.0


class Engine(threading.Thread):
    """rows: texts that are written at the same time; waiting: the most that may wait."""

    def __init__(self, run: Any, rows: int = 32, waiting: int = 256):
        super().__init__(daemon=True, name=f"engine of {run.folder.name}")
        self.run_of, self.most_rows, self.most_waiting = run, rows, waiting
        self.rows: Rows | None = None
        self.changed = threading.Condition()
        self.waiting: deque[Writing] = deque()
        self.calls: deque[Call] = deque()
        self.active: dict[Row, Writing] = {}
        self.is_open = True
        self.counts = Counts()
        self.after_step: Callable[[], None] = lambda: None  # called when all have got what a step has made

    # ---- from other threads

    def submit(self, *works: Writing | Call) -> None:
        """All of them, or none: raises Full. Those of one request may be more than there is room for: it would wait for ever."""
        with self.changed:
            if not self.is_open or len(self.waiting) + len(self.calls) >= self.most_waiting:
                raise Full
            for work in works:
                if isinstance(work, Writing):
                    work.asked = time.monotonic()
                    self.waiting.append(work)
            self.calls.extend(work for work in works if isinstance(work, Call))
            self.changed.notify()

    def close(self) -> None:
        """Take nothing more; what waits is still done."""
        with self.changed:
            self.is_open = False
            self.changed.notify()

    # ---- its own thread

    @torch.inference_mode()
    def run(self) -> None:
        while True:
            with self.changed:
                while self.is_open and not (self.waiting or self.calls or self.active):
                    self.changed.wait()
                if not (self.waiting or self.calls or self.active):
                    return
                fresh, calls = self.take_writings(), self.take_calls()
            began = time.monotonic()
            try:
                if fresh or self.active:
                    self.write(fresh)
            except Exception as error:
                self.fail([*self.active.values(), *fresh], error)
            if calls:
                self.answer(calls)
            self.after_step()
            self.counts.busy_seconds += time.monotonic() - began

    def take_writings(self) -> list[Writing]:
        found: list[Writing] = []
        tokens = 0
        is_few = bool(self.active) and 8 * len(self.waiting) < len(self.active)
        if is_few and (not self.waiting or time.monotonic() < self.waiting[0].asked + ADMIT_SECONDS):
            return []
        while self.waiting and len(self.active) + len(found) < self.most_rows:
            tokens += len(self.waiting[0].row.text)
            if found and tokens > PREFILL:
                break
            one = self.waiting.popleft()
            if not one.cancelled:
                found.append(one)
        return found

    def take_calls(self) -> list[Call]:
        """The first one, and those that can be done with it."""
        while self.calls and self.calls[0].cancelled:
            self.calls.popleft()
        if not self.calls:
            return []
        first, tokens = self.calls[0], 0
        found: list[Call] = []
        left: deque[Call] = deque()
        for call in self.calls:
            fits = call.key == first.key and (not found or tokens + call.tokens <= CALL_TOKENS)
            if fits and not call.cancelled:
                found.append(call)
                tokens += call.tokens
            elif not call.cancelled:
                left.append(call)
        self.calls = left
        return found

    def write(self, fresh: list[Writing]) -> None:
        rows = self.rows = self.rows or self.new_rows()
        if fresh:
            rows.admit([each.row for each in fresh])
            for each in fresh:
                each.stream = TextStream(self.run_of.tokenizer, each.row.text, each.prompt)
                self.active[each.row] = each
            self.counts.total["requests"] += len(fresh)
            self.counts.total["prompt_tokens"] += sum(len(each.row.text) for each in fresh)
        for each in [each for each in self.active.values() if each.cancelled]:
            self.leave(each.row)
            self.counts.total["cancelled"] += 1
        if not rows.running:
            rows.advance()
            return
        best, now = self.candidates(rows), time.monotonic()
        for row, token, log_prob, last in rows.draw():
            self.counts.total["tokens"] += 1
            self.give(row, token, log_prob, best.get(row, []), last, now)
        rows.advance()

    def new_rows(self) -> Rows:
        stepper, _, banned = self.run_of.begin("", 1)
        stepper.characters = None
        return Rows(stepper, self.run_of.tokenizer.end_id, banned, steady=True)

    def candidates(self, rows: Rows) -> dict[Row, list[Candidate]]:
        """The likeliest next tokens of those rows that want them."""
        wanted = [i for i, row in enumerate(rows.rows) if row is not None and self.active[row].num_best]
        if not wanted:
            return {}
        found: dict[Row, list[Candidate]] = {}
        log_probs = rows.scores[upload(wanted, rows.scores.device)].log_softmax(1)
        most = max(self.active[row].num_best for i in wanted if (row := rows.rows[i]) is not None)
        values, tokens = log_probs.topk(min(most, log_probs.shape[1]), dim=1)
        for i, own, ids in zip(wanted, values.tolist(), tokens.tolist(), strict=True):
            row = rows.rows[i]
            assert row is not None
            found[row] = [Candidate(*each) for each in zip(ids, own, strict=True)][: self.active[row].num_best]
        return found

    def give(self, row: Row, token: int, log_prob: float, best: list[Candidate], last: bool, now: float) -> None:
        """Hand out a token that was drawn."""
        writing = self.active[row]
        assert writing.stream is not None
        ended = token == self.run_of.tokenizer.end_id
        end = "stop" if ended else "length" if last else "timeout" if now > writing.deadline else ""
        piece = "" if ended else writing.stream.push(token)
        text, stopped = writing.stops.push(piece + (writing.stream.close() if end else ""))
        if stopped:
            end = "stop"
        elif end:
            text += writing.stops.close()
        writing.emit(Piece(text, token, log_prob, best, writing.length, end))
        writing.length += len(piece)
        if end:
            self.leave(row)

    def leave(self, row: Row) -> None:
        assert self.rows is not None
        del self.active[row]
        if row in self.rows.rows:
            self.rows.remove(row)

    def fail(self, writings: list[Writing], error: Exception) -> None:
        """Tell everybody whose text was in a step that failed, and begin with an empty state."""
        self.counts.total["failures"] += 1
        reason, _ = explain(error)
        for each in dict.fromkeys(writings):
            each.emit(Piece("", 0, 0.0, [], end="error", error=reason))
        self.active, self.rows = {}, None

    def answer(self, calls: list[Call]) -> None:
        """Calls together; one that cannot be answered must not keep the others from it."""
        self.counts.total["calls"] += len(calls)
        try:
            found = list(calls[0].work([item for call in calls for item in call.items]))
        except Exception as error:
            if len(calls) > 1:
                for call in calls:
                    self.answer([call])
                return
            if not isinstance(error, SeqloomError):
                self.counts.total["failures"] += 1
            calls[0].done(error)
            return
        at = 0
        for call in calls:
            call.done(found[at : at + len(call.items)])
            at += len(call.items)

    # ---- reading

    def read(self, prompts: Sequence["Prompt"], num_best: int) -> list[list[tuple[float, list[Candidate]]]]:
        """Of left-to-right models: for each token of a prompt but the first log p, and the likeliest ones in its place."""
        run, learner = self.run_of, self.run_of.learner
        batch = pack([prompt.ids for prompt in prompts])
        spelt = run.spell(batch.ids.numpy(), [word for prompt in prompts for word in prompt.unknown])
        batch = to_device(batch._replace(chars=None if spelt is None else torch.from_numpy(spelt)), run.device)
        hidden = learner.backbone(batch).hidden
        following = torch.cat((batch.ids[1:], batch.ids[:1]))
        rows: list[tuple[float, list[Candidate]]] = []
        for part, targets in zip(hidden.split(SCORED_ROWS), following.split(SCORED_ROWS), strict=True):
            log_probs = wide(learner.softmax(part)).log_softmax(1)
            own = log_probs.gather(1, targets[:, None])[:, 0].tolist()
            values, ids = log_probs.topk(min(max(num_best, 1), log_probs.shape[1]), dim=1)
            for log_prob, value, token in zip(own, values.tolist(), ids.tolist(), strict=True):
                rows.append((log_prob, [Candidate(*each) for each in zip(token, value, strict=True)][:num_best]))
        self.counts.total["scored_tokens"] += len(rows)
        found, at = [], 0
        for prompt in prompts:
            found.append(rows[at : at + len(prompt.ids) - 1])
            at += len(prompt.ids)
        return found
