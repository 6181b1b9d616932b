"""Single answers: scores taken apart by item are the task's own, for every task, and drawn again they still are."""

import random

import numpy as np
import pytest

from seqloom.evaluate import items as module
from seqloom.evaluate.items import score_items
from seqloom.metrics.entities import entity_scores
from seqloom.metrics.labels import label_scores
from seqloom.tasks import task_class
from tests.tasks.labelled import examples

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


class Tagger:
    """As the task has its scores."""

    main_metric = "f1"

    @staticmethod
    def scores(asked, answers):
        gold, told = [each.tags for each in asked], [each["tags"] for each in answers]
        if "entities" in answers[0]:
            return entity_scores(gold, told)
        return label_scores([tag for each in gold for tag in each], [tag for each in told for tag in each])


class Tagged:
    """A sentence as the report sees it."""

    def __init__(self, words, tags):
        self.words, self.tags, self.text = words, tags, " ".join(words)


def material(task, count, seed=0):
    """Examples and answers of which about half are right."""
    rng = random.Random(seed)
    if task.startswith("tag"):
        names = TAGS if task == "tag" else ["N", "V", "D"]
        asked, answers = [], []
        for _ in range(count):
            words = ["w"] * rng.randint(1, 8)
            tags = [rng.choice(names) for _ in words]
            told = [tag if rng.random() < 0.7 else rng.choice(names) for tag in tags]
            asked.append(Tagged(words, tags))
            answer = {"words": words, "tags": told, "probabilities": [rng.random() for _ in words]}
            answers.append(answer | ({"entities": []} if task == "tag" else {}))
        return asked, answers
    asked = examples(task, count, seed)
    right = [rng.random() < 0.5 for _ in asked]
    if task in ("classify", "pair"):
        asked[0] = asked[0]._replace(label="rare")  # what is drawn again may not have it
        right[0] = True
        names = sorted({each.label for each in asked})
        told = [each.label if ok else names[0] for each, ok in zip(asked, right, strict=True)]
        return asked, [{"label": label, "probabilities": {name: rng.random() for name in names}} for label in told]
    if task == "choose":
        return asked, [
            {"label": each.label if ok else 0, "probabilities": [rng.random() for _ in each.texts[1:]]}
            for each, ok in zip(asked, right, strict=True)
        ]
    if task == "regress":
        return asked, [{"label": each.label + rng.choice([0, 0.5, 1])} for each in asked]
    answers = []
    for each, ok in zip(asked, right, strict=True):
        answer = (each.answers[0][0] if each.answers else "") if ok else each.context.split()[0]
        answers.append({"answer": answer, "no_answer": 0.4, "n_best": [{"answer": answer or "x", "probability": 0.6}]})
    return asked, answers


KINDS = ["classify", "pair", "choose", "regress", "span", "tag", "tag-plain"]


def learner_of(task):
    return Tagger if task.startswith("tag") else task_class(task)


def value(score, rows):
    return rows.mean() if score.of is None else score.of(rows)


def check_equal(task):
    asked, answers = material(task, 60)
    learner = learner_of(task)
    found = score_items(learner, task.removesuffix("-plain"), asked, answers)
    whole = learner.scores(asked, answers)
    assert found.scores
    for name, score in found.scores.items():
        assert len(score.rows) == len(asked)
        assert value(score, score.rows) == pytest.approx(whole[name], abs=1e-12)
        if task == "span":
            continue  # there the ids of what is drawn twice would be one
        for seed in range(5):
            drawn = np.random.default_rng(seed).integers(0, len(asked), len(asked))
            again = learner.scores([asked[i] for i in drawn], [answers[i] for i in drawn])
            assert value(score, score.rows[drawn]) == pytest.approx(again[name], abs=1e-12)


@pytest.mark.parametrize("task", KINDS)
def test_scores_by_item_are_the_tasks_own(task):
    check_equal(task)


@pytest.mark.parametrize("task", KINDS)
def test_the_headline_is_among_them(task):
    asked, answers = material(task, 30)
    found = score_items(learner_of(task), task.removesuffix("-plain"), asked, answers)
    assert task == "tag-plain" or learner_of(task).main_metric in found.scores
    assert len(found.items) == 30 and any(item.wrong for item in found.items)


def test_baselines():
    asked, answers = material("classify", 50)
    common = max(("bad", "good"), key=[each.label for each in asked].count)
    constant = task_class("classify").scores(asked, [{"label": common}] * 50)
    scores = score_items(task_class("classify"), "classify", asked, answers).scores
    assert scores["accuracy"].baseline == pytest.approx(constant["accuracy"]) == constant["majority"]
    assert scores["f1"].baseline == pytest.approx(constant["f1"]) and scores["mcc"].baseline == constant["mcc"] == 0
    asked, answers = material("span", 40)
    silent = [answer | {"answer": ""} for answer in answers]
    scores = score_items(task_class("span"), "span", asked, answers).scores
    assert scores["f1"].baseline == pytest.approx(task_class("span").scores(asked, silent)["f1"])


def test_an_unknown_task_is_scored_all_the_same():
    asked, answers = material("classify", 20)
    found = score_items(task_class("classify"), "another", asked, answers)
    (score,) = found.scores.values()
    assert score.of(score.rows) == task_class("classify").scores(asked, answers)["accuracy"] and not found.items


def test_what_was_told_stands_beside_what_is_right():
    asked, answers = material("tag", 20)
    found = score_items(Tagger, "tag", asked, answers)
    for each, answer, item in zip(asked, answers, found.items, strict=True):
        off = [i for i, tag in enumerate(each.tags) if tag != answer["tags"][i]]
        assert item.wrong == bool(off) and item.predicted == ", ".join(f"w/{answer['tags'][i]}" for i in off)
        assert not off or item.confidence == max(answer["probabilities"][i] for i in off)


# ---- bugs that one could write


def test_planted_mean_over_all_classes_is_noticed(monkeypatch):
    """Also over those that do not occur in what was drawn."""

    def macro_f1(rows, count):
        true, found = (np.bincount(column, minlength=count) for column in rows.T)
        right = np.bincount(rows[rows[:, 0] == rows[:, 1], 0], minlength=count)
        return float((2 * right / np.maximum(true + found, 1)).mean())

    monkeypatch.setattr(module, "macro_f1", macro_f1)
    with pytest.raises(AssertionError):
        check_equal("classify")


def test_planted_mean_of_sentences_is_noticed(monkeypatch):
    monkeypatch.setattr(module, "entity_f1", lambda rows: float((2 * rows[:, 0] / np.maximum(rows[:, 1], 1)).mean()))
    with pytest.raises(AssertionError):
        check_equal("tag")


def test_planted_ranks_of_the_whole_are_noticed(monkeypatch):
    monkeypatch.setattr(module, "ranks", lambda values: values)
    with pytest.raises(AssertionError):
        check_equal("regress")
