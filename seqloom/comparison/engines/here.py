"""Jobs as processes of this machine."""

import subprocess
from pathlib import Path
from typing import BinaryIO

from seqloom.comparison.engines import Process, Task


def launch(call: list[str], output: BinaryIO | None, environment: dict[str, str]) -> Process:
    return subprocess.Popen(call, stdout=output, stderr=output, env=environment)


class LocalEngine:
    here, restarts = True, False

    def __init__(self, most: int = 1):
        self.most = most

    def prepare(self, folder: Path) -> None: ...

    def start(self, task: Task) -> Process:
        with task.log.open("ab") as log:  # its last line is written by the job itself
            return launch(task.call, None if task.shown else log, task.environment)
