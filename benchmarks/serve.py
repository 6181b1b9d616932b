"""The server under load beside `generate`: tokens a second of 64 streams, and /healthz meanwhile.

    python benchmarks/serve.py RUN [--streams 64] [--seconds 20] [--tokens 64] [--device cpu]

RUN is a left-to-right run. `run.generate` writes as many texts at once as there are streams, before and after the server is
measured, and the best counts: once to where each text ends, as the clients' do, and once all to their full length, so that the
batch stays full (`ratio_to_full`). The server is a process of its own. As many clients ask it for completions one after the
other, streamed, each with its own prompt, seed and length, until the time is over; they are one thread that reads sockets and
parses nothing before the end, so that the server is what is measured. A third process asks for /healthz twenty times a second.
Answers are compared with those of a text alone; where one differs, it is looked at how near the choice was, as in
`serve_company.py`. CPU time is given as well as wall time: it says what a token costs on a
machine that others use, too. Printed as JSON.
"""

import argparse
import json
import random
import re
import resource
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import turn
from serve_company import NEAR, write_alone

from seqloom import load, progress
from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import Row
from seqloom.decode.stream import continue_text

PROMPTS = ["The ", "A ", "Return the ", "This is ", "", "If there is no "]
WARM_SECONDS = 3.0
WATCH = """
import http.client, json, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
until, found = time.monotonic() + float(sys.argv[2]), []
while time.monotonic() < until:
    began = time.monotonic()
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    found.append(time.monotonic() - began)
    time.sleep(0.05)
print(json.dumps(found))
"""


class Question(NamedTuple):
    prompt: str
    seed: int
    size: int


class Stream:
    """One client, which asks again as soon as it has its answer."""

    def __init__(self, port: int, number: int, tokens: int):
        self.rng, self.tokens = random.Random(number), tokens
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.ask()

    def ask(self) -> None:
        size = self.rng.randint(self.tokens // 2, self.tokens + self.tokens // 2)
        self.question = Question(self.rng.choice(PROMPTS), self.rng.randrange(10**6), size)
        body = json.dumps(
            {
                "model": "model", "prompt": self.question.prompt, "seed": self.question.seed, "max_tokens": size,
                "stream": True, "stream_options": {"include_usage": True},
            }
        ).encode()  # fmt: skip
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        self.data = bytearray()

    def read(self) -> bytes | None:
        """The whole answer once it is there."""
        part = self.socket.recv(1 << 16)
        self.data += part
        if not part or self.data[-5:] == b"0\r\n\r\n" or b" 200 OK\r\n" not in self.data[:40]:
            return bytes(self.data)
        return None


def text_and_count(answer: bytes) -> tuple[str, int]:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 OK" not in head or not answer.endswith(b"0\r\n\r\n"):
        raise ValueError(answer[:300])
    parts, at = [], 0
    while True:  # chunks
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if not size:
            break
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 4 + size
    events = [json.loads(each[6:]) for each in b"".join(parts).split(b"\n\n") if each and each != b"data: [DONE]"]
    text = "".join(each["choices"][0]["text"] for each in events if each["choices"])
    return text, events[-1]["usage"]["completion_tokens"]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Measured(NamedTuple):
    answers: dict[Question, bytes]
    tokens: int  # that the server's own counter has
    seconds: float
    cpu: float
    failed: list[str]


def tokens_of(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        found = b""
        while part := connection.recv(1 << 16):
            found += part
    counted = re.search(rb"seqloom_tokens_total\S* (\d+)", found)
    return int(counted[1]) if counted else 0


def put_under_load(port: int, pid: int, streams: int, tokens: int, seconds: float) -> Measured:
    waiting = selectors.DefaultSelector()
    for number in range(streams):
        stream = Stream(port, number, tokens)
        waiting.register(stream.socket, selectors.EVENT_READ, stream)
    answers: dict[Question, bytes] = {}
    failed: list[str] = []
    begin, until = time.monotonic() + WARM_SECONDS, time.monotonic() + WARM_SECONDS + seconds
    first: tuple[float, int, float] | None = None
    while time.monotonic() < until and not failed:
        if first is None and time.monotonic() >= begin:
            first = time.monotonic(), tokens_of(port), cpu_seconds(pid)
        for key, _ in waiting.select(1.0):
            answer = key.data.read()
            if answer is not None:
                answers[key.data.question] = answer
                if b" 200 OK" not in answer[:40]:
                    failed.append(answer[:300].decode("utf-8", "replace"))
                    break
                key.data.ask()
    assert first is not None, failed
    made, wall, used = tokens_of(port) - first[1], time.monotonic() - first[0], cpu_seconds(pid) - first[2]
    for key in list(waiting.get_map().values()):
        key.data.socket.close()
    return Measured(answers, made, wall, used, failed)


def generate_speed(run: Any, streams: int, tokens: int, least: int = 0, rounds: int = 3) -> tuple[float, float]:
    """Tokens a second, the best of some rounds, and the CPU time that a token took in it."""
    found = []
    for seed in range(rounds):
        began, used = time.monotonic(), time.process_time()
        samples = run.generate("The ", n=streams, seed=seed, max_new=tokens, min_new=least)
        made = sum(len(each.tokens) for each in samples)
        found.append((made / (time.monotonic() - began), (time.process_time() - used) / made))
    return max(found)


def compare(run: Any, answers: dict[Question, bytes], most: int) -> tuple[dict[str, int], list[Any]]:
    """How many answers are those of a text alone, and of those that differ where, and how near the choice was there."""
    asked = random.Random(0).sample(sorted(answers), min(most, len(answers)))
    counts, others = {"same": 0, "near": 0, "wrong": 0}, []
    for question in asked:
        ids, _ = run.read(question.prompt)
        tokens, near = write_alone(run, Row(list(ids), SampleConfig(max_new=question.size), question.seed))
        got = text_and_count(answers[question])[0]
        texts = (continue_text(run.tokenizer, ids, question.prompt, tokens[:n]) for n in range(len(tokens) + 1))
        alone = [each.removeprefix(question.prompt) for each in texts]
        if alone[-1] == got:
            counts["same"] += 1
            continue
        first = max(n for n, text in enumerate(alone) if got.startswith(text.rstrip("\N{REPLACEMENT CHARACTER}")))
        nearest = near[min(first, len(near) - 1)]
        counts["near" if nearest < NEAR else "wrong"] += 1
        others.append({"question": question._asdict(), "token": first, "distance": nearest})
    return counts, others


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("run", type=Path)
    given.add_argument("--streams", type=int, default=64)
    given.add_argument("--seconds", type=float, default=20)
    given.add_argument("--tokens", type=int, default=64)
    given.add_argument("--device", default="cpu")
    given.add_argument("--compare", type=int, default=300, help="answers that are compared with those alone")
    options = given.parse_args()
    progress.QUIET = True
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    run: Any = load(options.run, options.device)
    sizes = (options.tokens, 0), (options.tokens, options.tokens)
    alone, full = (generate_speed(run, options.streams, *each) for each in sizes)
    call = [sys.executable, "-m", "seqloom", "serve", f"model={options.run}", "--port", "0", "--device", options.device]
    process = subprocess.Popen([*call, "--rows", str(options.streams)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(re.search(r":(\d+) ", process.stdout.readline())[1])  # type: ignore[index]
    watch = [sys.executable, "-c", WATCH, str(port), str(options.seconds + WARM_SECONDS)]
    with turn.alone():
        watcher = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True)
        try:
            served = put_under_load(port, process.pid, options.streams, options.tokens, options.seconds)
            waits = sorted(json.loads(watcher.communicate(timeout=30)[0]))
        finally:
            process.terminate()
            process.wait(60)
        alone, full = (
            max(before, generate_speed(run, options.streams, *each))
            for before, each in zip((alone, full), sizes, strict=True)
        )
    compared, others = compare(run, served.answers, options.compare)
    speed = served.tokens / served.seconds
    found = {
        "run": options.run.name, "parameters": run.learner.size(), "streams": options.streams, "device": options.device,
        "generate_tokens_per_second": round(alone[0]), "served_tokens_per_second": round(speed),
        "full_generate_tokens_per_second": round(full[0]), "ratio": round(speed / alone[0], 3),
        "ratio_to_full": round(speed / full[0], 3), "generate_cpu_us_per_token": round(1e6 * alone[1]),
        "full_generate_cpu_us_per_token": round(1e6 * full[1]),
        "served_cpu_us_per_token": round(1e6 * served.cpu / max(served.tokens, 1)),
        "answers": len(served.answers), "failed": served.failed, "compared": compared, "not_the_same": others,
        "healthz_p50_ms": round(1000 * waits[len(waits) // 2], 1),
        "healthz_p99_ms": round(1000 * waits[int(0.99 * (len(waits) - 1))], 1),
    }  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
