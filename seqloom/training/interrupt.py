"""SIGTERM and Ctrl-C: the loop stops after the current step and saves its state. A second signal ends the process."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from seqloom.errors import Interrupted


class Interruption:
    """Whether a signal has asked the run to stop; handles signals within it."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)

    def check(self) -> None:
        """Raises Interrupted where a signal has asked the run to stop."""
        if self.asked:
            raise Interrupted("stopped")


def stop_with(parent: int) -> None:
    """Save the state and stop when the parent process is gone: it may be killed without a signal to its jobs."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
