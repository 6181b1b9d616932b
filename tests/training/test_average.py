"""Averaged SGD: the mean of the weights by hand, when it begins, where it is used, and that it survives interruptions."""

import json
import random
from contextlib import suppress

import pytest
import torch
from torch import nn

from seqloom.batches.loader import Loader
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.training import loop
from seqloom.training.average import Averages, is_time
from seqloom.training.loop import Fit
from seqloom.weights import unique
from tests.training.material import prepared
from tests.training.test_resume import fingerprint


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("average") / "data", 1500)


def settings(*more: str, steps: int = 60) -> list[str]:
    return [
        "model.dim=16",
        "model.embedding_dim=12",
        "batches.streams=4",
        "batches.length=20",
        f"budget={{steps={steps}}}",
        "train.save_every=7",
        "train.eval_every=5",
        "train.log_every=4",
        "train.optim.nonmono=1",
        "valid.limit=300",
        *more,
    ]


def test_the_mean_is_the_mean():
    module = nn.Linear(3, 2)
    module.register_buffer("other", torch.ones(1))
    averages, seen = Averages(module), []
    for count in range(1, 8):
        with torch.no_grad():
            module.weight.add_(torch.randn(2, 3))
        averages.add(count)
        seen.append(module.weight.detach().clone())
    torch.testing.assert_close(averages.means["weight"], torch.stack(seen).mean(0))
    place = module.weight.data_ptr()
    with suppress(InterruptedError), averages.in_place():
        assert torch.equal(module.weight, averages.means["weight"]) and module.weight.data_ptr() == place
        raise InterruptedError
    assert torch.equal(module.weight, seen[-1]), "the weights themselves are lost"


@pytest.mark.parametrize(
    ("losses", "nonmono", "expected"),
    [
        ([5.0], 0, False),
        ([5.0, 4.0], 0, False),
        ([5.0, 5.5], 0, True),
        ([5.0, 4.0, 4.5], 1, False),  # 5.0 is all that is more than one evaluation ago
        ([5.0, 4.0, 4.5, 4.2], 1, True),
        ([5.0, 4.0, 3.0, 4.5, 3.5], 2, False),
        ([5.0, 4.0, 3.0, 4.5, 3.5, 3.1], 2, True),
        ([3.0, 4.0, 4.0, 4.0, 4.0, 4.0], 5, False),
        ([3.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0], 5, True),
    ],
)
def test_when_it_begins(losses, nonmono, expected):
    assert is_time(losses, nonmono) == expected


def test_what_is_measured_and_kept_is_the_mean(data, tmp_path, monkeypatch):
    """Validation and export see the averages; training goes on with the weights."""
    seen, one_step = [], Fit.one_step

    def watched(fit, items):
        before = fit.learner.backbone.table.weight.detach().clone()
        one_step(fit, items)
        if seen:
            assert torch.equal(before, seen[-1]), "training went on with other weights"
        seen.append(fit.learner.backbone.table.weight.detach().clone())

    monkeypatch.setattr(Fit, "one_step", watched)
    run = pretrain(
        "awd-lstm-tiny", data, tmp_path / "run", settings=settings("train.optim.average=start", "train.optim.lr=1")
    )
    best = torch.stack(seen[: best_step(run.folder)]).mean(0)
    torch.testing.assert_close(run.learner.backbone.table.weight, best, rtol=0, atol=1e-6)


def best_step(folder) -> int:
    return json.loads((folder / "metrics.json").read_text())["best_step"]


def interrupted(data, out, patch, stops: int = 8) -> None:
    rng, one_step, countdown = random.Random(2), Fit.one_step, 0

    def fragile(fit, items):
        nonlocal countdown
        countdown -= 1
        if countdown == 0:
            raise ConnectionAbortedError("power cut")
        one_step(fit, items)

    patch.setattr(Fit, "one_step", fragile)
    for i in range(stops):
        countdown = rng.randint(5, 12)
        with pytest.raises(ConnectionAbortedError):
            pretrain("awd-lstm-tiny", data, out, settings=settings("train.save_every=3"), resume=i > 0)
    countdown = -1
    pretrain("awd-lstm-tiny", data, out, settings=settings(), resume=True)


def test_interrupted_it_ends_with_the_same_bits(data, tmp_path, monkeypatch):
    """Over the step where averaging begins, and with lengths that vary."""
    run = pretrain("awd-lstm-tiny", data, tmp_path / "whole", settings=settings())
    whole = fingerprint(run.folder)
    assert 0 < whole["state"]["average_from"] < 60, "it should begin on the way"
    assert "average.safetensors" in whole["tensors"]
    interrupted(data, tmp_path / "broken", monkeypatch)
    assert fingerprint(tmp_path / "broken") == whole


def rates_go_with_lengths(data, out) -> None:
    """Each step's rate is 30 · its length / the usual one; 4 streams of 20 tokens."""
    run = pretrain("awd-lstm-tiny", data, out, settings=settings("train.log_every=1", steps=30))
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    logged = [(line["lr"], line["tokens"]) for line in lines if "lr" in line]
    tokens = [0, *(count for _, count in logged)]
    assert len(set(logged)) == 30 and len({rate for rate, _ in logged}) > 5
    for (rate, now), before in zip(logged, tokens, strict=False):
        assert rate == pytest.approx(30 * (now - before) / 4 / 20)


def test_rates_go_with_lengths(data, tmp_path):
    rates_go_with_lengths(data, tmp_path / "run")


def test_planted_equal_rates_are_noticed(data, tmp_path, monkeypatch):
    read = Loader.read
    monkeypatch.setattr(Loader, "read", lambda *given: read(*given)._replace(length=1.0))
    with pytest.raises(AssertionError):
        rates_go_with_lengths(data, tmp_path / "run")


@pytest.mark.parametrize("lost", ["averages", "losses"])
def test_planted_loss_of_averages_is_noticed(lost, data, tmp_path, monkeypatch):
    run = pretrain("awd-lstm-tiny", data, tmp_path / "whole", settings=settings())
    restore = Fit.restore

    def forgetful(fit):
        restore(fit)
        if lost == "averages":
            fit.averages = None
        else:
            fit.state.losses = []

    monkeypatch.setattr(loop.Fit, "restore", forgetful)
    interrupted(data, tmp_path / "broken", monkeypatch)
    assert fingerprint(tmp_path / "broken") != fingerprint(run.folder)


def test_from_another_run(data, tmp_path):
    """The second phase: averaged from its first step, from the weights of the first."""
    first = pretrain("awd-lstm-tiny", data, tmp_path / "first", settings=settings(steps=10))
    chosen = settings("train.optim.average=start", "train.optim.lr=1e-9", steps=5)
    again = pretrain("awd-lstm-tiny", data, tmp_path / "second", settings=chosen, start=first.folder)
    for name, tensor in unique(load(again.folder, "cpu").learner).items():
        torch.testing.assert_close(tensor, unique(first.learner)[name], rtol=0, atol=1e-6)
    assert again.config["from"]["run"] == str(first.folder)
    assert again.config["from"]["weights"].keys() >= {"backbone.safetensors", "head.safetensors"}
