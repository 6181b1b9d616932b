"""How often two words stand near each other, counted in bounded memory, and batches of the cells of that table.

Two words d places apart count 1/d for each other, in both directions, d at most `window`. Special tokens and unknown words are
left out first, and what is left moves together; no window reaches out of its document. (Pennington et al., 2014, with the details
of their program.)

Counting sorts: PAIRS pairs at a time are sorted and added up into a sorted run on disk, and the runs are merged by ranges of keys
that fit into memory. The table is symmetric, so that only cells with row ≤ column are stored; a batch has both directions.
Files are temporary: a resumed run counts again, and finds the same.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import Sizes
from seqloom.batches.plan import Corpus, Plan, Selection, select_documents
from seqloom.batches.store import Ints, Split
from seqloom.errors import DataError
from seqloom.files import explained
from seqloom.progress import Progress
from seqloom.randomness import derive_seed, permute

PAIRS = 1 << 23  # that are sorted at once
MERGED = 1 << 22  # cells of all runs that are merged at once
CELL = np.dtype([("key", "<i8"), ("weight", "<f8")])


class Cells(NamedTuple):
    """Some cells of the table that says how near the words of a row and a column stand to each other over a whole text."""

    rows: Tensor  # (C,)
    columns: Tensor  # (C,)
    values: Tensor  # (C,) float32; 0: filler
    tokens: int  # of text that they stand for: the cells of an epoch are its tokens

    def sizes(self) -> Sizes:
        cells = int((self.values > 0).sum())
        return Sizes(self.tokens, 0, cells, cells)


def pairs_of(ids: Ints, owner: Ints, window: int, vocab_size: int, new: int = 0) -> np.ndarray:
    """The cells of a text, sorted by their keys row · V + column, row ≤ column. owner: the document of each word; new: where the
    words begin whose pairs with those before them are counted."""
    found = []
    for distance in range(1, min(window, len(ids) - 1) + 1):
        first = max(new - distance, 0)
        same = owner[first + distance :] == owner[first:-distance]
        one, two = ids[first:-distance][same], ids[first + distance :][same]
        part = np.empty(len(one), CELL)
        part["key"] = np.minimum(one, two) * vocab_size + np.maximum(one, two)
        # a word beside itself counts in both directions, and they are the same cell
        part["weight"] = np.where(one == two, 2 / distance, 1 / distance)
        found.append(part)
    return add_up(np.concatenate(found) if found else np.empty(0, CELL))


def add_up(cells: np.ndarray) -> np.ndarray:
    """The cells in the order of their keys, each once."""
    order = np.argsort(cells["key"], kind="stable")
    keys = cells["key"][order]
    begin = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))) if len(keys) else np.zeros(0, np.int64)
    found = np.empty(len(begin), CELL)
    found["key"] = keys[begin]
    found["weight"] = np.add.reduceat(cells["weight"][order], begin) if len(begin) else 0.0
    return found


def sections(split: Corpus, chosen: Selection, is_word: np.ndarray, most: int) -> Iterator[tuple[Ints, Ints, int]]:
    """The words of the documents, about `most` tokens at a time: ids, the document of each, and how many tokens were read."""
    ids: list[Ints] = []
    owners: list[Ints] = []
    size = 0
    for document, (start, length) in enumerate(zip(chosen.starts.tolist(), chosen.lengths.tolist(), strict=True)):
        for first in range(start, start + length, most):
            row = split.read_many(np.array([first]), np.array([min(most, start + length - first)]))
            size += len(row)
            row = row[is_word[row]]
            ids.append(row)
            owners.append(np.full(len(row), document))
            if size >= most:
                yield np.concatenate(ids), np.concatenate(owners), size
                ids, owners, size = [], [], 0
    if size:
        yield np.concatenate(ids), np.concatenate(owners), size


def count_cells(split: Corpus, chosen: Selection, is_word: np.ndarray, window: int, folder: Path) -> np.ndarray:
    """Counts into files of a folder, and returns the cells, mapped from there. is_word: (V,) which tokens are words."""
    runs: list[np.ndarray] = []
    ids = owner = np.zeros(0, np.int64)
    with explained(folder), Progress("count pairs", total=float(chosen.lengths.sum()), unit="tokens") as bar:
        for more, owners, size in sections(split, chosen, is_word, max(PAIRS // window, 1)):
            ids, owner = ids[-window:], owner[-window:]  # as far as windows reach back
            new = len(ids)
            ids, owner = np.concatenate((ids, more)), np.concatenate((owner, owners))
            runs.append(keep(pairs_of(ids, owner, window, len(is_word), new), folder / f"run-{len(runs)}"))
            bar.advance(size)
    return merge(runs, folder)


def keep(cells: np.ndarray, path: Path) -> np.ndarray:
    """The cells on disk, mapped."""
    cells.tofile(path)
    return np.memmap(path, CELL, mode="r") if len(cells) else cells


def merge(runs: list[np.ndarray], folder: Path) -> np.ndarray:
    """Adds sorted runs up, a range of keys at a time."""
    path, total = folder / "cells", sum(map(len, runs))
    if not total:
        return np.empty(0, CELL)
    portion, places = max(MERGED // len(runs), 1), [0] * len(runs)
    with explained(folder), open(path, "wb") as file, Progress("add up", total=float(total), unit="cells") as bar:
        while open_runs := [(run, place) for run, place in zip(runs, places, strict=True) if place < len(run)]:
            # no run has more than a portion of cells up to the nearest of their ends
            last = min(run["key"][min(place + portion, len(run)) - 1] for run, place in open_runs)
            stops = [int(np.searchsorted(run["key"], last, side="right")) for run in runs]
            add_up(np.concatenate([run[a:b] for run, a, b in zip(runs, places, stops, strict=True)])).tofile(file)
            bar.advance(sum(stops) - sum(places))
            places = stops
    return np.memmap(path, CELL, mode="r")


class Table:
    """The counts of a text, in files that are gone when it is."""

    def __init__(self, split: Corpus, chosen: Selection, is_word: np.ndarray, window: int):
        self.folder = tempfile.TemporaryDirectory(prefix="seqloom-cells-")
        self.vocab_size, self.tokens = len(is_word), int(chosen.lengths.sum())
        self.cells = count_cells(split, chosen, is_word, window, Path(self.folder.name))

    def __len__(self) -> int:
        """The cells in both directions."""
        return 2 * len(self.cells)

    def read(self, places: Ints, tokens: int) -> Cells:
        """The cells at some places, 0 … len − 1. A cell of a word with itself has one direction; its second place is filler."""
        found = np.asarray(self.cells[places // 2])
        row, column = np.divmod(found["key"], self.vocab_size)
        turned = places % 2 == 1
        values = np.where(turned & (row == column), 0.0, found["weight"]).astype(np.float32)
        ends = np.where(turned, column, row), np.where(turned, row, column)
        return Cells(torch.from_numpy(ends[0]), torch.from_numpy(ends[1]), torch.from_numpy(values), tokens)


class CellPlan:
    """An epoch: all cells `passes` times, each time in an order of its own."""

    def __init__(self, table: Table, budget: int, passes: int, seed: int, epoch: int):
        self.table, self.budget, self.passes, self.key = table, budget, passes, (seed, epoch)
        self.each = -(-len(table) // budget)  # batches of a pass

    def __len__(self) -> int:
        return self.each * self.passes

    def batch(self, i: int) -> Cells:
        number, place = divmod(i, self.each)
        places = np.arange(place * self.budget, min((place + 1) * self.budget, len(self.table)))
        tokens = [self.table.tokens * j // len(self) for j in (i, i + 1)]
        return self.table.read(permute(places, len(self.table), derive_seed(*self.key, number)), tokens[1] - tokens[0])


class CellBatches:
    """Batches of `budget` cells of what is counted in a text. epochs: where they are fewer than one, so much of the text is
    counted, that a run of so many tokens has read no more than these."""

    rows = usual = 0

    def __init__(self, split: Split, specials: Sequence[int], budget: int, window: int, passes: int, epochs: float):
        self.split, self.budget, self.window, self.passes, self.epochs = split, budget, window, passes, epochs
        self.is_word = np.ones(split.vocab_size, bool)
        self.is_word[list(specials)] = False
        self.tables: dict[int, Table] = {}

    def table(self, seed: int) -> Table:
        if seed not in self.tables:
            chosen = select_documents(self.split, self.epochs * self.split.num_tokens, seed)
            table = Table(self.split, chosen, self.is_word, self.window)
            if not len(table):
                raise DataError("no two words of the training text stand near each other: prepare it from more text")
            self.tables = {seed: table}
        return self.tables[seed]

    def plan(self, seed: int, epoch: int) -> Plan:
        return CellPlan(self.table(seed), self.budget, self.passes, seed, epoch)
