"""The runs of a folder with their learning curves, also of those that are still being trained."""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import SeqloomError, explain
from seqloom.runs.track import LOG, LogReader, find_runs, is_finished

POINTS = 200  # of a curve that is shown
TRAINING_SECONDS = 120.0  # a run whose log is older has been stopped


class Point(NamedTuple):
    """Of a learning curve. loss: in training."""

    step: int
    tokens: float
    loss: float


class Curves:
    """What the logs of all runs below a folder say. Each look reads only what is new in them."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.readers: dict[Path, LogReader] = {}
        self.points: dict[Path, list[Point]] = {}
        self.looking = threading.Lock()

    def look(self) -> list[dict[str, Any]]:
        with self.looking:
            return [self.record(each.folder, each.name) for each in find_runs([self.folder])]

    def record(self, folder: Path, name: str) -> dict[str, Any]:
        try:
            points, problem = self.read(folder), None
        except SeqloomError as error:
            points, problem = [], explain(error)[0]
        every = -(-len(points) // POINTS) or 1
        shown = [*points[:-1:every], *points[-1:]]
        return {"name": name, "state": state_of(folder), "problem": problem, "curve": shown}

    def read(self, folder: Path) -> list[Point]:
        reader = self.readers.setdefault(folder, LogReader(folder / LOG))
        new = [
            Point(each.step, each.values["tokens"], each.values["loss"])
            for each in reader.read()
            if {"tokens", "loss"} <= each.values.keys()
        ]
        before = self.points.get(folder, [])
        if new:  # a run that was resumed writes its last steps again
            self.points[folder] = [each for each in before if each.step < new[0].step] + new
        return self.points.get(folder, [])


def state_of(folder: Path) -> str:
    if is_finished(folder):
        return "finished"
    try:
        age = time.time() - (folder / LOG).stat().st_mtime
    except OSError:
        return "not begun"
    return "training" if age < TRAINING_SECONDS else "stopped"
