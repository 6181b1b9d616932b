"""metrics.jsonl: one JSON object a line, cut back to the last checkpoint on resume, so that no step is logged twice."""

import json
import os
from pathlib import Path
from typing import Any

from seqloom.files import explained, parse_json


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The log of a run, line by line."""
    path = folder / "metrics.jsonl"
    with explained(path):
        return [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


class MetricsLog:
    def __init__(self, path: Path, keep: int):
        """Opens the log and drops everything after its first `keep` bytes."""
        with explained(path):
            self.file = open(path, "ab")  # noqa: SIM115 - closed by close()
            self.file.truncate(min(keep, path.stat().st_size))
        self.path = path

    def write(self, record: dict[str, Any]) -> None:
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in record.items()}
        with explained(self.path):
            self.file.write((json.dumps(rounded, allow_nan=False) + "\n").encode())
            self.file.flush()

    def sync(self) -> int:
        """Forces the lines to disk and returns how many bytes they are."""
        with explained(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
            return self.path.stat().st_size

    def close(self) -> None:
        self.file.close()
