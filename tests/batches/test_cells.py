"""Counts of pairs of words equal those by hand, whatever is sorted at once; batches of them; and bugs that must be noticed."""

import itertools
import math

import numpy as np
import pytest

from seqloom.batches import cells
from seqloom.batches.cells import CellBatches, Table
from seqloom.batches.loader import Cursor, Loader
from seqloom.batches.plan import select_documents
from seqloom.errors import DataError
from seqloom.randomness import permute
from tests.contract.static import learner_of
from tests.contract.test_planted import noticed
from tests.corpus import MemorySplit

VOCAB, WINDOW = 9, 3


def texts(seed: int, sizes=(40, 1, 7, 0, 90)) -> list[list[int]]:
    """Words 1 … 7; 0 and 8 are special tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, size).tolist() for size in sizes]


def split_of(documents: list[list[int]]) -> MemorySplit:
    found = MemorySplit(documents)
    found.vocab_size = VOCAB
    return found


def by_hand(documents: list[list[int]]) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for document in documents:
        words = [word for word in document if word not in (0, 8)]
        for i, j in itertools.permutations(range(len(words)), 2):
            if abs(i - j) <= WINDOW:
                key = words[i], words[j]
                found[key] = found.get(key, 0.0) + 1 / abs(i - j)
    return found


def table_of(split: MemorySplit, tokens: float = math.inf) -> Table:
    is_word = np.ones(VOCAB, bool)
    is_word[[0, 8]] = False
    return Table(split, select_documents(split, tokens, 0), is_word, WINDOW)


def read_all(table: Table) -> dict[tuple[int, int], float]:
    read = table.read(np.arange(len(table)), 0)
    rows = [row for row in zip(*(part.tolist() for part in read[:3]), strict=True) if row[2] > 0]
    assert len({row[:2] for row in rows}) == len(rows), "a cell comes twice"
    return {row[:2]: row[2] for row in rows}


def counts_equal_brute_force() -> None:
    for seed in range(5):
        documents = texts(seed)
        found, wanted = read_all(table_of(split_of(documents))), by_hand(documents)
        assert found.keys() == wanted.keys()
        assert all(abs(found[key] - wanted[key]) < 1e-5 for key in wanted)


@pytest.mark.parametrize("pairs", [3, 17, 10_000])
@pytest.mark.parametrize("merged", [1, 7, 10_000])
def test_counts_equal_brute_force(pairs, merged, monkeypatch):
    """In memory for so many pairs and cells."""
    monkeypatch.setattr(cells, "PAIRS", pairs)
    monkeypatch.setattr(cells, "MERGED", merged)
    counts_equal_brute_force()


def memory_is_bounded(monkeypatch, merged: int) -> None:
    """What is sorted at once does not grow with the text."""
    sorted_at_once = []
    true = cells.add_up
    with monkeypatch.context() as patch:
        patch.setattr(cells, "add_up", lambda some: (sorted_at_once.append(len(some)), true(some))[1])
        patch.setattr(cells, "PAIRS", 60)
        patch.setattr(cells, "MERGED", merged)
        table_of(split_of(texts(0, (400,) * 3)))
    assert max(sorted_at_once) <= 60 + WINDOW * WINDOW


def test_memory_is_bounded(monkeypatch):
    memory_is_bounded(monkeypatch, 40)
    noticed(memory_is_bounded, monkeypatch, 1 << 20)  # all runs are read at once


def test_planted_bugs_of_counting(monkeypatch):
    true = cells.pairs_of
    monkeypatch.setattr(cells, "PAIRS", 17)
    monkeypatch.setattr(cells, "pairs_of", lambda ids, owner, *more: true(ids, owner * 0, *more))
    noticed(counts_equal_brute_force)  # windows reach over borders
    monkeypatch.setattr(cells, "pairs_of", lambda ids, owner, window, size, new: true(ids, owner, window, size))
    noticed(counts_equal_brute_force)  # the last words of a piece count twice
    monkeypatch.setattr(cells, "pairs_of", lambda ids, owner, w, size, new: true(ids[new:], owner[new:], w, size))
    noticed(counts_equal_brute_force)  # pairs over the end of a piece are lost
    monkeypatch.setattr(cells, "pairs_of", true)
    merge = cells.merge
    monkeypatch.setattr(cells, "merge", lambda runs, folder: merge(runs[1:], folder))
    noticed(counts_equal_brute_force)  # the first piece is lost


def test_planted_weights_that_do_not_fall(monkeypatch):
    true = cells.pairs_of

    def flat(*given):
        found = true(*given)
        found["weight"] = np.ceil(found["weight"])
        return found

    monkeypatch.setattr(cells, "pairs_of", flat)
    noticed(counts_equal_brute_force)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100, 1025])
def test_permutations(size):
    found = permute(np.arange(size), size, 7)
    assert sorted(found.tolist()) == list(range(size))
    parts = np.concatenate([permute(np.arange(i, min(i + 3, size)), size, 7) for i in range(0, size, 3)])
    assert np.array_equal(parts, found)
    if size >= 100:
        assert not np.array_equal(found, permute(np.arange(size), size, 8))
        assert abs(np.corrcoef(np.arange(size), found)[0, 1]) < 0.3


def goes_through_all_cells() -> None:
    """In each pass all of them, in another order; all batches together are the tokens of the text."""
    documents = texts(1)
    split = split_of(documents)
    batches, wanted = CellBatches(split, [0, 8], 10, WINDOW, 3, 1.0), by_hand(documents)
    plan = batches.plan(0, 0)
    read = [plan.batch(i) for i in range(len(plan))]
    assert sum(each.tokens for each in read) == split.num_tokens
    orders = []
    for first in range(0, len(plan), len(plan) // 3):
        rows = [
            row
            for each in read[first : first + len(plan) // 3]
            for row in zip(each.rows.tolist(), each.columns.tolist(), each.values.tolist(), strict=True)
            if row[2] > 0
        ]
        assert len(rows) == len(wanted) and {row[:2] for row in rows} == wanted.keys()
        orders.append([row[:2] for row in rows])
    assert orders[0] != orders[1] != orders[2] != orders[0]
    again = CellBatches(split, [0, 8], 10, WINDOW, 3, 1.0).plan(0, 0).batch(7)
    assert all(a.equal(b) for a, b in zip(again[:3], read[7][:3], strict=True))
    other = batches.plan(0, 1).batch(7)
    assert not all(a.equal(b) for a, b in zip(other[:3], read[7][:3], strict=True))


def test_batches_of_cells():
    goes_through_all_cells()


def test_planted_order_that_is_always_the_same(monkeypatch):
    true = cells.permute
    monkeypatch.setattr(cells, "permute", lambda places, size, seed: true(places, size, 0))
    noticed(goes_through_all_cells)


def test_part_of_a_text_is_counted_for_a_smaller_budget():
    split = split_of(texts(0, (30, 30, 30, 30)))
    table = CellBatches(split, [0, 8], 10, WINDOW, 1, 0.25).table(3)
    assert table.tokens == int(0.25 * split.num_tokens)
    assert len(table) < len(table_of(split))


def test_the_loader_reads_them():
    learner = learner_of("glove", "glove")
    loader = Loader(CellBatches(split_of(texts(0)), [0, 8], 16, WINDOW, 2, 1.0), learner, 0)
    items = loader.items(Cursor(0, 2))
    item = next(items)
    items.close()
    assert item.sizes[0].targets == int((item.example.values > 0).sum()) and item.next == Cursor(0, 3)


def test_a_text_without_pairs_is_rejected():
    with pytest.raises(DataError, match="near each other"):
        CellBatches(split_of([[1], [2], [0, 3]]), [0, 8], 10, WINDOW, 1, 1.0).plan(0, 0)
