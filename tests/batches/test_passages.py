"""Passages: every token once an epoch, pairs as the objectives define them, special tokens where they belong."""

import numpy as np
import pytest

from seqloom.batch import IGNORE
from seqloom.batches import passages as module
from seqloom.batches.passages import FOLLOWS, OTHER, Passages, find_partners
from seqloom.errors import DataError, UsageError
from tests.corpus import MemorySplit, marks_by, numbered_corpus, sentences_by

FIRST, SEPARATOR = 90_000, 90_001


def corpus(documents=40, longest=120, seed=1):
    """Every token of the corpus has a number of its own; each seventh ends a sentence."""
    split = numbered_corpus(seed, documents, longest)
    ends = np.zeros(100_000, bool)
    ends[::7] = True
    return split, marks_by(FIRST, SEPARATOR, ends)


def rows_of(passage):
    for i, (a, b) in enumerate(
        zip(passage.batch.offsets[:-1].tolist(), passage.batch.offsets[1:].tolist(), strict=True)
    ):
        ids = passage.batch.ids[a:b].tolist()
        places = passage.places[a:b]
        if (places >= 0).any():
            segments = None if passage.batch.segments is None else passage.batch.segments[a:b].tolist()
            yield ids, places.tolist(), segments, int(passage.labels[i])
        else:
            assert int(passage.labels[i]) == IGNORE


def all_rows(passages, seed=3, epoch=0):
    plan = passages.plan(seed, epoch)
    return [row for i in range(len(plan)) for row in rows_of(plan.batch(i))]


def parts(ids, places):
    """The text of each part, and that nothing but it has a place."""
    assert ids[0] == FIRST and ids[-1] == SEPARATOR
    cuts = [i for i, token in enumerate(ids) if token == SEPARATOR]
    found, start = [], 1
    for cut in cuts:
        found.append(places[start:cut])
        start = cut + 1
    assert [place >= 0 for place in places] == [token not in (FIRST, SEPARATOR) for token in ids]
    return found


def build(form="single", budget=256, max_len=32, short=(0, 0.9), epochs=1.0, **sizes):
    split, marks = corpus(**sizes)
    return Passages(split, marks, form, budget, max_len, short, epochs)


def reads_every_token_once(form):
    passages = build(form)
    split = passages.split
    rows = all_rows(passages)
    seen = np.array([place for _, places, _, _ in rows for place in places if place >= 0])
    assert len(np.unique(seen)) == len(seen), "a token is read twice"
    text = np.setdiff1d(np.arange(split.num_tokens), split.offsets[1:] - 1)  # without the ends of documents
    assert np.array_equal(np.sort(seen), text), "what has no pair is read as one part"
    for ids, places, _, _ in rows:
        assert len(ids) <= 32
        for part in parts(ids, places):
            assert part == list(range(part[0], part[0] + len(part))), "a part is one stretch of the corpus"
            document = np.searchsorted(split.offsets, part, side="right")
            assert len(set(document)) == 1
            assert [ids[places.index(place)] for place in part] == split.read(part[0], part[-1] + 1).tolist()


@pytest.mark.parametrize("form", ["single", "next", "order"])
def test_every_token_is_read_once(form):
    reads_every_token_once(form)


def test_planted_overlap_is_noticed(monkeypatch):
    true = Passages.spans
    monkeypatch.setattr(
        Passages, "spans", lambda self, *given: [(max(a - 1, 0), b, c, d) for a, b, c, d in true(self, *given)]
    )
    with pytest.raises(AssertionError):
        reads_every_token_once("order")


def relations_are_true(form):
    passages = build(form, documents=120, longest=200)
    offsets, labels = passages.split.offsets, []
    for ids, places, segments, label in all_rows(passages):
        if label == IGNORE:
            (_,) = parts(ids, places)
            assert segments is None or not any(segments)
            continue
        a, b = parts(ids, places)
        labels.append(label)
        assert segments == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        one, two = (int(np.searchsorted(offsets, part[0], side="right")) for part in (a, b))
        if form == "next":
            assert (one == two) == (label == FOLLOWS)
            if label == FOLLOWS:
                assert b[0] == a[-1] + 1
        else:
            assert one == two
            assert (b[0] == a[-1] + 1) if label == FOLLOWS else (a[0] == b[-1] + 1)
    share, sigma = np.mean(labels), 0.5 / len(labels) ** 0.5
    assert abs(share - 0.5) < 4 * sigma, f"{share} of {len(labels)}"


@pytest.mark.parametrize("form", ["next", "order"])
def test_relations_are_what_they_are_labelled(form):
    relations_are_true(form)


def test_planted_wrong_labels_are_noticed(monkeypatch):
    monkeypatch.setattr(module, "FOLLOWS", OTHER)
    monkeypatch.setattr(module, "OTHER", FOLLOWS)
    with pytest.raises(AssertionError):
        relations_are_true("order")


@pytest.mark.parametrize("form", ["next", "order"])
def test_both_parts_are_whole_sentences(form):
    passages = build(form, documents=60, longest=200)
    starts, ends = (set(column) for column in passages.sentences.T.tolist())
    pairs = [parts(ids, places) for ids, places, _, label in all_rows(passages) if label != IGNORE]
    assert len(pairs) > 100
    for part in (part for pair in pairs for part in pair):
        assert part[0] in starts and part[-1] + 1 in ends


def test_what_is_no_whole_sentence_is_read_as_one_part():
    """A rest without a stop, a sentence that is longer than the room, a document of one sentence."""
    split, marks = corpus(documents=1)
    split = MemorySplit([[*range(1, 13)], [*range(15, 22)], [1, 7, *[1] * 50, 7, 1, 7]])
    rows = all_rows(Passages(split, marks, "order", 256, 32, (0, 0.9), 1.0))
    found = sorted((sum(place >= 0 for place in places), label != IGNORE) for _, places, _, label in rows)
    assert sum(size for size, _ in found) == split.num_tokens - 3
    assert (7, False) in found and (5, False) in found and all(size <= 30 for size, _ in found)


def test_an_epoch_follows_from_seed_and_number():
    passages = build("next")
    assert all_rows(passages) == all_rows(passages)
    assert all_rows(passages) != all_rows(passages, seed=4) and all_rows(passages) != all_rows(passages, epoch=1)


def test_long_passages_come_after_the_short_share_of_the_run():
    passages = build("single", short=(16, 0.75), epochs=2.0, documents=200)
    first = [passages.plan(0, 0).batch(i).batch.max_len for i in range(len(passages.plan(0, 0)))]
    second = [passages.plan(0, 1).batch(i).batch.max_len for i in range(len(passages.plan(0, 1)))]
    assert set(first) == {16}
    assert second == sorted(second) and set(second) == {16, 32}
    tokens = [sum(len(places) for _, places, _, _ in rows_of(passages.plan(0, 1).batch(i))) for i in range(len(second))]
    short = sum(n for n, size in zip(tokens, second, strict=True) if size == 16) / sum(tokens)
    assert short == pytest.approx(0.5, abs=0.1)


def test_full_passages_are_full_grids():
    passages = build("single", documents=10, longest=2000)
    plan = passages.plan(0, 0)
    full = [plan.batch(i).batch.is_full for i in range(len(plan))]
    assert sum(full) > len(full) / 2
    shapes = {(*plan.batch(i).batch.ids.shape, *plan.batch(i).batch.offsets.shape) for i in range(len(plan))}
    assert len(shapes) <= 2


@pytest.mark.parametrize("form", ["next", "order"])
def test_a_corpus_without_pairs_is_refused(form):
    split, marks = corpus()
    with pytest.raises(DataError, match="no document has two sentences"):
        Passages(split, marks._replace(sentences=sentences_by(np.zeros(100_000, bool))), form, 256, 32, (0, 0.9), 1.0)


def test_one_document_has_no_strangers():
    split, marks = corpus(documents=1, longest=200)
    with pytest.raises(DataError, match="one document"):
        Passages(split, marks, "next", 256, 32, (0, 0.9), 1.0)
    assert all_rows(Passages(split, marks, "order", 256, 32, (0, 0.9), 1.0))


def test_partners_are_of_other_documents_and_fit():
    rng = np.random.default_rng(0)
    for counts in ((5, 5, 5), (1, 1), (7, 3, 2, 1), (4,), (9, 1), (150, 170, 30)):
        documents = np.repeat(np.arange(len(counts)), counts)
        rng.shuffle(documents)
        lengths = rng.integers(1, 20, (len(documents), 2))
        surfaces = rng.integers(0, 2, len(documents))
        found = find_partners(documents, lengths, surfaces, 30, rng)
        taken = np.flatnonzero(found >= 0)
        assert np.array_equal(found[found[taken]], taken), "each is the other's"
        assert (documents[taken] != documents[found[taken]]).all()
        assert (surfaces[taken] == surfaces[found[taken]]).all()
        assert (lengths[taken, 0] + lengths[found[taken], 1] <= 30).all()
        assert (np.abs(lengths[taken, 1] - lengths[found[taken], 1]) < 4).all()
        assert len(taken) <= min(sum(counts), 2 * (sum(counts) - max(counts)))
    assert len(taken) > 0.6 * 350


def test_no_token_is_read_twice_where_one_document_has_most():
    split = MemorySplit([list(range(1, 3000)), *[list(range(1, 60))] * 3])
    _, marks = corpus()
    passages = Passages(split, marks, "next", 256, 32, (0, 0.9), 1.0)
    seen = np.array([place for _, places, _, _ in all_rows(passages) for place in places if place >= 0])
    assert len(np.unique(seen)) == len(seen) > 2900


def told_by_lengths(seed=0):
    """How many labels of one epoch a table of lengths tells that was made from another; and of full passages, whose they are."""
    rng = np.random.default_rng(seed)
    ends = np.zeros(100_000, bool)
    ends[9] = True

    def sentence():
        return [*rng.integers(10, 90_000, rng.integers(2, 40)).tolist(), 9]

    documents = [[token for _ in range(rng.integers(2, 16)) for token in sentence()] for _ in range(700)]
    passages = Passages(MemorySplit(documents), marks_by(FIRST, SEPARATOR, ends), "next", 2048, 128, (0, 0.9), 1.0)
    counts, right, full = np.zeros((300, 2)), [], []
    for ids, _, _, label in all_rows(passages, epoch=0) + all_rows(passages, epoch=1):
        if label != IGNORE:
            counts[len(ids), label] += 1
    for ids, _, _, label in all_rows(passages, epoch=2):
        if label != IGNORE:
            right.append(counts[len(ids)].argmax() == label)
            full += [label] * (len(ids) > 120)
    return np.mean(right), np.mean(full), len(right)


def lengths_tell_nothing():
    right, full, count = told_by_lengths()
    assert count > 500 and right < 0.5 + 4 * 0.5 / count**0.5, f"{right:.3f} of {count} are told by their length"
    assert 0.25 < full < 0.75, f"{full:.2f} of the full passages have a strange second part"


def test_the_length_of_a_pair_does_not_tell_whether_it_follows():
    lengths_tell_nothing()


def test_planted_partners_of_any_length_are_noticed(monkeypatch):
    monkeypatch.setattr(
        module, "find_partners", lambda documents, lengths, *rest: find_partners(documents, 0 * lengths, *rest)
    )
    with pytest.raises(AssertionError):
        lengths_tell_nothing()


def test_lengths_that_hold_no_text_are_refused():
    split, marks = corpus()
    with pytest.raises(UsageError, match=r"batches.length 4"):
        Passages(split, marks, "next", 256, 4, (0, 0.9), 1.0)
    with pytest.raises(UsageError, match=r"batches.budget 16"):
        Passages(split, marks, "single", 16, 32, (0, 0.9), 1.0)


def test_empty_documents_have_no_passage():
    split = MemorySplit([[], [1, 2, 3], [], [4], []])
    _, marks = corpus()
    for epoch in range(20):  # each is the last one of some order
        plan = Passages(split, marks, "single", 64, 32, (0, 0.9), 1.0).plan(0, epoch)
        assert sorted(ids[1:-1] for i in range(len(plan)) for ids, *_ in rows_of(plan.batch(i))) == [[1, 2, 3], [4]]
