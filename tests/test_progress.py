"""Progress: only on standard error, a bar for a person, lines for a log, nothing with --quiet."""

import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seqloom import progress
from seqloom.progress import Progress, clock, human, say


class Watch:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    monkeypatch.setattr(progress.time, "monotonic", made)
    monkeypatch.setattr(progress, "QUIET", False)
    return made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (999, "999"), (1000, "1.00k"), (-2500, "-2.50k"), (2e6, "2.00M"), (3.2e12, "3.20T")]
)
def test_human(value: float, shown: str) -> None:
    assert human(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (1e5, "27:46:40")],
)
def test_clock(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


def test_say_goes_to_standard_error(
    watch: Watch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    say("a remark")
    assert capsys.readouterr() == ("", "a remark\n")
    monkeypatch.setattr(progress, "QUIET", True)
    say("a remark")
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_plain_lines_now_and_then(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("read", total=1000.0, unit="MB") as bar:
        for second in range(1, 31):
            watch.now = 100.0 + second
            bar.advance(20.0, note=f"part {second}")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and "\r" not in err and "\033" not in err
    assert lines[0] == "read    4%  20 MB/s  part 2  0:48 left"
    assert lines[1].startswith("read   24%") and lines[2].startswith("read   44%")
    assert lines[3] == "read   60%  20 MB/s  part 30  0:20 left" and len(lines) == 4


def test_a_short_job_is_silent(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("read", total=10.0) as bar:
        watch.now += 1.9
        bar.advance(10.0)
    assert capsys.readouterr() == ("", "")


def test_what_was_done_before_does_not_count_as_speed(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("train", total=100.0, unit="steps", done=90.0) as bar:
        watch.now += 5
        bar.advance(5.0)
    assert capsys.readouterr().err == "train   95%  1 steps/s  0:05 left\n"


def test_without_a_total_there_is_no_share(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("read", total=None, unit="lines") as bar:
        watch.now += 5
        bar.advance(5000.0)
    assert capsys.readouterr().err == "read  1.00k lines/s\n"


def test_a_person_gets_a_bar(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("read", total=10.0) as bar:
        for _ in range(10):
            watch.now += 0.2
            bar.advance(1.0)
    drawn = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert drawn.count("\r\033[K") == 10 and "━" * 24 in drawn and drawn.endswith("left\n")


def test_no_color_means_no_escape_codes(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("read", total=10.0) as bar:
        watch.now += 5
        bar.advance(1.0)
    drawn = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert drawn.startswith("read   10%") and "\033" not in drawn and "\r" not in drawn


@pytest.mark.parametrize("live", [True, False])
def test_quiet_is_silent(watch: Watch, monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(progress, "QUIET", True)
    monkeypatch.setattr(sys, "stderr", Terminal() if live else io.StringIO())
    with Progress("read", total=10.0) as bar:
        for _ in range(10):
            watch.now += 5
            bar.advance(1.0)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


class Notebook:
    """IPython in a Jupyter kernel: what it displays, by the number of the display."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broken: bool = False, kernel: object = object()) -> None:
        self.displays: list[list[str]] = []
        self.broken = broken
        shell, display = ModuleType("IPython"), ModuleType("IPython.display")
        shell.get_ipython = lambda: SimpleNamespace(kernel=kernel)  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", shell)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, content: dict[str, str], raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        if self.broken:
            raise RuntimeError("the kernel has lost its client")
        shown = [content["text/plain"]]
        self.displays.append(shown)
        return SimpleNamespace(update=lambda content, raw: shown.append(content["text/plain"]))


def test_a_notebook_gets_one_line_that_is_replaced(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(monkeypatch)
    with Progress("read", total=10.0) as bar:
        for _ in range(10):
            watch.now += 0.6
            bar.advance(1.0)
    assert len(notebook.displays) == 1 and len(notebook.displays[0]) == 10, "no line twice"
    assert notebook.displays[0][-1].startswith("read  " + "━" * 24 + "  100%")
    assert capsys.readouterr() == ("", ""), "and none on standard error"


def test_a_quick_job_leaves_nothing_in_a_notebook(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    with Progress("read", total=10.0) as bar:
        watch.now += 0.4
        bar.advance(10.0)
    assert notebook.displays == []


def test_quiet_is_silent_in_a_notebook(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    monkeypatch.setattr(progress, "QUIET", True)
    with Progress("read", total=10.0) as bar:
        watch.now += 5
        bar.advance(10.0)
    assert notebook.displays == []


def test_a_notebook_that_cannot_display_gets_plain_lines(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Notebook(monkeypatch, broken=True)
    with Progress("read", total=10.0) as bar:
        watch.now += 5
        bar.advance(1.0)
    assert capsys.readouterr().err.startswith("read  ") and bar.done == 1.0


def test_ipython_in_a_terminal_is_no_notebook(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch, kernel=None)
    assert not progress.in_notebook() and notebook.displays == []


def test_a_bar_fits_on_its_line(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind the last column would stay on the screen when the bar is drawn again."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Progress("compare", 10.0) as bar:
        watch.now += 5
        bar.advance(2, note=", ".join(f"row {i}, seed 0 {i}%" for i in range(40)))
    line = terminal.getvalue().split("\033[K")[-1].rstrip("\n")
    assert line.startswith("compare") and line.endswith("…  0:20 left") and 70 < len(line) < 80


def test_a_remark_takes_the_line_of_a_bar(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Progress("train", 10.0) as bar:
        watch.now += 5
        bar.advance(2)
        say("a remark")
        watch.now += 5
        bar.advance(2)
    shown = terminal.getvalue()
    assert "left\r\033[Ka remark\n\r\033[Ktrain" in shown and shown.endswith("left\n")
    say("behind it")
    assert terminal.getvalue().endswith("left\nbehind it\n")
