"""Experiment trackers that follow metrics.jsonl: training knows none of them, so that none can slow, stop or change a run.

A run is tracked by reading its log. On resume a run cuts its log back to the last checkpoint and writes the steps after it again;
the tracker gets each metric of a step once nevertheless, also from a second call: what it has already is read back from it.
"""

import hashlib
import io
import os
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from seqloom.config import unknown_name
from seqloom.errors import ModelError, SeqloomError, UsageError
from seqloom.files import explained, parse_json
from seqloom.progress import say
from seqloom.runs.results import import_optional

POLL = 1.0  # seconds between two looks at the logs
LOG = "metrics.jsonl"
FINISHED = "card.md"  # of a run, written last
GROUPS = (
    "comparison.json",
    "ladder.json",
    "seeds.json",
    "curve.json",
)  # one of them is written last in a folder of runs
NO_RUNS = ("data", "logs", "results", "shared")  # beside the folders of a comparison or a ladder that hold its runs:
HOLD_RUNS = ("runs", "tasks", "search")
MOST_STEPS = 1 << 53


class Tracked(NamedTuple):
    """A run as a tracker shows it. name: below all others; group: the folder that several runs belong to."""

    folder: Path
    name: str
    group: str | None


class Line(NamedTuple):
    step: int
    values: dict[str, float]


# ---- which runs


def find_runs(folders: Sequence[Path]) -> list[Tracked]:
    """The runs that folders are or hold, as far as they have begun. The runs of a comparison, a ladder or of several seeds are
    one group, named as its folder."""
    places = list(dict.fromkeys(folder.resolve() for folder in folders))
    above = Path(os.path.commonpath([place.parent for place in places]))
    found = []
    for place in places:
        name = place.relative_to(above).as_posix()
        if is_run(place):
            found.append(Tracked(place, name, None))
        else:
            found += [Tracked(run, f"{name}/{run.relative_to(place).as_posix()}", name) for run in runs_below(place)]
    return found


def is_run(folder: Path) -> bool:
    return (folder / LOG).is_file() or (folder / "config.json").is_file()


def runs_below(folder: Path) -> Iterator[Path]:
    for place, below, files in os.walk(folder):
        if LOG in files:
            below.clear()
            yield Path(place)
        inside = not set(HOLD_RUNS).isdisjoint(Path(place).relative_to(folder).parts)  # there a row may have any name
        below[:] = sorted(name for name in below if inside or name not in NO_RUNS)


def is_finished(folder: Path) -> bool:
    """Whether a run, or a folder of runs, has come to its end."""
    if is_run(folder):
        return (folder / FINISHED).is_file()
    return any((folder / name).is_file() for name in GROUPS) and all(
        (run / FINISHED).is_file() for run in runs_below(folder)
    )


# ---- reading a log that grows


class LogReader:
    """Reads what is new in the log of a run. A log that was cut back and written anew is read from its beginning again."""

    def __init__(self, path: Path):
        self.path = path
        self.offset = 0  # after the last whole line that was read
        self.last = b""  # that line: if it is there no more, the log was cut back

    def read(self) -> list[Line]:
        """The new lines, up to the last that is whole. Raises ModelError for a line that is none."""
        try:
            with explained(self.path), open(self.path, "rb") as file:
                file.seek(self.offset - len(self.last))
                if file.read(len(self.last)) != self.last:
                    self.offset, self.last = 0, b""
                file.seek(self.offset)
                whole, end, _ = file.read().rpartition(b"\n")
        except SeqloomError:
            if self.path.exists():
                raise
            self.offset, self.last = 0, b""  # not begun yet, or started anew
            return []
        lines = (whole + end).splitlines(keepends=True)
        found = [self.parse(line) for line in lines]
        if lines:
            self.offset, self.last = self.offset + len(whole + end), lines[-1]
        return found

    def parse(self, line: bytes) -> Line:
        try:
            record = parse_json(line)
            step, values = record["step"], dict(numbers_in(record))
            if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < MOST_STEPS:
                raise ValueError(f"step is {step!r}")
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            text = line[:60].decode("utf-8", "replace").strip()
            raise ModelError(
                f"{self.path} is damaged ({error}) at {text!r}: --resume of the run writes it anew"
            ) from error
        values.pop("step")
        return Line(step, values)


def numbers_in(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a line by name; those of a dict in it as NAME/KEY."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from numbers_in(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{before}{name}", float(value)


# ---- trackers


class Tracker(ABC):
    """What metrics are sent to. out: the folder for its files; None: the one that it uses itself."""

    name: str

    def __init__(self, out: Path | None, project: str):
        self.out, self.project = out, project

    @property
    def hint(self) -> str:
        """How to look at what is tracked."""
        return f"they are in the project {self.project}"

    @abstractmethod
    def already_sent(self, run: Tracked) -> dict[str, int]:
        """The last step of each metric that an earlier call has sent."""

    @abstractmethod
    def send(self, run: Tracked, lines: Sequence[Line]) -> None:
        """Sends lines, so that they are kept if this process is killed afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Ends all runs."""


def nothing_sent(last: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """The last steps of metrics; −1 for all others."""
    return defaultdict(lambda: -1, last)


class TensorBoard(Tracker):
    """Event files in OUT/RUN."""

    name = "tensorboard"

    def __init__(self, out: Path | None, project: str):
        super().__init__(out or Path("tensorboard"), project)
        self.writer_class = import_optional("tensorboard.summary", "--to tensorboard", "tensorboard").Writer
        self.writers: dict[str, Any] = {}

    @property
    def hint(self) -> str:
        return f"look at them with: tensorboard --logdir {self.out}"

    def folder(self, run: Tracked) -> Path:
        assert self.out is not None
        return self.out / run.name

    def already_sent(self, run: Tracked) -> dict[str, int]:
        if not self.folder(run).is_dir():
            return nothing_sent()
        events = import_optional(
            "tensorboard.backend.event_processing.event_accumulator", "--to tensorboard", "tensorboard"
        )
        found = events.EventAccumulator(str(self.folder(run)), size_guidance={events.TENSORS: 0})
        found.Reload()
        return nothing_sent({tag: max(event.step for event in found.Tensors(tag)) for tag in found.Tags()["tensors"]})

    def send(self, run: Tracked, lines: Sequence[Line]) -> None:
        if run.name not in self.writers:
            self.writers[run.name] = self.writer_class(str(self.folder(run)))
        for line in lines:
            for tag, value in line.values.items():
                self.writers[run.name].add_scalar(tag, value, line.step)
        self.writers[run.name].flush()

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class Trackio(Tracker):
    """The local database of trackio: OUT, or $TRACKIO_DIR, or its folder in the cache of Hugging Face."""

    name = "trackio"

    def __init__(self, out: Path | None, project: str):
        super().__init__(out, project)
        if out is not None:
            os.environ["TRACKIO_DIR"] = str(out.resolve())  # read when it is imported
        self.trackio = import_optional("trackio", "--to trackio")

    @property
    def hint(self) -> str:
        return f'look at them with: trackio show --project "{self.project}"'

    def already_sent(self, run: Tracked) -> dict[str, int]:
        storage = import_optional("trackio.sqlite_storage", "--to trackio", "trackio").SQLiteStorage
        found = nothing_sent()
        for row in storage.get_logs(self.project, run.name):
            for name in row:
                found[name] = max(found[name], row["step"])
        return found

    def send(self, run: Tracked, lines: Sequence[Line]) -> None:
        with redirect_stdout(io.StringIO()):  # it prints there; ours is for results
            # one run at a time: to begin another one ends it
            session = self.trackio.init(
                project=self.project, name=run.name, group=run.group, resume="allow", embed=False, auto_log_gpu=False,
                auto_log_cpu=False,
            )  # fmt: skip
            for line in lines:
                session.log(line.values, step=line.step)
            self.trackio.finish()

    def close(self) -> None:
        """Every batch of lines has ended its run."""


class Wandb(Tracker):
    """Weights & Biases; without a network its files in OUT/wandb (WANDB_MODE=offline)."""

    name = "wandb"

    def __init__(self, out: Path | None, project: str):
        super().__init__(out, project)
        self.wandb = import_optional("wandb", "--to wandb")
        self.sessions: dict[str, Any] = {}

    def session(self, run: Tracked) -> Any:
        if run.name not in self.sessions:
            folder = {} if self.out is None else {"dir": str(self.out)}
            with redirect_stdout(io.StringIO()):
                self.sessions[run.name] = self.wandb.init(
                    project=self.project, name=run.name, group=run.group, resume="allow", reinit="create_new",
                    id=hashlib.sha256(f"{self.project}/{run.folder}".encode()).hexdigest()[:16], **folder,
                )  # fmt: skip
        return self.sessions[run.name]

    def already_sent(self, run: Tracked) -> dict[str, int]:
        last = int(self.session(run).step) - 1  # it takes no step below its own
        return defaultdict(lambda: last)

    def send(self, run: Tracked, lines: Sequence[Line]) -> None:
        for line in lines:
            self.session(run).log(line.values, step=line.step)

    def close(self) -> None:
        for session in self.sessions.values():
            session.finish()


TRACKERS: dict[str, type[Tracker]] = {cls.name: cls for cls in (TensorBoard, Trackio, Wandb)}


def open_tracker(name: str, out: Path | None = None, project: str = "seqloom") -> Tracker:
    if name not in TRACKERS:
        raise UsageError(unknown_name("tracker", name, name, list(TRACKERS)))
    return TRACKERS[name](out, project)


# ---- from one to the other


class Following:
    """Sends what is new in the logs of runs to a tracker; each metric of a step once."""

    def __init__(self, tracker: Tracker):
        self.tracker = tracker
        self.readers: dict[Path, LogReader] = {}
        self.sent: dict[Path, dict[str, int]] = {}  # the last step of each metric
        self.failed: set[Path] = set()  # logs that could not be read the last time

    def update(self, runs: Sequence[Tracked], patient: bool = False) -> int:
        """The number of lines that were new. patient: a log that cannot be read is read again the next time, as it may have been
        cut back at this moment."""
        count = 0
        for run in runs:
            try:
                lines = self.readers.setdefault(run.folder, LogReader(run.folder / LOG)).read()
                self.failed.discard(run.folder)
            except ModelError:
                if not patient or run.folder in self.failed:
                    raise
                self.failed.add(run.folder)
                self.readers.pop(run.folder)
                continue
            if lines:
                count += self.send(run, lines)
        return count

    def send(self, run: Tracked, lines: Sequence[Line]) -> int:
        try:
            if run.folder not in self.sent:
                self.sent[run.folder] = self.tracker.already_sent(run)
            fresh = self.unsent(run, lines)
            if fresh:
                self.tracker.send(run, fresh)
        except SeqloomError:
            raise
        except Exception as error:
            raise SeqloomError(
                f"{self.tracker.name} failed on {run.name} ({type(error).__name__}: {error}); the run itself is untouched: "
                f"rerun the same command to send the rest"
            ) from error
        return len(fresh)

    def unsent(self, run: Tracked, lines: Sequence[Line]) -> list[Line]:
        """Lines with the metrics that their step has not been sent with."""
        last, found = self.sent[run.folder], []
        for line in lines:
            values = {name: value for name, value in line.values.items() if line.step > last[name]}
            last |= dict.fromkeys(values, line.step)
            found += [Line(line.step, values)] if values else []
        return found


def track(
    runs: Sequence[str | Path],
    to: str = "tensorboard",
    *,
    follow: bool = False,
    out: str | Path | None = None,
    project: str = "seqloom",
) -> int:
    """Sends the metrics of runs to a tracker and returns the number of lines that were new to it.

    runs: run folders, or folders of runs, such as a comparison. to: "tensorboard", "trackio" or "wandb". follow: go on until all
    of them are finished. out: the folder for the tracker's files. project: the name under which trackio and wandb show them.
    """
    folders = [Path(run) for run in runs]
    if not folders:
        raise UsageError("name at least one run folder")
    tracker = open_tracker(to, None if out is None else Path(out), project)
    say(f"metrics of {', '.join(map(str, folders))} to {to}; {tracker.hint}")
    following, count = Following(tracker), 0
    try:
        while True:
            done = follow and all(map(is_finished, folders))  # asked first: what is written until then is read below
            found = find_runs(folders)
            if not follow and (empty := [folder for folder in folders if not find_runs([folder])]):
                raise ModelError(
                    f"{empty[0]} is not a run folder and holds none: give the folder of a run or of a comparison"
                )
            new = following.update(found, patient=follow)
            count += new
            if new:
                say(f"{new:,} new line{'s' * (new > 1)} of {len(found)} run{'s' * (len(found) != 1)} to {to}")
            if done or not follow:
                return count
            time.sleep(POLL)
    finally:
        tracker.close()
