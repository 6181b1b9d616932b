"""Where the jobs of a comparison run: as processes here, as tasks of a Ray cluster, or as jobs of Slurm.

A job is one command that resumes by itself and writes its result last, into a folder that all machines see. An engine only starts
it somewhere, and says when it has ended and with which exit code. Where jobs ran is not part of a plan.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from seqloom.config import unknown_name
from seqloom.errors import UsageError

ENGINES = ("local", "ray", "slurm")


class Task(NamedTuple):
    """A job to start. log: where its output goes; shown: it prints here instead."""

    name: str
    call: list[str]
    log: Path
    shown: bool
    environment: dict[str, str]


class Process(Protocol):
    """A job that was started."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None:
        """Asks it to save its state and stop."""

    def kill(self) -> None: ...


class Polled:
    """A process that can only be asked whether it has ended."""

    def poll(self) -> int | None:
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(type(self).__name__, timeout or 0.0)
            time.sleep(0.1)
        return code


class Engine(Protocol):
    """most: how many jobs it is given at a time. here: they are processes of this machine. restarts: a job that the engine has
    stopped, and that has saved its state, is started again."""

    most: int
    here: bool
    restarts: bool

    def prepare(self, folder: Path) -> None:
        """Raises where the engine, or the folder on its machines, is not there."""

    def start(self, task: Task) -> Process: ...


class Where(NamedTuple):
    """What a user says about where to run. jobs: at a time; None: as many as there are, or one here."""

    on: str = "local"
    jobs: int | None = None
    cpus: int | None = None
    gpus: float | None = None
    slurm: Sequence[str] = ()

    def engine(self) -> Engine:
        self.check()
        if self.on == "ray":
            from seqloom.comparison.engines.on_ray import RayEngine

            return RayEngine(self.jobs or 10_000, self.cpus or 1, self.gpus or 0.0)
        if self.on == "slurm":
            from seqloom.comparison.engines.on_slurm import SlurmEngine

            return SlurmEngine(self.jobs or 1000, self.cpus or 1, self.gpus or 0.0, self.slurm)
        from seqloom.comparison.engines.here import LocalEngine

        return LocalEngine(self.jobs or 1)

    def check(self) -> None:
        if self.on not in ENGINES:
            raise UsageError(unknown_name("--on", self.on, self.on, list(ENGINES)))
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs}: give at least 1")
        if self.on == "local" and (self.cpus is not None or self.gpus is not None):
            raise UsageError("--cpus and --gpus are for --on ray and --on slurm: leave them out")
        if self.slurm and self.on != "slurm":
            raise UsageError("--slurm is for --on slurm: leave it out, or add --on slurm")
        if (self.cpus is not None and self.cpus < 1) or (self.gpus is not None and self.gpus < 0):
            raise UsageError(
                f"--cpus {self.cpus}, --gpus {self.gpus}: give at least one CPU, and no negative number of GPUs"
            )
