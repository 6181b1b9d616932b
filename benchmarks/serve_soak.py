"""64 clients for half an hour: wrong answers, codes, memory and descriptors of the server.

    python benchmarks/serve_soak.py NAME=RUN… [--minutes 30] [--clients 64]

What each run can do is asked of it: texts that are continued (streamed or not), scores, vectors, gaps, predictions, translations,
attention and cells. What must come is computed first, by the runs alone. Some clients hang up in the middle. Memory and
descriptors of the server are read every ten seconds. Printed as JSON, a line a minute, and all at the end.
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
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from seqloom import load, progress
from seqloom.serve.abilities import ABILITIES

TEXTS = [
    "the cat",
    "First Citizen : speak",
    "a small bird sees my old friend at night",
    "the king",
    "no",
    "Once upon a time there was",
]
HANG_UP = 0.03
CLOSE = 2e-3  # numbers that are equal but for the order of sums


def questions_of(name: str, run: Any) -> list[tuple[str, dict[str, Any], Any]]:
    """Path, body, and what must be in the answer."""
    able = [ability for ability, can in ABILITIES.items() if can(run)]
    found: list[tuple[str, dict[str, Any], Any]] = []
    for number, text in enumerate(TEXTS):
        if "write" in able:
            for size in (5, 30, 60):
                (sample,) = run.generate(text, seed=number, max_new=size)
                body = {"model": name, "prompt": text, "seed": number, "max_tokens": size}
                found.append(("/v1/completions", body | {"stream": size == 30}, sample.text.removeprefix(text)))
        if "score" in able:
            found.append(("/api/score", {"model": name, "texts": [text]}, run.score([text])[0].log_probs))
        if "embed" in able:
            found.append(("/v1/embeddings", {"model": name, "input": [text]}, run.encode([text])[0].tolist()))
        if "fill" in able:
            filled = text + " [MASK] ."
            found.append(("/api/fill", {"model": name, "text": filled}, run.fill(filled, top=5)[0][0].text))
        if "translate" in able:
            found.append(
                ("/api/translate", {"model": name, "texts": [text]}, run.translate([text], show=False)[0][0].text)
            )
        if "predict" in able:
            found.append(("/api/predict", {"model": name, "rows": [text]}, None))
        if "attention" in able:
            found.append(("/api/attention", {"model": name, "text": text}, None))
        if "cells" in able:
            found.append(("/api/cells", {"model": name, "text": (text + " . ") * 15}, None))
    return found


def answer_of(path: str, data: bytes) -> Any:
    if data.startswith(b"data: "):
        events = [json.loads(each[6:]) for each in data.decode().split("\n\n") if each and each != "data: [DONE]"]
        return "".join(each["choices"][0]["text"] for each in events)
    found = json.loads(data)
    return {
        "/v1/completions": lambda: found["choices"][0]["text"], "/api/score": lambda: found["scores"][0]["log_probs"],
        "/v1/embeddings": lambda: found["data"][0]["embedding"], "/api/fill": lambda: found["gaps"][0][0]["text"],
        "/api/translate": lambda: found["translations"][0][0]["text"],
    }.get(path, lambda: None)()  # fmt: skip


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and bool(np.abs(np.asarray(one) - np.asarray(other)).max() < CLOSE)
    return bool(one == other)


class Clients:
    def __init__(self, port: int, questions: list[Any], until: float):
        self.port, self.questions, self.until, self.lock = port, questions, until, threading.Lock()
        self.codes: Counter[Any] = Counter()
        self.wrong: list[Any] = []
        self.num_wrong = 0
        self.waits: dict[str, list[float]] = defaultdict(list)  # by path and run

    def ask(self, number: int) -> None:
        rng, connection = random.Random(number), http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while time.monotonic() < self.until:
            path, body, wanted = rng.choice(self.questions)
            began = time.monotonic()
            try:
                connection.request("POST", path, json.dumps(body))
                if rng.random() < HANG_UP:
                    connection.close()
                    self.count("hung up")
                    continue
                response = connection.getresponse()
                data = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.count(type(error).__name__)
                connection.close()
                continue
            self.count(response.status, f"{path} {body['model']}", time.monotonic() - began)
            if response.status == 200 and wanted is not None and not is_equal(wanted, got := answer_of(path, data)):
                with self.lock:
                    self.num_wrong += 1
                    self.wrong = [*self.wrong, [path, body, str(wanted)[:200], str(got)[:200]]][:10]

    def count(self, code: Any, kind: str = "", seconds: float | None = None) -> None:
        with self.lock:
            self.codes[str(code)] += 1
            if seconds is not None:
                self.waits[kind].append(seconds)


def quantile(waits: list[float], share: float) -> float:
    return round(sorted(waits)[int(share * (len(waits) - 1))], 3)


def memory_and_descriptors(pid: int) -> tuple[float, int]:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("runs", nargs="+", help="NAME=RUN")
    given.add_argument("--minutes", type=float, default=30)
    given.add_argument("--clients", type=int, default=64)
    options = given.parse_args()
    progress.QUIET = True
    named = dict(each.split("=", 1) for each in options.runs)
    questions = [each for name, folder in named.items() for each in questions_of(name, load(folder, "cpu"))]
    call = [sys.executable, "-m", "seqloom", "serve", *options.runs, "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    port = int(re.search(r":(\d+) ", process.stdout.readline())[1])  # type: ignore[index]
    began = time.monotonic()
    clients = Clients(port, questions, began + 60 * options.minutes)
    time.sleep(1)
    idle = memory_and_descriptors(process.pid)
    threads = [threading.Thread(target=clients.ask, args=(i,)) for i in range(options.clients)]
    for thread in threads:
        thread.start()
    seen: list[tuple[float, float, int]] = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(10)
        seen.append((round(time.monotonic() - began), *memory_and_descriptors(process.pid)))
        if len(seen) % 6 == 0:
            print(
                json.dumps({"seconds": seen[-1][0], "MB": seen[-1][1], "answers": sum(clients.codes.values())}),
                flush=True,
            )
    time.sleep(5)
    after = memory_and_descriptors(process.pid)
    process.terminate()
    process.wait(60)
    said = [line for line in process.stderr.read().splitlines() if ": loaded " not in line]
    waits, half = (
        sorted(each for kind in clients.waits.values() for each in kind),
        [mb for _, mb, _ in seen[len(seen) // 2 :]],
    )
    found = {
        "minutes": options.minutes, "clients": options.clients, "questions": len(questions), "codes": clients.codes,
        "wrong": clients.num_wrong, "examples": clients.wrong, "p50_s": quantile(waits, 0.5), "p99_s": quantile(waits, 0.99),
        "p50_p99_s": {kind: [len(w), quantile(w, 0.5), quantile(w, 0.99)] for kind, w in sorted(clients.waits.items())},
        "MB_idle": idle[0], "MB_after_a_minute": seen[min(5, len(seen) - 1)][1],
        "MB_second_half": [min(half), max(half)], "MB_after": after[0],
        "descriptors": [idle[1], max(n for *_, n in seen), after[1]],
        "stderr": said[:10], "exit_code": process.returncode,
    }  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
