"""The runs and comparisons of a folder, with the learning curves of runs, also of those that are still being trained."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import SeqloomError, explain
from seqloom.files import read_json
from seqloom.runs.track import LOG, LogReader, find_runs, is_finished

POINTS = 200  # of a curve that is shown
# what else the logs of runs have: its name in them, and here
MORE = {"valid": "valid", "lr": "rate", "joules": "joules", "tokens_per_second": "tokens_per_second"}
RESULT = "comparison.json"
MOST_BYTES = 32 << 20  # of such a file
TRAINING_SECONDS = 120.0  # a run whose log is older has been stopped


class Point(NamedTuple):
    """Of a learning curve. loss: in training."""

    step: int
    tokens: float
    loss: float


class Value(NamedTuple):
    """Of something else in the log."""

    step: int
    tokens: float
    value: float


class Curves:
    """What the logs of all runs below a folder say. Each look reads only what is new in them."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.readers: dict[Path, LogReader] = {}
        self.points: dict[Path, list[Point]] = {}
        self.more: dict[Path, dict[str, list[Value]]] = {}
        self.kept: dict[
            Path, tuple[tuple[int, int], Any]
        ] = {}  # of files: when they were written, their size, and what they say
        self.looking = threading.Lock()

    def look(self) -> list[dict[str, Any]]:
        with self.looking:
            return [self.record(each.folder, each.name) for each in find_runs([self.folder])]

    def record(self, folder: Path, name: str) -> dict[str, Any]:
        try:
            points, problem = self.read(folder), None
        except SeqloomError as error:
            points, problem = [], explain(error)[0].replace(f"{self.folder}/", "")  # callers know no folders
        more = {each: thin(values) for each, values in self.more.get(folder, {}).items()}
        record = {"name": name, "state": state_of(folder), "problem": problem, "curve": thin(points), "more": more}
        return record | {"memory_mb": self.peak_memory(folder)}

    def unless_unchanged(self, path: Path, read: Callable[[Path], Any]) -> Any:
        """What a file says, read again only where it was written anew."""
        facts = path.stat()
        written = facts.st_mtime_ns, facts.st_size
        if self.kept.get(path, ((0, 0), None))[0] != written:
            self.kept[path] = written, read(path)
        return self.kept[path][1]

    def peak_memory(self, folder: Path) -> float | None:
        """Of a run that is finished, in MB."""
        try:
            return self.unless_unchanged(folder / "metrics.json", peak_memory)
        except OSError:
            return None

    def read(self, folder: Path) -> list[Point]:
        reader = self.readers.setdefault(folder, LogReader(folder / LOG))
        lines = [each for each in reader.read() if "tokens" in each.values]
        new = [Point(each.step, each.values["tokens"], each.values["loss"]) for each in lines if "loss" in each.values]
        more = self.more.setdefault(folder, {})
        for name, shown in MORE.items():
            values = [
                Value(each.step, each.values["tokens"], each.values[name]) for each in lines if name in each.values
            ]
            if values:
                more[shown] = [each for each in more.get(shown, []) if each.step < values[0].step] + values
        before = self.points.get(folder, [])
        if new:  # a run that was resumed writes its last steps again
            self.points[folder] = [each for each in before if each.step < new[0].step] + new
        return self.points.get(folder, [])

    def compare(self) -> list[dict[str, Any]]:
        """What the comparisons below the folder have found: figures of every row, caveats and samples."""
        with self.looking:
            places = [self.folder, *sorted(self.folder.glob("*")), *sorted(self.folder.glob("*/budgets/*"))]
            found = [self.result(place) for place in places if (place / RESULT).is_file()]
        return [each for each in found if each is not None]

    def result(self, place: Path) -> dict[str, Any] | None:
        """One that is damaged, or far too large, is left out."""
        name = str(place.relative_to(self.folder)) if place != self.folder else place.name
        try:
            if (place / RESULT).stat().st_size > MOST_BYTES:
                return None
            return self.unless_unchanged(place / RESULT, lambda path: summary_of(name, read_json(path)))
        except (OSError, SeqloomError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def summary_of(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Of comparison.json what the page shows."""
    rows = list(record["costs"])
    figures = {
        each["name"]: {
            row: {end: found.get(end) for end in ("value", "low", "high")} for row, found in each["rows"].items()
        }
        for each in record["figures"]
    }
    return {
        "folder": name, "name": str(record["name"]), "rows": rows, "figures": figures,
        "energy_kwh": {row: record["costs"][row].get("energy_kwh") for row in rows},
        "caveats": [str(each) for each in record["caveats"]],
        "samples": {str(row): str(text)[:500] for row, text in record["samples"].items()},
    }  # fmt: skip


def thin(values: list[Any]) -> list[Any]:
    every = -(-len(values) // POINTS) or 1
    return [*values[:-1:every], *values[-1:]]


def peak_memory(path: Path) -> float | None:
    """Of a run that is finished, in MB. path: its metrics.json."""
    try:
        found = read_json(path).get("peak_memory_mb")
    except (SeqloomError, ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, int | float) else None


def state_of(folder: Path) -> str:
    if is_finished(folder):
        return "finished"
    try:
        age = time.time() - (folder / LOG).stat().st_mtime
    except OSError:
        return "not begun"
    return "training" if age < TRAINING_SECONDS else "stopped"
