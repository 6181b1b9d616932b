"""`check --task`: what is told about labelled files, and that bad rows do not end it."""

import json

import pytest

from seqloom.errors import DataError
from seqloom.evaluate import examples as module
from seqloom.evaluate.examples import READERS, survey_examples
from seqloom.recipes.library import find_recipe
from seqloom.runs.examples import LabelledFiles
from seqloom.text.tagged import read_tagged
from seqloom.tokens.tokenizer import Tokenizer
from tests.cli.test_data import call
from tests.cli.test_data import fails as refuses
from tests.tasks.labelled import VALUES, examples, write


def rows(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" if isinstance(value, dict) else value + "\n" for value in values))
    return path


def labels_and_problems(folder):
    train = rows(
        folder / "train.jsonl",
        {"text": "a good film", "label": "good"},
        {"text": "a bad film", "label": "bad"},
        "{",
        {"text": "a good film", "label": "good"},
        {"text": "a bad film", "label": "good"},
        {"text": "no label"},
        {"text": "dull", "label": "bad", "id": 1},
        {"text": "dull too", "label": "bad", "id": 1},
    )
    valid = rows(folder / "valid.jsonl", {"text": "a bad film", "label": "bad"}, {"text": "odd", "label": "strange"})
    found = survey_examples("classify", {"train": [train], "valid": [valid]})["splits"]
    assert found["train"]["examples"] == 5 and found["train"]["labels"] == {"good": 3, "bad": 2}
    assert found["train"]["words"] == {"total": 13, "median": 3, "mean": 2.6, "longest": 3}
    problems = found["train"]["problems"]
    assert {kind: part["count"] for kind, part in problems.items()} == {
        "cannot be read": 3, "the same again": 1, "the same again, with another label": 1,
    }  # fmt: skip
    assert [place.split(": ")[0] for place in problems["cannot be read"]["places"]] == [
        f"{train}:{i}" for i in (3, 6, 8)
    ]
    assert problems["the same again"]["places"] == [f"{train}:4 as {train}:1"]
    assert problems["the same again, with another label"]["places"] == [f"{train}:5 as {train}:2"]
    assert found["valid"]["problems"] == {
        "a label that the training files have not": {"count": 1, "places": ["strange"]},
        "in the training files, too": {"count": 1, "places": [f"{valid}:1 as {train}:2"]},
    }


def test_labels_and_problems(tmp_path):
    labels_and_problems(tmp_path)


@pytest.mark.parametrize("bug", ["texts", "labels"])
def test_planted_blindness_is_noticed(bug, tmp_path, monkeypatch):
    if bug == "texts":  # only the first words are compared
        monkeypatch.setattr(module, "texts_of", lambda example: (example.texts[0][:3],))
    else:
        monkeypatch.setattr(module, "label_of", lambda example: None)
    with pytest.raises(AssertionError):
        labels_and_problems(tmp_path)


def test_tags(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("Anna B-PER\nsees O\n\nin O\nKöln I-LOC\n\nNew B-LOC\nYork I-LOC\n\nalone\n")
    found = survey_examples("tag", {"train": [path]})["splits"]["train"]
    assert (found["examples"], found["scheme"], found["labels"]) == (3, "iob2", {"LOC": 2, "PER": 1})
    assert found["problems"]["a tag that breaks iob2 (read as conlleval does)"]["places"] == [
        f"{path}:5: 'I-LOC' cannot follow 'O'"
    ]
    assert found["problems"]["cannot be read"]["places"][0].startswith(f"{path}:10: one column")
    path.write_text("Anna NNP\nsees VB\n")
    assert survey_examples("tag", {"train": [path]})["splits"]["train"]["labels"] == {"NNP": 1, "VB": 1}
    path.write_text("Anna NNP\nsees B-PER\n")
    assert "tags of two sorts" in survey_examples("tag", {"train": [path]})["splits"]["train"]["problems"]


def test_a_place_is_named_once_and_the_scheme_is_that_of_the_training_files(tmp_path):
    train, valid = tmp_path / "a.conll", tmp_path / "b.conll"
    train.write_text("Anna S-PER\n\nKöln I-LOC\n\nNew B-LOC\nYork E-LOC\n")
    found = survey_examples("tag", {"train": [train]})
    assert found["splits"]["train"]["problems"] == {
        "a tag that breaks iobes (read as conlleval does)": {
            "count": 1,
            "places": [f"{train}:3: 'I-LOC' cannot follow 'O'"],
        }
    }
    train.write_text("Anna B-PER\n\nin O\n\nNew B-LOC\nYork I-LOC\n")
    valid.write_text("Anna I-PER\n\nin O\nKöln I-LOC\n")
    found = survey_examples("tag", {"train": [train], "valid": [valid]})
    assert found["splits"]["valid"]["problems"]["a tag that breaks iob2 (read as conlleval does)"]["count"] == 2
    assert found["refused"] is None


def test_rows_without_words_are_named(tmp_path, capsys):
    row = {"words": ["Anna", "sees"], "tags": ["B-PER", "O"]}
    path = rows(tmp_path / "a.jsonl", row, {"words": [], "tags": []})
    found = survey_examples("tag", {"train": [path]})
    assert found["splits"]["train"]["problems"] == {"no words: left out": {"count": 1, "places": [f"{path}:2"]}}
    assert found["refused"] is None and len(list(read_tagged([path]))) == 1
    rows(path, row, {"words": [], "tags": ["O"]})
    assert survey_examples("tag", {"train": [path]})["refused"] == f"{path}:2: 0 words but 1 tags"


REFUSED = {
    "bad row": ("classify", [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}, "{"], []),
    "one class": ("classify", [{"text": "a", "label": "x"}, {"text": "b", "label": "x"}], []),
    "one number": ("regress", [{"text": "a", "label": 1}, {"text": "b", "label": 1}], []),
    "unseen": ("classify", [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], [{"text": "c", "label": "z"}]),
    "mark": ("tag", [{"words": ["a", "b"], "tags": ["B-X", "O"]}], [{"words": ["a"], "tags": ["S-X"]}]),
    "two sorts": ("tag", [{"words": ["a", "b"], "tags": ["B-X", "NN"]}], []),
}


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_training_refuses_is_refused_behind_the_report(why, form, tmp_path, capsys):
    task, train, valid = REFUSED[why]
    given = {"train": [rows(tmp_path / "train.jsonl", *train)]}
    given |= {"valid": [rows(tmp_path / "valid.jsonl", *valid)]} if valid else {}
    held = ["--valid", given["valid"][0]] if valid else []
    code, out, err = call(capsys, "check", *given["train"], "--task", task, *held, *form)
    assert code == 3 and len(err.splitlines()) == 1
    with pytest.raises(DataError) as refused:
        LabelledFiles(find_recipe("bert-tiny", None, None, task), given, Tokenizer.train("byte", []))
    assert err == f"seqloom: error: training would reject these files: {refused.value}\n"
    assert json.loads(out)["refused"] == str(refused.value) if form else out.startswith("train  ")


def test_places_that_are_not_shown_are_counted(tmp_path, capsys):
    path = rows(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b", "label": "y"}, *["{"] * 7)
    _, out, _ = call(capsys, "check", path, "--task", "classify")
    assert out.count(f"{path}:") == 5 and out.endswith("    … and 2 more\n")


@pytest.mark.parametrize("task", VALUES)
def test_every_task_is_checked(task, tmp_path, capsys):
    assert set(VALUES) == set(READERS)
    names = {"tag": "conll", "span": "json"}
    paths = [tmp_path / f"{name}.{names.get(task, 'jsonl')}" for name in ("train", "valid")]
    for seed, path in enumerate(paths):
        write(path, task, examples(task, 20, seed))
    code, out, err = call(capsys, "check", paths[0], "--task", task, "--valid", paths[1])
    assert (code, err) == (0, "") and out.startswith("train  20 examples, ") and "\nvalid  20 examples, " in out
    code, out, _ = call(capsys, "check", paths[0], "--task", task, "--json")
    found = json.loads(out)
    assert code == 0 and found["task"] == task and found["splits"]["train"]["examples"] == 20
    assert bool(found["splits"]["train"]["labels"]) == (task != "regress")


def test_what_cannot_be_checked(tmp_path, capsys):
    empty = rows(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match=r"empty\.jsonl: no example: the files are empty"):
        survey_examples("classify", {"train": [empty]})
    refuses(capsys, 2, "--valid 0.1: give a file", "check", empty, "--task", "classify", "--valid", "0.1")
    refuses(capsys, 2, "--task parse: available: lm", "check", empty, "--task", "parse")
