"""The server under load beside `generate`: tokens a second of 64 streams, and /healthz meanwhile.

    python benchmarks/serve.py RUN [--streams 64] [--seconds 20] [--tokens 64] [--device cpu]

RUN is a left-to-right run. First `run.generate` writes as many texts at once as there are streams, three times, the best of which
counts. Then the server is started as a process, and as many clients ask for completions one after the other, streamed, each with
its own prompt, seed and length, until the time is over; another one asks for /healthz twenty times a second. Answers are compared
with those of `generate` alone. Printed as JSON.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from seqloom import load, progress

PROMPTS = ["The ", "A ", "Return the ", "This is ", "", "If there is no "]


class Clients:
    def __init__(self, port: int, name: str, tokens: int, until: float):
        self.port, self.name, self.tokens, self.until = port, name, tokens, until
        self.found: dict[tuple[str, int, int], str] = {}
        self.made = 0
        self.health: list[float] = []
        self.wrong: list[str] = []
        self.lock = threading.Lock()

    def ask(self, connection: http.client.HTTPConnection, prompt: str, seed: int, size: int) -> tuple[str, int]:
        body = {"model": self.name, "prompt": prompt, "seed": seed, "max_tokens": size, "stream": True}
        body["stream_options"] = {"include_usage": True}  # type: ignore[assignment]
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        events = response.read().decode().split("\n\n")
        if response.status != 200:
            raise RuntimeError(events[0])
        parts = [json.loads(event.removeprefix("data: ")) for event in events if event and "[DONE]" not in event]
        text = "".join(part["choices"][0]["text"] for part in parts if part["choices"])
        return text, parts[-1]["usage"]["completion_tokens"]

    def write(self, number: int) -> None:
        rng, connection = random.Random(number), http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while time.monotonic() < self.until:
            prompt, seed = rng.choice(PROMPTS), rng.randrange(10**6)
            size = rng.randint(self.tokens // 2, self.tokens + self.tokens // 2)
            try:
                text, made = self.ask(connection, prompt, seed, size)
            except (RuntimeError, OSError, ValueError) as error:
                self.wrong.append(repr(error))
                return
            with self.lock:
                self.found[prompt, seed, size] = text
                self.made += made if time.monotonic() < self.until else 0

    def watch(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while time.monotonic() < self.until:
            began = time.monotonic()
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.health.append(time.monotonic() - began)
            time.sleep(0.05)


def generate_speed(run: Any, streams: int, tokens: int) -> float:
    best = 0.0
    for seed in range(3):
        began = time.monotonic()
        samples = run.generate("The ", n=streams, seed=seed, max_new=tokens)
        best = max(best, sum(len(each.tokens) for each in samples) / (time.monotonic() - began))
    return best


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
    run: Any = load(options.run, options.device)
    alone = generate_speed(run, options.streams, options.tokens)
    call = [sys.executable, "-m", "seqloom", "serve", f"model={options.run}", "--port", "0", "--device", options.device]
    process = subprocess.Popen([*call, "--rows", str(options.streams)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(re.search(r":(\d+) ", process.stdout.readline())[1])  # type: ignore[index]
    try:
        clients = Clients(port, "model", options.tokens, time.monotonic() + options.seconds)
        threads = [threading.Thread(target=clients.write, args=(i,)) for i in range(options.streams)]
        threads.append(threading.Thread(target=clients.watch))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        process.terminate()
        process.wait(30)
    asked = random.Random(0).sample(sorted(clients.found), min(options.compare, len(clients.found)))
    different = 0
    for prompt, seed, size in asked:
        (sample,) = run.generate(prompt, seed=seed, max_new=size)
        different += sample.text.removeprefix(prompt) != clients.found[prompt, seed, size]
    served = clients.made / options.seconds
    waits = sorted(clients.health)
    found = {
        "run": options.run.name, "streams": options.streams, "generate_tokens_per_second": round(alone),
        "served_tokens_per_second": round(served), "ratio": round(served / alone, 3), "answers": len(clients.found),
        "failed": clients.wrong, "compared": len(asked), "different": different,
        "healthz_p50_ms": round(1000 * waits[len(waits) // 2], 1),
        "healthz_p99_ms": round(1000 * waits[int(0.99 * (len(waits) - 1))], 1),
    }  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
