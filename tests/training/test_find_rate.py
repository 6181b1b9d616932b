"""The learning-rate range test: it reads known curves rightly, is repeatable, and its suggestion trains."""

import importlib
import json
import math

import pytest

from seqloom.cli import run as call
from seqloom.errors import NumbersError, UsageError
from seqloom.runs.training import find_lr, pretrain
from seqloom.training.find_rate import read_curve
from tests.pages import check_page
from tests.training.material import prepared

importlib.import_module("seqloom.cli.training")  # the command registers itself


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("text") / "data")


def curve(drop: float, rise: float) -> tuple[list[float], list[float]]:
    """A loss that falls from 8 to 3 around the rate `drop` and is lost from `rise` on."""
    rates = [10 ** (-6 + i / 10) for i in range(60)]
    losses = [
        8 - 5 / (1 + math.exp(-6 * math.log10(rate / drop))) + 5 / (1 + math.exp(-8 * math.log10(rate / rise)))
        for rate in rates
    ]
    return rates, losses


def test_the_steepest_fall_is_found():
    found = read_curve(*curve(drop=1e-3, rise=1.0))
    assert found.steepest == pytest.approx(1e-3, rel=0.3)
    assert found.suggestion == pytest.approx(min(found.steepest, found.tenth), rel=0.2)
    assert found.tenth == pytest.approx(min(zip(found.losses, found.rates, strict=True))[1] / 10)


def test_planted_reading_from_the_wrong_side_is_noticed():
    rates, losses = curve(drop=1e-3, rise=1.0)
    found = read_curve([1e-6 * 10 / rate for rate in rates], losses)
    assert found.steepest != pytest.approx(1e-3, rel=0.3)


def test_a_loss_that_never_falls_has_no_rate():
    with pytest.raises(NumbersError, match="never fell"):
        read_curve([1e-6, 1e-5, 1e-4, 1e-3], [5.0, 5.1, 5.2, 6.0])


@pytest.mark.parametrize("recipe", ["lstm-tiny", "gpt2-tiny"])
def test_the_suggestion_is_repeatable_and_trains(recipe, data, tmp_path):
    small = ["model.dim=20", "batches.length=32", "batches.budget=512", "budget={steps=60}"]
    found, again = (find_lr(recipe, data, settings=small, seed=3) for _ in range(2))
    assert found == again
    assert 1e-4 < found.suggestion < 1
    run = pretrain(recipe, data, tmp_path / "run", settings=[*small, f"train.optim.lr={found.suggestion}"])
    trained = json.loads((run.folder / "metrics.json").read_text())["train_loss"]
    slow = pretrain(recipe, data, tmp_path / "slow", settings=[*small, f"train.optim.lr={found.suggestion / 300}"])
    assert trained < json.loads((slow.folder / "metrics.json").read_text())["train_loss"] - 0.3


def test_the_command_draws_and_leaves_room_for_the_run(data, tmp_path, capsys):
    out, small = tmp_path / "run", ["--set", "model.dim=20", "--set", "budget={steps=5}"]
    where = ["--data", str(data), "--out", str(out)]
    assert call(["pretrain", "lstm-tiny", *where, "--find-lr", *small]) == 0
    shown = capsys.readouterr().out
    assert "suggested rate" in shown and "--set train.optim.lr=" in shown
    page = (out / "find-lr.html").read_text()
    assert "<svg" in page and "suggested" in page
    check_page(page)
    assert call(["pretrain", "lstm-tiny", *where, *small]) == 0
    assert (out / "card.md").exists() and (out / "find-lr.html").exists()


def test_counting_has_no_rate(data):
    with pytest.raises(UsageError, match="without a rate"):
        find_lr("ngram-tiny", data)
