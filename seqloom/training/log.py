"""metrics.jsonl: one JSON object a line, cut back to the last checkpoint on resume, so that no step is logged twice."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from seqloom.files import explained, parse_json
from seqloom.progress import say

OnLog = Callable[[dict[str, Any]], object]  # what a user has called with each line


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The log of a run, line by line."""
    path = folder / "metrics.jsonl"
    with explained(path):
        return [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


class MetricsLog:
    def __init__(self, path: Path, keep: int, on_log: OnLog | None = None):
        """Opens the log and drops everything after its first `keep` bytes. on_log: called with each line after it is written."""
        self.on_log, self.has_failed = on_log, False
        self.seconds_outside = 0.0  # that on_log has taken
        with explained(path):
            self.file = open(path, "ab")  # noqa: SIM115 - closed by close()
            self.file.truncate(min(keep, path.stat().st_size))
        self.path = path

    def write(self, record: dict[str, Any]) -> None:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in record.items()}
        line = json.dumps(rounded, allow_nan=False)
        with explained(self.path):
            self.file.write((line + "\n").encode())
            self.file.flush()
        if self.on_log is not None:
            self.call_outside(self.on_log, line)

    def call_outside(self, on_log: OnLog, line: str) -> None:
        """Calls what a user gave with a line of its own. Whatever it raises or draws at random, the run goes on as without it."""
        started = time.monotonic()
        try:
            with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
                on_log(json.loads(line))
        except (Exception, SystemExit) as error:
            if not self.has_failed:
                say(
                    f"warning: on_log failed ({type(error).__name__}: {error}); the run goes on, further failures are not shown"
                )
            self.has_failed = True
        self.seconds_outside += time.monotonic() - started

    def sync(self) -> int:
        """Forces the lines to disk and returns how many bytes they are."""
        with explained(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
            return self.path.stat().st_size

    def close(self) -> None:
        self.file.close()
