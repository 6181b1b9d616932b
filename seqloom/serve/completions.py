"""OpenAI's completions: texts continued or scored by a left-to-right model, at once or as a stream."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import Row
from seqloom.decode.stream import TextStream
from seqloom.serve.engine import Call, Candidate, Engine, Full, Piece, Prompt, StopStrings, Writing
from seqloom.serve.mailbox import Mailbox
from seqloom.serve.messages import Completion, Refused, answer, encode
from seqloom.tokens.tokenizer import Tokenizer

MOST_TOKENS = 65_536  # of all prompts of a call
MOST_PROMPTS = 256
SHORT_PROMPT = 1000  # characters

_numbers = itertools.count(1)


class LogProbs(NamedTuple):
    """Of some tokens in a row."""

    tokens: list[int]
    begins: list[int]  # where the text of each begins, in characters of the whole answer
    log_probs: list[float | None]
    best: list[list[Candidate] | None]

    def followed_by(self, others: "LogProbs") -> "LogProbs":
        return LogProbs(
            self.tokens + others.tokens,
            self.begins + others.begins,
            self.log_probs + others.log_probs,
            self.best + others.best,
        )


@dataclass
class Choice:
    """One of the texts that are asked for."""

    prompt: Prompt
    unsent: str = ""  # text that is not in an answer yet
    is_echoed: bool = False  # the prompt is in an answer
    sent: int = 0  # tokens whose probabilities are
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    best: list[list[Candidate]] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)  # where the text of each token begins in the new text
    read: list[tuple[float, list[Candidate]]] | None = None  # of the prompt
    finish: str | None = None

    def take(self, piece: Piece) -> None:
        if piece.end == "error":
            raise Refused(500, f"the model failed: {piece.error}", kind="server_error")
        self.unsent += piece.text
        self.begins.append(piece.begin)
        self.tokens.append(piece.token)
        self.log_probs.append(piece.log_prob)
        self.best.append(piece.best)
        if piece.end:
            self.finish = "stop" if piece.end == "stop" else "length"


class Answering:
    """One call: its choices, and the work that is still to be done for them."""

    def __init__(
        self, engine: Engine, ask: Completion, prompts: list[Prompt], mailbox: Mailbox, seconds: float, most_new: int
    ):
        self.engine, self.ask, self.run, self.mailbox = engine, ask, engine.run_of, mailbox
        self.changed = asyncio.Event()  # there is something to send
        self.unsent: list[bytes] = []  # events of a stream
        self.failure: Refused | None = None
        self.left_alone = False  # nobody waits for the answer any more
        self.deadline = time.monotonic() + seconds
        max_new = 16 if ask.max_tokens is None else ask.max_tokens
        if max_new > most_new:
            raise Refused(400, f"max_tokens = {max_new}: this server writes at most {most_new:,}", "max_tokens")
        if max_new == 0 and not ask.echo:
            raise Refused(
                400, "max_tokens = 0 writes nothing: ask with echo and logprobs to score a text", "max_tokens"
            )
        copies = [prompt for prompt in prompts for _ in range(ask.n or 1)]
        self.choices = [Choice(prompt, finish=None if max_new else "length") for prompt in copies]
        self.works: list[Writing | Call] = []
        for i, choice in enumerate(self.choices):
            if max_new:
                self.works.append(self.writing(i, choice.prompt, max_new))
            if self.ask.reads_prompts:
                self.works.append(self.reading(i, choice.prompt))
        self.left = len(self.works)
        if not self.works:  # a prompt is given back, and nothing else is asked
            self.changed.set()
        self.head = {
            "id": f"cmpl-{next(_numbers)}", "object": "text_completion", "created": int(time.time()), "model": ask.model,
        }  # fmt: skip
        self.event_head = b"data: " + encode(self.head)[:-1] + b',"choices":[{"index":'

    def writing(self, i: int, prompt: Prompt, max_new: int) -> Writing:
        ask = self.ask
        config = SampleConfig(
            max_new=max_new,
            temperature=1.0 if ask.temperature is None else ask.temperature,
            top_k=ask.top_k,
            top_p=None if ask.top_p in (None, 1.0) else ask.top_p,
        )
        spelt = self.run.spell(prompt.ids, prompt.unknown)
        chars = None if spelt is None else torch.from_numpy(spelt)
        row = Row(list(prompt.ids), config, ask.seed or 0, i % (ask.n or 1), chars=chars)
        stops = [ask.stop] if isinstance(ask.stop, str) else ask.stop or []
        return Writing(row, self.emitter(i), StopStrings(stops), prompt.text, ask.logprobs or 0, self.deadline)

    def reading(self, i: int, prompt: Prompt) -> Call:
        limit = self.run.learner.backbone.max_len
        if limit is not None and len(prompt.ids) - 1 > limit:
            raise Refused(400, f"the model reads {limit} tokens, and a prompt has {len(prompt.ids) - 1}", "prompt")
        num_best = self.ask.logprobs or 0
        emit = self.emitter(i)
        return Call(
            ("read", num_best),
            [prompt],
            lambda prompts: self.engine.read(prompts, num_best),
            lambda found: emit(found if isinstance(found, Exception) else found[0]),
            tokens=len(prompt.ids),
        )

    def emitter(self, i: int) -> Any:
        """Called in the engine's thread."""

        def emit(event: Any) -> None:
            self.mailbox.put(self, i, event, urgent=not isinstance(event, Piece) or bool(event.end))

        return emit

    def receive(self, events: list[tuple[int, Any]]) -> None:
        """What came from the engine, in the loop."""
        try:
            for i, event in events:
                self.take(i, event)
        except Refused as refused:
            self.failure = refused
        if self.ask.stream:
            self.unsent += [self.event(i) for i in dict.fromkeys(i for i, _ in events) if self.has_news(i)]
        if self.ask.stream or not self.left or self.failure is not None:
            self.changed.set()

    def has_news(self, i: int) -> bool:
        """Whether a stream can send anything of a choice. A prompt whose tokens are read comes first, with them."""
        choice = self.choices[i]
        if self.ask.reads_prompts and not choice.is_echoed:
            return choice.read is not None
        return bool(choice.unsent or choice.finish)

    def take(self, i: int, event: Any) -> None:
        choice = self.choices[i]
        if isinstance(event, Exception):
            raise Refused(500, "the model failed", kind="server_error")
        if not isinstance(event, Piece):
            choice.read = event
            self.left -= 1
            return
        choice.take(event)
        self.left -= bool(event.end)

    def cancel(self) -> None:
        for work in self.works:
            work.cancelled = True

    # ---- answers

    async def respond(self, request: Request) -> Response:
        try:
            self.engine.submit(*self.works)
        except Full:
            raise Refused(429, "too many requests are waiting: try again", kind="rate_limit_exceeded") from None
        if self.ask.stream:
            return Streamed(self)
        watcher = asyncio.ensure_future(until_gone(request.receive))
        ready = asyncio.ensure_future(self.changed.wait())
        waiting: set[asyncio.Future[Any]] = {ready, watcher}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                return Response(status_code=499)
        finally:
            watcher.cancel()
            ready.cancel()
            self.cancel()
        if self.failure is not None:
            raise self.failure
        choices = [self.choice_record(i, choice) for i, choice in enumerate(self.choices)]
        return answer(self.head | {"choices": choices, "usage": self.usage()})

    async def stream(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Parts of the answer, and whether more will follow, until the client leaves."""
        if self.ask.echo and not self.ask.reads_prompts:
            shown = [self.event(i) for i, choice in enumerate(self.choices) if not choice.is_echoed]
            yield b"".join(shown), True
        is_over = False
        while not is_over:  # everything may be there before the first of it is sent
            await self.changed.wait()
            self.changed.clear()
            if self.left_alone:
                return
            is_over = not self.left or self.failure is not None
            ready, self.unsent = self.unsent, []
            if is_over:
                ready += self.last_events()
            if ready:
                yield b"".join(ready), not is_over

    def leave(self) -> None:
        """The client has gone."""
        self.left_alone = True
        self.cancel()
        self.changed.set()

    def last_events(self) -> list[bytes]:
        if self.failure is not None:  # the status was sent long ago
            return [b"data: " + bytes(self.failure.response().body) + b"\n\n"]
        if not (self.ask.stream_options or {}).get("include_usage"):
            return [b"data: [DONE]\n\n"]
        usage = b"data: " + encode(self.head | {"choices": [], "usage": self.usage()}) + b"\n\n"
        return [usage, b"data: [DONE]\n\n"]

    def event(self, i: int) -> bytes:
        """As `encode` would write it; what does not change is written once."""
        text, log_probs = self.take_news(self.choices[i])
        parts = (
            self.event_head, str(i).encode(), b',"text":', encode(text), b',"logprobs":', encode(log_probs),
            b',"finish_reason":', encode(self.choices[i].finish), b"}]}\n\n",
        )  # fmt: skip
        return b"".join(parts)

    def take_news(self, choice: Choice) -> tuple[str, dict[str, Any] | None]:
        """The text that is in no answer yet, and the record of its tokens where it is asked for."""
        text, choice.unsent = choice.unsent, ""
        read = self.ask.echo and not choice.is_echoed
        if read:
            choice.is_echoed, text = True, choice.prompt.text + text
        if self.ask.logprobs is None:
            return text, None
        found = self.new_log_probs(choice)
        if read:
            found = self.prompt_log_probs(choice).followed_by(found)
        return text, self.log_probs_record(found)

    def new_log_probs(self, choice: Choice) -> LogProbs:
        """Of the new tokens that are in no answer yet."""
        new = slice(choice.sent, len(choice.tokens))
        choice.sent = new.stop
        before = len(choice.prompt.text) if self.ask.echo else 0
        begins = [before + begin for begin in choice.begins[new]]
        return LogProbs(choice.tokens[new], begins, list(choice.log_probs[new]), list(choice.best[new]))

    def prompt_log_probs(self, choice: Choice) -> LogProbs:
        """Of the tokens that the caller gave. Nothing comes before an end token that stands first, so it has none."""
        prompt = choice.prompt
        first = len(prompt.ids) - prompt.given
        read: list[Any] = [None, *(choice.read or [])][first:]
        return LogProbs(
            prompt.ids[first:], prompt.begins, [each and each[0] for each in read], [each and each[1] for each in read]
        )

    def usage(self) -> dict[str, int]:
        read = sum(choice.prompt.given for choice in self.choices) // (self.ask.n or 1)
        made = sum(len(choice.tokens) for choice in self.choices)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

    def choice_record(self, i: int, choice: Choice) -> dict[str, Any]:
        text, log_probs = self.take_news(choice)
        return {"index": i, "text": text, "logprobs": log_probs, "finish_reason": choice.finish}

    def log_probs_record(self, found: LogProbs) -> dict[str, Any]:
        tops = [None if each is None else {self.name(c.token): c.log_prob for c in each} for each in found.best]
        return {
            "tokens": [self.name(token) for token in found.tokens], "token_logprobs": found.log_probs,
            "top_logprobs": tops, "text_offset": found.begins,
        }  # fmt: skip

    def name(self, token: int) -> str:
        return str(self.run.tokenizer.entry(token))


class Streamed(Response):
    """An answer whose parts are sent as they come. A server has many of them under way, so that each is one task which sends,
    and another which sleeps until the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, answering: Answering):
        self.answering, self.status_code = answering, 200
        self.init_headers({"cache-control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.ensure_future(until_gone(receive))
        watcher.add_done_callback(lambda _: self.answering.leave())
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for part, more in self.answering.stream():
                await send({"type": "http.response.body", "body": part, "more_body": more})
        finally:
            watcher.cancel()


def read_prompts(run: Any, given: str | list[Any], with_begins: bool = False) -> list[Prompt]:
    """Texts or lists of tokens; a single list of tokens is one prompt. with_begins: find where the text of each token begins."""
    if isinstance(given, list) and all(isinstance(each, int) for each in given):
        given = [given]
    parts: list[Any] = [given] if isinstance(given, str) else given
    if len(parts) > MOST_PROMPTS or any(isinstance(part, int) for part in parts):
        raise Refused(400, f"give one text, up to {MOST_PROMPTS} texts, or lists of tokens", "prompt")
    found = [read_prompt(run, part, with_begins) for part in parts]
    if sum(len(prompt.ids) for prompt in found) > MOST_TOKENS:
        raise Refused(413, f"the prompts have more than {MOST_TOKENS:,} tokens", "prompt")
    return found


def read_prompt(run: Any, part: str | list[int], with_begins: bool) -> Prompt:
    tokenizer = run.tokenizer
    if isinstance(part, str):
        ids, unknown = run.read(part)
        begins = [begin for begin, _ in tokenizer.encode_with_offsets(part)[1]] if with_begins else []
        return Prompt(ids, unknown, len(ids) - 1, part, begins)
    wrong = [token for token in part if not 0 <= token < tokenizer.vocab_size]
    if wrong:
        raise Refused(400, f"the vocabulary has {tokenizer.vocab_size:,} tokens and no token {wrong[0]}", "prompt")
    begun = part[0] == tokenizer.end_id  # what others put before a text
    unknown = [tokenizer.entry(token) for token in part if token == tokenizer.unk_id]
    ids = list(part) if begun else [tokenizer.end_id, *part]
    begins = begins_of(tokenizer, part) if with_begins else []
    return Prompt(ids, unknown, len(part), tokenizer.decode(part, specials=True), begins)


def begins_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[int]:
    """Where each token begins in the text of all of them."""
    stream = TextStream(tokenizer, specials=True)
    return [0, *itertools.accumulate(len(stream.push(token)) for token in tokens[:-1])]


def is_short(given: str | list[Any]) -> bool:
    """Whether a prompt is read sooner than another thread has begun with it."""
    return isinstance(given, str) and len(given) <= SHORT_PROMPT


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
