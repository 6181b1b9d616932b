"""Each noise against a slow one that is written down plainly; shares and laws as asked for; bugs that are caught."""

import numpy as np
import pytest

from seqloom.batches import noise as module
from seqloom.batches.noise import (
    DELETED,
    KEPT,
    MASKED,
    SPAN,
    Items,
    budgets,
    cut_spans,
    hide,
    permuted,
    poisson_spans,
    rotated,
    shuffled,
    singles,
)

MASK = 999


def rng(seed=0):
    return np.random.default_rng(seed)


def texts(seed=0, many=40, longest=30):
    draw = rng(seed)
    sizes = draw.integers(1, longest, many)
    owner = np.repeat(np.arange(many), sizes)
    begins = (draw.random(len(owner)) < 0.6) | (np.diff(owner, prepend=-1) != 0)
    return np.arange(len(owner)), owner, begins  # every token is another one


def slowly(ids, owner, begins, items, room, each):
    """Word by word, as the definition says it."""
    found, gone = [], []
    words = iter(np.split(np.arange(len(ids)), np.flatnonzero(begins)[1:]))
    for text in range(int(owner[-1]) + 1):
        row = []
        for kind, length in zip(items.kind[items.owner == text], items.length[items.owner == text], strict=True):
            tokens = [i for _ in range(length) for i in next(words)]
            assert all(owner[i] == text for i in tokens)
            gone += [] if kind == KEPT else tokens
            if kind == KEPT:
                row += [(ids[i], False) for i in tokens]
            elif kind == MASKED or (kind == SPAN and each and length):
                row += [(MASK, False) for _ in tokens]
            elif kind == SPAN:
                row.append((MASK, length == 0))
        spare = room - sum(not added for _, added in row)
        for token, added in row:
            if added:
                spare -= 1
            if not added or spare >= 0:
                found.append((token, text))
    return found, sorted(gone)


def some_items(words, seed, spans="poisson"):
    draw = rng(seed)
    masked, deleted, infilled = budgets(words, (0.1, 0.15, 0.4), draw)
    lengths = poisson_spans(infilled, 1.5, draw) if spans == "poisson" else cut_spans(infilled, 3.0, 99, draw)
    kept = words - masked - deleted - infilled
    return shuffled([singles(KEPT, kept), singles(MASKED, masked), singles(DELETED, deleted), (SPAN, *lengths)], draw)


def equals_the_slow_one(each=False, room=1000, seeds=20):
    for seed in range(seeds):
        ids, owner, begins = texts(seed)
        items = some_items(np.bincount(owner[begins]), seed)
        found = hide(ids, owner, begins, items, MASK, room, each)
        expected, gone = slowly(ids, owner, begins, items, room, each)
        assert list(zip(found.ids.tolist(), found.owner.tolist(), strict=True)) == expected
        assert np.flatnonzero(found.gone).tolist() == gone
        # nothing leaks: what is gone is in no source, all else is, and in its order
        kept = found.ids[~found.is_mask]
        assert np.array_equal(kept, ids[~found.gone]) and (found.ids[found.is_mask] == MASK).all()
        for span in range(3):  # a span is one stretch of its text
            for text in np.unique(owner):
                places = np.flatnonzero((found.span == span) & (owner == text))
                assert not len(places) or np.array_equal(places, np.arange(places[0], places[-1] + 1))


@pytest.mark.parametrize("each", [False, True])
def test_hiding_equals_the_slow_one(each):
    equals_the_slow_one(each)


def test_nothing_is_inserted_beyond_the_room():
    equals_the_slow_one(room=12)
    ids, owner = np.arange(4), np.zeros(4, np.int64)
    items = Items(np.zeros(9, np.int64), np.array([SPAN] * 5 + [KEPT] * 4), np.array([0] * 5 + [1] * 4))
    assert len(hide(ids, owner, np.ones(4, bool), items, MASK, 6).ids) == 6


def test_a_leaking_place_is_caught(monkeypatch):
    right = module.first_places
    monkeypatch.setattr(module, "first_places", lambda sizes: np.maximum(right(sizes) - 1, 0))
    with pytest.raises((AssertionError, IndexError)):
        equals_the_slow_one()


def test_shares_are_exact_on_average():
    words = rng(1).integers(1, 60, 20_000)
    rates = (0.07, 0.2, 0.3)
    for rate, taken in zip(rates, budgets(words, rates, rng(2)), strict=True):
        assert (np.abs(taken - rate * words) < 1 + 1e-9).all()
        error = (taken.sum() - rate * words.sum()) / np.sqrt(len(words) / 4)
        assert abs(error) < 4, rate
    assert np.array_equal(sum(budgets(words, (0.5, 0.2, 0.3), rng(3))), words), "all that there is"
    (none,) = budgets(words, (0.0,), rng(4))
    assert not none.any()


@pytest.mark.parametrize("words", [1, 2, 3])
def test_shares_are_exact_where_rates_share_few_words(words):
    """In a text of one word, half of which is masked and half deleted, the later of the rates gets its half."""
    many = 40_000
    for rates in ((0.5, 0.0, 0.5), (0.3, 0.3, 0.4), (0.25, 0.25, 0.25)):
        for rate, taken in zip(rates, budgets(np.full(many, words), rates, rng(words)), strict=True):
            assert abs(taken.mean() - rate * words) < 4 * 0.5 / np.sqrt(many), (rates, rate)


def spans_follow_poisson(lengths_of=poisson_spans, mean=3.0):
    """χ² over the spans of 10⁵ texts, without the last of each, which is cut: that it is the last depends on its length."""
    hidden = np.full(100_000, 60)
    owner, lengths = lengths_of(hidden, mean, rng(0))
    order = np.argsort(owner, kind="stable")
    owner, lengths = owner[order], lengths[order]
    assert np.array_equal(np.bincount(owner, lengths).astype(int), hidden)
    # the first five of each are drawn whatever comes after: they are far from the budget
    early = module.place_within(owner) < 5
    counts = np.bincount(np.minimum(lengths[early], 9), minlength=10)
    law = np.array([np.exp(-mean) * mean**k / np.prod(np.arange(1, k + 1.0)) for k in range(9)])
    expected = np.append(law, 1 - law.sum()) * early.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 9 + 4 * np.sqrt(18), statistic  # mean and 4σ of χ² with 9 degrees of freedom


def test_lengths_of_spans_follow_poissons_law():
    spans_follow_poisson()


def test_a_law_without_empty_spans_is_caught():
    def without_empty(hidden, mean, draw):
        owner, lengths = poisson_spans(hidden, mean, draw)
        return owner[lengths > 0], lengths[lengths > 0]

    with pytest.raises(AssertionError):
        spans_follow_poisson(without_empty)


def test_cut_spans_are_of_the_mean_length_and_none_is_empty():
    hidden = rng(5).integers(0, 50, 5000)
    owner, lengths = cut_spans(hidden, 3.0, 7, rng(6))
    assert (lengths > 0).all() and np.array_equal(np.bincount(owner, lengths, 5000).astype(int), hidden)
    counts = np.bincount(owner, minlength=5000)
    right = np.minimum(np.maximum(np.round(hidden / 3), 1), 7)
    assert np.array_equal(counts[hidden > 0], right[hidden > 0]) and not counts[hidden == 0].any()


def is_a_permutation_of_sentences(permute=permuted, share=1.0):
    moved = total = 0
    for seed in range(30):
        ids, owner, _ = texts(seed, 20, 60)
        ends = rng(seed).random(len(ids)) < 0.2
        order = permute(owner, ends, share, rng(seed + 99))
        assert np.array_equal(owner[order], owner), "a sentence has left its text"
        for text in np.unique(owner):
            own = np.flatnonzero(owner == text)
            borders = np.flatnonzero(ends[own]) + 1
            before = [tuple(part) for part in np.split(own, borders) if len(part)]
            after, left = [], list(order[own])
            while left:  # cut into the sentences that there were
                sentence = next(each for each in before if each[0] == left[0])
                assert tuple(left[: len(sentence)]) == sentence
                after.append(sentence)
                left = left[len(sentence) :]
            assert sorted(after) == sorted(before)
            still = sum(a == b for a, b in zip(after, before, strict=True))
            assert still >= len(before) - np.ceil(share * len(before))
            moved, total = moved + len(before) - still, total + len(before)
    assert moved > 0.5 * share**2 * total


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_sentences_are_permuted_within_their_texts(share):
    is_a_permutation_of_sentences(share=share)


def test_sentences_that_leave_their_text_are_caught():
    def anywhere(owner, ends, share, draw):
        return permuted(np.zeros_like(owner), ends, share, draw)

    with pytest.raises(AssertionError):
        is_a_permutation_of_sentences(anywhere)


def test_rotation_begins_at_every_token_alike():
    owner = np.repeat(np.arange(8000), 7)
    order = rotated(owner, 1.0, rng(0)).reshape(-1, 7) - np.arange(8000)[:, None] * 7
    assert np.array_equal(order, (order[:, :1] + np.arange(7)) % 7), "no rotation"
    counts = np.bincount(order[:, 0], minlength=7)
    assert (np.abs(counts - 8000 / 7) < 4 * np.sqrt(8000 / 7)).all()
    half = rotated(owner, 0.5, rng(1)).reshape(-1, 7)[:, 0] % 7 != 0
    assert abs(half.mean() - 0.5 * 6 / 7) < 4 * np.sqrt(0.25 / 8000)


def test_texts_of_one_token_survive_everything():
    owner = np.arange(50)
    assert np.array_equal(rotated(owner, 1.0, rng()), owner)
    assert np.array_equal(permuted(owner, np.ones(50, bool), 1.0, rng()), owner)
    items = some_items(np.ones(50, np.int64), 0)
    found = hide(owner, owner, np.ones(50, bool), items, MASK, 10)
    assert 10 < found.gone.sum() < 50
