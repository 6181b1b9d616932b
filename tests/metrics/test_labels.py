"""Scores of labels and numbers against their definitions, counted one example at a time."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn

from seqloom.errors import DataError
from seqloom.metrics import labels as module
from seqloom.metrics.labels import label_scores, number_scores

PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), min_size=1, max_size=30)


def by_hand(gold, predicted):
    """From the examples themselves: no table of counts."""
    labels = sorted({*gold, *predicted})
    both = list(zip(gold, predicted, strict=True))
    each = {}
    for label in labels:
        right = sum(a == b == label for a, b in both)
        precision = right / predicted.count(label) if label in predicted else 0.0
        recall = right / gold.count(label) if label in gold else 0.0
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        each[label] = {"precision": precision, "recall": recall, "f1": f1, "count": gold.count(label)}
    macro = {name: sum(part[name] for part in each.values()) / len(labels) for name in ("f1", "precision", "recall")}
    return {"accuracy": sum(a == b for a, b in both) / len(both), **macro, "per_class": each}


def correlation_of_indicators(gold, predicted):
    """Gorodkin's R_K: the covariance of the two matrices of indicators, over all classes, by its definition."""

    def covariance(a, b):
        total = 0.0
        for label in {*gold, *predicted}:
            x, y = ([float(each == label) for each in side] for side in (a, b))
            mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
            total += sum((i - mean_x) * (j - mean_y) for i, j in zip(x, y, strict=True))
        return total

    spread = covariance(gold, gold) * covariance(predicted, predicted)
    return covariance(gold, predicted) / math.sqrt(spread) if spread > 1e-12 else 0.0


def check_labels(pairs):
    gold, predicted = ([each[i] for each in pairs] for i in (0, 1))
    found = label_scores(gold, predicted)
    wanted = by_hand(gold, predicted)
    for name in ("accuracy", "f1", "precision", "recall"):
        assert found[name] == pytest.approx(wanted[name])
    for label, part in wanted["per_class"].items():
        assert found["per_class"][label] == pytest.approx(part)
    assert found["mcc"] == pytest.approx(correlation_of_indicators(gold, predicted), abs=1e-9)
    assert found["majority"] == max(gold.count(label) for label in gold) / len(gold)
    names, counts = found["confusion"]["labels"], found["confusion"]["counts"]
    for (i, a), (j, b) in itertools.product(enumerate(names), repeat=2):
        assert counts[i][j] == pairs.count((a, b))


@given(PAIRS)
def test_labels_are_scored_by_the_definitions(pairs):
    check_labels(pairs)


@given(PAIRS)
def test_labels_are_scored_as_by_scikit_learn(pairs):
    gold, predicted = ([each[i] for each in pairs] for i in (0, 1))
    found = label_scores(gold, predicted)
    macro = sklearn.precision_recall_fscore_support(gold, predicted, average="macro", zero_division=0)
    assert [found[name] for name in ("precision", "recall", "f1")] == pytest.approx(macro[:3])
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(gold, predicted))
    assert found["mcc"] == pytest.approx(sklearn.matthews_corrcoef(gold, predicted))
    assert found["confusion"]["counts"] == sklearn.confusion_matrix(gold, predicted).tolist()


def test_worked_examples():
    """Figures worked out on paper."""
    found = label_scores(["1", "1", "1", "0"], ["1", "0", "1", "1"])
    assert (found["accuracy"], found["majority"]) == (0.5, 0.75)
    assert found["per_class"]["1"]["f1"] == pytest.approx(2 / 3) and found["per_class"]["0"]["f1"] == 0
    assert found["mcc"] == pytest.approx(-1 / 3)  # (2·0 − 1·1) / √(3·3·1·1)
    assert found["confusion"] == {"labels": ["0", "1"], "counts": [[0, 1], [1, 2]]}
    assert label_scores(["a", "b"], ["a", "b"])["mcc"] == 1
    assert label_scores(["a", "b", "c"], ["a", "a", "a"])["mcc"] == 0


def test_planted_confusion_the_wrong_way_round(monkeypatch):
    right = module.label_scores
    monkeypatch.setitem(globals(), "label_scores", lambda gold, predicted: right(predicted, gold))
    with pytest.raises(AssertionError):
        check_labels([("a", "a"), ("a", "b"), ("a", "b"), ("b", "b"), ("c", "b")])


NUMBERS = st.lists(st.tuples(*[st.integers(-5, 5).map(float)] * 2), min_size=1, max_size=20)


def pearson(a, b):
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    over = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    under = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return over / math.sqrt(under) if under > 1e-12 else 0.0


def ranks(values):
    """The mean of the places that a number may have among the others."""
    return [sum(b < a for b in values) + (values.count(a) + 1) / 2 for a in values]


def check_numbers(pairs):
    a, b = ([each[i] for each in pairs] for i in (0, 1))
    found = number_scores(a, b)
    assert found["pearson"] == pytest.approx(pearson(a, b), abs=1e-9)
    assert found["spearman"] == pytest.approx(pearson(ranks(a), ranks(b)), abs=1e-9)
    assert found["mse"] == pytest.approx(sum((x - y) ** 2 for x, y in pairs) / len(pairs))


@given(NUMBERS)
def test_numbers_are_scored_by_the_definitions(pairs):
    check_numbers(pairs)


def test_numbers_are_scored_as_by_scipy():
    a, b = [1.0, 2.0, 2.0, 5.0, 3.0, 2.5], [0.5, 0.5, 3.0, 4.0, 4.0, -1.0]
    found = number_scores(a, b)
    assert found["pearson"] == pytest.approx(stats.pearsonr(a, b).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(a, b).statistic)


def test_numbers_of_any_size():
    assert number_scores([1e100, 2e100, 4e100], [1e-180, 2e-180, 4e-180])["pearson"] == pytest.approx(1)
    assert number_scores([1, 2, 3], [3, 3, 3])["pearson"] == 0
    assert number_scores([1, 2, 3, 4], [1, 10, 100, 1000])["spearman"] == 1


def test_planted_ranks_without_ties(monkeypatch):
    monkeypatch.setattr(module, "ranks", lambda values: values.argsort().argsort().astype(float))
    with pytest.raises(AssertionError):
        check_numbers([(1.0, 1.0), (1.0, 3.0), (2.0, 2.0), (2.0, 2.0), (3.0, 0.0)])


def test_what_cannot_be_scored():
    with pytest.raises(DataError, match="1 predictions for 2 examples"):
        label_scores(["a", "b"], ["a"])
    with pytest.raises(DataError, match="no example to score"):
        number_scores([], [])
    with pytest.raises(DataError, match="the predicted value of example 2 is nan"):
        number_scores([1, 2], [1, math.nan])
