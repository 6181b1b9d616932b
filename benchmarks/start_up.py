"""How long commands take to answer, from the start of the program to its end, as somebody at a keyboard waits.

    python benchmarks/start_up.py [--rounds 5]

A mistyped recipe and path, `models`, and `predict` on one line with a tagger that is trained here first. The figure is the median
of the rounds, in seconds; a busy machine is slower.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOALS = {"mistyped recipe": 0.5, "mistyped path": 0.5, "models": 1.0, "predict on one line": 3.0}


def seconds(arguments: list[str], folder: Path, code: int, given: str | None = None) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "seqloom", *arguments]
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the start of commands.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        (folder / "train.conll").write_text("Ada B-PER\nsleeps O\n\nIt O\nrained O\n\n" * 8)
        seconds(
            [
                "train",
                "bilstm-cnn-tiny",
                "--task",
                "tag",
                "--train",
                "train.conll",
                "--out",
                "run",
                "--tokenizer",
                "word",
            ],
            folder,
            0,
        )
        calls = {
            "mistyped recipe": (["pretrain", "lstm-tinny", "--data", "data", "--out", "o"], 2, None),
            "mistyped path": (["pretrain", "lstm-tiny", "--data", "nowhere", "--out", "o"], 3, None),
            "models": (["models"], 0, None),
            "predict on one line": (["predict", "run"], 0, "Obama visited Paris yesterday .\n"),
        }
        for what, (arguments, code, given) in calls.items():
            found = [seconds(arguments, folder, code, given) for _ in range(rounds)]
            median = statistics.median(found)
            print(f"{what:20} {median:.2f} s  (goal {GOALS[what]:g} s, {min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()
