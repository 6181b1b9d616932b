"""pretrain --from RUN: it begins with those weights, says what does not fit, and records where it comes from."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from seqloom.batches.prepare import prepare
from seqloom.cli import run, training
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.training.loop import Fit
from seqloom.weights import unique
from tests.training.material import prepared, write_text

assert training  # registers the command

SMALL = ["model.dim=12", "batches.streams=4", "batches.length=16", "budget={steps=6}", "valid.limit=100"]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("from")
    prepared(folder / "data", 300)
    pretrain("lstm-tiny", folder / "data", folder / "first", settings=SMALL)
    return folder


def call(
    capsys, made: Path, out: Path, *more: object, recipe: str = "lstm-tiny", data: Path | None = None
) -> tuple[int, str]:
    changes = [part for setting in SMALL for part in ("--set", setting)]
    command = [
        "pretrain",
        recipe,
        "--data",
        data or made / "data",
        "--out",
        out,
        "--from",
        made / "first",
        *changes,
        *more,
    ]
    code = run([str(part) for part in command])
    return code, capsys.readouterr().err


def begins_with(made: Path, out: Path, monkeypatch, capsys) -> None:
    seen, one_step = [], Fit.one_step

    def watched(fit, items):
        seen.append({name: tensor.detach().clone() for name, tensor in unique(fit.learner).items()})
        one_step(fit, items)

    monkeypatch.setattr(Fit, "one_step", watched)
    assert call(capsys, made, out, "--seed", 5)[0] == 0
    first = unique(load(made / "first", "cpu").learner)
    assert first.keys() == seen[0].keys()
    assert all(torch.equal(first[name], tensor) for name, tensor in seen[0].items())


def test_it_begins_with_those_weights(made, tmp_path, monkeypatch, capsys):
    begins_with(made, tmp_path / "run", monkeypatch, capsys)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["from"]["run"] == str(made / "first")
    assert config["from"]["weights"] == json.loads((made / "first" / "weights.json").read_text())


def test_planted_fresh_weights_are_noticed(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.nn.Module, "load_state_dict", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        begins_with(made, tmp_path / "run", monkeypatch, capsys)


@pytest.mark.parametrize(
    ("more", "recipe", "code", "words"),
    [
        (("--set", "model.dim=16"), "lstm-tiny", 2, "--set model.dim=12"),
        ((), "gru-tiny", 2, "of the model lstm"),
        (("--set", "objective.bias=false"), "lstm-tiny", 4, "'softmax.bias' is unexpected"),
        (("--from", "nowhere"), "lstm-tiny", 4, "not a run folder"),
    ],
)
def test_what_does_not_fit_is_refused(more, recipe, code, words, made, tmp_path, capsys):
    found, err = call(capsys, made, tmp_path / "run", *more, recipe=recipe)
    assert found == code and words in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists(), "the folder was touched"


def test_neither_itself_nor_counts_nor_other_tokens(made, tmp_path, capsys):
    code, err = call(capsys, made, made / "first", "--overwrite")
    assert code == 2 and "--out itself" in err and (made / "first" / "weights.json").exists()
    other = write_text(tmp_path / "other.txt", 300, seed=3)
    prepare([other], tmp_path / "other", tokenizer="char", valid=0.1, keep_leaks=True, keep_duplicates=True)
    code, err = call(capsys, made, tmp_path / "run", data=tmp_path / "other")
    assert code == 3 and "--from-tokenizer" in err
    command = ["pretrain", "ngram-tiny", "--data", made / "data", "--out", tmp_path / "n", "--from", made / "first"]
    assert run([str(part) for part in command]) == 2
    assert "learns by counting" in capsys.readouterr().err


def test_resumed_it_must_come_from_the_same(made, tmp_path, capsys):
    assert call(capsys, made, tmp_path / "run")[0] == 0
    assert call(capsys, made, tmp_path / "run", "--resume")[0] == 0
    shutil.copytree(made / "first", tmp_path / "moved")  # the same weights elsewhere
    assert call(capsys, made, tmp_path / "run", "--resume", "--from", tmp_path / "moved")[0] == 0
    code, err = call(capsys, made, tmp_path / "run", "--resume", "--from", tmp_path / "run2")
    assert code == 4
    pretrain("lstm-tiny", made / "data", tmp_path / "other", settings=SMALL, seed=1)
    code, err = call(capsys, made, tmp_path / "run", "--resume", "--from", tmp_path / "other")
    assert code == 2 and "another --from" in err
