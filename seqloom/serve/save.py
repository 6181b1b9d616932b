"""The page as one file that opens from disk, with the answers to some texts in it: what the server would answer, asked of it."""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.files import write_bytes
from seqloom.progress import say
from seqloom.serve import page
from seqloom.serve.abilities import ABILITIES
from seqloom.serve.app import Limits, Server

GAPS = ("[MASK]", "<mask>")
TREE = {"beam": 3, "max_tokens": 12}  # as the page asks for it
IMPORT = re.compile(r"^import \{[^}\n]*\} from \"\./\w+\.js\";\n", re.MULTILINE)


class Call(NamedTuple):
    path: str
    body: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """As the page writes it."""
        if self.body is None:
            return self.path
        return f"{self.path} {json.dumps(self.body, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


class Question(NamedTuple):
    """What a form of the page is filled with, and what it asks the server then."""

    tab: str
    values: dict[str, str]
    calls: list[Call]


def questions_of(runs: Mapping[str, Any], texts: Sequence[str]) -> Iterator[Question]:
    """All that can be asked about texts, with the settings that the page begins with. A text with a gap is there to be filled,
    a single word to have neighbours."""
    scored = [name for name, run in runs.items() if ABILITIES["score"](run)]
    for text in texts:
        gaps, is_word = any(gap in text for gap in GAPS), len(text.split()) == 1
        if not gaps and len(scored) > 1:
            for other in scored[1:]:
                calls = [Call("/api/score", {"model": name, "texts": [text]}) for name in (scored[0], other)]
                yield Question("compare", {"model": scored[0], "other": other, "text": text}, calls)
        for name, run in runs.items():
            able = {ability for ability, can in ABILITIES.items() if can(run)}
            found = [*about_gaps(name, text)] if gaps else [*about_text(name, text, is_word, able, run)]
            yield from (each for each in found if each.tab in able or (each.tab == "vectors" and "neighbours" in able))


def about_gaps(name: str, text: str) -> Iterator[Question]:
    yield Question("fill", {"model": name, "text": text}, [Call("/api/fill", {"model": name, "text": text, "top": 5})])


def about_text(name: str, text: str, is_word: bool, able: set[str], run: Any) -> Iterator[Question]:
    own = {"model": name, "text": text}
    body: dict[str, Any] = {"temperature": 0.8, "max_tokens": 60, "seed": 0, "logprobs": 5, "stream": True}
    yield Question("write", own, [Call("/v1/completions", {"model": name, "prompt": text} | body)])
    yield Question("write", own | {"how": "beam"}, [Call("/api/beam", own | TREE)])
    if "predict" in able and run.learner.fields[0] == "text":
        yield Question("predict", own, [Call("/api/predict", {"model": name, "rows": [{"text": text}]})])
    if "translate" in able:
        aligned = bool(run.learner.backbone.aligned)
        asked = {"model": name, "texts": [text], "beam": 4, "n_best": 1, "align": aligned}
        values = own | {"align": str(aligned).lower(), "tree": "true"}
        yield Question(
            "translate", values, [Call("/api/translate", asked), Call("/api/beam", own | TREE | {"beam": 4})]
        )
    if is_word:
        asked = {"model": name, "words": text, "top": 10}
        yield Question("vectors", own, [Call("/api/neighbours", asked)])
    for kind in ("weights", "norm-weighted", "rollout"):
        yield Question("attention", own | {"kind": kind}, [Call("/api/attention", own | {"kind": kind})])
    yield Question("cells", own, [Call("/api/cells", own)])


async def ask(server: Server, call: Call) -> tuple[int, Any]:
    """Status and answer, without a network."""
    body = b"" if call.body is None else json.dumps(call.body).encode()
    given, parts = [{"type": "http.request", "body": body, "more_body": False}], []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "query_string": b"",
        "method": "GET" if call.body is None else "POST", "path": call.path, "raw_path": call.path.encode(),
        "headers": [(b"host", b"localhost")], "server": ("localhost", 80), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        if given:
            return given.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        parts.append(message)

    await server.app(scope, receive, send)
    data = b"".join(each.get("body", b"") for each in parts).decode()
    if not data.startswith("data: "):
        return parts[0]["status"], json.loads(data)
    events = [json.loads(each[6:]) for each in data.split("\n\n") if each and each != "data: [DONE]"]
    return parts[0]["status"], [{"choices": each["choices"]} for each in events]


async def collect(server: Server, texts: Sequence[str]) -> dict[str, Any]:
    """All answers by what is asked, and the questions that have one."""
    calls = (Call("/v1/models"), Call("/api/runs"))
    answers = {call.key: (await ask(server, call))[1] for call in calls}
    questions = []
    for question in questions_of(server.runs, texts):
        problem = ""
        for call in question.calls:
            status, answer = await ask(server, call)
            if status != 200:
                problem = answer["error"]["message"]
                break
            answers[call.key] = answer
            for layer in layers_of(call, answer):
                answers[layer.key] = (await ask(server, layer))[1]
        if problem:
            say(f"no {question.tab} view of {question.values['model']} for {question.values['text'][:40]!r}: {problem}")
        else:
            questions.append({"tab": question.tab, "values": question.values})
    return {"answers": answers, "questions": questions}


def layers_of(call: Call, answer: Any) -> list[Call]:
    """What a page asks for when another layer is chosen."""
    if call.path != "/api/attention" or call.body is None or call.body["kind"] == "rollout":
        return []
    most = max(part["layers"] for part in answer["parts"])
    return [Call(call.path, call.body | {"layer": layer}) for layer in range(1, most + 1)]


def one_script() -> str:
    """The modules of the page as one: their imports are what stands before them then."""
    texts = [files(page.__name__).joinpath(f"{name}.js").read_text(encoding="utf-8") for name in page.SCRIPTS]
    return "\n".join(re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.MULTILINE) for text in texts)


def source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def whole_page(data: Mapping[str, Any]) -> str:
    """One HTML file that asks nobody for anything."""
    index = files(page.__name__).joinpath("index.html").read_text(encoding="utf-8")
    css = page.style() + files(page.__name__).joinpath("page.css").read_text(encoding="utf-8")
    script = one_script()
    sources = f"script-src {source_hash(script)}; style-src {source_hash(css)}; img-src data:"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    kept = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        '<link rel="stylesheet" href="/page.css">': (
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{css}</style>'
        ),
        '<script type="module" src="/page.js"></script>': (
            f'<script type="application/json" id="saved">{kept}</script>\n<script type="module">{script}</script>'
        ),
    }
    for old, new in parts.items():
        assert index.count(old) == 1, old
        index = index.replace(old, new)
    return index


def save_page(runs: Mapping[str, Any], texts: Sequence[str], out: Path, watched: Path | None = None) -> int:
    """Writes the file and returns how many answers are in it. Raises DataError where nothing can be answered."""
    server = Server(runs, Limits(), watched=watched)
    try:
        data = asyncio.run(collect(server, texts))
    finally:
        for engine in server.engines.values():
            engine.close()
    if not data["questions"] and watched is None:
        raise DataError("no run can answer anything about these texts: give others with --text")
    command = " ".join(["seqloom serve", *runs, *(["--runs", watched.name] if watched else [])])
    about = {"command": command, "date": datetime.now(UTC).date().isoformat()}
    write_bytes(out, whole_page(about | data).encode())
    return len(data["questions"])
