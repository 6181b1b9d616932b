"""metric on the command line: files in all their forms, and what is refused."""

import json
from pathlib import Path

import pytest

import seqloom.cli.tasks
import seqloom.cli.training  # noqa: F401 (they register their commands)
from tests.cli.test_bad_input import fails
from tests.cli.test_translate import said
from tests.text.test_pairs import write

SQUAD = {
    "data": [
        {
            "title": "T",
            "paragraphs": [
                {
                    "context": "The red cat sat.",
                    "qas": [
                        {"id": "1", "question": "Who?", "answers": [{"text": "red cat", "answer_start": 4}]},
                        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ]
}


def rows(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


FILES = {
    "gold.conll": "Anna NNP B-PER\nsees VB O\nKöln NNP B-LOC\n\nyes O\n",
    "pred.conll": "Anna I-PER\nsees O\nKöln B-ORG\n\nyes O\n",
    "pred.jsonl": rows({"words": ["Anna", "sees", "Köln"], "tags": ["B-PER", "O", "B-LOC"]}, {"words": ["yes"], "tags": ["O"]}),
    "short.conll": "Anna B-PER\n\nyes O\n",
    "one.conll": "Anna O\nsees O\nKöln O\n",
    "other.conll": "Anna O\nsaw O\nKöln O\n\nyes O\n",
    "pos.conll": "Anna NNP\nsees VB\n",
    "mixed.conll": "Anna NNP\nsees B-x\n",
    "gold.jsonl": rows(*({"text": "t", "label": label, "id": i} for i, label in enumerate("aab"))),
    "labels.txt": "a\nb\nb\n",
    "two.txt": "a\nb\n",
    "labels.csv": "id,label\n0,a\n1,b\n2,b\n",
    "moved.csv": "id,label\n1,a\n0,b\n2,b\n",
    "empty.txt": "",
    "numbers.jsonl": rows({"label": 1.5}, {"label": 2}, {"label": "4"}),
    "numbers.tsv": "text\tlabel\nx\t1\ny\t2.5\nz\t4e0\n",
    "nan.txt": "1\nnan\n2\n",
    "squad.json": json.dumps(SQUAD),
    "answers.json": json.dumps({"1": "a cat", "2": ""}),
    "answers.jsonl": rows({"id": "1", "answer": "red cat", "no_answer": 0.2}, {"id": "2", "answer": "cat", "no_answer": 0.7}),
    "missing.json": json.dumps({"1": "cat"}),
    "list.json": "[]",
    "twice.jsonl": rows({"id": "1", "answer": "x"}, {"id": "1", "answer": "y"}),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path, name, text)
    return tmp_path


def scored(capsys: pytest.CaptureFixture[str], folder: Path, task: str, gold: str, found: str, *more: object) -> dict:
    return json.loads(said(capsys, "metric", task, folder / gold, folder / found, "--json", *more))


def test_tags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = scored(capsys, folder, "tag", "gold.conll", "pred.conll")
    assert (found["f1"], found["accuracy"], found["correct"]) == (0.5, 0.5, 1)
    assert scored(capsys, folder, "tag", "gold.conll", "pred.conll", "--strict")["correct"] == 0
    assert scored(capsys, folder, "tag", "gold.conll", "pred.jsonl", "--strict")["f1"] == 1
    found = scored(capsys, folder, "tag", "pos.conll", "pos.conll")
    assert found["accuracy"] == 1 and set(found["per_class"]) == {"NNP", "VB"}
    assert "PER                precision 1.0000" in said(
        capsys, "metric", "tag", folder / "gold.conll", folder / "pred.conll"
    )


def test_tags_of_another_scheme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "s.conll", FILES["pred.conll"].replace("B-ORG", "S-ORG"))
    command = ("metric", "tag", folder / "gold.conll", folder / "s.conll")
    fails(capsys, 3, "s.conll:3: the tag 'S-ORG' is none of iob2", *command, "--strict")
    assert "f1" in said(capsys, *command)


def test_labels_and_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("labels.txt", "labels.csv"):
        found = scored(capsys, folder, "classify", "gold.jsonl", name)
        assert found["accuracy"] == pytest.approx(2 / 3) == found["majority"]
        assert found["confusion"] == {"labels": ["a", "b"], "counts": [[1, 1], [0, 1]]}
    shown = said(capsys, "metric", "classify", folder / "gold.jsonl", folder / "labels.txt").splitlines()
    assert [line.split() for line in shown[-3:]] == [
        ["gold", "/", "predicted", "a", "b"],
        ["a", "1", "1"],
        ["b", "0", "1"],
    ]
    found = scored(capsys, folder, "regress", "numbers.jsonl", "numbers.tsv")
    assert found["spearman"] == 1 and found["mse"] == pytest.approx(0.5 / 3)


def test_answers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = scored(capsys, folder, "span", "squad.json", "answers.json")
    assert found["exact_match"] == 0.5 and found["f1"] == pytest.approx(5 / 6) and found["unanswerable_f1"] == 1
    found = scored(capsys, folder, "span", "squad.json", "answers.jsonl")
    assert found["f1"] == 0.5 and (found["best_f1"], found["best_f1_threshold"]) == (1, 0.2)
    assert scored(capsys, folder, "span", "squad.json", "answers.jsonl", "--threshold", 0.5)["f1"] == 1


@pytest.mark.parametrize(
    ("words", "task", "gold", "predicted", "options"),
    [
        ("--strict works with tag, not with classify", "classify", "gold.jsonl", "labels.txt", ["--strict"]),
        ("--strict: it is about entities", "tag", "pos.conll", "pos.conll", ["--strict"]),
        ("--threshold works with span, not with tag", "tag", "gold.conll", "pred.conll", ["--threshold", 0]),
        ("--threshold nan: give a number", "span", "squad.json", "answers.jsonl", ["--threshold", "nan"]),
        ("answers.json does not say how likely", "span", "squad.json", "answers.json", ["--threshold", 0.5]),
        ("--tokenize works with translate", "regress", "numbers.tsv", "numbers.tsv", ["--tokenize", "char"]),
        ("--lowercase works with translate", "classify", "gold.jsonl", "labels.txt", ["--lowercase"]),
    ],
)
def test_options_that_would_be_left_aside(
    words: str,
    task: str,
    gold: str,
    predicted: str,
    options: list[object],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fails(capsys, 2, words, "metric", task, folder / gold, folder / predicted, *options)


@pytest.mark.parametrize(
    ("code", "words", "task", "gold", "predicted"),
    [
        (2, "did you mean 'classify'", "clasify", "gold.jsonl", "labels.txt"),
        (3, "short.conll:1: 1 words", "tag", "gold.conll", "short.conll"),
        (3, "1 tagged sentences for 2", "tag", "gold.conll", "one.conll"),
        (3, "other.conll:2: the word 'saw'", "tag", "gold.conll", "other.conll"),
        (3, "mixed.conll:1: the tag 'NNP'", "tag", "mixed.conll", "mixed.conll"),
        (3, "two.txt:1: one column", "tag", "gold.conll", "two.txt"),
        (3, "2 predictions for 3", "classify", "gold.jsonl", "two.txt"),
        (3, "moved.csv:2: the id '1'", "classify", "gold.jsonl", "moved.csv"),
        (3, "no example to score", "classify", "empty.txt", "empty.txt"),
        (3, "nan.txt:2: the label 'nan' is not a finite number", "regress", "numbers.tsv", "nan.txt"),
        (3, "labels.txt:1: the label 'a' is not a finite number", "regress", "numbers.tsv", "labels.txt"),
        (3, "1 of 2 questions have no prediction, the first is '2'", "span", "squad.json", "missing.json"),
        (3, "predictions are {id: answer}", "span", "squad.json", "list.json"),
        (3, "twice.jsonl:2: the id '1' is given twice", "span", "squad.json", "twice.jsonl"),
        (3, 'no list "data"', "span", "answers.json", "answers.json"),
        (3, "nowhere: no such file", "classify", "gold.jsonl", "nowhere"),
    ],
)
def test_bad_input(
    code: int, words: str, task: str, gold: str, predicted: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(capsys, code, words, "metric", task, folder / gold, folder / predicted)
