"""50,000 requests that nobody should send, over real connections: no 500, no traceback, and the server answers afterwards.

    python benchmarks/serve_fuzz.py lstm=RUN gpt2=RUN bert=RUN translator=RUN classify=RUN tag=RUN [--count 50000] [--seed 1]

The requests are those of tests/serve/hostile.py, the listed ones first, then fuzzed ones, over eight connections; every
hundredth is not HTTP at all. Names of models that are not given are refused, which is fine, too. At last slow senders, 100,000
headers and a body of 50 MB. Printed as JSON.
"""

import argparse
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.serve.hostile import Request, fuzzed, listed

RAW = [
    b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"\r\n" * 100, b"GET /\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"GET /healthz HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
]  # fmt: skip


class Senders:
    def __init__(self, port: int, requests: Any):
        self.port, self.requests, self.lock = port, requests, threading.Lock()
        self.statuses: Counter[Any] = Counter()
        self.bad: list[str] = []

    def next(self) -> Request | None:
        with self.lock:
            return next(self.requests, None)

    def send(self, number: int) -> None:
        rng = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while (request := self.next()) is not None:
            if rng.random() < 0.01:
                self.count("not HTTP", raw(self.port, rng.choice(RAW), 0.2), None)
            try:
                connection.request(request.method, request.path, request.body)
                response = connection.getresponse()
                self.count(response.status, response.read(), request)
            except (http.client.HTTPException, OSError) as error:
                self.count(type(error).__name__, b"", request)
                connection.close()

    def count(self, status: Any, data: bytes, request: Request | None) -> None:
        with self.lock:
            self.statuses[status] += 1
            failed = (isinstance(status, int) and status >= 500) or b"Traceback" in data or b" 500 " in data[:20]
            if failed and len(self.bad) < 20:
                self.bad.append(f"{status} {request} {data[:200]!r}")


def raw(port: int, data: bytes, seconds: float) -> bytes:
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                found += part
        except OSError:
            pass
    return found


def extremes(port: int) -> dict[str, str]:
    """What comes back first for each."""
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
    many = (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(100_000)) + b"\r\n"
    )
    began = time.monotonic()
    slow = socket.create_connection(("127.0.0.1", port), timeout=30)
    slow.sendall(b"GET /healthz HTTP/1.1\r\nHo")
    closed = slow.recv(100) == b""
    waited = time.monotonic() - began
    return {
        "100,000 headers": raw(port, many, 5)[9:12].decode(),
        "50 MB": raw(port, head + b"50000000\r\n\r\n" + b"a" * 50_000_000, 10)[9:12].decode(),
        "50 MB in chunks": raw(
            port,
            b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"100000\r\n"
            + b"a" * (1 << 20)
            + b"\r\n"
            + b"2f00000\r\n"
            + b"a" * 0x2F00000,
            10,
        )[9:12].decode(),
        "slow headers": f"{'closed' if closed else 'open'} after {waited:.0f} s",
        "slow body": raw(port, head + b"100\r\n\r\n{", 45)[9:12].decode(),
    }


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("runs", nargs="+", help="NAME=RUN")
    given.add_argument("--count", type=int, default=50_000)
    given.add_argument("--seed", type=int, default=1)
    options = given.parse_args()
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
    call = [
        sys.executable,
        "-m",
        "seqloom",
        "serve",
        *options.runs,
        "--port",
        "0",
        "--device",
        "cpu",
        "--max-tokens",
        "8",
    ]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    port = int(re.search(r":(\d+) ", process.stdout.readline())[1])  # type: ignore[index]
    began = time.monotonic()
    requests = iter([*listed(), *fuzzed(options.seed, options.count)])
    senders = Senders(port, requests)
    threads = [threading.Thread(target=senders.send, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    alive = raw(port, b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 10)[9:12].decode()
    last = extremes(port)
    process.terminate()
    process.wait(60)
    errors.seek(0)
    said = [line for line in errors.read().splitlines() if ": loaded " not in line]
    found = {
        "listed": len(listed()), "fuzzed": options.count, "seed": options.seed, "seconds": round(seconds),
        "statuses": {str(status): n for status, n in sorted(senders.statuses.items(), key=str)}, "bad": senders.bad,
        "ready_afterwards": alive, "extremes": last, "stderr": said[:20], "exit_code": process.returncode,
    }  # fmt: skip
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
