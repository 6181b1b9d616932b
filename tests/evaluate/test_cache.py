"""The cache equals a loop in plain Python; blocks change nothing; what is not given is tuned on valid."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqloom.batches.store import Store
from seqloom.cli import run as call
from seqloom.errors import UsageError
from seqloom.evaluate import cache
from seqloom.runs.language_model import Run
from seqloom.runs.training import pretrain
from tests.training.material import prepared

SIZE = 7


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Run, Store]:
    folder = tmp_path_factory.mktemp("cache")
    data = prepared(folder / "data", 150)
    small = ["model.dim=12", "model.embedding_dim=10", "budget={steps=20}", "batches.streams=4", "batches.length=20"]
    run = pretrain("awd-lstm-tiny", data, folder / "run", settings=[*small, "valid.limit=100"], device="cpu")
    run.learner.double()
    return run, Store.open(data)


def plain(run: Run, split, size: int, theta: float, share: float) -> float:
    """Word by word: the definition, with nothing clever."""
    seen: list[tuple[list[float], int]] = []
    total = 0.0
    for begin, end in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True):
        row = split.read_many(np.array([begin - 1]), np.array([end - begin + 1]))
        ids, words = torch.tensor(row[:-1]), row[1:].tolist()
        batch = cache.excerpt(split, cache.Pieces(*(np.array([n]) for n in (begin, end - begin, 0))), end - begin).batch
        assert torch.equal(batch.ids, ids)
        with torch.no_grad():
            hidden = run.learner.backbone(batch).hidden
            p_model = run.learner.softmax(hidden).softmax(1)
        for h, word, p in zip(hidden.tolist(), words, p_model, strict=True):
            mass: dict[int, float] = {}
            for old, followed in seen[-size:]:
                mass[followed] = mass.get(followed, 0.0) + math.exp(
                    theta * sum(a * b for a, b in zip(h, old, strict=True))
                )
            p_word = p[word].item()
            if mass:
                p_word = (1 - share) * p_word + share * mass.get(word, 0.0) / sum(mass.values())
            total -= math.log(p_word)
            seen.append((h, word))
    return total


def equals_plain_python(made, monkeypatch) -> None:
    run, store = made
    split = store.split("valid")
    for block in (3, 16, 5000):
        monkeypatch.setattr(cache, "BLOCK", block)
        found = cache.total_losses(run.learner, split, run.device, SIZE, (0.0, 0.7), (0.0, 0.2))
        for i, theta in enumerate((0.0, 0.7)):
            for j, share in enumerate((0.0, 0.2)):
                assert found[i, j].item() == pytest.approx(plain(run, split, SIZE, theta, share), rel=1e-9)


def test_equals_plain_python(made, monkeypatch):
    equals_plain_python(made, monkeypatch)


@pytest.mark.parametrize("bug", ["sees itself", "too long", "model restarts"])
def test_planted_wrong_caches_are_noticed(bug, made, monkeypatch):
    if bug == "sees itself":
        monkeypatch.setattr(cache, "outside", lambda then, now, size: (then > now) | (then < now - size))
    elif bug == "too long":
        monkeypatch.setattr(cache, "outside", lambda then, now, size: (then >= now) | (then < now - size - 1))
    else:
        monkeypatch.setattr(cache, "pytree", SimpleNamespace(tree_map=lambda join, new, old: new))
    with pytest.raises(AssertionError):
        equals_plain_python(made, monkeypatch)


def test_tuned_on_valid(made):
    """The pair of the lowest loss, and without a share the model alone."""
    run, store = made
    valid, train = store.split("valid"), store.split("train")
    found = cache.evaluate_with_cache(run.learner, run.device, valid, train, 50)
    assert found["cache_tuned_on"] == "valid"
    losses = cache.total_losses(run.learner, valid, run.device, 50, cache.THETAS, cache.LAMBDAS)
    i, j = cache.THETAS.index(found["theta"]), cache.LAMBDAS.index(found["lambda"])
    assert losses[i, j] == losses.min()
    alone = cache.evaluate_with_cache(run.learner, run.device, valid, valid, 50, theta=0.3, share=0.0)
    assert alone["loss"] == pytest.approx(run.evaluate(store.folder, "valid")["loss"], rel=1e-9)
    assert alone["cache_tuned_on"] == "given"


def test_at_the_command_line(made, capsys):
    run, store = made
    common = ["evaluate", str(run.folder), "--data", str(store.folder), "--device", "cpu"]
    assert call([*common, "--cache", "20", "--json"]) == 0
    assert {"theta", "lambda", "perplexity", "cache"} <= json.loads(capsys.readouterr().out).keys()
    for wrong, words in (
        (["--cache", "0"], "at least 1"),
        (["--cache", "5", "--cache-lambda", "1"], "below 1"),
        (["--cache", "5", "--cache-theta", "-1"], "0 or more"),
        (["--cache-theta", "1"], "add --cache"),
        (["--cache", "5", "--mix", str(run.folder)], "choose one"),
    ):
        assert call([*common, *wrong]) == 2
        assert words in capsys.readouterr().err


def test_only_for_recurrent_networks(made, tmp_path):
    _, store = made
    counted = pretrain("ngram-tiny", store.folder, tmp_path / "ngram")
    with pytest.raises(UsageError, match="recurrent networks"):
        counted.evaluate_cached(store.folder, 5)
