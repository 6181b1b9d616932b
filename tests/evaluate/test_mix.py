"""Mixtures: the best shares, and what the command says about them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.cli import run as call
from seqloom.evaluate import mix
from seqloom.evaluate.mix import Part, best_weight, mixture_loss, split_losses
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.training.material import sentences, write_text


def losses(seed: int, n: int = 3000, gap: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """−log p of n tokens under two models that are right at different places."""
    rng = np.random.default_rng(seed)
    return rng.exponential(2.0, n), rng.exponential(2.0 + gap, n)


def finds_the_best(seed: int, gap: float) -> None:
    first, second = losses(seed, gap=gap)
    weight = best_weight(first, second)
    grid = np.arange(1, 10_000) / 10_000
    probs, others = np.exp(-first), np.exp(-second)
    brute = [-np.log(w * probs + (1 - w) * others).sum() for w in grid]
    assert abs(weight - grid[int(np.argmin(brute))]) <= 1e-4
    assert mixture_loss(first, second, weight) <= min(brute) + 1e-9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gap", [0.0, 1.5, -0.7])
def test_the_best_share_against_a_grid(seed, gap):
    finds_the_best(seed, gap)


def test_planted_wrong_slope_is_noticed(monkeypatch):
    monkeypatch.setattr(mix, "_gain", lambda a, b, w: float((np.exp(-a) - np.exp(-b)).sum()) - w)
    with pytest.raises(AssertionError):
        finds_the_best(0, 0.0)


def test_chunks_change_nothing(monkeypatch):
    first, second = losses(1)
    whole = best_weight(first, second), mixture_loss(first, second, 0.3)
    monkeypatch.setattr(mix, "CHUNK", 7)
    assert (best_weight(first, second), mixture_loss(first, second, 0.3)) == pytest.approx(whole, rel=1e-9)


def test_extremes():
    sure, lost = np.zeros(100), np.full(100, 2000.0)  # e^-2000 is 0 in fp64
    assert best_weight(sure, lost) > 1 - 1e-5 and best_weight(lost, sure) < 1e-5
    assert best_weight(sure, sure) == 0.5
    assert best_weight(np.array([0.0, 2000.0]), np.array([2000.0, 0.0])) == pytest.approx(0.5, abs=1e-5)
    assert mixture_loss(np.array([0.0, 2000.0]), np.array([2000.0, 0.0]), 0.5) == pytest.approx(2 * np.log(2))


class Made:
    def __init__(self, folder: Path):
        texts = {}
        for name, seed, count in (("train", 0, 400), ("valid", 1, 100), ("test", 2, 100)):
            lines = sentences(count, seed)
            texts[name] = folder / f"{name}.txt"
            texts[name].write_text("\n".join(" ".join(lines[i : i + 5]) for i in range(0, count, 5)) + "\n")
        self.data = folder / "data"
        held = {name: texts[name] for name in ("valid", "test")}
        prepare([texts["train"]], self.data, tokenizer="word", min_count=1, keep_leaks=True, **held)
        self.ngram, self.lstm, self.gpt = (folder / name for name in ("ngram", "lstm", "gpt"))
        pretrain("ngram-tiny", self.data, self.ngram)
        pretrain("ngram-tiny", self.data, folder / "unigram", settings=["model.order=1"])
        small = ["model.dim=16", "budget={steps=40}", "batches.length=16"]
        pretrain("lstm-tiny", self.data, self.lstm, settings=[*small, "batches.streams=4"])
        pretrain("gpt2-tiny", self.data, self.gpt, settings=[*small, "model.num_heads=2", "model.max_len=32"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("mix"))


def answer(capsys, *arguments) -> dict:
    code = call([str(a) for a in ("evaluate", *arguments, "--json")])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def test_a_run_with_itself_is_itself(made, capsys):
    for folder in (made.ngram, made.gpt):
        mixed = answer(capsys, folder, "--data", made.data, "--mix", folder)
        alone = answer(capsys, folder, "--data", made.data)
        for name in ("loss", "perplexity", "bits_per_word", "tokens", "words"):
            assert mixed[name] == pytest.approx(alone[name], rel=1e-9)
            assert mixed["parts"][0][name] == pytest.approx(alone[name], rel=1e-9)


@pytest.mark.parametrize("pair", [("lstm", "ngram"), ("ngram", "gpt"), ("gpt", "lstm")])
def test_a_mixture_of_two(made, pair, capsys):
    first, second = (getattr(made, name) for name in pair)
    mixed = answer(capsys, first, "--data", made.data, "--mix", second)
    assert mixed["split"] == "test" and mixed["lambda_tuned_on"] == "valid" and 0 < mixed["lambda"] < 1
    assert [part["run"] for part in mixed["parts"]] == [str(first), str(second)]
    swapped = answer(capsys, second, "--data", made.data, "--mix", first)
    assert swapped["loss"] == pytest.approx(mixed["loss"], rel=1e-6)
    assert swapped["lambda"] == pytest.approx(1 - mixed["lambda"], abs=1e-5)
    tuned = answer(capsys, first, "--data", made.data, "--mix", second, "--split", "valid")
    assert "split being evaluated" in tuned["lambda_tuned_on"] and tuned["lambda"] == mixed["lambda"]
    assert tuned["loss"] <= min(part["loss"] for part in tuned["parts"]) + 1e-6
    # by hand, on the split that is asked for
    runs, split = [load(folder, "cpu") for folder in (first, second)], Store.open(made.data).split("test")
    p, q = (np.exp(-split_losses(Part("", r.learner, r.device), split, None, None, 500)[0]) for r in runs)
    expected = -np.log(mixed["lambda"] * p + (1 - mixed["lambda"]) * q).mean()
    assert mixed["loss"] == pytest.approx(expected, rel=1e-6)


def test_the_printed_form(made, capsys):
    assert call(["evaluate", str(made.lstm), "--data", str(made.data), "--mix", str(made.ngram), "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("lambda ") for line in lines) and any(line.startswith("perplexity ") for line in lines)
    assert lines[-2].startswith(f"{made.lstm}: loss ") and lines[-1].startswith(f"{made.ngram}: loss ")


def refused(capsys, code: int, words: str, *arguments) -> None:
    assert call([str(a) for a in ("evaluate", *arguments)]) == code
    out, err = capsys.readouterr()
    assert out == "" and words in err.splitlines()[-1] and "Traceback" not in err


def test_what_cannot_be_mixed(made, tmp_path, capsys):
    text = write_text(tmp_path / "a.txt", 100)
    prepare([text], tmp_path / "char", tokenizer="char", valid=0.1, keep_leaks=True)
    pretrain("ngram-tiny", tmp_path / "char", tmp_path / "other")
    refused(capsys, 3, "different tokenizers", made.lstm, "--data", made.data, "--mix", tmp_path / "other")
    refused(capsys, 3, "another tokenizer", made.lstm, "--data", tmp_path / "char", "--mix", made.ngram)
    refused(capsys, 4, "not a run folder", made.lstm, "--data", made.data, "--mix", tmp_path / "none")
    refused(capsys, 3, "no split 'test'", tmp_path / "other", "--data", tmp_path / "char", "--mix", tmp_path / "other",
            "--split", "test")  # fmt: skip
    prepare([text], tmp_path / "no-valid", from_tokenizer=made.ngram / "tokenizer.json")
    refused(capsys, 3, "no valid split", made.lstm, "--data", tmp_path / "no-valid", "--mix", made.ngram)
    refused(capsys, 2, "--max-len 64", made.gpt, "--data", made.data, "--mix", made.ngram, "--max-len", 64)
    shutil.rmtree(tmp_path / "other")
    refused(capsys, 4, "not a run folder", made.lstm, "--data", made.data, "--mix", tmp_path / "other")
