"""Several processes of one command on this machine, as torchrun would start them, but with the exit codes of the command itself.

The processes are told to stop, all of them, when this one is, or when one of them has failed. They notice when this one is gone.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from types import FrameType
from typing import IO

from seqloom.cost import cores
from seqloom.errors import UsageError

GRACE = 30.0  # seconds that ranks have to end when one has failed
LAUNCHER = "SEQLOOM_LAUNCHER"  # the process that ranks belong to


def without_option(arguments: list[str], name: str) -> list[str]:
    """The arguments of a command without an option and its value."""
    found, skip = [], False
    for argument in arguments:
        if skip or argument.startswith(f"{name}="):
            skip = False
        elif argument == name:
            skip = True
        else:
            found.append(argument)
    return found


def launch(ranks: int, arguments: list[str]) -> int:
    """Runs `seqloom ARGUMENTS` in so many processes, which train one model together. Returns the exit code of the first rank, or
    of another one that failed."""
    if not 1 <= ranks <= 1024:
        raise UsageError(f"--ranks {ranks}: give 1 to 1024")
    shared = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    environment = {"OMP_NUM_THREADS": str(max(cores() // ranks, 1)), **os.environ, LAUNCHER: str(os.getpid())}
    environment |= {name: str(value) for name, value in shared.items()}
    command = [sys.executable, "-m", "seqloom", *arguments]
    # what the others say is shown if the first does not say it
    others: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(1, ranks)]  # noqa: SIM115 - show_failures closes them
    processes = [
        subprocess.Popen(
            command,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if said else None,
            stderr=said,
            start_new_session=True,  # Ctrl-C reaches this process, which passes it on once
        )
        for rank, said in enumerate((None, *others))
    ]

    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in processes:
            if process.poll() is None:
                process.terminate()

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = wait_for(processes)
        show_failures(processes, others)
        return code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for process in processes:
            if process.poll() is None:
                process.kill()


def wait_for(processes: list[subprocess.Popen[bytes]]) -> int:
    failed_at: float | None = None
    while any(process.poll() is None for process in processes):
        time.sleep(0.05)
        if failed_at is None and any(process.poll() for process in processes):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > GRACE:
            for process in processes:
                if process.poll() is None:
                    process.kill()
    codes = [process.returncode for process in processes]
    failed = [code for code in codes if code]
    # a rank that was killed, or that failed by itself, says more than one that was left alone
    return next((code if code > 0 else 128 - code for code in sorted(failed, key=lambda code: code == 1)), 0)


def show_failures(processes: list[subprocess.Popen[bytes]], others: list[IO[bytes]]) -> None:
    """The last lines of ranks that have failed in another way than the first."""
    first, *codes = [process.returncode for process in processes]
    lines = []
    for code, said in zip(codes, others, strict=True):
        said.seek(0)
        text = said.read().decode("utf-8", "replace").strip().splitlines()
        if code and (code != first or code == 1) and text:
            lines.append(text[-1])
        said.close()
    for line in dict.fromkeys(lines):
        print(line, file=sys.stderr, flush=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
