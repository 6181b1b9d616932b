"""Jobs as jobs of Slurm: one submission each, by sbatch and nothing else.

A job whose node fails is requeued by Slurm and resumes; one that meets its time limit saves its state, ends with the exit code of
an interruption, and is submitted again. The exit code is left in a file beside the log: the accounting of a cluster may be off.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from seqloom.comparison.engines import Polled, Task
from seqloom.errors import UsageError
from seqloom.files import write_bytes, write_json

BETWEEN = 5.0  # seconds between two looks at the queue
MISSING = 30.0  # seconds for which a job may be neither in the queue nor have an exit code: files travel, too
CARRIED = ("PYTHONPATH", "ONEDNN_MAX_CPU_ISA", "TOKENIZERS_PARALLELISM", "HOME", "PATH", "VIRTUAL_ENV")
# of sbatch; what seqloom sets itself, or would break it, is not for users
OWN = (
    "job-name",
    "output",
    "error",
    "open-mode",
    "requeue",
    "no-requeue",
    "signal",
    "array",
    "wrap",
    "chdir",
    "parsable",
)


def script(task: Task, cpus: int, gpus: float, options: Sequence[tuple[str, str]]) -> str:
    """What is submitted for one job. SIGTERM reaches the job: Slurm sends it a minute before the time limit."""
    exit_file, begun_file = shlex.quote(str(exit_path(task.log))), shlex.quote(str(begun_path(task.log)))
    lines = ["#!/bin/bash", f"#SBATCH --job-name={json.dumps('seqloom ' + task.name)}"]
    lines += [f"#SBATCH --output={json.dumps(str(task.log))}", "#SBATCH --open-mode=append", "#SBATCH --requeue"]
    lines += ["#SBATCH --signal=B:TERM@60", f"#SBATCH --cpus-per-task={cpus}"]
    if gpus and not any(name in ("gres", "gpus", "gpus-per-task", "gpus-per-node") for name, _ in options):
        lines.append(f"#SBATCH --gres=gpu:{int(gpus)}")
    lines += [f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in options]
    lines.append(f": > {begun_file}")
    given = {name: value for name, value in task.environment.items() if name in CARRIED}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
    lines += [f"export OMP_NUM_THREADS={cpus} SEQLOOM_NODE=$SLURMD_NODENAME"]
    lines += ["trap 'kill -TERM $job 2>/dev/null' TERM", f"{shlex.join(task.call)} &", "job=$!"]
    lines += ["wait $job; code=$?", "while kill -0 $job 2>/dev/null; do wait $job; code=$?; done"]
    lines += [f"echo $code > {exit_file}.tmp && mv {exit_file}.tmp {exit_file}", "exit $code"]
    return "\n".join(lines) + "\n"


def exit_path(log: Path) -> Path:
    return log.with_name(f"{log.stem}.exit.log")


def begun_path(log: Path) -> Path:
    """The first thing that a job writes: one that has ended without it does not see the folder."""
    return log.with_name(f"{log.stem}.begun.log")


def parse_options(given: Sequence[str]) -> list[tuple[str, str]]:
    """key=value, as they stand in a batch script."""
    found = []
    for each in given:
        name, _, value = each.partition("=")
        name = name.lstrip("-")
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or "\n" in value:
            raise UsageError(f"--slurm {each!r}: give key=value, such as --slurm partition=gpu")
        if name in OWN:
            raise UsageError(f"--slurm {each!r}: {name} is set by seqloom itself: leave it out")
        found.append((name, value))
    return found


class SlurmEngine:
    here, restarts = False, True

    def __init__(self, most: int, cpus: int, gpus: float, options: Sequence[str]):
        self.most, self.cpus, self.gpus, self.options = most, cpus, gpus, parse_options(options)
        if gpus != int(gpus):
            raise UsageError(f"--gpus {gpus}: Slurm gives whole GPUs: give a whole number")
        self.queue: dict[str, str] = {}  # states by job
        self.looked = -BETWEEN

    def prepare(self, folder: Path) -> None:
        """Jobs that an earlier call has submitted are taken over."""
        self.folder = folder
        call("sbatch", "--version")
        self.look(now=True)

    def start(self, task: Task) -> "SlurmJob":
        known = self.submitted()
        label = task.log.stem
        number = known.get(label, "")
        if number not in self.queue:
            for path in (exit_path(task.log), begun_path(task.log)):
                path.unlink(missing_ok=True)
            path = task.log.with_name(f"{label}.sbatch.log")
            write_bytes(path, script(task, self.cpus, self.gpus, self.options).encode())
            number = call("sbatch", "--parsable", str(path)).strip().partition(";")[0]
            write_json(self.folder / "logs" / "slurm-jobs.log", known | {label: number})
            self.queue[number] = "PENDING"
        return SlurmJob(self, number, task.log)

    def submitted(self) -> dict[str, str]:
        try:
            found = json.loads((self.folder / "logs" / "slurm-jobs.log").read_text())
            return {str(key): str(value) for key, value in found.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def look(self, now: bool = False) -> None:
        """At the queue, now and then."""
        if now or time.monotonic() - self.looked >= BETWEEN:
            lines = call("squeue", "--noheader", "--format=%i %T", "--user", str(os.getuid())).splitlines()
            self.queue = dict(line.split()[:2] for line in lines if len(line.split()) > 1)
            self.looked = time.monotonic()


class SlurmJob(Polled):
    def __init__(self, engine: SlurmEngine, number: str, log: Path):
        self.engine, self.number, self.log = engine, number, log
        self.missing: float | None = None  # since when it is neither here nor there

    def poll(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(exit_path(self.log).read_text())
        self.engine.look()
        if self.number in self.engine.queue:
            self.missing = None
            return None
        self.missing = time.monotonic() if self.missing is None else self.missing
        if time.monotonic() - self.missing < MISSING:
            return None
        if not begun_path(self.log).exists():
            raise UsageError(
                f"--on slurm: job {self.number} has ended and written nothing to {self.engine.folder}: choose an --out that "
                f"all machines share, unless the job was cancelled"
            )
        return -signal.SIGKILL  # it could not even leave its exit code

    def terminate(self) -> None:
        pending = self.engine.queue.get(self.number) in ("PENDING", "REQUEUED", "CONFIGURING")
        how = [] if pending else ["--signal=TERM", "--full"]
        with contextlib.suppress(UsageError):
            call("scancel", *how, self.number)

    def kill(self) -> None:
        with contextlib.suppress(UsageError):
            call("scancel", self.number)


def call(program: str, *arguments: str) -> str:
    try:
        found = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        raise UsageError(f"--on slurm: there is no {program} here: call it on a machine of a Slurm cluster") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"--on slurm: {program} did not answer within two minutes: is the cluster up?") from None
    if found.returncode:
        said = " ".join((found.stderr or found.stdout).split())[:300]
        raise UsageError(f"--on slurm: {program} failed with exit code {found.returncode}: {said}")
    return found.stdout
