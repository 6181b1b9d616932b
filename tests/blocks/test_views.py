"""An encoder–decoder as a Backbone: its states are those of its halves, and tasks transfer to it."""

import json

import numpy as np
import pytest
import torch

import seqloom
from seqloom.batch import Pair, pack
from seqloom.blocks import views
from seqloom.models import model_class
from tests.contract import pairs
from tests.tasks.labelled import examples, write
from tests.training.material import write_pairs

TEXTS = [[5, 9, 12, 3, 0], [7, 0], [11, 2, 8, 4, 6, 1, 0]]


def states_for_the_decoder(name, model, batch):
    """(T, D) what the encoder has found at each token, of what it hands on."""
    found = model.encode(batch).hidden
    if name.startswith("convs2s"):  # keys beside it
        return found[:, found.shape[1] // 2 :]
    if name.startswith("bytenet"):  # a full grid, longer than the texts
        return found.view(batch.num_sequences, -1, found.shape[1])[batch.owner, batch.positions]
    return found


def states_hold(name):
    model = pairs.build(name)
    batch = pack(TEXTS)
    encoder, handed_on = model.view("encoder"), states_for_the_decoder(name, model, batch)
    torch.testing.assert_close(encoder(batch).hidden, handed_on, rtol=0, atol=0)
    shifted = pack([[text[-1], *text[:-1]] for text in TEXTS])
    by_hand = model(Pair(batch, shifted, batch.ids)).hidden
    found = model.view("whole")(batch)
    torch.testing.assert_close(found.hidden, by_hand, rtol=1e-12, atol=1e-12)
    assert found.state is None and encoder.dim == handed_on.shape[1]


@pytest.mark.parametrize("name", [name for name in pairs.encoder_decoders() if model_class(name).sources == "texts"])
def test_states_are_those_of_the_halves(name):
    states_hold(name)


def test_a_planted_view_that_gives_the_answer_away_is_noticed(monkeypatch):
    monkeypatch.setattr(
        views.WholeView, "forward", lambda view, batch, **_: view.model.decoder(batch, context=view.model.encode(batch))
    )
    with pytest.raises(AssertionError):
        states_hold("transformer")


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong", "gnmt"])
def test_every_layer_stands_in_the_order_of_the_text(name):
    """A text that is read from its end has its own tokens' vectors at its own places."""
    model = pairs.build(name)
    view, batch = model.view("encoder"), pack(TEXTS)
    output = view(batch, layers=True)
    torch.testing.assert_close(output.layers[0], model.encoder.embedding(batch))
    assert all(len(layer) == len(batch.ids) for layer in output.layers)


SMALL = {
    "transformer": ["model.dim=16", "model.num_layers=1", "model.num_heads=2"],
    "bahdanau": ["model.dim=16", "model.embedding_dim=16"],
}
STEPS = ["budget={steps=2}", "train.eval_every=2"]


@pytest.mark.parametrize("name", SMALL)
def test_a_translator_transfers(name, tmp_path):
    files = write_pairs(tmp_path, 40)
    settings = [*SMALL[name], *STEPS, "batches.budget=256"]
    made = seqloom.train(f"{name}-tiny", "translate", files, tmp_path / "run", tokenizer="byte", settings=settings)
    vectors = made.encode(["abc", "de"])
    assert np.asarray(vectors).shape[0] == 2
    for split in ("train", "valid"):
        write(tmp_path / f"{split}.jsonl", "classify", examples("classify", 12, len(split)))
    for view in ("encoder", "whole"):
        out = tmp_path / view
        tuned = seqloom.finetune(
            tmp_path / "run", "classify", tmp_path / "train.jsonl", tmp_path / "valid.jsonl", out,
            settings=[*STEPS, f"task.view={view}"],
        )  # fmt: skip
        assert "label" in json.dumps(tuned.predict(["abc"])[0])
        again = seqloom.load(out, "cpu").evaluate(tmp_path / "valid.jsonl")
        metrics = json.loads((out / "metrics.json").read_text())
        assert again["loss"] == pytest.approx(metrics["valid_scores"]["loss"], abs=1e-5)
    theirs = made.learner.backbone.encoder.state_dict()
    seqloom.finetune(
        tmp_path / "run", "classify", tmp_path / "train.jsonl", tmp_path / "valid.jsonl", tmp_path / "features",
        how="features", settings=STEPS,
    )  # fmt: skip
    kept = seqloom.load(tmp_path / "features", "cpu").learner.backbone.encoder.state_dict()
    assert theirs.keys() == kept.keys() and all(torch.equal(theirs[key], kept[key]) for key in theirs)


def test_a_translator_goes_on_with_other_pairs(tmp_path):
    files = write_pairs(tmp_path, 40)
    settings = [*SMALL["transformer"], *STEPS, "batches.budget=256"]
    made = seqloom.train("transformer-tiny", "translate", files, tmp_path / "run", tokenizer="byte", settings=settings)
    more = seqloom.finetune(
        tmp_path / "run", "translate", files, files, tmp_path / "more", settings=["train.optim.lr=1e-9"]
    )
    for a, b in zip(made.learner.parameters(), more.learner.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
