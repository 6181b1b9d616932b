"""The server as a process of its own, over real connections."""

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest


def start(*arguments):
    """The process and its port."""
    call = [sys.executable, "-m", "seqloom", "serve", *map(str, arguments), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    found = re.search(r":(\d+) ", line)
    assert found, (line, process.stderr.read())
    return process, int(found[1])


@pytest.fixture(scope="module")
def process(folders):
    made, port = start(f"writer={folders['lstm']}", folders["gpt2"])
    yield made, port
    made.kill()


def call(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, None if body is None else json.dumps(body), headers or {})
    response = connection.getresponse()
    return response.status, response.read()


def raw(port, data, seconds=5.0):
    """What comes back for these bytes, until the server closes or says no more."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except TimeoutError:
            found += b"(still open)"
        except ConnectionResetError:
            pass
    return found


def test_it_answers_and_refuses_over_a_socket(process):
    _, port = process
    status, body = call(port, "POST", "/v1/completions", {"model": "writer", "prompt": "the", "max_tokens": 4})
    assert status == 200
    assert json.loads(body)["choices"][0]["finish_reason"] in ("length", "stop")
    assert {each["id"] for each in json.loads(call(port, "GET", "/v1/models")[1])["data"]} == {"writer", "gpt2"}
    assert call(port, "GET", "/healthz", headers={"Host": "evil.example"})[0] == 421
    assert b" 431 " in raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x: y\r\n" * 5000 + b"\r\n")
    assert b" 431 " in raw(port, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
    assert b" 400 " in raw(port, b"\x00\x01\x02 nonsense\r\n\r\n")
    huge = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000000\r\nConnection: close\r\n\r\n"
    assert b" 413 " in raw(port, huge)
    assert call(port, "GET", "/healthz")[0] == 200


def test_a_client_that_leaves_stops_its_work(process):
    _, port = process
    body = json.dumps({"model": "writer", "prompt": "the", "max_tokens": 4000, "temperature": 2.0, "stop": ["@@"]})
    with socket.create_connection(("127.0.0.1", port)) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        time.sleep(0.2)
    for _ in range(100):
        metrics = call(port, "GET", "/metrics")[1].decode()
        if 'seqloom_writing{model="writer"} 0' in metrics:
            break
        time.sleep(0.1)
    else:
        raise AssertionError(metrics)


def test_it_finishes_what_runs_when_it_is_told_to_stop(folders):
    made, port = start(folders["lstm"])
    body = {"model": "lstm", "prompt": "the", "max_tokens": 300, "temperature": 1.5, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v1/completions", json.dumps(body))
    response = connection.getresponse()
    first = response.read(100)
    made.send_signal(signal.SIGTERM)
    assert (first + response.read()).endswith(b"data: [DONE]\n\n")
    assert made.wait(30) == 0
    assert "Traceback" not in made.stderr.read()


@pytest.mark.long
def test_what_cannot_be_served(folders, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(folders["lstm"], damaged)
    (damaged / "config.json").write_text("{")
    made, port = start(folders["lstm"], damaged)
    try:
        assert [each["id"] for each in json.loads(call(port, "GET", "/v1/models")[1])["data"]] == ["lstm"]
        for arguments, code, words in (
            ([folders["lstm"], "--port", port], 5, "choose another --port"),
            ([folders["lstm"], f"lstm={folders['gpt2']}"], 2, "two runs are called 'lstm'"),
            ([damaged], 4, "config.json"),
            ([folders["lstm"], "--host", "0.0.0.0"], 2, "--key-file"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "seqloom", "serve", *map(str, arguments), "--device", "cpu"],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert (done.returncode, words in done.stderr) == (code, True), done.stderr
            assert "Traceback" not in done.stderr
    finally:
        made.terminate()
        made.wait(30)


@pytest.mark.long
def test_slow_clients_are_left(process):
    """Headers that never end, and many connections that say nothing, hold up nobody."""
    _, port = process
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    for each in idle:
        each.sendall(b"GET /healthz HTTP/1.1\r\nHo")
    for _ in range(10):
        assert call(port, "GET", "/healthz")[0] == 200
    began = time.monotonic()
    for each in idle:
        each.settimeout(30)
        assert each.recv(100) == b""
        each.close()
    assert time.monotonic() - began < 20
    half = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    assert b" 408 " in raw(port, half, 45)
