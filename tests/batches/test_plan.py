"""Plans: every token is predicted once an epoch, from the right context, whatever the shapes."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import IGNORE
from seqloom.batches import plan as plans
from seqloom.batches.plan import Packed, Streams
from seqloom.errors import UsageError
from tests.corpus import END, MemorySplit, numbered_corpus


def check_excerpt(split, excerpt, max_len):
    """Inside a sequence tokens follow each other as in the corpus; the contract of Ragged holds."""
    batch = excerpt.batch
    t, n = batch.ids.shape[0], batch.num_sequences
    offsets = batch.offsets.tolist()
    assert offsets[0] == 0 and offsets[-1] == t and batch.offsets.dtype == torch.int32
    assert all(0 <= b - a <= max_len for a, b in pairwise(offsets))
    assert batch.max_len == max_len and batch.owner.max() < n
    previous = {
        int(split.flat[i]): int(split.flat[i - 1]) if i else END
        for i in range(split.num_tokens)
        if split.flat[i] != END
    }
    for a, b in pairwise(offsets):
        ids, following = batch.ids[a:b].tolist(), excerpt.targets[a:b].tolist()
        if b > a and following[0] == IGNORE:
            assert set(following) == {IGNORE}, "filler and text in one sequence"
            continue
        for before, token in zip(ids, following, strict=True):
            assert token == END or previous[token] == before, "predicted from the wrong token"
        for left, right in zip(following, ids[1:], strict=False):
            assert left == right, "not the text that follows"


def packed_holds(split, budget, max_len, seed, epoch):
    plan = Packed(split, budget, max_len).plan(seed, epoch)
    seen = []
    for i in range(len(plan)):
        excerpt = plan.batch(i)
        check_excerpt(split, excerpt, max_len)
        assert excerpt.batch.ids.shape[0] == budget, "a batch is not full"
        seen += excerpt.targets[excerpt.targets != IGNORE].tolist()
        # a sequence never goes past the end of a document
        for a, b in pairwise(excerpt.batch.offsets.tolist()):
            assert END not in excerpt.targets[a : b - 1].tolist()
    assert sorted(seen) == sorted(split.flat.tolist()), "not every token once"


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_packed(seed, documents, longest, max_len, times, epoch):
    packed_holds(numbered_corpus(seed, documents, longest), max_len * times + seed % 2, max_len, seed, epoch)


def streams_hold(split, streams, usual, seed, epoch, vary=False):
    plan = Streams(split, streams, usual, vary).plan(seed, epoch)
    rows = [[] for _ in range(streams)]
    before = None
    for i in range(len(plan)):
        excerpt = plan.batch(i)
        length = excerpt.batch.max_len
        assert length >= plans.SHORTEST if vary else length == usual
        assert excerpt.batch.is_full and excerpt.batch.num_sequences == streams
        check_excerpt(split, excerpt, length)
        ids, following = excerpt.batch.ids.view(streams, length), excerpt.targets.view(streams, length)
        assert excerpt.batch.positions.view(streams, length)[:, 0].eq(len(rows[0])).all()
        if before is not None:
            assert torch.equal(ids[:, 0], before), "a stream does not go on where it stopped"
        before = following[:, -1]
        for row, part in zip(rows, following.tolist(), strict=True):
            row += part
    flat = [token for row in rows for token in row if token != END]
    assert len(flat) == len(set(flat)), "a token twice"
    assert split.num_tokens - sum(map(len, rows)) < (streams + 1) * usual, "too much left out"


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.integers(5, 40),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_streams(seed, documents, longest, streams, length, epoch):
    split = numbered_corpus(seed, documents, longest)
    if split.num_tokens >= streams * length:
        streams_hold(split, streams, length, seed, epoch)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(5, 80), st.integers(1, 4), st.integers(10, 30))
def test_streams_of_varying_length(seed, documents, longest, streams, length):
    split = numbered_corpus(seed, documents, longest)
    if split.num_tokens >= streams * length:
        streams_hold(split, streams, length, seed, seed % 3, vary=True)


def lengths_are_right() -> None:
    """N(70, 5) in 95 of 100 batches, N(35, 5) in the others."""
    found = np.diff(plans.draw_borders(plans.generator(1, 2), 70, 70 * 20_000))
    found, seldom = found[:-1], found[:-1] < 52
    n = len(found)
    assert abs(seldom.mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / n)
    for part, middle in ((found[~seldom], 70), (found[seldom], 35)):
        assert abs(part.mean() + 0.5 - middle) < 4 * 5 / np.sqrt(len(part))  # cut to whole numbers: half a token less
        assert abs(part.std() - 5) < 0.3


def test_varying_lengths():
    lengths_are_right()
    assert np.diff(plans.draw_borders(plans.generator(1, 2), 10, 10_000)).min() == plans.SHORTEST


@pytest.mark.parametrize(("name", "value"), [("HALVED", 0.1), ("SPREAD", 7.0)])
def test_planted_wrong_lengths_are_noticed(name, value, monkeypatch):
    monkeypatch.setattr(plans, name, value)
    with pytest.raises(AssertionError):
        lengths_are_right()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip((a.batch.ids, a.targets), (b.batch.ids, b.targets), strict=True))


@pytest.mark.parametrize(
    "make",
    [lambda s: Packed(s, 48, 12), lambda s: Streams(s, 4, 12), lambda s: Streams(s, 4, 12, vary=True)],
    ids=["packed", "streams", "varying"],
)
def test_a_plan_is_a_function_of_seed_and_epoch(make):
    split = numbered_corpus(1, 40, 30)
    one, two = make(split).plan(7, 3), make(split).plan(7, 3)
    assert len(one) == len(two)
    # in any order, as workers and resumed runs ask
    assert all(same(one.batch(i), two.batch(i)) for i in reversed(range(len(one))))
    for seed, epoch in ((7, 4), (8, 3)):
        other = make(split).plan(seed, epoch)
        assert not all(same(one.batch(i), other.batch(i)) for i in range(min(len(one), len(other))))


def test_whole_sequences_make_full_grids():
    split = MemorySplit([list(range(1, 1000))])
    plan = Packed(split, 64, 16).plan(0, 0)
    full = [plan.batch(i).batch.is_full for i in range(len(plan))]
    assert sum(full) >= len(full) - 2


def test_planted_missing_shift_is_noticed(monkeypatch):
    original = plans.excerpt

    def unshifted(split, pieces, *shape):
        read = original(split, pieces, *shape)
        return read._replace(targets=torch.where(read.targets == IGNORE, IGNORE, read.batch.ids))

    monkeypatch.setattr(plans, "excerpt", unshifted)
    split = numbered_corpus(1, 10, 30)
    with pytest.raises(AssertionError):
        packed_holds(split, 32, 8, 0, 0)
    with pytest.raises(AssertionError):
        streams_hold(split, 2, 8, 0, 0)


def test_planted_lost_tail_is_noticed(monkeypatch):
    cut = plans.cut_documents

    def careless(offsets, max_len, first=None):
        pieces = cut(offsets, max_len, first)
        keep = pieces.lengths == pieces.lengths.max()
        return plans.Pieces(*(array[keep] for array in pieces))

    monkeypatch.setattr(plans, "cut_documents", careless)
    with pytest.raises(AssertionError):
        packed_holds(numbered_corpus(1, 10, 30), 32, 8, 0, 0)


def test_planted_unseeded_plan_is_noticed(monkeypatch):
    monkeypatch.setattr(plans, "generator", lambda seed, epoch: np.random.default_rng())
    split = numbered_corpus(1, 40, 30)
    one, two = Packed(split, 48, 12).plan(7, 3), Packed(split, 48, 12).plan(7, 3)
    assert not all(same(one.batch(i), two.batch(i)) for i in range(min(len(one), len(two))))


def test_impossible_shapes():
    split = numbered_corpus(1, 3, 5)
    with pytest.raises(UsageError, match="smaller than one sequence"):
        Packed(split, 8, 16)
    with pytest.raises(UsageError, match="more than the"):
        Streams(split, 100, 100)
    with pytest.raises(UsageError, match="vary needs"):
        Streams(split, 1, 9, vary=True)
