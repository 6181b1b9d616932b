"""Runs of the n-gram model: what counting leaves in a folder, what it refuses, and what loading refuses to take from it."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.errors import Interrupted, ModelError, UsageError
from seqloom.files import sha256
from seqloom.recipes.library import find_recipe
from seqloom.runs.folder import BOUND
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.weights import load_tensors, save_tensors
from tests.training.material import RUN_FILES, prepared, write_text


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("count") / "data", 400)


@pytest.fixture(scope="module")
def finished(data: Path) -> Path:
    pretrain("ngram-small", data, data.parent / "run", device="cpu")
    return data.parent / "run"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


def test_the_folder_of_a_run(finished: Path, data: Path) -> None:
    assert set(os.listdir(finished)) == RUN_FILES
    metrics = json.loads((finished / "metrics.json").read_text())
    train = Store.open(data).split("train")
    assert metrics["tokens"] == train.num_tokens and metrics["words"] == train.words and metrics["epochs"] == 1
    assert metrics["flops"] == 0 and metrics["step"] == 0 and metrics["train_loss"] is None
    (line,) = (finished / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["valid"] == pytest.approx(metrics["valid_loss"], abs=1e-6)
    run = load(finished, "cpu")
    assert run.evaluate(data, "valid")["loss"] == pytest.approx(metrics["valid_loss"], rel=1e-12)
    assert run.evaluate(data)["parameters"] == metrics["parameters"] == run.learner.size() > 1000
    card = (finished / "card.md").read_text()
    assert f"| parameters | {metrics['parameters']:,} (n-grams, each with its count) |" in card
    assert "objective counts" in card and "| steps | none: the model is count-based |" in card and "at step" not in card


def test_it_learns_and_longer_orders_learn_more(data: Path, tmp_path: Path) -> None:
    found = [
        pretrain("ngram-small", data, tmp_path / str(k), settings=[f"model.order={k}"]).evaluate(data, "valid")["loss"]
        for k in (1, 2, 3)
    ]
    assert found[0] > found[1] + 0.5 > found[2] + 0.5


def test_the_same_text_gives_the_same_bytes(finished: Path, data: Path, tmp_path: Path) -> None:
    pretrain("ngram-small", data, tmp_path / "run", device="cpu")
    assert tree(tmp_path / "run")["weights.json"] == tree(finished)["weights.json"]


@pytest.mark.parametrize("budget", ["{tokens=500}", "{words=400}", "{epochs=0.2}"])
def test_a_budget_counts_so_many_tokens(data: Path, tmp_path: Path, budget: str) -> None:
    pretrain("ngram-tiny", data, tmp_path / "run", settings=[f"budget={budget}"])
    train = Store.open(data).split("train")
    tokens = json.loads((tmp_path / "run/metrics.json").read_text())["tokens"]
    expected = {"{tokens=500}": 500, "{words=400}": 400 * train.num_tokens / train.words}
    assert tokens == int(expected.get(budget, 0.2 * train.num_tokens))
    pretrain("ngram-tiny", data, tmp_path / "other", settings=[f"budget={budget}"], seed=1)
    assert tree(tmp_path / "run")["head.safetensors"] != tree(tmp_path / "other")["head.safetensors"]


def test_more_epochs_are_one(finished: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pretrain("ngram-small", data, tmp_path / "run", settings=["budget={epochs=3}"])
    assert "more epochs would count nothing new" in capsys.readouterr().err
    for name in ("backbone.safetensors", "head.safetensors"):
        assert tree(tmp_path / "run")[name] == tree(finished)[name]


@pytest.mark.parametrize("budget", ["minutes=1", "steps=5", "flops=1e9"])
def test_other_budgets_are_refused(data: Path, tmp_path: Path, budget: str) -> None:
    with pytest.raises(UsageError, match=rf"'budget\.{budget.split('=')[0]}'.*give tokens, words or epochs"):
        pretrain("ngram-tiny", data, tmp_path / "run", settings=[f"budget={{{budget}}}"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("recipe", "name"), [("ngram-tiny", "next-token"), ("lstm-tiny", "counts")])
def test_a_model_has_its_objective(data: Path, tmp_path: Path, recipe: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"'objective.name' = \"{name}\" is not for the model"):
        pretrain(recipe, data, tmp_path / "run", settings=[f'objective={{name="{name}"}}', "budget={tokens=100}"])


def test_a_model_that_counts_learns_no_tasks() -> None:
    with pytest.raises(UsageError, match=r"'task.name' = \"classify\": the model ngram learns no tasks"):
        find_recipe("ngram-tiny", task="classify").learner(100)


def test_an_order_that_no_document_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b\nb a\na a\nb b\n")
    prepare([tmp_path / "a.txt"], tmp_path / "data", tokenizer="word", min_count=1, documents="line")
    with pytest.raises(UsageError, match=r"model\.order = 5.*the largest order is 4: --set model\.order=4"):
        pretrain("ngram-small", tmp_path / "data", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for order in (1, 2, 3, 4):
        run = pretrain("ngram-small", tmp_path / "data", tmp_path / str(order), settings=[f"model.order={order}"])
        assert run.score(["a b"])[0].end < 0
        assert json.loads((run.folder / "metrics.json").read_text())["valid_loss"] is None


# ---- resume and overwrite


def test_an_existing_run_is_left_alone_or_overwritten(data: Path, copy: Path) -> None:
    before = tree(copy)
    with pytest.raises(UsageError, match="holds a run already"):
        pretrain("ngram-small", data, copy)
    assert tree(copy) == before
    pretrain("ngram-tiny", data, copy, overwrite=True)
    assert load(copy, "cpu").learner.backbone.order == 3  # type: ignore[attr-defined]


def test_a_finished_run_stays_as_it_is(data: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(copy)
    pretrain("ngram-small", data, copy, resume=True)
    assert tree(copy) == before and "finished already" in capsys.readouterr().err
    with pytest.raises(UsageError, match="another seed"):
        pretrain("ngram-small", data, copy, resume=True, seed=1)


@pytest.mark.parametrize("moment", ["seqloom.evaluate.evaluators.perplexity", "seqloom.training.count.count_ngrams"])
def test_a_stopped_run_counts_anew(
    finished: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def asked(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        share: Any = options.get("share")
        check = (lambda: arguments[-1](1)) if share is None else share.stop  # after each order; of a measurement
        check()

    monkeypatch.setattr(moment, asked)
    with pytest.raises(Interrupted, match="--resume to count again") as stopped:
        pretrain("ngram-small", data, tmp_path / "run")
    assert stopped.value.exit_code == 75 and not (tmp_path / "run/card.md").exists()
    monkeypatch.undo()
    pretrain("ngram-small", data, tmp_path / "run", resume=True)
    assert tree(tmp_path / "run")["weights.json"] == tree(finished)["weights.json"]


# ---- a folder from a stranger


def change(folder: Path, file: str, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_tensors(folder / file)
    assert name in tensors
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    save_tensors(folder / file, tensors)
    hashes = {name: sha256(folder / name) for name in BOUND}
    (folder / "weights.json").write_text(json.dumps(hashes))


def changed(tensor: torch.Tensor, place: int, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


KEYS, COUNTS = "backbone.safetensors", "head.safetensors"


@pytest.mark.parametrize(
    ("file", "name", "damage", "words"),
    [
        (KEYS, "trie.keys2", lambda t: t.flip(0), "lies outside|not in order"),
        (KEYS, "trie.keys3", lambda t: changed(t, 5, int(t[4])), "3-grams are not in order"),
        (KEYS, "trie.keys2", lambda t: changed(t, 0, -1), "lies outside"),
        (KEYS, "trie.keys5", lambda t: changed(t, -1, 2**62), "lies outside"),
        (KEYS, "trie.keys5", lambda t: changed(t, -1, 2**63 - 1), "lies outside"),
        (KEYS, "trie.keys4", lambda t: t[:-9], "lies outside|do not fit"),
        (KEYS, "trie.keys4", lambda t: t[:0], "lies outside|do not fit"),
        (KEYS, "trie.keys4", lambda t: t[:, None], "does not fit"),
        (KEYS, "trie.keys4", lambda t: t[0], "does not fit"),
        (KEYS, "trie.keys4", lambda t: t.double() * float("nan"), "does not fit"),
        (KEYS, "trie.keys4", lambda t: None, "missing"),
        (COUNTS, "softmax.counts1", lambda t: t[1:], "does not fit"),
        (COUNTS, "softmax.counts1", lambda t: changed(t, 3, -1), "counts do not fit"),
        (COUNTS, "softmax.counts3", lambda t: changed(t, 3, 0), "counts do not fit"),
        (COUNTS, "softmax.counts5", lambda t: t[1:], "counts do not fit"),
        (COUNTS, "softmax.discounts", lambda t: changed(t, 2, 0), "discount"),
        (COUNTS, "softmax.discounts", lambda t: changed(t, 2, 1.5), "discount"),
        (COUNTS, "softmax.discounts", lambda t: changed(t, 2, float("nan")), "discount"),
        (COUNTS, "softmax.discounts", lambda t: t[:3], "does not fit"),
    ],
)
def test_damaged_tables_are_refused(copy: Path, file: str, name: str, damage, words: str) -> None:
    change(copy, file, name, damage(load_tensors(copy / file)[name]))
    with pytest.raises(ModelError, match=words):
        load(copy, "cpu")


def test_another_order_than_the_stored_one_is_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    for order in (1, 3, 4, 6, 0, -1, 10**9):
        config["recipe"]["model"]["order"] = order
        (copy / "config.json").write_text(json.dumps(config))
        (copy / "weights.json").write_text(json.dumps({name: sha256(copy / name) for name in BOUND}))
        with pytest.raises(ModelError, match=r"unexpected|order"):
            load(copy, "cpu")


def test_weights_of_a_net_are_refused(copy: Path, data: Path, tmp_path: Path) -> None:
    small = ["batches.streams=4", "batches.length=16", "model.dim=16", "budget={steps=2}"]
    pretrain("lstm-tiny", data, tmp_path / "lstm", settings=small)
    for name in (KEYS, COUNTS):
        shutil.copy(tmp_path / "lstm" / name, copy / name)
    (copy / "weights.json").write_text(json.dumps({name: sha256(copy / name) for name in BOUND}))
    with pytest.raises(ModelError, match="does not fit the model"):
        load(copy, "cpu")


def test_bytes_and_characters_too(tmp_path: Path) -> None:
    """Few symbols, all of them frequent: no discounts can be taken from the counts of the short runs."""
    for kind in ("byte", "char"):
        prepare([write_text(tmp_path / "a.txt", 200)], tmp_path / kind, tokenizer=kind, valid=0.1, keep_leaks=True)
        run = pretrain("ngram-small", tmp_path / kind, tmp_path / f"run-{kind}")
        assert run.evaluate(tmp_path / kind)["bits_per_byte"] < 2
