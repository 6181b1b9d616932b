"""The routes, and what stands before all of them: the host that is asked for, the key, the size and the time of a body."""

import asyncio
import base64
import hmac
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from seqloom.errors import SeqloomError, explain
from seqloom.serve import inside
from seqloom.serve.abilities import (
    embeds,
    filled_record,
    fills,
    has_attention,
    has_cells,
    has_neighbours,
    kind_of,
    max_len_of,
    model_record,
    predicts,
    scores,
    searches,
    translates,
    translation_record,
    writes,
)
from seqloom.serve.completions import MOST_TOKENS, Answering, is_short, read_prompts, until_gone
from seqloom.serve.describe import Described, describe
from seqloom.serve.engine import Call, Engine, Full
from seqloom.serve.mailbox import Mailbox
from seqloom.serve.messages import (
    Attention,
    Beam,
    Cells,
    Completion,
    Detokenize,
    Embedding,
    Fill,
    Inputs,
    Neighbours,
    Predict,
    Refused,
    Score,
    Tokenize,
    Translate,
    answer,
    as_list,
    decode,
)
from seqloom.serve.page import FILES, read_page
from seqloom.serve.runs import Curves

BODY_SECONDS = 30.0
OPTION = re.compile(r"(?<!\S)--(?=[a-z])")
LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
SHORT_TASKS = {"/tag": ("tag", "tag words"), "/answer": ("span", "answer questions")}  # by routes that are for one task
OPEN_PATHS = ("/healthz", "/health", "/ready", *FILES)  # answered without a key


@dataclass(frozen=True)
class Limits:
    """Defaults of `seqloom serve`."""

    rows: int = 32  # texts that are written at the same time
    queue: int = 256  # requests that wait for a model
    max_tokens: int = 4096  # new tokens of a completion
    seconds: float = 120.0  # for one request
    body: int = 2 << 20  # bytes


class Server:
    """Runs by their names, an engine for each, and the application that answers for them."""

    def __init__(
        self,
        runs: Mapping[str, Any],
        limits: Limits,
        key: str | None = None,
        hosts: frozenset[str] = LOCAL,
        watched: Path | None = None,
    ):
        """watched: the folder whose runs are listed."""
        self.curves = None if watched is None else Curves(watched)
        self.runs, self.limits, self.key, self.hosts = dict(runs), limits, key, hosts
        self.engines = {name: Engine(run, limits.rows, limits.queue) for name, run in self.runs.items()}
        self.records = {name: model_record(name, run) for name, run in self.runs.items()}
        self.is_open, self.live = True, 0
        self.statuses: Counter[int] = Counter()
        self.described: list[Described] = []
        self.last_mailbox: Mailbox | None = None
        self.files = read_page()
        for engine in self.engines.values():
            engine.start()
        self.app = Starlette(routes=self.routes(), exception_handlers={404: not_found, 405: not_found})

    @property
    def mailbox(self) -> Mailbox:
        """Of the loop that runs."""
        loop = asyncio.get_running_loop()
        if self.last_mailbox is None or self.last_mailbox.loop is not loop:
            self.last_mailbox = Mailbox(loop)
            for engine in self.engines.values():
                engine.after_step = self.last_mailbox.wake
        return self.last_mailbox

    # ---- which model

    def pick(self, name: str | None, can: Callable[[Any], bool], what: str) -> str:
        """The model that is named, or the first that can do what is asked."""
        if name is None:
            fit = next((each for each, run in self.runs.items() if can(run)), None)
            if fit is None:
                raise Refused(400, f"no model here can {what}", "model")
            return fit
        if name not in self.runs:
            known = ", ".join(self.runs)
            raise Refused(404, f"there is no model {name[:60]!r} here (there are: {known})", "model", "not_found_error")
        if not can(self.runs[name]):
            raise Refused(400, f"the model {name} cannot {what}: {kind_of(self.runs[name])}", "model")
        return name

    async def call(
        self, request: Request, name: str, key: tuple[Any, ...], items: list[Any], work: Callable[[list[Any]], Any]
    ) -> list[Any]:
        """Work in the engine's thread, together with other calls of the same key."""
        run, loop = self.runs[name], asyncio.get_running_loop()
        texts = [each if isinstance(each, str) else " ".join(map(str, each.values())) for each in items]
        size = sum(len(ids) for ids in await asyncio.to_thread(run.source_tokenizer.encode_batch, texts))
        if size > MOST_TOKENS:
            raise Refused(413, f"the texts have {size:,} tokens, more than {MOST_TOKENS:,}")
        future: asyncio.Future[list[Any] | Exception] = loop.create_future()

        def settle(found: list[Any] | Exception) -> None:
            if not future.done():
                future.set_result(found)

        def done(found: list[Any] | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, found)

        call = Call(key, items, work, done, tokens=size)
        try:
            self.engines[name].submit(call)
        except Full:
            raise Refused(429, "too many requests are waiting: try again", kind="rate_limit_exceeded") from None
        watcher: asyncio.Future[Any] = asyncio.ensure_future(until_gone(request.receive))
        waiting: set[asyncio.Future[Any]] = {future, watcher}
        try:
            waited, _ = await asyncio.wait(waiting, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watcher.cancel()
        if future not in waited:
            call.cancelled = True
            if watcher in waited:
                raise ClientDisconnect
            raise Refused(503, f"no answer within {self.limits.seconds:.0f} s", kind="server_error")
        found = future.result()
        if isinstance(found, SeqloomError):
            words = explain(found)[0].replace(str(run.folder), name)  # callers know no folders
            raise Refused(400, OPTION.sub("", words))  # and fields, not options
        if isinstance(found, Exception):
            print(f"a call failed: {type(found).__name__}: {found}", file=sys.stderr, flush=True)
            raise Refused(500, "the model failed", kind="server_error")
        return found

    # ---- OpenAI's shapes

    async def completions(self, request: Request, ask: Completion) -> Response:
        name = self.pick(ask.model, writes, "continue a text")
        if ask.not_done_here is not None:
            raise Refused(400, f"this server does nothing by {ask.not_done_here}: leave it out", ask.not_done_here)
        run, limits = self.runs[name], self.limits
        if is_short(ask.prompt) and not run.tokenizer.is_busy:  # a long text of another call would stop all streams
            prompts = read_prompts(run, ask.prompt, ask.reads_prompts)
        else:
            prompts = await asyncio.to_thread(read_prompts, run, ask.prompt, ask.reads_prompts)
        answering = Answering(self.engines[name], ask, prompts, self.mailbox, limits.seconds, limits.max_tokens)
        return await answering.respond(request)

    async def embeddings(self, request: Request, ask: Embedding) -> Response:
        vectors, size = await self.embed(request, ask.model, as_list(ask.input))
        shown = [base64.b64encode(each.astype("<f4").tobytes()).decode() for each in vectors]
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": shown[i] if ask.encoding_format == "base64" else each.tolist(),
            }
            for i, each in enumerate(vectors)
        ]
        usage = {"prompt_tokens": size, "total_tokens": size}
        return answer({"object": "list", "model": ask.model, "data": data, "usage": usage})

    async def embed(self, request: Request, model: str | None, texts: list[str]) -> tuple[list[Any], int]:
        name = self.pick(model, embeds, "give vectors of texts")
        run = self.runs[name]
        found = await self.call(request, name, ("embed",), texts, run.encode)
        return found, sum(len(ids) for ids in run.source_tokenizer.encode_batch(texts))

    async def models(self, request: Request) -> Response:
        return answer({"object": "list", "data": list(self.records.values())})

    async def model(self, request: Request) -> Response:
        name = self.pick(request.path_params["name"], lambda run: True, "")
        return answer(self.records[name])

    async def chat(self, request: Request) -> Response:
        raise Refused(404, "these models continue texts and do not chat: use /v1/completions", kind="not_found_error")

    # ---- ours

    async def fill(self, request: Request, ask: Fill) -> Response:
        name = self.pick(ask.model, fills, "fill gaps")
        run = self.runs[name]
        options = {"top": ask.top, "joint": ask.joint, "longest": ask.longest}
        (gaps,) = await self.fill_texts(request, name, [ask.text], options)
        record = [[filled_record(run, each) for each in some] for some in gaps]
        return answer({"model": name, "gaps": record})

    async def fill_texts(self, request: Request, name: str, texts: list[str], options: dict[str, Any]) -> list[Any]:
        run, key = self.runs[name], ("fill", *sorted(options.items()))
        return await self.call(request, name, key, texts, lambda some: [run.fill(text, **options) for text in some])

    async def score(self, request: Request, ask: Score) -> Response:
        name = self.pick(ask.model, scores, "score texts")
        run, texts = self.runs[name], as_list(ask.texts)
        found = await self.call(request, name, ("score", ask.pll), texts, partial(run.score, pll=ask.pll))
        rows = []
        for text, each in zip(texts, found, strict=True):
            ids, offsets = run.tokenizer.encode_with_offsets(text)
            names = [run.tokenizer.entry(token) for token in ids]
            row = {"log_prob": sum(each.log_probs), "tokens": names, "offsets": offsets}
            rows.append(row | {"log_probs": each.log_probs, "end": each.end})
        return answer({"model": name, "definition": run.definition(ask.pll), "scores": rows})

    async def predict(self, request: Request, ask: Predict) -> Response:
        name = self.pick(ask.model, predicts, "predict labels")
        return answer({"model": name, "predictions": await self.predict_rows(request, name, ask.rows)})

    async def predict_rows(self, request: Request, name: str, given: list[Any]) -> list[Any]:
        rows = [{"text": row} if isinstance(row, str) else row for row in given]
        return await self.call(request, name, ("predict",), rows, lambda some: list(self.runs[name].predict(some)))

    async def neighbours(self, request: Request, ask: Neighbours) -> Response:
        name = self.pick(ask.model, has_neighbours, "find neighbours of words")
        run, top = self.runs[name], ask.top
        (found,) = await self.call(
            request,
            name,
            ("neighbours", top),
            [ask.words],
            lambda some: [run.neighbours(each, top=top) for each in some],
        )
        return answer({"model": name, "neighbours": [each._asdict() for each in found]})

    async def translate(self, request: Request, ask: Translate) -> Response:
        name = self.pick(ask.model, translates, "translate")
        if ask.n_best > ask.beam:
            raise Refused(400, f"n_best = {ask.n_best} is more than a beam of {ask.beam} finds", "n_best")
        texts = as_list(ask.texts)
        found = await self.translate_texts(request, name, texts, ask)
        run = self.runs[name]
        record = [
            [translation_record(run, text, each) for each in some] for text, some in zip(texts, found, strict=True)
        ]
        return answer({"model": name, "translations": record})

    async def translate_texts(self, request: Request, name: str, texts: list[str], ask: Translate) -> list[Any]:
        run = self.runs[name]
        options: dict[str, Any] = {"beam": ask.beam, "n_best": ask.n_best, "align": ask.align, "show": False}
        key = ("translate", *sorted(options.items()))
        return await self.call(request, name, key, texts, lambda some: run.translate(some, **options))

    async def attention(self, request: Request, ask: Attention) -> Response:
        name = self.pick(ask.model, has_attention, "show attention")
        return await self.look(request, name, ask.text, lambda run: inside.attention(run, ask))

    async def cells(self, request: Request, ask: Cells) -> Response:
        name = self.pick(ask.model, has_cells, "show the cells of a recurrent model")
        return await self.look(request, name, ask.text, lambda run: inside.cells(run, ask))

    async def beam(self, request: Request, ask: Beam) -> Response:
        name = self.pick(ask.model, searches, "search with a beam")
        return await self.look(request, name, ask.text, lambda run: inside.beam(run, ask))

    async def look(self, request: Request, name: str, text: str, show: Callable[[Any], dict[str, Any]]) -> Response:
        """What is seen inside a model that reads a text, alone: nothing of it could be shared with others."""
        run = self.runs[name]
        (found,) = await self.call(request, name, ("look", object()), [text], lambda _: [show(run)])
        return answer({"model": name} | found)

    async def tokenize(self, request: Request, ask: Tokenize) -> Response:
        name = self.pick(ask.model, lambda run: True, "")
        run, tokenizer = self.runs[name], self.runs[name].source_tokenizer
        if ask.prompt == tokenizer.entry(
            tokenizer.end_id
        ):  # a harness asks for the number of the end token by its name
            ids = [tokenizer.end_id]
        else:
            ids = [int(i) for i in tokenizer.encode(ask.prompt)]
        return answer({"tokens": ids, "count": len(ids), "max_model_len": max_len_of(run)})

    async def detokenize(self, request: Request, ask: Detokenize) -> Response:
        name = self.pick(ask.model, lambda run: True, "")
        tokenizer = self.runs[name].tokenizer
        wrong = [token for token in ask.tokens if not 0 <= token < tokenizer.vocab_size]
        if wrong:
            raise Refused(400, f"the vocabulary has {tokenizer.vocab_size:,} tokens and no token {wrong[0]}", "tokens")
        return answer({"prompt": tokenizer.decode(ask.tokens)})

    async def tokenizer_info(self, request: Request) -> Response:
        tokenizer = next(iter(self.runs.values())).tokenizer
        end = tokenizer.entry(tokenizer.end_id)
        return answer({"eos_token": end, "bos_token": end, "pad_token": end, "chat_template": None})

    # ---- the shapes of hosted inference

    async def short_embed(self, request: Request, ask: Inputs) -> Response:
        check_parameters(ask)
        vectors, _ = await self.embed(request, ask.model, texts_of(ask))
        return answer([each.tolist() for each in vectors])

    async def short_fill(self, request: Request, ask: Inputs) -> Response:
        check_parameters(ask, "top_k")
        name = self.pick(ask.model, fills, "fill gaps")
        run, top = self.runs[name], ask.parameters.get("top_k")
        top = 5 if top is None else top
        if type(top) is not int or not 1 <= top <= 100:
            raise Refused(400, "parameters.top_k: choose 1 to 100", "parameters.top_k")
        found = await self.fill_texts(request, name, texts_of(ask), {"top": top})
        rows = [
            [
                {
                    "score": each.probability, "token": each.tokens[0] if each.tokens else None,
                    "token_str": run.tokenizer.decode(each.tokens), "sequence": each.text,
                }
                for each in gap
            ]
            for gaps in found
            for gap in gaps
        ]  # fmt: skip
        return answer(rows[0] if len(rows) == 1 else rows)

    async def short_predict(self, request: Request, ask: Inputs) -> Response:
        check_parameters(ask)
        task, what = SHORT_TASKS.get(request.url.path, (None, "predict labels"))
        name = self.pick(ask.model, lambda run: predicts(run) and task in (None, run.task), what)
        given = ask.inputs if isinstance(ask.inputs, list) else [ask.inputs]
        found = await self.predict_rows(request, name, given)
        return answer(found if isinstance(ask.inputs, list) else found[0])

    async def short_translate(self, request: Request, ask: Inputs) -> Response:
        check_parameters(ask)
        name = self.pick(ask.model, translates, "translate")
        found = await self.translate_texts(request, name, texts_of(ask), Translate(texts=""))
        return answer([{"translation_text": some[0].text} for some in found])

    # ---- the server itself

    async def page(self, request: Request) -> Response:
        return self.files[request.url.path]

    async def list_runs(self, request: Request) -> Response:
        if self.curves is None:
            return answer({"folder": None, "runs": [], "comparisons": []})
        runs = await asyncio.to_thread(self.curves.look)
        compared = await asyncio.to_thread(self.curves.compare)
        return answer({"folder": self.curves.folder.name, "runs": runs, "comparisons": compared})

    async def health(self, request: Request) -> Response:
        return answer({"status": "ok" if self.is_open else "closing"})

    async def ready(self, request: Request) -> Response:
        alive = all(engine.is_alive() for engine in self.engines.values())
        if not (self.is_open and alive):
            raise Refused(503, "the server is closing" if alive else "a model has stopped", kind="server_error")
        return answer({"status": "ready", "models": list(self.runs)})

    async def metrics(self, request: Request) -> Response:
        lines = [f'seqloom_responses_total{{status="{s}"}} {n}' for s, n in sorted(self.statuses.items())]
        lines.append(f"seqloom_in_flight {self.live}")
        for name, engine in self.engines.items():
            label = '{model="' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"}'
            lines += [f"seqloom_{each}_total{label} {n}" for each, n in sorted(engine.counts.total.items())]
            lines.append(f"seqloom_busy_seconds_total{label} {engine.counts.busy_seconds:.3f}")
            lines.append(f"seqloom_writing{label} {len(engine.active)}")
            lines.append(f"seqloom_waiting{label} {len(engine.waiting) + len(engine.calls)}")
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return answer(describe(self.described))

    # ---- around all of them

    def routes(self) -> list[Route]:
        get = [
            *((path, self.page, f"The page: {name}.") for path, (name, _) in FILES.items()),
            ("/v1/models", self.models, "The models that are served."),
            ("/v1/models/{name:path}", self.model, "One of them."),
            (
                "/api/runs",
                self.list_runs,
                "The runs of a folder with their learning curves, and its comparisons (--runs).",
            ),
            ("/tokenizer_info", self.tokenizer_info, "The special tokens of the first model."),
            ("/healthz", self.health, "Whether the server runs."),
            ("/health", self.health, "The same."),
            ("/ready", self.ready, "Whether it takes requests."),
            ("/metrics", self.metrics, "Counters, for Prometheus."),
            ("/openapi.json", self.openapi, "This description."),
        ]
        post: list[tuple[str, Any, str, type[Struct] | None]] = [
            ("/v1/completions", self.completions, "Continue texts, or score them.", Completion),
            ("/v1/embeddings", self.embeddings, "Vectors of texts.", Embedding),
            ("/v1/chat/completions", self.chat, "Not here: these models do not chat.", None),
            ("/api/fill", self.fill, "Fill the gaps of a text.", Fill),
            ("/api/score", self.score, "The log-probability of texts.", Score),
            ("/api/neighbours", self.neighbours, "The words that are nearest to a word.", Neighbours),
            ("/api/predict", self.predict, "Classes, numbers, tags or answers.", Predict),
            ("/api/translate", self.translate, "Translations.", Translate),
            ("/api/attention", self.attention, "What attention heads look at in a text.", Attention),
            ("/api/cells", self.cells, "What single units of a recurrent model follow in a text.", Cells),
            ("/api/beam", self.beam, "The tree of a beam search.", Beam),
            ("/tokenize", self.tokenize, "The tokens of a text.", Tokenize),
            ("/detokenize", self.detokenize, "The text of tokens.", Detokenize),
            ("/embed", self.short_embed, "Vectors, in the shape of hosted inference.", Inputs),
            ("/fill-mask", self.short_fill, "Gaps, in the shape of hosted inference.", Inputs),
            ("/predict", self.short_predict, "Predictions, in the shape of hosted inference.", Inputs),
            ("/tag", self.short_predict, "The same, for tags.", Inputs),
            ("/answer", self.short_predict, "The same, for answers to questions.", Inputs),
            ("/translate", self.short_translate, "Translations, in the shape of hosted inference.", Inputs),
        ]
        found = []
        for path, handler, summary in get:
            found.append(Route(path, self.guarded(handler, None), methods=["GET"]))
            self.described.append(Described(path.replace(":path", ""), "GET", summary, None))
        for path, handler, summary, takes in post:
            found.append(Route(path, self.guarded(handler, takes), methods=["POST"]))
            self.described.append(Described(path, "POST", summary, takes))
        return found

    def guarded(
        self, handler: Callable[..., Awaitable[Response]], takes: type[Struct] | None
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            self.live += 1
            try:
                self.check(request)
                if takes is None:
                    response = await handler(request)
                else:
                    response = await handler(request, decode(takes, await self.body(request)))
            except Refused as refused:
                response = refused.response()
            except SeqloomError as error:
                response = Refused(400, explain(error)[0]).response()
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:
                print(f"{request.url.path} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                response = Refused(500, "the server has failed", kind="server_error").response()
            finally:
                self.live -= 1
            self.statuses[response.status_code] += 1
            return response

        return answered

    def check(self, request: Request) -> None:
        if host_of(request.headers.get("host", "")) not in self.hosts:
            raise Refused(421, "this server does not answer for that host: see --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and host_of(origin.rpartition("//")[2]) not in self.hosts:
            raise Refused(403, "pages of other sites get no answer here")
        if request.scope["path"] in OPEN_PATHS:
            return
        if self.key is not None:
            given = request.headers.get("authorization", "").encode("latin-1", "replace")
            if not hmac.compare_digest(given, f"Bearer {self.key}".encode()):
                raise Refused(401, "the API key is missing or wrong", kind="invalid_api_key")
        if not self.is_open:
            raise Refused(503, "the server is closing", kind="server_error")

    async def body(self, request: Request) -> bytes:
        most, data = self.limits.body, bytearray()
        too_large = Refused(413, f"the body has more than {most:,} bytes")
        size = request.headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > most:
            raise too_large
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    data += part
                    if len(data) > most:
                        raise too_large
        except TimeoutError:
            raise Refused(408, f"the body did not come within {BODY_SECONDS:.0f} s") from None
        return bytes(data)

    # ---- closing

    async def drain(self, seconds: float) -> None:
        """Refuse what is new, finish what runs."""
        self.is_open = False
        until = asyncio.get_running_loop().time() + seconds
        while self.live and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.05)
        for engine in self.engines.values():
            engine.close()


async def not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    words = f"there is no {request.method} {request.url.path[:100]}: /openapi.json lists what there is"
    return Refused(status, words, kind="not_found_error").response()


def host_of(address: str) -> str:
    """Without its port."""
    if address.startswith("["):
        return address.partition("]")[0] + "]"
    return address.partition(":")[0].lower()


def texts_of(ask: Inputs) -> list[str]:
    given = ask.inputs if isinstance(ask.inputs, list) else [ask.inputs]
    if not all(isinstance(each, str) for each in given):
        raise Refused(400, "inputs: give a text, or a list of texts", "inputs")
    return [str(each) for each in given]


def check_parameters(ask: Inputs, *known: str) -> None:
    """Refuses what would have no effect."""
    for name, value in ask.parameters.items():
        if name not in known and value is not None:
            hint = f"known: {', '.join(known)}" if known else "this route has none"
            raise Refused(400, f"unknown parameter {name[:60]!r} ({hint}): leave it out", f"parameters.{name[:60]}")
