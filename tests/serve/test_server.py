"""What the server answers is what the run says; what it refuses, it refuses in one sentence."""

import asyncio
import base64
import json
import math
import random
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import Row
from seqloom.runs.load import load
from seqloom.serve import engine as engine_module
from seqloom.serve.app import Limits, Server
from seqloom.serve.completions import Answering, read_prompts
from seqloom.serve.engine import Call, Engine, Full, StopStrings, Writing
from seqloom.serve.messages import Completion


def ask(client, path, body, **headers):
    return client.post(path, content=body if isinstance(body, bytes | str) else json.dumps(body), headers=headers)


def complete(client, **body):
    response = ask(client, "/v1/completions", body)
    assert response.status_code == 200, response.text
    return response.json()


# ---- answers


@pytest.mark.parametrize("name", ["lstm", "gpt2", "ngram"])
def test_completions_are_those_of_generate(client, runs, name):
    wanted = runs[name].generate("the cat", n=2, seed=3, max_new=12, temperature=0.8)
    found = complete(client, model=name, prompt="the cat", n=2, seed=3, max_tokens=12, temperature=0.8, logprobs=0)
    assert [each["text"] for each in found["choices"]] == [each.text.removeprefix("the cat") for each in wanted]
    for choice, sample in zip(found["choices"], wanted, strict=True):
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(sample.log_probs, abs=1e-5)
        assert choice["finish_reason"] in ("length", "stop")
    assert found["usage"]["completion_tokens"] == sum(len(each.tokens) for each in wanted)


@pytest.mark.parametrize("name", ["lstm", "gpt2", "ngram"])
def test_echoed_prompts_have_the_log_probs_of_score(client, runs, name):
    text = "the old king sees a bird ."
    (wanted,) = runs[name].score(text)
    found = complete(client, model=name, prompt=[text, "a bird"], echo=True, logprobs=1, max_tokens=1, temperature=0)
    first = found["choices"][0]["logprobs"]
    assert first["token_logprobs"][:-1] == pytest.approx(wanted.log_probs, abs=1e-4)
    assert len(first["tokens"]) == len(wanted.log_probs) + 1 == len(first["top_logprobs"]) == len(first["text_offset"])
    assert next(iter(first["top_logprobs"][-1].values())) == first["token_logprobs"][-1], (
        "greedy is the likeliest, to the bit"
    )
    ids = [runs[name].tokenizer.end_id, *runs[name].tokenizer.encode(text)]
    again = complete(client, model=name, prompt=[list(map(int, ids))], echo=True, logprobs=1, max_tokens=0)
    assert again["choices"][0]["logprobs"]["token_logprobs"][0] is None, "the end token is not put before it twice"
    assert again["choices"][0]["logprobs"]["token_logprobs"][1:] == pytest.approx(wanted.log_probs, abs=1e-4)


def test_a_stream_has_the_same_text(client):
    body = {"model": "gpt2", "prompt": "the dog", "max_tokens": 50, "seed": 5}
    whole = complete(client, **body)["choices"][0]
    lines = ask(client, "/v1/completions", body | {"stream": True, "stream_options": {"include_usage": True}}).text
    events = [line.removeprefix("data: ") for line in lines.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    *parts, usage = map(json.loads, events[:-1])
    assert "".join(each["choices"][0]["text"] for each in parts) == whole["text"]
    assert parts[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert usage["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("name", ["lstm", "ngram"])
def test_offsets_are_places_in_the_text(bytewise, name, tokens):
    """In characters of the whole answer, however many tokens a character has; in a stream as in one piece."""
    text = "кот 🎉 the café"
    run = bytewise.runs[name]
    ids = [run.tokenizer.end_id, *map(int, run.tokenizer.encode(text))]
    body = {"model": name, "prompt": ids if tokens else [text], "echo": True, "logprobs": 1, "max_tokens": 30}
    with TestClient(bytewise.app, base_url="http://127.0.0.1:8000") as client:
        (whole,) = complete(client, **body)["choices"]
        lines = ask(client, "/v1/completions", body | {"stream": True}).text.split("\n\n")
    offsets, shown = whole["logprobs"]["text_offset"], len(run.tokenizer.entry(run.tokenizer.end_id)) if tokens else 0
    assert whole["text"][shown:].startswith(text)
    wanted = [0] * tokens + [shown + begin for begin, _ in run.tokenizer.encode_with_offsets(text)[1]]
    assert offsets[: len(wanted)] == wanted
    assert offsets == sorted(offsets) and len(text) <= offsets[-1] <= len(whole["text"])
    parts = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]
    assert "".join(each["text"] for each in parts) == whole["text"]
    for field, values in whole["logprobs"].items():
        assert [each for part in parts for each in part["logprobs"][field]] == values, "with those of the prompt"


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_is_given_back_when_nothing_is_written(server, stream, logprobs):
    async def answered():
        body = {"prompt": ["the cat", "a bird"], "echo": True, "max_tokens": 0, "stream": stream, "logprobs": logprobs}
        ask = Completion("lstm", **body)
        prompts = read_prompts(server.runs["lstm"], ask.prompt, ask.reads_prompts)
        answering = Answering(server.engines["lstm"], ask, prompts, server.mailbox, 30, 100)
        answering.engine.submit(*answering.works)
        if stream:
            events = b"".join([part async for part, _ in answering.stream()]).decode().split("\n\n")[:-2]
            return [json.loads(each.removeprefix("data: "))["choices"][0] for each in events]
        await answering.changed.wait()
        return [answering.choice_record(i, each) for i, each in enumerate(answering.choices)]

    found = asyncio.run(asyncio.wait_for(answered(), 10))
    assert [(each["text"], each["finish_reason"]) for each in found] == [("the cat", "length"), ("a bird", "length")]
    for each in found:
        assert (logprobs is None) == (each["logprobs"] is None)
        assert logprobs is None or len(each["logprobs"]["token_logprobs"]) == 2


def test_a_list_of_texts_is_read_as_one_text(client):
    """The blank at its end decides what comes first behind it."""
    body = {"model": "lstm", "echo": True, "max_tokens": 5, "seed": 2}
    for text in ("the cat ", "The  cat", ""):
        one, other = (complete(client, prompt=prompt, **body)["choices"][0] for prompt in (text, [text]))
        assert one == other and one["text"].startswith(text)


def test_the_coldest_text_is_the_likeliest_one(client, runs):
    """And fails for nobody who is in the same step."""
    wanted = complete(client, model="lstm", prompt="the", max_tokens=8, temperature=0)["choices"][0]["text"]
    for body in ({}, {"top_k": 3}, {"top_p": 0.5}):
        found = complete(client, model="lstm", prompt="the", max_tokens=8, temperature=1e-300, **body)
        assert found["choices"][0]["text"] == wanted
    (alone,) = runs["lstm"].generate("the", max_new=8, temperature=1e-45)
    assert alone.text == "the" + wanted


def test_one_call_may_have_more_texts_than_may_wait(runs):
    made = Server({"ngram": runs["ngram"]}, Limits(queue=2, rows=2))
    with TestClient(made.app, base_url="http://127.0.0.1:8000") as client:
        found = complete(client, model="ngram", prompt=["the"] * 5, n=2, max_tokens=2)
        assert len(found["choices"]) == 10
    made.engines["ngram"].close()


def test_a_stream_that_is_read_late_is_whole(server):
    """The engine may be done before the first event is asked for."""

    async def late():
        prompts = read_prompts(server.runs["lstm"], "the")
        ask = Completion("lstm", "the", max_tokens=4, stream=True)
        answering = Answering(server.engines["lstm"], ask, prompts, server.mailbox, 30, 100)
        answering.engine.submit(*answering.works)
        while answering.left:
            await asyncio.sleep(0.01)
        return b"".join([part async for part, _ in answering.stream()])

    events = asyncio.run(late()).split(b"\n\n")
    assert len(events) >= 3 and events[-2] == b"data: [DONE]"


def test_a_text_ends_before_a_stop_string(client, runs):
    whole = complete(client, model="lstm", prompt="the", max_tokens=40, temperature=0)["choices"][0]["text"]
    stop = whole[7:10]
    found = complete(client, model="lstm", prompt="the", max_tokens=40, temperature=0, stop=[stop])["choices"][0]
    assert found["text"] == whole[: whole.find(stop)]
    assert found["finish_reason"] == "stop"


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.randoms())
def test_stop_strings_cut_where_the_whole_text_has_them(text, strings, rng):
    stops, found, at = StopStrings(strings), "", 0
    while at < len(text):
        size = rng.randint(1, 4)
        piece, stopped = stops.push(text[at : at + size])
        found, at = found + piece, at + size
        if stopped:
            break
    else:
        found += stops.close()
    # in one piece the first of the strings counts; piece by piece the one that is whole first
    places = [(text.find(each) + len(each), text.find(each)) for each in strings if each in text]
    assert found == text or any(found == text[:begin] for _, begin in places)
    assert (found == text) == (not places) or any(begin == len(text) for _, begin in places)


def test_vectors_are_those_of_encode(client, runs):
    texts = ["the cat sees a bird .", "no child"]
    wanted = runs["bert"].encode(texts)
    found = ask(client, "/v1/embeddings", {"model": "bert", "input": texts}).json()
    np.testing.assert_allclose([each["embedding"] for each in found["data"]], wanted, atol=1e-5)
    packed = ask(client, "/v1/embeddings", {"model": "bert", "input": texts, "encoding_format": "base64"}).json()
    first = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(first, wanted[0], atol=1e-5)
    short = ask(client, "/embed", {"inputs": texts, "model": "bert"}).json()
    np.testing.assert_allclose(short, wanted, atol=1e-5)


def test_gaps_scores_predictions_and_translations(client, runs):
    text = "the [MASK] sees a bird ."
    ((best, *_),) = runs["bert"].fill(text, top=3)
    found = ask(client, "/api/fill", {"text": text, "top": 3}).json()
    assert found["gaps"][0][0]["text"] == best.text
    assert found["gaps"][0][0]["probability"] == pytest.approx(best.probability, rel=1e-4)
    assert ask(client, "/fill-mask", {"inputs": text}).json()[0]["sequence"] == best.text
    (scored,) = runs["bert"].score("the cat sees a bird .")
    answer = ask(client, "/api/score", {"model": "bert", "texts": ["the cat sees a bird ."]}).json()
    assert answer["scores"][0]["log_probs"] == pytest.approx(scored.log_probs, abs=1e-4)
    assert answer["definition"] == runs["bert"].definition()
    (label,) = runs["classify"].predict(["the film is good"])
    got = ask(client, "/api/predict", {"model": "classify", "rows": ["the film is good"]}).json()["predictions"]
    assert got == json.loads(json.dumps([label]))
    assert ask(client, "/predict", {"inputs": "the film is good", "model": "classify"}).json() == got[0]
    (tags,) = runs["tag"].predict(["the film is good"])
    assert ask(client, "/tag", {"inputs": "the film is good", "model": "tag"}).json() == json.loads(json.dumps(tags))
    assert "tags" in ask(client, "/tag", {"inputs": "the film is good"}).json(), "by the first run that can"
    ((translation, *_),) = runs["translator"].translate(["the cat sees a bird ."], show=False)
    body = {"texts": "the cat sees a bird .", "align": True}
    assert ask(client, "/api/translate", body).json()["translations"][0][0]["text"] == translation.text
    short = ask(client, "/translate", {"inputs": "the cat sees a bird ."}).json()
    assert short == [{"translation_text": translation.text}]


def test_fields_that_ask_for_nothing_are_taken(client):
    """As programs send them for whatever server."""
    plain = {"model": "lstm", "prompt": "the", "max_tokens": 3, "n": 2, "seed": 1}
    idle = {"best_of": 2, "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {}, "suffix": None}
    texts = [each["text"] for each in ask(client, "/v1/completions", plain).json()["choices"]]
    assert [each["text"] for each in ask(client, "/v1/completions", plain | idle).json()["choices"]] == texts
    refused = ask(client, "/v1/completions", plain | {"frequency_penalty": 1}).json()["error"]
    assert refused["param"] == "frequency_penalty" and "leave it out" in refused["message"]


def test_models_say_what_they_can(client):
    found = {each["id"]: each["can"] for each in client.get("/v1/models").json()["data"]}
    assert found["gpt2"] == ["write", "score", "embed", "neighbours", "beam", "attention"]
    assert found["bert"] == ["fill", "score", "embed", "neighbours", "attention"]
    assert found["translator"] == ["embed", "translate", "beam", "attention"]
    assert found["ngram"] == ["write", "score", "beam"]
    assert found["lstm"] == ["write", "score", "embed", "neighbours", "beam", "cells"]
    assert client.get("/v1/models/lstm").json()["id"] == "lstm"


def test_tokens_both_ways(client, runs):
    tokenizer = runs["lstm"].tokenizer
    ids = ask(client, "/tokenize", {"prompt": "the cat", "model": "lstm"}).json()["tokens"]
    assert ids == list(map(int, tokenizer.encode("the cat")))
    assert ask(client, "/detokenize", {"tokens": ids, "model": "lstm"}).json() == {"prompt": "the cat"}
    end = client.get("/tokenizer_info").json()["eos_token"]
    assert ask(client, "/tokenize", {"prompt": end}).json()["tokens"] == [tokenizer.end_id]


# ---- refusals

MALFORMED = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"model": "lstm", "prompt": "\xed\xa0\x80"}',
    b'{"model": "lstm", "prompt": "\\ud800"}',
    b'{"model": "lstm", "temperature": NaN}',
    b'{"model": "lstm", "temperature": 1e400}',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    {"prompt": "a"},
    {"model": 3},
    {"model": "nobody"},
    {"model": "../lstm"},
    {"model": "lstm\x00"},
    {"model": "bert"},
    {"model": "translator"},
    {"model": "lstm", "max_tokens": -1},
    {"model": "lstm", "max_tokens": 10**7},
    {"model": "lstm", "max_tokens": "5"},
    {"model": "lstm", "max_tokens": 0},
    {"model": "lstm", "temperature": -1},
    {"model": "lstm", "temperature": 3},
    {"model": "lstm", "top_p": 0},
    {"model": "lstm", "top_p": 2},
    {"model": "lstm", "top_k": 0},
    {"model": "lstm", "n": 0},
    {"model": "lstm", "n": 17},
    {"model": "lstm", "logprobs": 21},
    {"model": "lstm", "stop": ["a"] * 17},
    {"model": "lstm", "stop": "a" * 201},
    {"model": "lstm", "seed": -1},
    {"model": "lstm", "unknown": 1},
    {"model": "lstm", "prompt": []},
    {"model": "lstm", "prompt": [[]]},
    {"model": "lstm", "prompt": [10**6]},
    {"model": "lstm", "prompt": [-1]},
    {"model": "lstm", "prompt": [[2**70]]},
    {"model": "lstm", "prompt": ["a", 3]},
    {"model": "lstm", "prompt": ["a"] * 257},
    {"model": "lstm", "prompt": {"a": 1}},
    {"model": "gpt2", "prompt": "the " * 100, "echo": True, "logprobs": 1},
    {"model": "lstm", "stream": "yes"},
    {"model": "lstm", "best_of": 2},
    {"model": "lstm", "presence_penalty": 0.5},
    {"model": "lstm", "logit_bias": {"3": 1}},
    {"model": "lstm", "suffix": "a"},
]
OTHERS = [
    ("/v1/embeddings", {"model": "bert", "input": []}),
    ("/v1/embeddings", {"model": "ngram", "input": "a"}),
    ("/v1/embeddings", {"model": "bert", "input": "a", "encoding_format": "int"}),
    ("/v1/embeddings", {"model": "bert", "input": "a", "dimensions": 5}),
    ("/v1/chat/completions", {"model": "lstm", "messages": []}),
    ("/api/fill", {"text": "no gap"}),
    ("/api/fill", {"text": "[MASK]", "model": "lstm"}),
    ("/api/fill", {"text": "[MASK]", "top": 0}),
    ("/api/fill", {"text": "[MASK] " * 200}),
    ("/api/score", {"texts": [], "model": "bert"}),
    ("/api/score", {"texts": "a " * 300, "model": "bert"}),
    ("/api/score", {"texts": "a", "pll": "other"}),
    ("/api/score", {"texts": "a", "model": "tag"}),
    ("/api/predict", {"rows": []}),
    ("/api/predict", {"rows": [3]}),
    ("/api/predict", {"rows": ["a"], "model": "gpt2"}),
    ("/api/translate", {"texts": "a", "beam": 0}),
    ("/api/translate", {"texts": "a", "beam": 2, "n_best": 3}),
    ("/api/translate", {"texts": "a", "model": "lstm"}),
    ("/embed", {"inputs": [{"a": 1}]}),
    ("/embed", {"inputs": 3}),
    ("/fill-mask", {"inputs": "[MASK]", "parameters": {"top_k": "x"}}),
    ("/fill-mask", {"inputs": "[MASK]", "parameters": {"top_k": True}}),
    ("/fill-mask", {"inputs": "[MASK]", "parameters": {"targets": ["cat"]}}),
    ("/embed", {"inputs": "a", "model": "bert", "parameters": {"truncate": True}}),
    ("/predict", {"inputs": "a", "model": "classify", "parameters": {"top_k": 1}}),
    ("/translate", {"inputs": "a", "parameters": {"beam": 1}}),
    ("/tag", {"inputs": "a", "model": "classify"}),
    ("/answer", {"inputs": {"question": "who", "context": "the cat"}}),
    ("/detokenize", {"tokens": [10**9]}),
    ("/detokenize", {"tokens": "a"}),
    ("/tokenize", {}),
    ("/tokenize", {"prompt": "a", "model": "none"}),
    ("/nowhere", {}),
    ("/v1/models", {}),
]


@pytest.mark.parametrize(("path", "body"), [*(("/v1/completions", body) for body in MALFORMED), *OTHERS])
def test_what_cannot_be_answered_is_refused(client, path, body):
    response = ask(client, path, body)
    assert 400 <= response.status_code < 500, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "Traceback" not in response.text


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ({"max_tokens": "many"}, "invalid request: max_tokens: expected `int | null`, got `str`", "max_tokens"),
        ({"temprature": 1}, "invalid request: unknown field 'temprature' (did you mean 'temperature'?)", "temprature"),
        ({"stop": [1]}, "stop[0]: expected `str`, got `int`", "stop[0]"),
        ([], "expected `object`", None),
    ],
)
def test_a_refusal_names_the_field(client, body, message, param):
    given = {"model": "lstm", "prompt": "a"} | body if isinstance(body, dict) else body
    error = ask(client, "/v1/completions", given).json()["error"]
    assert message in error["message"] and error["param"] == param


def test_a_prompt_that_waits_for_its_tokens_stops_nobody(client, server, monkeypatch):
    """Another call encodes long texts meanwhile, of which the tokenizer keeps the parts."""
    answers = []
    tokenizer = server.runs["lstm"].tokenizer
    monkeypatch.setattr(tokenizer, "_code_points", None)
    calls = [lambda: complete(client, model="lstm", prompt="a", max_tokens=1), lambda: client.get("/healthz")]
    threads = [threading.Thread(target=lambda call=call: answers.append(call()), daemon=True) for call in calls]
    with tokenizer._table._lock:
        threads[0].start()
        time.sleep(0.5)
        threads[1].start()
        threads[1].join(10)
        assert [each.status_code for each in answers] == [200]
    threads[0].join(10)
    assert answers[1]["choices"]


def test_rows_that_cannot_be_read_are_told_apart(client):
    """One bad row among others is an answer of its own, as in predict."""
    rows = ["the film is good", {"nothing": 1}]
    first, second = ask(client, "/api/predict", {"model": "classify", "rows": rows}).json()["predictions"]
    assert "error" not in first
    assert "error" in second


def test_who_may_ask(folders, runs):
    made = Server({"lstm": runs["lstm"]}, Limits(body=1000), key="a key of many letters")
    good = {"authorization": "Bearer a key of many letters"}
    with TestClient(made.app, base_url="http://127.0.0.1:1", raise_server_exceptions=False) as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer x"}).status_code == 401
        assert client.get("/v1/models", headers=good).status_code == 200
        assert client.get("/healthz").status_code == 200, "without a key"
        assert client.get("/v1/models", headers=good | {"host": "evil.example"}).status_code == 421
        assert client.get("/v1/models", headers=good | {"origin": "http://evil.example"}).status_code == 403
        assert client.get("/v1/models", headers=good | {"origin": "http://localhost:8000"}).status_code == 200
        body = {"model": "lstm", "prompt": "a" * 2000}
        assert ask(client, "/v1/completions", body, **good).status_code == 413
        made.is_open = False
        closing = client.get("/v1/models", headers=good)
        assert closing.status_code == 503
        assert closing.headers["retry-after"]
        assert client.get("/ready").status_code == 503
    made.engines["lstm"].close()


def test_the_description_has_every_route(server, client):
    described = client.get("/openapi.json").json()["paths"]
    routes = set()
    for route in server.app.routes:
        routes |= {(route.path.replace(":path", ""), method) for method in route.methods - {"HEAD"}}
    assert {(path, method.upper()) for path, each in described.items() for method in each} == routes
    complete(client, model="lstm", prompt="the", max_tokens=1)
    metrics = client.get("/metrics").text
    assert 'seqloom_tokens_total{model="lstm"}' in metrics


# ---- company


def wait_for(works, engine):
    """Submits and waits for all of them, at random moments."""
    done = threading.Semaphore(0)
    for work in works:
        if isinstance(work, Writing):
            inner = work.emit
            work.emit = lambda piece, inner=inner: (inner(piece), done.release() if piece.end else None)
        else:
            inner = work.done
            work.done = lambda found, inner=inner: (inner(found), done.release())
    rng = random.Random(1)
    for work in works:
        while True:
            try:
                engine.submit(work)
                break
            except Full:
                pass
        if rng.random() < 0.2:
            threading.Event().wait(0.002)
    for _ in works:
        assert done.acquire(timeout=60)


def many(run, count):
    """Requests to write, and what each must get, by itself."""
    rng, found = random.Random(2), []
    for i in range(count):
        prompt = rng.choice(["the cat", "a bird sees", "", "the old king answers my friend at night ."])
        options = {"max_new": rng.randint(1, 40), "temperature": rng.choice([0.0, 0.9])}
        if options["temperature"] and rng.random() < 0.5:
            options["top_k"] = 5
        found.append((prompt, options, i))
    return found


def check_company(folder, count=40):
    alone, engine = load(folder, "cpu"), Engine(load(folder, "cpu"), rows=8, waiting=64)
    engine.start()
    asked = many(alone, count)
    texts = [""] * count
    tokens = [[] for _ in range(count)]
    works = []
    for i, (prompt, options, seed) in enumerate(asked):
        ids, _ = alone.read(prompt)

        def emit(piece, i=i):
            assert not piece.error, piece.error
            texts[i] += piece.text
            tokens[i].append(piece.token)

        works.append(Writing(Row(list(ids), SampleConfig(**options), seed), emit, StopStrings(()), prompt))
    sums = []
    for _ in range(5):
        sums.append(Call(("score",), ["the cat"], alone.score, lambda found: None))
    wait_for([*works, *sums], engine)
    engine.close()
    engine.join(10)
    assert not engine.is_alive()
    wrong = 0
    for i, (prompt, options, seed) in enumerate(asked):
        (wanted,) = alone.generate(prompt, seed=seed, **options)
        wrong += tokens[i] != wanted.tokens or prompt + texts[i] != wanted.text
    assert wrong == 0
    assert engine.counts.total["failures"] == 0


@pytest.mark.parametrize("name", ["lstm", "gpt2", "ngram"])
def test_answers_do_not_depend_on_company(folders, name):
    check_company(folders[name])


def test_planted_random_numbers_by_moment_are_noticed(folders, monkeypatch):
    count = iter(range(10**9))
    points = lambda rows: torch.tensor([(next(count) * 0.37) % 1 for _ in rows.rows])  # noqa: E731
    monkeypatch.setattr(engine_module.Rows, "points", points)
    with pytest.raises(AssertionError):
        check_company(folders["lstm"], 12)


def test_a_call_that_fails_fails_alone(folders):
    engine = Engine(load(folders["bert"], "cpu"))
    found = {}

    def score(texts):
        if "bad" in texts:
            raise ValueError("bad")
        return [len(text) for text in texts]

    works = [
        Call(("score",), [text], score, lambda got, text=text: found.update({text: got}))
        for text in ("a", "bad", "abc")
    ]
    with engine.changed:
        engine.calls.extend(works)  # all are waiting when it begins
    engine.start()
    engine.close()
    engine.join(20)
    assert found["a"] == [1]
    assert found["abc"] == [3]
    assert isinstance(found["bad"], ValueError)


def test_a_step_that_fails_ends_only_those_in_it(folders, monkeypatch):
    run = load(folders["lstm"], "cpu")
    engine = Engine(run)
    pieces = []
    done = threading.Event()

    def emit(piece):
        pieces.append(piece)
        if piece.end:
            done.set()

    engine.start()
    ids, _ = run.read("the")
    with monkeypatch.context() as patch:
        patch.setattr(engine_module.Rows, "draw", lambda rows: 1 / 0)
        engine.submit(Writing(Row(list(ids), SampleConfig(max_new=3)), emit, StopStrings(())))
        assert done.wait(20)
    assert pieces[-1].end == "error"
    done.clear()
    engine.submit(Writing(Row(list(ids), SampleConfig(max_new=3)), emit, StopStrings(())))
    assert done.wait(20)
    assert pieces[-1].end in ("length", "stop")
    assert math.isfinite(pieces[-1].log_prob)
    engine.close()


def test_too_many_are_told_so(folders):
    engine = Engine(load(folders["ngram"], "cpu"), waiting=2)
    call = Call(("x",), ["a"], len, lambda found: None)
    engine.submit(call, call)
    with pytest.raises(Full):
        engine.submit(call)
    engine.close()
    with pytest.raises(Full):
        engine.submit()
