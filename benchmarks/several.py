"""Several runs at once, each a process of its own: what is finished stays finished, what is stopped goes on when called again."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Job = tuple[str, int]  # the name of a row, and the seed


def place(out: Path, name: str, seed: int) -> Path:
    return out / f"{name.replace(' ', '-')}-{seed}"


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    command: Sequence[str],
    most: int,
    until: float,
    shown: Callable[[dict[str, Any]], str],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """Calls `command --one=NAME --seed=SEED` for every job without OUT/NAME-SEED/result.json, at most `most` at a time, and stops
    them when time.monotonic() is `until`. shown: a finished run's own figures, for people. Returns the results of all that are
    finished, in the order of names and seeds; they are in OUT/results.jsonl, too."""
    left = [job for job in jobs if not (place(out, *job) / "result.json").exists()]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running: dict[Job, tuple[subprocess.Popen[bytes], float]] = {}
    while (left or running) and time.monotonic() < until:
        while left and len(running) < most:
            job = left.pop(0)
            with place(out, *job).with_suffix(".log").open("ab") as log:
                call = [*command, f"--one={job[0]}", f"--seed={job[1]}"]
                process = subprocess.Popen(call, stdout=log, stderr=subprocess.STDOUT, env=environment)
            running[job] = process, time.monotonic()
        time.sleep(0.5)
        for job, (process, started) in list(running.items()):
            if process.poll() is None:
                continue
            del running[job]
            seconds, head = time.monotonic() - started, f"{job[0]:18} seed {job[1]}"
            if process.returncode:
                log_file = place(out, *job).with_suffix(".log")
                tail = log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
                print(f"{head}  exit {process.returncode} after {seconds:.0f} s: {' '.join(tail)}", flush=True)
                continue
            row = json.loads((place(out, *job) / "result.json").read_text())
            print(
                f"{head}  {shown(row)}  {row['parameters'] / 1e6:.1f}M  {row['step']} steps  "
                f"{row['tokens_per_second']:,.0f} tokens/s  {row['seconds']:.0f} s training, {seconds:.0f} s in all",
                flush=True,
            )
    for job, (process, _) in running.items():  # they save their state, and go on when called again
        process.terminate()
        print(f"{job[0]:18} seed {job[1]}  not finished", flush=True)
    for process, _ in running.values():
        process.wait()
    rows = [json.loads(path.read_text()) for path in out.glob("*/result.json")]
    rows.sort(key=lambda row: (list(names).index(row["name"]), row["seed"]))
    (out / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows
