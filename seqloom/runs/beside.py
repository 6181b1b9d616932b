"""Features from other runs beside what a task's own model makes of a text. The other runs stay as they are.

With language models that read forward and backward this is TagLM (Peters et al., 2017, arXiv 1705.00108); with such models of
characters, read at the borders of words, contextual string embeddings (Akbik et al., 2018); with a translator, whose encoder is
read, CoVe (McCann et al., 2017, arXiv 1708.00107).

The features are computed once, before training. They are no part of the new run: it stands on the other ones, whose folders and
hashes its config.json has.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.batches.labelled import Features, Row, new_table
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.evaluate.features import FeatureReader
from seqloom.files import read_json
from seqloom.progress import Progress
from seqloom.tasks.transfer import BesideConfig

AT_ONCE = 256  # texts between two signs of progress
UNALIGNED = 0.01  # of the stretches of training texts: with more of them the tokens are taken for wrong


class BesideRuns:
    """Other runs, and how their features are read. folders: of the runs, in order."""

    def __init__(self, readers: Sequence[FeatureReader], folders: Sequence[Path]):
        self.readers, self.folders = readers, folders
        self.width = sum(reader.width for reader in readers)

    @property
    def flops(self) -> int:
        """Operations of all that was read."""
        return sum(reader.flops for reader in self.readers)

    def attach(
        self, rows: Sequence[Sequence[Row]], texts: Sequence[Sequence[str]], check: bool = False
    ) -> list[list[Row]]:
        """Rows with the features of their tokens. texts: of each example, as its rows number them; check: refuse texts of which
        many tokens have no features."""
        flat: list[str] = []
        stretches: list[np.ndarray] = []
        found: list[list[np.ndarray]] = []  # of each row the features of its tokens, by their numbers
        reached = 0
        for example, its_texts in zip(rows, texts, strict=True):
            keys = np.concatenate([tokens_of(row) for row in example])
            units, number = np.unique(keys[keys[:, 0] >= 0], axis=0, return_inverse=True)
            index = np.full(len(keys), -1)
            index[keys[:, 0] >= 0] = number.reshape(-1) + reached
            found.append(np.split(index, np.cumsum([len(row.ids) for row in example])[:-1]))
            for i in np.unique(units[:, 0]).tolist():
                flat.append(its_texts[i])
                stretches.append(units[units[:, 0] == i, 1:])
            reached += len(units)
        table = self.table(flat, stretches, check)
        return [
            [row._replace(features=Features(table, index)) for row, index in zip(example, indices, strict=True)]
            for example, indices in zip(rows, found, strict=True)
        ]

    def table(self, texts: Sequence[str], stretches: Sequence[np.ndarray], check: bool) -> np.ndarray:
        """(stretches of all texts, width)"""
        total = sum(map(len, stretches))
        table = new_table(total, self.width)
        with Progress("features", total=len(texts) * len(self.readers), unit="texts") as bar:
            column = 0
            for reader in self.readers:
                part, reached, missing = slice(column, column + reader.width), 0, 0
                for i in range(0, len(texts), AT_ONCE):
                    some = stretches[i : i + AT_ONCE]
                    size = sum(map(len, some))
                    missing += reader.features(texts[i : i + AT_ONCE], some, table[reached : reached + size, part])
                    reached += size
                    bar.advance(len(some))
                column += reader.width
                if check and missing > 1 + UNALIGNED * total:
                    raise DataError(
                        f"{reader.name}: {missing:,} of {total:,} words have no token of it: its tokenizer cannot be "
                        f"aligned with these texts; choose a run that was trained on such text"
                    )
        return table

    def record(self, folder: Path) -> list[dict[str, Any]]:
        """The entry of config.json about them. Where they are is written as seen from the run's own folder."""
        return [
            {
                "run": Path(os.path.relpath(each.resolve(), folder.resolve())).as_posix(),
                "weights": read_json(each / "weights.json"),
            }
            for each in self.folders
        ]


def tokens_of(row: Row) -> np.ndarray:
    """(L, 3) of each token its text, the first character that it stands for, and the one behind the last."""
    assert row.source is not None and row.spots is not None, "rows were made without the characters of their tokens"
    return np.column_stack((row.source, row.spots))


def open_beside(folders: Sequence[Path], settings: BesideConfig, open_run: Callable[[Path], Any]) -> BesideRuns:
    """The runs in these folders, to be read as the settings say. open_run: loads one."""
    readers = []
    for folder in folders:
        run = open_run(folder)
        if getattr(run, "beside", None) is not None:
            raise UsageError(f"--beside {folder} stands on other runs itself: name one that does not")
        if not hasattr(run, "reading"):
            raise UsageError(f"--beside {folder} has no vectors of words: choose a language model or a translator")
        readers.append(FeatureReader(run.reading, settings.layers, settings.read, f"--beside {folder}"))
    return BesideRuns(readers, folders)


def find_recorded(folder: Path, recorded: Any, given: Sequence[Path]) -> list[Path]:
    """The folders of the runs that a run stands on, if they are what they were. recorded: the entry of its config.json; given:
    where they are now, if they were moved."""
    base = folder.resolve().parents[1] if folder.resolve().parent.name == "milestones" else folder
    try:
        places = [(Path(os.path.normpath(base / entry["run"])), dict(entry["weights"])) for entry in recorded]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} is damaged: its entry 'beside' is not a list of runs") from error
    if given and len(given) != len(places):
        raise UsageError(
            f"--beside: {folder} stands on {len(places)} runs, and {len(given)} are named: name all of them"
        )
    found = []
    moved = given or [place for place, _ in places]
    for where, (_, weights) in zip(moved, places, strict=True):
        if not (where / "weights.json").is_file():
            raise ModelError(
                f"{folder} stands on {where}, which is not there or has no weights: name where that run is by --beside"
            )
        if read_json(where / "weights.json") != weights:
            raise ModelError(
                f"{folder} stands on {where} as it was when it was trained, and it has changed since (another SHA-256): restore "
                f"it, or train {folder} again"
            )
        found.append(where)
    return found
