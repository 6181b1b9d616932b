"""Requests that nobody should send: some hundred that are listed, and as many as one likes by a seeded generator."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple


class Request(NamedTuple):
    method: str
    path: str
    body: bytes


# what each route takes, by names of models that are served
VALID: dict[str, dict[str, Any]] = {
    "/v1/completions": {
        "model": "lstm", "prompt": "the cat", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "n": 1,
        "stop": ["."], "logprobs": 2, "echo": False, "seed": 1, "stream": False,
        "stream_options": {"include_usage": True}, "user": "me",
    },
    "/v1/embeddings": {"model": "bert", "input": ["the cat"], "encoding_format": "float"},
    "/v1/chat/completions": {"model": "lstm", "messages": []},
    "/api/fill": {"model": "bert", "text": "the [MASK] sees", "top": 2, "joint": False, "longest": 2},
    "/api/score": {"model": "gpt2", "texts": ["the cat"]},
    "/api/neighbours": {"model": "bert", "words": "cat - dog", "top": 2},
    "/api/predict": {"model": "classify", "rows": ["the film", {"text": "is good"}]},
    "/api/translate": {"model": "translator", "texts": ["the cat"], "beam": 2, "n_best": 1, "align": True},
    "/api/attention": {"model": "gpt2", "text": "the cat", "layer": 1, "kind": "weights"},
    "/api/cells": {"model": "lstm", "text": "the cat sees a bird . " * 5, "unit": "layer0.cell.1"},
    "/api/beam": {"model": "lstm", "text": "the", "beam": 2, "max_tokens": 2},
    "/embed": {"model": "bert", "inputs": ["the cat"], "parameters": {}},
    "/fill-mask": {"model": "bert", "inputs": "the [MASK]", "parameters": {"top_k": 2}},
    "/predict": {"model": "classify", "inputs": "the film"},
    "/tag": {"model": "tag", "inputs": ["the film"]},
    "/answer": {"model": "tag", "inputs": {"question": "who", "context": "the cat"}},
    "/translate": {"model": "translator", "inputs": "the cat"},
    "/tokenize": {"model": "lstm", "prompt": "the cat"},
    "/detokenize": {"model": "lstm", "tokens": [1, 2]},
}  # fmt: skip
DEEP = 100_000
BODIES: list[bytes] = [
    b"", b" ", b"{", b"}", b"[]", b"null", b"3", b'"a"', b"\xff\xfe{}", b"\x00", b"{'model': 'lstm'}", b'{"model": NaN}',
    b'{"model": "lstm", "temperature": 1e400}', b"[" * DEEP, b'{"a":' * DEEP, b'{"model": "\\ud800", "text": "\\udfff"}',
]  # fmt: skip
WEIRD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 10**9, 2**53, 2**63, 2**64, 10**400, -0.5, 0.0, 1e-300, 1e308, float("nan"), float("inf"),
    "", " ",
    "\x00", "\n" * 50, "a" * 5000, "\ud800", "\udc00x", "\U0001f389", "[MASK]" * 40, "../../etc/passwd",
    "<script>", "%s%n{0}", "true", [], {},
    [[]], [None], [""], [0], [-1], [10**9], ["a"] * 300, {"": ""}, {"text": 3}, {"a": {"b": [1]}}, [[1, 2], "a"],
    "lstm", "bert", "none",
    list(range(2000)), "the cat " * 100, "layer0.cell.0",
]  # fmt: skip
PATHS = [
    "/",
    "/v1",
    "/v1/models/",
    "/v1/models/%00",
    "/v1/models/../..",
    "/api",
    "/api/none",
    "//",
    "/%ff",
    "/page.py",
    "/a" * 2000,
]


def listed() -> list[Request]:
    """Malformed ones, all of which are to be refused."""
    found = [Request("POST", path, body) for path in VALID for body in BODIES]
    found += [Request(method, path, b"") for path in VALID for method in ("GET", "PUT", "DELETE")]
    found += [Request("POST", path, b"{}") for path in PATHS]
    return found


def fuzzed(seed: int, count: int) -> Iterator[Request]:
    rng = random.Random(seed)
    for _ in range(count):
        path = rng.choice(list(VALID))
        body = changed(rng, json.loads(json.dumps(VALID[path])))
        data = json.dumps(body, ensure_ascii=rng.random() < 0.9).encode("utf-8", "surrogatepass")
        if rng.random() < 0.25:
            data = damaged(rng, data)
        path = path if rng.random() < 0.97 else rng.choice(PATHS)
        yield Request("POST" if rng.random() < 0.97 else rng.choice(["GET", "PUT", "HEAD", "OPTIONS"]), path, data)


def changed(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    for _ in range(rng.randint(0, 3)):
        name, how = rng.choice([*body, "new", "\ud800", "model"]), rng.random()
        if how < 0.15:
            body.pop(name, None)
        elif how < 0.3 and isinstance(body.get(name), list) and body[name]:
            body[name][rng.randrange(len(body[name]))] = weird(rng)
        elif how < 0.4 and isinstance(body.get(name), dict):
            body[name][rng.choice(["text", "top_k", ""])] = weird(rng)
        else:
            body[name] = weird(rng)
    return body


def weird(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(WEIRD))


def damaged(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        how = rng.random()
        if how < 0.4 and at < len(found):
            found[at] = rng.randrange(256)
        elif how < 0.6:
            del found[at:]
        else:
            found[at:at] = rng.choice(
                [b'"', b"{", b"]", b"\x00", b"\xff", b"1e999", b"NaN", b"\\u0000", b"\\ud800", b"/*"]
            )
        if not found:
            break
    return bytes(found)
