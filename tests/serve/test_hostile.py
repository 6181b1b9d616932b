"""Whatever is sent, the answer is one of the documented ones: no 500, no traceback. `benchmarks/serve_fuzz.py` sends 50,000."""

import json

import pytest
from starlette.testclient import TestClient

from seqloom.serve.app import Limits, Server
from tests.serve.hostile import Request, fuzzed, listed


@pytest.fixture(scope="module")
def short(server):
    """The same runs and engines, with short texts."""
    made = Server({}, Limits(max_tokens=8))
    made.runs, made.engines = server.runs, server.engines
    with TestClient(made.app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client


def check(client, request: Request, refused: bool) -> None:
    response = client.request(request.method, request.path, content=request.body)
    assert response.status_code < 500, (request, response.text)
    assert not refused or response.status_code >= 400 or request.method == "GET", request
    if response.status_code >= 400 and request.method != "HEAD":
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        assert "Traceback" not in response.text and len(response.text) < 2000


def test_listed_requests_are_refused(short, capfd):
    requests = listed()
    assert len(requests) >= 300
    for request in requests:
        check(short, request, refused=True)
    assert capfd.readouterr().err == ""


def test_fuzzed_requests_are_answered_or_refused(short, capfd):
    statuses = set()
    for request in fuzzed(seed=0, count=400):
        response = short.request(request.method, request.path, content=request.body)
        statuses.add(response.status_code)
        assert response.status_code < 500, (request, response.text)
    assert {200, 400, 404} <= statuses
    assert capfd.readouterr().err == ""


def test_planted_handlers_that_fail_are_noticed(short, monkeypatch):
    monkeypatch.setattr("seqloom.serve.app.texts_of", lambda ask: 1 / 0)
    with pytest.raises(AssertionError):
        check(short, Request("POST", "/embed", json.dumps({"inputs": "a", "model": "bert"}).encode()), False)
