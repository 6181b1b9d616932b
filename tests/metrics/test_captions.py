"""CIDEr-D, BLEU with several references and exact match, against cases computed by hand."""

import math

import pytest

from seqloom.errors import DataError, ModelError
from seqloom.metrics import captions
from seqloom.metrics.captions import caption_scores, cider, similarity, words_of

REFERENCES = [["a red dog"], ["a blue cat", "the cat"]]


def test_a_case_by_hand():
    """Two pictures: what both have (a) weighs log(2 / 2) = 0, all else log 2.

    The caption "a red cat" of the first: unigrams a (0), red and cat (log 2 each) against a, red, dog: the cosine is
    log² 2 / (√2 log 2 · √2 log 2) = 1 / 2. Bigrams "a red", "red cat" against "a red", "red dog": 1 / 2. Trigrams share
    nothing, there are no 4-grams: (1/2 + 1/2 + 0 + 0) / 4 · 10 = 2.5, and lengths are equal."""
    assert cider(["a red cat", "the cat"], REFERENCES)[0] == pytest.approx(2.5)


def test_several_references_and_lengths():
    """ "the cat" equals one of its two references, whose unigrams and bigram are all known: (1 + 1) / 4 · 10 = 5. Against "a blue
    cat" it shares cat: log² 2 / (√2 log 2 · √2 log 2) = 1 / 2, and is one word shorter: e^(−1/72). The mean of both."""
    other = 10 * (1 / 2 * math.exp(-1 / 72)) / 4
    assert cider(["a red dog", "the cat"], REFERENCES)[1] == pytest.approx((5 + other) / 2)


def test_repeated_words_do_not_help():
    twice, once = cider(["dog dog dog", "x"], REFERENCES)[0], cider(["dog", "x"], REFERENCES)[0]
    assert twice < once


def test_planted_cosines_are_noticed(monkeypatch):
    def unclipped(mine, theirs):
        lengths = [math.sqrt(sum(value * value for value in each.values())) for each in (mine, theirs)]
        return sum(v * theirs.get(k, 0.0) for k, v in mine.items()) / (lengths[0] * lengths[1]) if all(lengths) else 0.0

    right = cider(["red red dog", "x"], [["a red dog"], ["a blue cat"]])[0]
    monkeypatch.setattr(captions, "similarity", unclipped)
    assert cider(["red red dog", "x"], [["a red dog"], ["a blue cat"]])[0] != pytest.approx(right)


def test_nothing_in_common():
    assert similarity({("a",): 1.0}, {("b",): 1.0}) == 0 and similarity({}, {("b",): 1.0}) == 0
    assert cider(["", "x y"], REFERENCES) == [0, 0]


def test_scores():
    found = caption_scores(["A red dog", "a blue cat"], REFERENCES)
    assert found["exact_match"] == 1 and found["bleu_1"] == pytest.approx(100) and found["pictures"] == 2
    assert found["cider"] > caption_scores(["a red dog", "a red dog"], REFERENCES)["cider"]
    assert caption_scores(["the cat", "a dog"], [["x", "the cat"], ["y"]])["exact_match"] == 0.5
    assert words_of("A Dog, twice!") == ["a", "dog", "twice"]


def test_bleu_is_left_out_without_sacrebleu(monkeypatch):
    def missing():
        raise ModelError("BLEU needs 'sacrebleu'")

    monkeypatch.setattr(captions, "_sacrebleu", missing)
    found = caption_scores(["a red dog", "a blue cat"], REFERENCES)
    assert "bleu" not in found and found["exact_match"] == 1


def test_captions_and_references_that_do_not_fit():
    with pytest.raises(DataError, match="1 captions for 2 pictures"):
        caption_scores(["a"], REFERENCES)
    with pytest.raises(DataError, match="without a reference"):
        caption_scores(["a"], [[]])
