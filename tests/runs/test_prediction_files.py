"""From an analyst's table to predictions, by the command line: columns are kept, rows stay in order, nothing is dropped."""

import csv
import io
import json
import sys

import pandas
import pytest

import seqloom
from seqloom import cli, files
from seqloom.errors import UsageError
from seqloom.runs import prediction_files, predictor
from seqloom.text.tables import say_once
from tests.runs.test_training import QUICK
from tests.tasks.labelled import examples

SMALL = ["model.dim=16", *QUICK]


@pytest.fixture(autouse=True)
def nothing_said_before():
    say_once.cache_clear()


def write_csv(path, rows, separator=",", head=("number", "review", "sentiment")):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([head, *rows])
    return path


def reviews(count, seed):
    return [
        (f"n{i}", f'{each.texts[0]}, "so" it\nis', each.label)
        for i, each in enumerate(examples("classify", count, seed))
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("analyst")


@pytest.fixture(scope="module")
def run(place):
    """Trained from a csv with columns of other names."""
    for seed, split in enumerate(("train", "valid")):
        write_csv(place / f"{split}.csv", reviews(24, seed))
    arguments = [
        "train",
        "text-cnn-tiny",
        "--task",
        "classify",
        "--train",
        str(place / "train.csv"),
        "--valid",
        str(place / "valid.csv"),
    ]
    arguments += [
        "--text-column",
        "review",
        "--label-column",
        "sentiment",
        "--tokenizer",
        "word",
        "--out",
        str(place / "run"),
    ]
    assert cli.run([*arguments, *(part for each in QUICK for part in ("--set", each)), "--device", "cpu"]) == 0
    return seqloom.load(place / "run", "cpu")


def rows_of(text, separator=","):
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))


def test_a_csv_comes_back_with_its_columns_and_the_predictions(run, place, tmp_path, capsys):
    given = reviews(30, 5)
    path, out = write_csv(tmp_path / "new.csv", given), tmp_path / "out.csv"
    arguments = ["predict", str(run.folder), str(path), "--id-column", "number"]
    assert cli.run([*arguments, "--out", str(out)]) == 0
    assert "text is the column 'review', id is the column 'number'" in capsys.readouterr().err
    found = rows_of(out.read_text())
    assert [(row["number"], row["review"], row["sentiment"]) for row in found] == given
    labels = [each["label"] for each in run.predict([{"text": text} for _, text, _ in given])]
    assert [row["label"] for row in found] == labels and {row["error"] for row in found} == {""}
    assert all(
        float(row["probabilities.bad"]) + float(row["probabilities.good"]) == pytest.approx(1, abs=1e-5)
        for row in found
    )
    assert cli.run(arguments) == 0 and capsys.readouterr().out == out.read_text(), "the same on standard output"
    assert cli.run([*arguments, "--out", str(out)]) == 2, "nothing is overwritten"
    frame = run.predict(pandas.read_csv(path), text="review")
    assert frame["label"].tolist() == labels, "the same from Python"
    assert run.predict_file(path, tmp_path / "again.csv", id="number") == (30, 0)
    assert (tmp_path / "again.csv").read_text() == out.read_text()


def test_the_form_of_the_output(run, tmp_path, capsys):
    given = [("n1", "the film is good; really", "x"), ("n2", "dull", "y")]
    semicolons = write_csv(tmp_path / "a.csv", given, ";", ("id", "text", "label"))
    assert cli.run(["predict", str(run.folder), str(semicolons)]) == 0
    found = rows_of(capsys.readouterr().out, ";")
    assert [row["label"] for row in found] == ["x", "y"], "a column that is there stays as it is"
    assert {row["predicted_label"] for row in found} <= {"good", "bad"}
    assert cli.run(["predict", str(run.folder), str(semicolons), "--out", str(tmp_path / "a.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["n1", "n2"] and "probabilities" in lines[0]
    (tmp_path / "b.jsonl").write_text('{"text": "good", "key": 1, "tags": ["x"]}\n{"text": "bad"}\n')
    assert cli.run(["predict", str(run.folder), str(tmp_path / "b.jsonl"), "--out", str(tmp_path / "b.csv")]) == 0
    found = rows_of((tmp_path / "b.csv").read_text())
    assert [(row["text"], row["key"], row["tags"]) for row in found] == [("good", "1", '["x"]'), ("bad", "", "")]
    (tmp_path / "c.tsv").write_text('id\ttext\n1\t"He said good\n')
    assert cli.run(["predict", str(run.folder), str(tmp_path / "c.tsv"), "--out", str(tmp_path / "c2.tsv")]) == 0
    assert (tmp_path / "c2.tsv").read_text().splitlines()[1].startswith('1\t"He said good\t')
    assert cli.run(["predict", str(run.folder), str(semicolons), "--out", str(tmp_path / "d.tsv")]) == 2
    pandas.DataFrame({"body": ["good", "bad"], "when": pandas.Timestamp("2020-01-02")}).to_parquet(
        tmp_path / "e.parquet"
    )
    assert run.predict_file(tmp_path / "e.parquet", tmp_path / "e.csv", text="body") == (2, 0)
    assert rows_of((tmp_path / "e.csv").read_text())[0]["when"].strip('"').startswith("2020-01-02")


@pytest.mark.parametrize(
    "text", ["the film is good\n\na dull story\n\n\n", '{"text": "the film is good"}\n{"text": "a dull story"}\n']
)
def test_lines_and_objects_from_standard_input(run, monkeypatch, capsys, tmp_path, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with_blank = not text.startswith("{")
    assert cli.run(["predict", str(run.folder)]) == (3 if with_blank else 0)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row for row in found if "error" not in row] == list(run.predict(["the film is good", "a dull story"]))
    (tmp_path / "a.txt").write_text(text)
    if with_blank:
        assert len(found) == 3 and "line is blank" in found[1]["error"], "those at the end are no rows"
        assert run.predict_file(tmp_path / "a.txt", tmp_path / "a.csv") == (3, 1)
        texts = [row["text"] for row in rows_of((tmp_path / "a.csv").read_text())]
        assert texts == ["the film is good", "", "a dull story"]


def test_a_file_that_nobody_could_open_is_not_written(run, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the film is good\n")
    call = ["predict", str(run.folder), str(tmp_path / "a.txt"), "--out", str(tmp_path / "b.xlsx")]
    assert cli.run(call) == 2 and "name such a file" in capsys.readouterr().err
    assert not (tmp_path / "b.xlsx").exists()


def test_bad_rows_have_their_error_in_the_output(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(prediction_files, "HEAD", 1)  # the first rows have no prediction
    data = b'id,review\n1,\n2,a,b\n3,caf\xe9\n4,good\n4,again\n"5,open\n'
    (tmp_path / "a.csv").write_bytes(data)
    assert cli.run(["predict", str(run.folder), str(tmp_path / "a.csv"), "--out", str(tmp_path / "b.csv")]) == 3
    assert "5 of 6 rows could not be read: each has its error in the output" in capsys.readouterr().err
    found = rows_of((tmp_path / "b.csv").read_text())
    assert [bool(row["error"]) for row in found] == [True, True, True, False, True, True]
    assert [row["label"] != "" for row in found] == [False, False, False, True, False, False]
    assert [row["id"] for row in found] == ["1", "", "", "4", "4", ""]
    assert "a.csv:3: 3 columns, but the header has 2" in found[1]["error"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ["--text-column", "revew"],
            2,
            "no column 'revew' for 'text', it has 'number', 'review', 'sentiment': did you mean 'review'?",
        ),
        (["--id-column", "key"], 2, "has no column 'key' for 'id'"),
        (["--pair-column", "review"], 2, "--pair-column: the files of the task classify have no such column"),
        (["--encoding", "nonsense"], 2, "--encoding nonsense"),
    ],
)
def test_wrong_options_are_said_in_one_line(run, place, capsys, options, code, message):
    assert cli.run(["predict", str(run.folder), str(place / "valid.csv"), *options]) == code
    told = capsys.readouterr()
    assert message in told.err.strip().splitlines()[-1] and told.out == ""


def test_other_commands_take_columns_too(run, place, capsys):
    columns = ["--text-column", "review", "--label-column", "sentiment"]
    assert cli.run(["check", str(place / "train.csv"), "--task", "classify", *columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["examples"] == 24
    assert cli.run(["evaluate", str(run.folder), "--test", str(place / "valid.csv"), *columns, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 24
    assert cli.run(["check", str(place / "train.csv"), "--text-column", "review"]) == 2
    assert cli.run(["evaluate", str(run.folder), "--data", str(place), "--label-column", "x"]) == 2
    assert run.config["data"]["columns"] == {"text": "review", "label": "sentiment"}
    with pytest.raises(UsageError, match="a column for 'txt': there is no such field: give one for text, label, id"):
        run.evaluate(place / "valid.csv", txt="review")
    with pytest.raises(UsageError, match="the task translate have no named columns"):
        seqloom.train("seq2seq-tiny", "translate", place / "train.csv", place / "no", columns={"text": "a"})


def test_rows_are_written_as_they_come(run, tmp_path, monkeypatch):
    """No more rows are held than are predicted together; and what fails leaves no file behind."""
    monkeypatch.setattr(predictor, "AT_ONCE", 8)
    monkeypatch.setattr(prediction_files, "HEAD", 4)
    path = write_csv(tmp_path / "a.csv", [(i, "good", "x") for i in range(100)])
    read, ahead = [], []
    before = run.learner.read

    def counted(*given, **options):
        for each in before(*given, **options):
            read.append(each)
            yield each

    monkeypatch.setattr(run.learner, "read", counted)
    whole = prediction_files.flatten
    monkeypatch.setattr(prediction_files, "flatten", lambda row: (ahead.append(len(read)), whole(row))[1])
    assert run.predict_file(path, tmp_path / "b.csv", id="number") == (100, 0)
    assert max(seen - number for number, seen in enumerate(ahead[1:])) <= 8 + 4 and len(read) == 100

    def broken(*given, **options):
        yield from list(before(*given, **options))[:20]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run.learner, "read", broken)
    with pytest.raises(files.FileError, match="the disk is full"):
        run.predict_file(path, tmp_path / "c.csv", id="number")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.csv", "b.csv"]


def test_predictions_beside_gold_labels_are_scored_by_the_predictions(run, place, tmp_path, capsys):
    """A csv with a column "label" has the predictions in another one: the gold labels must not be scored against themselves."""
    rows = [(each.texts[0], each.label) for each in examples("classify", 20, 7)]
    gold = write_csv(tmp_path / "gold.csv", rows, head=("text", "label"))
    assert run.predict_file(gold, tmp_path / "out.csv") == (20, 0)
    wanted = run.evaluate(gold)["accuracy"]
    assert cli.run(["metric", "classify", str(gold), str(tmp_path / "out.csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == wanted < 1
    assert run.predict_file(place / "valid.csv", tmp_path / "other.csv", text="review") == (24, 0)
    scored = ["metric", "classify", str(place / "valid.csv"), str(tmp_path / "other.csv"), "--json"]
    assert cli.run([*scored, "--label-column", "sentiment"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == run.evaluate(place / "valid.csv")["accuracy"]


def test_labels_that_look_alike_are_said(place, tmp_path, capsys):
    rows = [("a", "Very good"), ("b", "very  good"), ("c", "bad\nnews"), ("d", "bad")]
    path = write_csv(tmp_path / "a.csv", rows, head=("text", "label"))
    assert cli.run(["check", str(path), "--task", "classify"]) == 0
    told = capsys.readouterr()
    assert "'Very good' and 'very  good' differ in case or blanks only, and are two classes" in told.err
    assert r"the label 'bad\nnews' has a line break" in told.err
