"""An objective of a third kind on a body of a fourth goes from pretrain to compare: two files, two lines in the tables."""

import json

import pytest

import seqloom
from seqloom.cli import run as command
from seqloom.comparison.run import compare
from seqloom.models import MODELS
from seqloom.models.index import PARAMETERS
from seqloom.objectives import OBJECTIVES
from tests.comparison.plans import LSTM, plan_of
from tests.forked import forked_jobs
from tests.planted.middle_word import MiddleWordEvaluator
from tests.training.material import prepared, write_text

PAIRS = [{"sentence_good": "the cat sees the dog", "sentence_bad": "the cat see the dog", "UID": "a", "field": "x"}] * 4


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setitem(MODELS, "bag", "tests.planted.bag:Bag")
    monkeypatch.setitem(OBJECTIVES, "middle-word", "tests.planted.middle_word:MiddleWord")
    monkeypatch.setitem(PARAMETERS, "bag", {"tiny": 0})


def out(capsys, *call):
    assert command([str(each) for each in call]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_from_pretrain_to_use(tables, tmp_path, capsys):
    data = prepared(tmp_path / "data", 120)
    made = seqloom.pretrain("bag-tiny", data, tmp_path / "run", settings=["budget={steps=60}", "train.optim.lr=0.05"])
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    found = json.loads(out(capsys, "evaluate", tmp_path / "run", "--data", data, "--split", "valid", "--json"))
    assert found["loss"] == pytest.approx(metrics["valid"]["loss"], abs=1e-6) and "perplexity_around" in found
    assert "no probability of the next word" in found["no_bits_per_byte"]
    losses = [
        json.loads(line)["loss"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() if "loss" in line
    ]
    assert losses[-1] < 0.8 * losses[0], "it learns nothing"
    (tmp_path / "lines.txt").write_text("the cat sees the dog\n")
    assert "words around it" in out(capsys, "score", tmp_path / "run", tmp_path / "lines.txt", "--json")
    assert made.encode(["the cat"]).shape == (1, 16)
    assert command(["generate", str(tmp_path / "run"), "--prompt", "the"]) == 2
    assert command(["fill", str(tmp_path / "run"), "the [MASK]"]) == 2
    capsys.readouterr()


def test_through_a_comparison(tables, tmp_path, monkeypatch):
    forked_jobs(monkeypatch)  # the tables of this process are those of the jobs
    write_text(tmp_path / "text.txt", 120)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    rows = [{"recipe": "bag-tiny", "settings": ["batches.budget=64"]}, LSTM]
    plan = plan_of(tmp_path / "text.txt", rows=rows, seeds=1, pairs=0, suites={"blimp": str(tmp_path / "pairs.jsonl")})
    compare(plan, tmp_path / "out", device="cpu")
    result = json.loads((tmp_path / "out" / "results" / "bag-tiny" / "seed-0.json").read_text())
    assert result["definition"] == MiddleWordEvaluator.definitions["around"]
    assert result["suites"]["blimp"]["pairs"] == 4 and result["held_out"]["perplexity_around"] > 1
    assert "bag-tiny" in (tmp_path / "out" / "report.html").read_text()


def test_a_planted_kind_that_names_no_evaluator_is_noticed(tables, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.planted.middle_word.MiddleWord.evaluator", "")
    with pytest.raises((ValueError, ImportError, ModuleNotFoundError)):
        seqloom.pretrain("bag-tiny", prepared(tmp_path / "data", 60), tmp_path / "run", settings=["budget={steps=2}"])
