"""Progress on standard error: a bar on a terminal, plain lines otherwise, nothing with --quiet; in a notebook one line that is
replaced."""

import importlib
import os
import shutil
import sys
import time
from types import TracebackType
from typing import Any, ClassVar

from seqloom.errors import printable

QUIET = False  # set once by the command line

_PLAIN_EVERY = 10.0  # seconds between lines in a log file
_BAR_EVERY = 0.1
_NOTEBOOK_EVERY = 0.5


def say(text: str) -> None:
    """Print one line on standard error; standard output is for results. A bar on that line is drawn again below it."""
    if QUIET:
        return
    if Progress.on_line is not None:
        print("\r\033[K", end="", file=sys.stderr)
        Progress.on_line = None
    print(printable(text), file=sys.stderr, flush=True)


def human(value: float, large: str = ".2f", small: str = ".0f") -> str:
    """1234567 → 1.23M; `large` and `small` are the formats with and without a unit."""
    for limit, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:{large}}{unit}"
    return f"{value:{small}}"


def clock(seconds: float) -> str:
    minutes, s = divmod(int(seconds + 0.5), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


def shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…" if width > 1 else ""


def in_one_line(text: str) -> str:
    """What a model has written, where every text has a line: models of bytes and pieces can write line breaks, too."""
    return " ".join(text.replace("\r", "\n").split("\n"))


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this program. IPython is not imported for that."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class Progress:
    """`with Progress("prepare", total, unit="MB") as bar: bar.advance(n)`; total None: a rate without time left."""

    on_line: ClassVar["Progress | None"] = (
        None  # the bar that is on the last line of the terminal, which has not ended yet
    )

    def __init__(self, name: str, total: float | None, unit: str = "", done: float = 0.0):
        self.name, self.total, self.unit = name, total, unit
        self.done, self.first = done, done
        self.note = ""
        self.changed = False
        self.start = self.shown = time.monotonic()
        # NO_COLOR asks for no escape codes; the bar is drawn with them
        self.live = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        self.notebook = in_notebook()
        self.cell: Any = None  # what is displayed there

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.changed and (self.shown > self.start or (kind is None and time.monotonic() - self.start > 2)):
            self._show()
        if Progress.on_line is self:
            print(file=sys.stderr, flush=True)
            Progress.on_line = None

    def advance(self, amount: float = 0.0, note: str | None = None) -> None:
        self.done += amount
        self.changed = True
        if note is not None:
            self.note = note
        now = time.monotonic()
        # the first plain line comes after two seconds, so that short jobs stay silent
        plain = _PLAIN_EVERY if self.shown > self.start else 2.0
        wait = _NOTEBOOK_EVERY if self.notebook else _BAR_EVERY if self.live else plain
        if now - self.shown >= wait:
            self.shown = now
            self._show()

    def _show(self) -> None:
        self.changed = False
        if QUIET:
            return
        elapsed = max(time.monotonic() - self.start, 1e-9)
        rate = (self.done - self.first) / elapsed
        parts = [self.name]
        if self.total:
            share = min(self.done / self.total, 1.0)
            if self.live or self.notebook:
                full = int(share * 24)
                parts.append("━" * full + "╺" * (24 - full))
            parts.append(f"{share:4.0%}")
        if rate > 0 and self.unit:
            parts.append(f"{human(rate, small='.0f' if rate >= 10 else '.2g')} {self.unit}/s")
        left = [f"{clock(max(self.total - self.done, 0) / rate)} left"] if self.total and rate > 0 else []
        note = printable(self.note)
        if self.live and not self.notebook:  # what does not fit on the line would stay there when it is drawn again
            note = shorten(note, shutil.get_terminal_size().columns - 3 - len("  ".join([*parts, *left])))
        line = "  ".join([*parts, *([note] if note else []), *left])
        if self.notebook and self._display(line):
            return
        if self.live:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
            Progress.on_line = self
        else:
            print(line, file=sys.stderr, flush=True)

    def _display(self, line: str) -> bool:
        """Puts a line into the notebook in place of the one before; False where that fails: progress must not stop a run."""
        content = {"text/plain": line}
        try:
            if self.cell is None:
                self.cell = importlib.import_module("IPython.display").display(content, raw=True, display_id=True)
            else:
                self.cell.update(content, raw=True)
        except Exception:
            self.notebook = False
        return self.notebook
