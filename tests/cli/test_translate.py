"""train, translate, evaluate and metric on the command line; bad input has one line and its code."""

import io
import json
import sys
from pathlib import Path

import pytest

import seqloom.cli.tasks
import seqloom.cli.training
from seqloom.cli import repeat_option_names, run
from seqloom.tokens.tokenizer import Tokenizer
from tests.cli.test_bad_input import fails
from tests.pages import check_page
from tests.training.material import pairs, write_pairs

SMALL = ["--set", "budget={steps=120}", "--set", "batches.budget=1024", "--tokenizer", "word", "--quiet"]


def files(folder: Path, name: str) -> list[str]:
    return [str(folder / f"{name}.{side}") for side in ("en", "xx")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("translate")
    for name, count, seed in (("train", 1000, 0), ("valid", 20, 1), ("test", 20, 2)):
        write_pairs(path, count, seed, name)
    arguments = ["train", "transformer-tiny", "--task", "translate", "--train", *files(path, "train")]
    assert run([*arguments, "--valid", *files(path, "valid"), "--out", str(path / "run"), *SMALL]) == 0
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_the_report_stands_alone_and_draws_alignments(folder: Path) -> None:
    page = (folder / "run" / "report.html").read_text()
    assert "attention of each token" in page and "BLEU" in page and "words of the source" in page
    check_page(page)


def test_lines_in_lines_out(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [source for source, _ in pairs(5, 8)]
    texts.insert(2, "")
    (folder / "in.txt").write_text("\n".join(texts) + "\n")
    out = said(capsys, "translate", folder / "run", folder / "in.txt").split("\n")
    assert len(out) == 7 and out[2] == "" and all(out[i] for i in (0, 1, 3, 4, 5))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    assert said(capsys, "translate", folder / "run").split("\n") == out
    again = said(capsys, "translate", folder / "run", folder / "run", folder / "in.txt")
    assert again.split("\n") == out, "an ensemble of a run with itself"


def test_line_breaks_that_a_model_writes_end_no_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of bytes can write them; every line of the source has one of the target all the same."""
    (folder / "two.txt").write_text("\n".join(source for source, _ in pairs(2, 8)) + "\n")
    decode = Tokenizer.decode
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: f"a\nb\r\n{decode(self, ids)}")
    out = said(capsys, "translate", folder / "run", folder / "two.txt").split("\n")
    assert len(out) == 3 and all(line.startswith("a b  ") for line in out[:2])
    rows = said(capsys, "translate", folder / "run", folder / "two.txt", "--n-best", 2).split("\n")
    assert [row.split(" ||| ")[0] for row in rows] == ["0", "0", "1", "1", ""]


def test_n_best_and_alignments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "one.txt").write_text(pairs(1, 8)[0][0] + "\n")
    rows = said(capsys, "translate", folder / "run", folder / "one.txt", "--n-best", 3, "--beam", 5).splitlines()
    assert [row.split(" ||| ")[0] for row in rows] == ["0"] * 3
    scores = [float(row.split(" ||| ")[2]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    row = json.loads(said(capsys, "translate", folder / "run", folder / "one.txt", "--align"))
    assert len(row["alignment"]) == len(row["target_tokens"])
    assert {len(line) for line in row["alignment"]} == {len(row["source_tokens"])}


def test_evaluate_and_metric_agree(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = files(folder, "test")
    found = json.loads(said(capsys, "evaluate", folder / "run", "--test", source, target, "--json"))
    (folder / "out.xx").write_text(said(capsys, "translate", folder / "run", source))
    scored = json.loads(said(capsys, "metric", "translate", target, folder / "out.xx", "--json"))
    assert scored["bleu"] == found["bleu"] > 5 and scored["chrf"] == found["chrf"] and found["loss"] > 0
    shown = said(capsys, "evaluate", folder / "run", "--test", source, target, "--beam", 1)
    assert "bleu_signature" in shown and "words" in shown


def test_a_prefix_for_every_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = pairs(1, 8)[0]
    (folder / "one.txt").write_text(source + "\n")
    (folder / "begin.txt").write_text(target.split()[0] + "\n")
    command = ("translate", folder / "run", folder / "one.txt", "--prefix", folder / "begin.txt")
    assert said(capsys, *command).startswith(target.split()[0])
    (folder / "begin.txt").write_text("")
    fails(capsys, 3, "fewer lines", *command)


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, "beam", ["translate", "RUN", "IN", "--beam", "0"]),
        (2, "n_best", ["translate", "RUN", "IN", "--beam", "2", "--n-best", "3"]),
        (2, "length_form", ["translate", "RUN", "IN", "--length-form", "long"]),
        (2, "groups", ["translate", "RUN", "IN", "--beam", "4", "--groups", "3"]),
        (2, "translator", ["generate", "RUN"]),
        (2, "translator", ["score", "RUN", "IN"]),
        (2, "--data", ["evaluate", "RUN"]),
        (4, "not a run folder", ["translate", "NOWHERE", "IN"]),
        (3, "2 translations for 3", ["metric", "translate", "THREE", "TWO"]),
        (2, "unknown metric", ["metric", "transalte", "THREE", "TWO"]),
        (2, "--tokenize", ["metric", "translate", "THREE", "THREE", "--tokenize", "words"]),
        (3, "has 2 lines", ["evaluate", "RUN", "--test", "THREE", "TWO"]),
        *(
            (2, f"{option} works with --data", ["evaluate", "RUN", "--test", "THREE", "THREE", option, value])
            for option, value in {
                "--stride": "4",
                "--cache": "30",
                "--cache-theta": "0",
                "--cache-lambda": "0",
                "--mix": "RUN",
                "--split": "test",
                "--max-len": "8",
                "--batch-tokens": "16384",
            }.items()
        ),
        (2, "--pll works with --suite", ["evaluate", "RUN", "--test", "THREE", "THREE", "--pll", "plain"]),
        (2, "--beam works with --test", ["evaluate", "RUN", "--data", "RUN", "--beam", "4"]),
        (2, "--stride works with windows", ["evaluate", "RUN", "--data", "RUN", "--cache", "30", "--stride", "4"]),
        (5, "NOWHERE", ["translate", "RUN", "NOWHERE"]),
        (3, "line 2 has", ["translate", "RUN", "LONG"]),
    ],
)
def test_bad_input(
    code: int, words: str, arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "three").write_text("a\nb\nc\n")
    (folder / "two").write_text("a\nb\n")
    (folder / "in").write_text("the cat sees a bird today .\n")
    (folder / "long").write_text("the cat\n" + "bird " * 300 + "\n")
    names = {"RUN": "run", "IN": "in", "THREE": "three", "TWO": "two", "LONG": "long"}
    fails(capsys, code, words, *(folder / names[each] if each in names else each for each in arguments))


@pytest.mark.parametrize(
    ("code", "words", "train", "more"),
    [
        (3, "has 2 lines", ["THREE", "TWO"], []),
        (2, "unknown task", ["THREE", "THREE"], ["--task", "transalte"]),
        (2, "unknown recipe", ["THREE", "THREE"], ["RECIPE=transformer-tny"]),
        (2, "is not for the model lstm", ["THREE", "THREE"], ["RECIPE=lstm-tiny"]),
        (2, "a single file must be .tsv", ["THREE"], []),
        (2, "unknown key 'task.smoothing'", ["THREE", "THREE"], ["--set", "task.smoothing=0.1"]),
        (2, "batches.kind", ["THREE", "THREE"], ["--set", 'batches.kind="packed"']),
        (3, "no pairs are left", ["EMPTY", "EMPTY"], ["--tokenizer", "byte"]),
        (3, "NOWHERE: no such file", ["NOWHERE", "NOWHERE"], []),
    ],
)
def test_training_that_cannot_work_leaves_nothing(
    code: int, words: str, train: list[str], more: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "three").write_text("a\nb\nc\n")
    (folder / "two").write_text("a\nb\n")
    (folder / "empty").write_text("\n\n")
    names = {"THREE": "three", "TWO": "two", "EMPTY": "empty"}
    recipe = next((each.removeprefix("RECIPE=") for each in more if each.startswith("RECIPE=")), "transformer-tiny")
    more = [each for each in more if not each.startswith("RECIPE=")]
    more = more if "--tokenizer" in more else [*more, "--tokenizer", "char"]
    given = [str(folder / names[each]) if each in names else each for each in train]
    task = [] if "--task" in more else ["--task", "translate"]
    fails(capsys, code, words, "train", recipe, *task, "--train", *given, "--out", folder / "never", *more)
    assert not (folder / "never").exists()


def test_pairs_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "check", *files(folder, "train"), "--task", "translate")
    assert "pairs    1,000" in out and "the same pair again" in out
    found = json.loads(said(capsys, "check", *files(folder, "train"), "--task", "translate", "--json"))
    assert found["pairs"] == 1000
    fails(capsys, 2, "available: lm, translate", "check", *files(folder, "train"), "--task", "parse")


def test_a_recipe_for_a_task_does_not_pretrain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("pretrain", "transformer-tiny", "--data", folder, "--out", folder / "never")
    fails(capsys, 2, "seqloom train transformer-tiny --task translate", *command)


def test_files_of_one_option() -> None:
    assert repeat_option_names(["train", "r", "--train", "a", "b", "--valid", "c", "--out", "d"]) == [
        "train", "r", "--train", "a", "--train", "b", "--valid", "c", "--out", "d"
    ]  # fmt: skip
    assert repeat_option_names(["train", "--train", "a", "b", "r"]) == ["train", "--train", "a", "--train", "b", "r"]
    assert repeat_option_names(["prepare", "t", "--valid", "0.1", "u"]) == ["prepare", "t", "--valid", "0.1", "u"]
    assert seqloom.cli.tasks and seqloom.cli.training  # they register their commands
