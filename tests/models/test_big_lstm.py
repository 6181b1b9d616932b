"""The big LSTM: its published size, and runs of it with every output layer."""

import json
from pathlib import Path

import pytest
import torch

from seqloom.errors import ModelError, UsageError
from seqloom.files import sha256
from seqloom.models.big_lstm import BigLstm
from seqloom.objectives.next_token import NextToken
from seqloom.recipes.library import find_recipe
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.tokens.spelling import spelling_table
from seqloom.weights import load_tensors, save_tensors
from tests.training.material import prepared

SMALL = ["batches.streams=4", "batches.length=16", "model.dim=24", "model.proj_dim=16", "train.workers=0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("big") / "data", 1000)


def test_published_sizes():
    """Table 1: 1.04 billion parameters with character inputs, 1.8 billion with word vectors."""
    recipe, vocab = find_recipe("big-lstm-jozefowicz-2016"), BigLstm.presets["jozefowicz-2016"]["vocab_size"]
    with torch.device("meta"):
        assert recipe.learner(vocab).size() / 1e9 == pytest.approx(1.04, abs=0.005)
        words = find_recipe("big-lstm-jozefowicz-2016", ["model.inputs=words"]).learner(vocab)
        assert words.size() / 1e9 == pytest.approx(1.8, abs=0.03)
    lstm = 2 * (4 * 8192 * (1024 + 1024) + 2 * 4 * 8192 + 8192 * 1024)
    softmax = vocab * 1024 + vocab
    assert words.size() == lstm + softmax + vocab * 1024


@pytest.mark.parametrize("layer", ["full", "adaptive", "sampled"])
def test_a_run_learns_loads_and_measures(layer, data, tmp_path):
    settings = [*SMALL, f"objective.softmax={layer}", "objective.samples=16", "budget={steps=150}"]
    run = pretrain("big-lstm-tiny", data, tmp_path / "run", settings=settings, device="cpu")
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["valid_loss"] < 3.2 < run.learner.initial_loss()
    again = load(tmp_path / "run", "cpu")
    assert again.evaluate(data)["loss"] == pytest.approx(metrics["valid_loss"], rel=1e-6)
    table = torch.from_numpy(spelling_table(run.tokenizer, 16))
    assert torch.equal(again.learner.backbone.embedding.spelling, table)
    one, two = (r.generate("the cat", n=2, max_new=12, seed=3) for r in (run, again))
    assert [s.text for s in one] == [s.text for s in two]
    (scored,) = run.score([one[0].text])
    assert len(scored.log_probs) > 5 and all(x < 0 for x in scored.log_probs)
    if layer != "full":  # the end of a document is frequent, whatever its id
        assert run.learner.softmax.ranks.rank[run.tokenizer.end_id] < 20
        assert run.tokenizer.end_id == run.tokenizer.vocab_size - 2


@pytest.mark.parametrize("layer", ["adaptive", "sampled"])
def test_resumed_is_the_same(layer, data, tmp_path, monkeypatch):
    settings = [*SMALL, f"objective.softmax={layer}", "objective.samples=16", "train.save_every=5", "budget={steps=12}"]
    pretrain("big-lstm-tiny", data, tmp_path / "whole", settings=settings, device="cpu")
    steps = []

    def advance(learner, spent):
        steps.append(spent)
        if len(steps) == 8:
            raise RuntimeError("killed")

    before = NextToken.advance
    monkeypatch.setattr(NextToken, "advance", advance)
    with pytest.raises(RuntimeError, match="killed"):
        pretrain("big-lstm-tiny", data, tmp_path / "cut", settings=settings, device="cpu")
    monkeypatch.setattr(NextToken, "advance", before)
    pretrain("big-lstm-tiny", data, tmp_path / "cut", settings=settings, device="cpu", resume=True)
    for name in ("backbone", "head"):
        assert sha256(tmp_path / f"whole/{name}.safetensors") == sha256(tmp_path / f"cut/{name}.safetensors")


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [("backbone.safetensors", "embedding.spelling", 999), ("head.safetensors", "softmax.ranks.rank", 7)],
)
def test_a_damaged_table_is_refused(file, name, value, data, tmp_path):
    pretrain(
        "big-lstm-tiny",
        data,
        tmp_path / "run",
        settings=[*SMALL, "objective.softmax=adaptive", "budget={steps=1}"],
        device="cpu",
    )
    tensors = load_tensors(tmp_path / "run" / file)
    tensors[name][0] = value
    save_tensors(tmp_path / "run" / file, tensors)
    listed = json.loads((tmp_path / "run/weights.json").read_text())
    listed[file] = sha256(tmp_path / "run" / file)
    (tmp_path / "run/weights.json").write_text(json.dumps(listed))
    with pytest.raises(ModelError, match="weights are damaged"):
        load(tmp_path / "run", "cpu")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["objective.tie=true"],
            "reads words by their characters and has no embeddings to share.*objective.tie = false",
        ),
        (
            ["model.inputs=words", "objective.tie=true", "objective.softmax=sampled"],
            "sampled softmax has weights of its own",
        ),
        (
            ["objective.softmax=adaptive", "objective.cutoffs=[10, 5]"],
            "rising ranks above 0 and below the vocabulary's",
        ),
        (["objective.softmax=adaptive", "objective.cutoffs=[10, 50000]"], "below the vocabulary's"),
        (["objective.softmax=hierarchical"], "objective.softmax"),
        (["model.filters=[[0, 3]]"], "model.filters"),
        (["model.filters=[]"], "model.filters"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(settings, message, data, tmp_path):
    with pytest.raises(UsageError, match=message):
        pretrain("big-lstm-tiny", data, tmp_path / "run", settings=settings, device="cpu")
    assert not (tmp_path / "run").exists()


def test_word_vectors_may_be_tied():
    config = BigLstm.Config(vocab_size=50, inputs="words", dim=12, proj_dim=8)
    learner = NextToken(BigLstm(config), NextToken.Config())
    assert learner.softmax.weight is learner.backbone.table.weight
