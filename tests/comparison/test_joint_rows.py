"""Rows that learn all tasks of a plan on one body, beside rows that learn each alone."""

import pytest

from seqloom.comparison.plan import check
from seqloom.comparison.run import compare
from seqloom.errors import UsageError
from seqloom.files import read_json
from tests.comparison.plans import LSTM, NGRAM, plan_of, write_text
from tests.tasks.labelled import examples, write


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path / "corpus.txt")


@pytest.fixture
def tasks(tmp_path):
    found = []
    for task, ending in (("classify", "jsonl"), ("tag", "conll")):
        files = {}
        for seed, split in enumerate(("train", "valid", "test")):
            path = tmp_path / f"{task}-{split}.{ending}"
            write(path, task, examples(task, 10, seed))
            files[split] = [str(path)]
        found.append({"task": task, "name": f"a {task}", "settings": ["budget={epochs=1}"], **files})
    found[1]["settings"] = [*found[1]["settings"], "task.layers=1"]
    return found


JOINT = LSTM | {"name": "both at once", "joint": {"smoothing": 0.5, "weights": {"a tag": 0.5}}}


def test_rows_that_learn_all_tasks_at_once(text, tmp_path, tasks):
    given = plan_of(text, rows=[NGRAM, LSTM, JOINT], seeds=1, pairs=0, tasks=tasks)
    out = tmp_path / "out"
    found = compare(given, out, device="cpu")
    _, *scores = found.metrics
    assert [each.name for each in scores] == ["a classify", "a tag"]
    for each in scores:
        assert set(each.values) == {"LSTM", "both at once"} and set(each.missing) == {"n-gram"}
    assert any("both at once: all tasks were learnt in one run" in line for line in found.caveats)
    folder = out / "tasks/a-classify/both-at-once/seed-0"
    recipe = read_json(folder / "config.json")["recipe"]
    assert [(each["called"], each["weight"]) for each in recipe["tasks"]] == [("a-classify", 1.0), ("a-tag", 0.5)]
    assert recipe["batches"]["smoothing"] == 0.5 and recipe["tasks"][1]["layers"] in (1, "1")
    assert not (out / "tasks/a-tag/both-at-once").exists()
    alone = plan_of(text, rows=[NGRAM, LSTM, JOINT | {"joint": False}], seeds=1, pairs=0, tasks=tasks)
    with pytest.raises(UsageError, match="row 'both at once' learnt its tasks together"):
        compare(alone, out, device="cpu")
    assert compare(given, out, device="cpu").metrics[1].values.keys() == scores[0].values.keys()


@pytest.mark.parametrize(
    ("row", "change", "words"),
    [
        ({"joint": {"weights": {"a tg": 1}}}, {}, "unknown task 'a tg'"),
        ({"joint": {"weights": {"a tag": -1}}}, {}, "joint.weights.a tag = -1"),
        ({"joint": {"weights": {"a classify": 0}}}, {}, "by this task the weights are chosen"),
        ({"joint": {"smooth": 1}}, {}, "smooth"),
        ({"joint": True}, {"how": "features"}, "give all tasks one how"),
        ({"joint": True}, {"settings": ["budget={epochs=2}"]}, "give all tasks one how"),
    ],
)
def test_what_cannot_be_learnt_together(row, change, words, text, tasks):
    tasks[1] |= change
    with pytest.raises(UsageError, match=words):
        check(plan_of(text, rows=[LSTM | row], seeds=1, pairs=0, tasks=tasks), "plan")


def test_one_task_is_not_several(text, tasks):
    with pytest.raises(UsageError, match="joint is for plans with two tasks or more"):
        check(plan_of(text, rows=[JOINT | {"joint": True}], seeds=1, pairs=0, tasks=tasks[:1]), "plan")


def test_a_task_that_another_model_learns_with_features_of_the_rows(text, tmp_path, tasks):
    """As train --beside, for every row; the rows stay as they are."""
    tag = tasks[1] | {"how": "beside", "recipe": "bilstm-cnn-tiny", "settings": ["model.dim=16", "budget={epochs=1}"]}
    out = tmp_path / "out"
    found = compare(plan_of(text, rows=[NGRAM, LSTM], seeds=1, pairs=0, tasks=[tag]), out, device="cpu")
    (score,) = [each for each in found.metrics if each.name == "a tag"]
    assert set(score.values) == {"LSTM"} and set(score.missing) == {"n-gram"}
    config = read_json(out / "tasks/a-tag/LSTM/seed-0/config.json")
    assert config["recipe"]["model"]["name"] == "bilstm-cnn" and config["recipe"]["tasks"][0]["beside"]["dim"] > 0
    assert any("(beside bilstm-cnn-tiny)" in line for line in found.caveats)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"how": "beside"}, "a recipe together, or neither"),
        ({"recipe": "lstm-tiny"}, "a recipe together, or neither"),
        ({"how": "beside", "recipe": "lstm-tny"}, "lstm-tny"),
        ({"how": "beside", "recipe": "lstm-tiny", "settings": ["model.dm=3"]}, "model.dm"),
        ({"how": "beside", "recipe": "lstm-tiny", "task": "span"}, "is for classify"),
        ({"how": "beside", "recipe": "bilstm-cnn-tiny", "settings": ["task.beside.at=1"]}, "it has 1 layers"),
        ({"how": "beside", "recipe": "bert-tiny", "settings": ["task.beside.at=0"]}, "not recurrent"),
        ({"how": "beside", "recipe": "lstm-tiny", "settings": ["task.beside.at=reader"]}, 'task.reader = "lstm"'),
    ],
)
def test_what_cannot_be_learnt_beside(change, words, text, tasks):
    with pytest.raises(UsageError, match=words):
        check(plan_of(text, rows=[LSTM], seeds=1, pairs=0, tasks=[tasks[0] | change]), "plan")
