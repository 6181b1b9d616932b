"""How fast and in how much memory `seqloom prepare` works: python benchmarks/prepare.py FILE [--vocab-size N] [--workers N] ...

Runs the command in a process of its own and prints MB/s of unpacked text over the whole command (reading, leak check, learning
the tokenizer, encoding, writing) and the largest resident memory of the process and its workers together.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil


def main() -> None:
    arguments = sys.argv[1:]
    out = Path(tempfile.mkdtemp(prefix="seqloom-bench-"))
    command = [sys.executable, "-m", "seqloom", "prepare", *arguments, "--out", str(out), "--json", "--overwrite"]
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, memory(watched))
            time.sleep(0.1)
        printed = process.stdout.read() if process.stdout else ""
    seconds = time.monotonic() - start
    shutil.rmtree(out)
    if process.returncode:
        sys.exit(process.returncode)
    report = json.loads(printed)
    size = report["report"]["bytes"] / 1e6
    print(
        json.dumps(
            {
                "megabytes": round(size, 1),
                "seconds": round(seconds, 1),
                "mb_per_second": round(size / seconds, 2),
                "peak_rss_mb": round(peak / 1e6),
                "tokens": sum(split["tokens"] for split in report["splits"].values()),
                "vocab_size": report["vocab_size"],
                "cores": psutil.cpu_count(),
            }
        )
    )


def memory(process: psutil.Process) -> int:
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.Error:  # it has just ended
            continue
    return total


if __name__ == "__main__":
    main()
