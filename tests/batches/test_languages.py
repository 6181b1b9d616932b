"""Languages in smoothed shares: as much of each as was asked for, nothing twice before all of it was read, known in advance."""

import numpy as np
import pytest

from seqloom.batches import languages as module
from seqloom.batches.languages import Mixed, MixedPlan, WithLanguage, passes, shares
from seqloom.batches.passages import Passages
from seqloom.batches.plan import Packed
from tests.corpus import marks_by, numbered_corpus

SIZES = (400, 60, 12)  # documents of a large, a small and a tiny language


def corpora():
    return [numbered_corpus(seed, size, 40) for seed, size in enumerate(SIZES)]


def build(kind, smoothing, splits=None, short=(0, 0.9), epochs=1.0, told=False, find=passes):
    splits = splits or corpora()
    often = find([split.num_tokens for split in splits], smoothing)
    marks = marks_by(90_000, 90_001, np.zeros(100_000, bool))
    if kind == "packed":
        return Mixed([Packed(split, 96, 24) for split in splits], often)
    cut = [
        Passages(split, marks, "single", 96, 24, short, epochs * each)
        for split, each in zip(splits, often, strict=True)
    ]
    return Mixed([WithLanguage(each, i) for i, each in enumerate(cut)] if told else cut, often)


def tokens_of(batch):
    """What is read of the text itself."""
    if hasattr(batch, "places"):
        return batch.places[batch.places >= 0].tolist()
    return batch.targets[batch.targets >= 0].tolist()


def read(mixed, epochs, seed=3):
    """For every language the tokens that each epoch reads of it."""
    found = [[[] for _ in range(epochs)] for _ in mixed.batches]
    for epoch in range(epochs):
        plan = mixed.plan(seed, epoch)
        for i in range(len(plan)):
            found[plan.languages[i]][epoch] += tokens_of(plan.batch(i))
    return found


def has_its_shares(kind, smoothing, epochs=4, find=passes):
    splits = corpora()
    sizes = np.array([split.num_tokens for split in splits])
    mixed = build(kind, smoothing, splits, find=find)
    seen = np.array([sum(map(len, each)) for each in read(mixed, epochs)])
    batches = sum(len(mixed.plan(3, epoch)) for epoch in range(epochs))
    wanted = sizes**smoothing / (sizes**smoothing).sum()
    sigma = np.sqrt(wanted * (1 - wanted) / batches)  # of as many batches drawn one by one
    assert (np.abs(seen / seen.sum() - wanted) < 4 * sigma).all(), (seen / seen.sum(), wanted)
    # the number of batches is not drawn: what is read lies within a few batches of what was asked for
    text = sizes if kind == "packed" else sizes - np.array([split.num_documents for split in splits])
    expected = epochs * passes(sizes.tolist(), smoothing) * text
    assert (np.abs(seen - expected) <= 2 * 96).all(), (seen, expected)


@pytest.mark.parametrize("smoothing", [1.0, 0.7, 0.3, 0.0])
@pytest.mark.parametrize("kind", ["packed", "passages"])
def test_shares(kind, smoothing):
    has_its_shares(kind, smoothing)


@pytest.mark.parametrize(
    "bug",
    [
        lambda sizes, smoothing: np.ones(len(sizes)),  # no smoothing
        lambda sizes, smoothing: passes(sizes, 1 - smoothing),  # the other way round
        lambda sizes, smoothing: shares(sizes, smoothing) * len(sizes),  # shares of batches taken for passes
    ],
)
def test_wrong_shares_are_noticed(bug):
    with pytest.raises(AssertionError):
        has_its_shares("packed", 0.3, find=bug)


def test_shares_by_the_formula():
    assert shares([100, 100], 0.3).tolist() == [0.5, 0.5]
    assert shares([900, 100], 0.5) == pytest.approx([0.75, 0.25])
    assert shares([900, 100], 1.0) == pytest.approx([0.9, 0.1])
    assert shares([900, 100], 0.0).tolist() == [0.5, 0.5]
    assert passes([900, 100, 17], 1.0).tolist() == [1.0, 1.0, 1.0]
    assert passes([900, 100], 0.5) * [900, 100] / 1000 == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("kind", ["packed", "passages"])
def test_without_smoothing_an_epoch_reads_everything_once(kind):
    splits = corpora()
    for split, epochs in zip(splits, read(build(kind, 1.0, splits), 3), strict=True):
        ends = set() if kind == "packed" else set((split.offsets[1:] - 1).tolist())
        for seen in epochs:
            if kind == "packed":
                assert sorted(seen) == sorted(split.flat.tolist())
            else:
                assert sorted(seen) == sorted(set(range(split.num_tokens)) - ends)


def reads_on(smoothing=0.3):
    """Whatever was read, no token is more than one pass ahead of another: nothing is left out, or begun again too early."""
    splits = corpora()
    for number, epochs in enumerate(read(build("passages", smoothing, splits), 5)):
        counts = np.zeros(splits[number].num_tokens, np.int64)
        for seen in epochs:
            np.add.at(counts, seen, 1)
            text = np.delete(counts, splits[number].offsets[1:] - 1)
            assert text.max() - text.min() <= 1


def test_a_language_is_read_on_where_the_epoch_before_has_left_it():
    reads_on()


def test_a_language_that_begins_anew_is_noticed(monkeypatch):
    batches_between = module.batches_between
    monkeypatch.setattr(
        module, "batches_between", lambda each, seed, begin, end: batches_between(each, seed, 0.0, end - begin)
    )
    with pytest.raises(AssertionError):
        reads_on()


def test_the_order_is_drawn_from_seed_and_epoch():
    def order(seed, epoch):
        return build("packed", 0.5).plan(seed, epoch).languages.tolist()

    assert order(3, 1) == order(3, 1)
    assert order(3, 1)[:40] != order(3, 2)[:40] and order(3, 1)[:40] != order(4, 1)[:40]
    first = [sorted(order(3, 1)[:60]), sorted(order(3, 1))[:60]]
    assert first[0] != first[1], "languages stand in blocks"
    one, two = (build("packed", 0.5).plan(3, 1) for _ in range(2))
    for i in (5, 0, 17):  # any batch, without the ones before it
        assert tokens_of(one.batch(i)) == tokens_of(two.batch(i))


def test_two_languages_with_one_text_are_not_read_in_step():
    split = numbered_corpus(0, 60, 40)
    seen = read(build("packed", 1.0, [split, split]), 1)
    assert sorted(seen[0][0]) == sorted(seen[1][0]) and seen[0][0] != seen[1][0]


def test_short_passages_come_first_in_every_language():
    mixed = build("passages", 0.3, short=(8, 0.5), epochs=4.0)
    plans = [mixed.plan(3, epoch) for epoch in range(4)]
    for language in range(3):
        found = [
            (plan.batch(i).batch.max_len, len(tokens_of(plan.batch(i))))
            for plan in plans
            for i in np.flatnonzero(plan.languages == language).tolist()
        ]
        lengths = [length for length, _ in found]
        assert lengths == sorted(lengths) and set(lengths) == {8, 24}
        short = sum(tokens for length, tokens in found if length == 8) / sum(tokens for _, tokens in found)
        assert short == pytest.approx(0.5, abs=0.1)


def test_the_language_is_told():
    plan = build("passages", 0.5, told=True).plan(3, 0)
    assert isinstance(plan, MixedPlan) and set(plan.languages.tolist()) == {0, 1, 2}
    for i in range(len(plan)):
        batch = plan.batch(i).batch
        assert batch.segments.shape == batch.ids.shape
        assert set(batch.segments.tolist()) == {int(plan.languages[i])}
    untold = build("passages", 0.5).plan(3, 0)
    assert all(untold.batch(i).batch.segments is None for i in range(len(untold)))
