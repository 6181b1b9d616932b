"""Batches of pairs: every pair once an epoch, never apart, within the budget, and the same whoever asks."""

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE
from seqloom.batches import pairs as module
from seqloom.batches.pairs import EncodedPairs, PairBatches, Side, encode_pairs, pair_batch, plain_frame
from seqloom.errors import DataError, UsageError
from seqloom.text.pairs import TextPair
from seqloom.tokens.tokenizer import Tokenizer

END = 0


def side(rows):
    return Side(np.concatenate(rows), np.concatenate(([0], np.cumsum([len(row) for row in rows]))))


def some_pairs(count=200, seed=0):
    """The target of a source s is s + 1000, of another length: which belong together can be told from any token."""
    rng = np.random.default_rng(seed)
    sources = [np.full(rng.integers(1, 30), i + 1) for i in range(count)]
    targets = [np.full(rng.integers(1, 30), i + 1001) for i in range(count)]
    return EncodedPairs(side(sources), side(targets), 0, 0, plain_frame(END))


def rows_of(batch, ids):
    return [ids[a:b].tolist() for a, b in zip(batch.offsets[:-1], batch.offsets[1:], strict=True)]


def holds_all_pairs(shapes):
    pairs = some_pairs()
    plan = PairBatches(pairs, 256, 40, shapes).plan(1, 0)
    seen = []
    for i in range(len(plan)):
        pair = plan.batch(i)
        assert max(len(pair.source.ids), len(pair.target.ids)) <= 256 + (20 if shapes == "grid" else 0)
        rows = zip(
            rows_of(pair.source, pair.source.ids),
            rows_of(pair.target, pair.target.ids),
            rows_of(pair.target, pair.targets),
            strict=True,
        )
        for source, target, following in rows:
            if not following or following[0] == IGNORE:  # filler, or nothing
                assert all(i == IGNORE for i in following) and bool(source) == bool(target)
                continue
            number = source[0] - 1
            seen.append(number)
            assert (
                source == [number + 1] * (len(source) - 1) + [END] and len(source) == pairs.source.lengths[number] + 1
            )
            assert target == [END] + [number + 1001] * (len(target) - 1)
            assert following == [*target[1:], END] and len(target) == pairs.target.lengths[number] + 1
    assert sorted(seen) == list(range(len(pairs)))


@pytest.mark.parametrize("shapes", ["free", "row", "grid"])
def test_every_pair_comes_once(shapes):
    holds_all_pairs(shapes)


def test_planted_shift_between_the_sides_is_noticed(monkeypatch):
    true = module.take_rows
    monkeypatch.setattr(
        module, "take_rows", lambda s, index: true(s, np.roll(index, 1) if s.ids.max() > 1000 else index)
    )
    with pytest.raises(AssertionError):
        holds_all_pairs("free")


def test_planted_missing_filler_source_is_noticed(monkeypatch):
    """All of a side's filler in one sequence, whose partner on the other side is empty."""
    true = module.Fixed.cuts

    def lopsided(self, *given):
        cuts = true(self, *given)
        return cuts and [cuts[0], np.roll(cuts[1], 1)]

    monkeypatch.setattr(module.Fixed, "cuts", lopsided)
    with pytest.raises(AssertionError):
        holds_all_pairs("row")


def shapes_of(kind, pairs, budget=256, epoch=0):
    plan = PairBatches(pairs, budget, 40, kind).plan(1, epoch)
    found = [plan.batch(i) for i in range(len(plan))]
    return [
        (
            *pair.source.ids.shape,
            *pair.target.ids.shape,
            pair.source.num_sequences,
            pair.source.max_len,
            pair.target.max_len,
        )
        for pair in found
    ]


def test_rows_have_one_shape():
    assert len(set(shapes_of("row", some_pairs()))) == 1


def test_grids_have_few_shapes_which_come_again_and_are_well_filled():
    pairs = some_pairs(6000)
    first, second = (shapes_of("grid", pairs, 1024, epoch) for epoch in (0, 1))
    usual = {shape for shape in first if first.count(shape) > 1}
    assert len(usual) <= 6 and sum(shape in usual for shape in second) >= len(second) - 6
    cells = sum(n * length for *_, n, length, _ in first)
    assert pairs.num_tokens / cells > 0.4  # sources and targets of random lengths; the longer one decides


def test_an_epoch_follows_from_seed_and_number():
    batches = PairBatches(some_pairs(), 256, 40, "free")
    first, again, other, later = (batches.plan(*key) for key in ((1, 0), (1, 0), (2, 0), (1, 1)))
    same = [torch.equal(first.batch(i).source.ids, again.batch(i).source.ids) for i in range(len(first))]
    assert all(same) and len(first) == len(again)
    for changed in (other, later):
        assert any(not np.array_equal(a[0], b[0]) for a, b in zip(first.rows, changed.rows, strict=False))


def test_batches_have_pairs_of_about_one_length():
    pairs = some_pairs(2000)
    plan = PairBatches(pairs, 512, 40, "free").plan(1, 0)
    real = sum(plan.batch(i).target.ids.shape[0] for i in range(len(plan)))
    cells = sum(plan.batch(i).target.num_sequences * plan.batch(i).target.max_len for i in range(len(plan)))
    assert real / cells > 0.75


def test_sizes_count_what_is_real():
    pairs = some_pairs(20)
    free, filled = (PairBatches(pairs, 4096, 40, kind).plan(0, 0).batch(0).sizes() for kind in ("free", "row"))
    s, t = pairs.source.lengths + 1, pairs.target.lengths + 1
    assert free == filled and free[:7] == (
        t.sum(),
        (t * t).sum(),
        t.sum(),
        t.sum(),
        s.sum(),
        (s * s).sum(),
        (s * t).sum(),
    )
    assert sorted(free.lengths) == sorted(t.tolist()) and sorted(free.source_lengths) == sorted(s.tolist())


def test_empty_and_long_pairs_are_left_out_and_said(capsys):
    tokenizer = Tokenizer.train("char", ["abcdefghij"])
    texts = [("ab", "cd"), ("", "x"), ("a" * 20, "b"), ("a", "b" * 9), ("c", "")]
    found = encode_pairs([TextPair(a, b, f"f:{i}") for i, (a, b) in enumerate(texts)], tokenizer, 10, "train")
    assert len(found) == 2 and found.num_tokens == 2 + 9 + 2
    said = capsys.readouterr().err
    assert "2 pairs with an empty side left out (first: f:1, f:4)" in said and "1 pairs with 10 tokens" in said
    with pytest.raises(DataError, match="no pairs are left"):
        encode_pairs([TextPair("", "", "f:1")], tokenizer, 10, "train")


def test_long_sources_that_are_to_be_translated_are_refused():
    """A target that is too long cannot be scored by its loss, but what is written for its source can."""
    tokenizer = Tokenizer.train("char", ["abcdefghij"])
    texts = [("ab", "cd"), ("a", "b" * 9), ("a" * 20, "b"), ("a" * 10, "")]  # also where there is no reference
    rows = [TextPair(a, b, f"f:{i}") for i, (a, b) in enumerate(texts)]
    with pytest.raises(DataError, match=r"2 sources are longer than the 9 tokens .* f:2, 20 tokens; f:3, 10 tokens\)"):
        encode_pairs(rows, tokenizer, 10, "test", translates=True)
    assert len(encode_pairs([*rows[:2], TextPair("a" * 9, "b", "")], tokenizer, 10, "test", translates=True)) == 3


def test_a_budget_below_two_sequences_is_refused():
    with pytest.raises(UsageError, match=r"batches.budget 70"):
        PairBatches(some_pairs(), 70, 40, "free")


def test_a_batch_of_any_choice():
    pairs = some_pairs(5)
    batch = pair_batch(pairs, np.array([3, 1]))
    assert batch.source.ids[0] == 4 and batch.target.ids[1] == 1004
    assert batch.source.max_len % 8 == 0
