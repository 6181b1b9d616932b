"""SQuAD's scores against worked cases of its rules, and the threshold against trying all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.metrics import spans as module
from seqloom.metrics.spans import best_threshold, exact_match, f1, normalised, span_scores


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Cat, and a dog!", "cat and dog"),
        ("An apple; the theatre", "apple theatre"),
        ("U.S.", "us"),  # punctuation goes before articles are looked for
        ("a.m.", "am"),
        ("the", ""),
        ("Ångström’s", "ångström’s"),  # only ASCII punctuation counts as such
        ("one\u00a0two\n three", "one two three"),
    ],
)
def test_what_does_not_count(text, wanted):
    assert normalised(text) == wanted


def check_answers():
    assert exact_match("the Eiffel Tower.", ["Eiffel tower", "tower"]) == 1
    assert exact_match("Eiffel", ["Eiffel tower", "tower"]) == 0
    assert f1("Eiffel", ["Eiffel tower", "the old iron tower"]) == pytest.approx(2 / 3)
    assert f1("cat cat dog", ["cat dog dog"]) == pytest.approx(2 / 3)  # a word counts as often as both have it
    assert f1("bird", ["cat"]) == 0
    # no answer: right if nothing is said
    assert exact_match("", []) == f1("", []) == exact_match("the", []) == 1
    assert exact_match("cat", []) == f1("cat", []) == exact_match("", ["cat"]) == f1("", ["cat"]) == 0
    assert exact_match("cat", [".", "cat"]) == 1 and exact_match("", [".", "cat"]) == 0


def test_answers():
    check_answers()


def test_planted_rules_are_noticed(monkeypatch):
    for wrong in (str, lambda text: " ".join(text.lower().split())):
        monkeypatch.setattr(module, "normalised", wrong)
        with pytest.raises(AssertionError):
            check_answers()


GOLD = {"1": ["a red cat"], "2": [], "3": ["dog"], "4": []}
PREDICTED = {"1": "red dog", "2": "bird", "3": "dog", "4": "", "5": "of another file"}


def test_scores_of_both_sorts():
    found = span_scores(GOLD, PREDICTED)
    assert found["exact_match"] == 0.5 and found["f1"] == pytest.approx(2.5 / 4) and found["count"] == 4
    assert found["answerable_exact_match"] == 0.5 and found["answerable_f1"] == pytest.approx(0.75)
    assert found["unanswerable_f1"] == 0.5 and found["unanswerable_count"] == 2
    assert set(span_scores({"3": ["dog"]}, PREDICTED)) == {"exact_match", "f1", "count"}
    likely = {"1": 0.9, "2": 0.8, "3": 0.1, "4": 0.7}
    found = span_scores(GOLD, PREDICTED, likely, threshold=0.5)
    assert found["exact_match"] == 0.75 and found["unanswerable_f1"] == 1
    assert (found["best_exact_match"], found["best_exact_match_threshold"]) == (0.75, 0.1)
    assert span_scores(GOLD, PREDICTED, likely)["exact_match"] == 0.5, "at 1 all are answered"


QUESTIONS = st.lists(
    st.tuples(st.sampled_from([[], ["cat"], ["red cat"]]), st.sampled_from(["", "cat", "dog"]), st.integers(-3, 3)),
    min_size=1,
    max_size=12,
)


def check_threshold(questions):
    """None is better than the one that was found, and its score is what it gives."""
    gold, predicted, likely = ({str(i): each[k] for i, each in enumerate(questions)} for k in range(3))
    best = best_threshold(gold, predicted, likely)

    def score(threshold):
        given = {id_: "" if likely[id_] > threshold else text for id_, text in predicted.items()}
        return sum(f1(given[id_], gold[id_]) for id_ in gold) / len(gold)

    assert best.score == pytest.approx(score(best.threshold))
    assert best.score == pytest.approx(max(score(threshold) for threshold in range(-5, 5)))


@given(QUESTIONS)
def test_no_threshold_is_better(questions):
    check_threshold(questions)


def test_planted_threshold_between_equals(monkeypatch):
    """One that parts questions which are equally likely to have no answer promises too much."""
    right = module.best_threshold

    def wrong(gold, predicted, likely):
        parted = {id_: value + i / 1000 for i, (id_, value) in enumerate(likely.items())}
        return right(gold, predicted, parted)

    monkeypatch.setitem(globals(), "best_threshold", wrong)
    with pytest.raises(AssertionError):
        check_threshold([(["cat"], "cat", 1), ([], "dog", 1)])


def test_every_question_needs_a_prediction():
    with pytest.raises(DataError, match="1 of 4 questions have no prediction, the first is '3'"):
        span_scores(GOLD, {key: value for key, value in PREDICTED.items() if key != "3"})
    with pytest.raises(DataError, match="3 of 4 questions have no probability"):
        span_scores(GOLD, PREDICTED, {"1": 0.5})
    with pytest.raises(DataError, match="no question"):
        span_scores({}, {})
