"""Tasks that stand on other runs: TagLM, contextual string embeddings, CoVe. What is written, what is needed again, and what is
refused."""

import hashlib
import json
import shutil

import numpy as np
import pytest
import torch

import seqloom
from seqloom.batches.labelled import batch_of
from seqloom.batches.prepare import prepare
from seqloom.blocks.stack import Stack
from seqloom.cli import run as command
from seqloom.errors import ModelError, UsageError
from seqloom.evaluate.labelled import evaluate_examples
from seqloom.files import read_json
from seqloom.runs import training
from seqloom.runs.load import load
from seqloom.runs.training import finetune, train
from tests.cli.test_bad_input import fails
from tests.contract.test_planted_pairs import noticed
from tests.training.material import pairs, sentences

LINES = sentences(80)
SHORT = ["budget={steps=3}", "train.eval_every=3"]
FEW = ["model.dim=16", "model.embedding_dim=8", "model.dropout=0", "model.max_chars=8", "model.num_layers=2", *SHORT]


def tags_of(line):
    return [(word, "B-x" if word[0] in "cdk" else "O") for word in line.split()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files of tasks, and runs of every kind that others can stand on."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "text.txt").write_text("\n".join(LINES))
    for name, lines in {"train": LINES[:24], "dev": LINES[24:36]}.items():
        columns = ("".join(f"{word} {tag}\n" for word, tag in tags_of(line)) for line in lines)
        (folder / f"{name}.conll").write_text("\n".join(columns))
        rows = [{"text": line, "label": "animal" if "cat" in line or "dog" in line else "other"} for line in lines]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    kinds = {"forward": ("char", {}), "backward": ("char", {"backward": True}), "bpe": ("bpe", {"vocab_size": 300})}
    for name, (kind, options) in kinds.items():
        prepare(
            [folder / "text.txt"], folder / f"{name}-data", tokenizer=kind, valid=0.1, keep_duplicates=True, **options
        )
        settings = ["model.dim=12", "model.num_layers=1", "batches.streams=4", *SHORT]
        seqloom.pretrain("lstm-tiny", folder / f"{name}-data", folder / name, settings=settings)
    both = pairs(30)
    (folder / "pairs.tsv").write_text("\n".join("\t".join(pair[:2]) for pair in both))
    small = ["model.dim=12", "budget={steps=2}"]
    train("bahdanau-tiny", "translate", folder / "pairs.tsv", folder / "translator", settings=small, tokenizer="word")
    return folder


def tagger(place, out, beside=("forward", "backward"), at="1", **options):
    return train(
        "bilstm-cnn-tiny",
        "tag",
        place / "train.conll",
        out,
        valid=place / "dev.conll",
        beside=[place / name for name in beside],
        settings=[*FEW, f"task.beside.at={at}"],
        tokenizer="word",
        **options,
    )


@pytest.fixture(scope="module")
def taglm(place):
    return tagger(place, place / "taglm")


def hashes(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


# ---- what they do


def features_are_read(run):
    """Other features of one word give other tags of its text, and none of the others."""
    examples = [run.learner.of_row({"text": line}, "here") for line in LINES[40:44]]
    batch = batch_of(run.encoded(examples, "test").rows)
    assert batch.batch.beside.shape[1] == run.beside.width and batch.batch.beside.any()
    with torch.no_grad():
        before = run.learner.logits(run.learner.features(batch.batch)[0], batch)
        changed = batch.batch.beside.clone()
        changed[3] += 1
        moved = batch.batch._replace(beside=changed)
        after = run.learner.logits(run.learner.features(moved)[0], batch)
    own = batch.words.owner == batch.words.owner[0] if batch.words else batch.groups == 0
    assert not torch.allclose(before[own], after[own], atol=1e-6)
    assert torch.equal(before[~own], after[~own])


@pytest.mark.parametrize("at", ["0", "1", "output"])
def test_features_enter_where_they_should(at, place, tmp_path, taglm):
    run = taglm if at == "1" else tagger(place, tmp_path / "run", at=at)
    features_are_read(run)
    cells = [layer.ahead.cell.kernel.input_size for layer in run.learner.backbone.stack.layers]
    wide = [8 + 30 + 24 * (at == "0"), 16 + 24 * (at == "1")]
    assert cells == wide and run.learner.head.in_features == 16 + 24 * (at == "output")


def test_planted_features_that_nobody_reads_are_noticed(taglm, monkeypatch):
    right = Stack.forward

    def deaf(self, x, batch, *more):
        return right(self, x, batch if batch.beside is None else batch._replace(beside=0 * batch.beside), *more)

    monkeypatch.setattr(Stack, "forward", deaf)
    noticed(features_are_read, taglm)


# ---- what they leave as it is


def weights_stay(place, out):
    runs = [place / name for name in ("forward", "backward")]
    before = [hashes(run) for run in runs]
    kept = []
    opened = training.open_beside

    def watched(*given):
        found = opened(*given)
        kept.extend((reader, state_of(reader)) for reader in found.readers)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "open_beside", watched)
        run = tagger(place, out, at="output", overwrite=True)
    assert [hashes(each) for each in runs] == before
    assert len(kept) == 2
    for reader, state in kept:
        assert all(torch.equal(a, b) for a, b in zip(state, state_of(reader), strict=True))
        assert not reader.reading.encoder.backbone.training
    assert not any("beside" in name for name in run.learner.state_dict())
    return run


def state_of(reader):
    return [tensor.clone() for tensor in reader.reading.encoder.backbone.state_dict().values()]


def test_weights_of_the_other_runs_stay(place, tmp_path):
    run = weights_stay(place, tmp_path / "run")
    alone = train("bilstm-cnn-tiny", "tag", place / "train.conll", tmp_path / "alone", settings=FEW, tokenizer="word")
    assert run.learner.size() == alone.learner.size() + 24 * 3, "what it has itself: more of the label layer's weights"


def test_planted_weights_that_move_are_noticed(place, tmp_path, monkeypatch):
    right = training.train_run

    def moving(dataset, *given):
        with torch.no_grad():
            next(dataset.beside.readers[0].reading.encoder.backbone.parameters()).add_(1e-3)
        return right(dataset, *given)

    monkeypatch.setattr(training, "train_run", moving)
    noticed(weights_stay, place, tmp_path / "run")


def loaded_again(run, place):
    again = load(run.folder)
    rows = [{"text": line} for line in LINES[36:60]]
    assert again.predict(rows) == run.predict(rows)
    scores = read_json(run.folder / "metrics.json")["valid_scores"]
    assert again.evaluate(place / "dev.conll")["loss"] == pytest.approx(scores["loss"], abs=1e-6)


def test_predictions_are_the_same_when_loaded_again(taglm, place):
    loaded_again(taglm, place)


def test_planted_features_of_other_layers_are_noticed(taglm, place, monkeypatch):
    right = taglm.beside.__class__.table
    monkeypatch.setattr(taglm.beside.__class__, "table", lambda self, *given: 0.9 * right(self, *given))
    noticed(loaded_again, taglm, place)


def test_a_resumed_run_is_the_same(place, tmp_path):
    whole = tagger(place, tmp_path / "whole", at="1")
    settings = [*FEW, "task.beside.at=1", "train.save_every=1"]
    call = {"valid": place / "dev.conll", "beside": [place / "forward", place / "backward"], "tokenizer": "word"}
    train("bilstm-cnn-tiny", "tag", place / "train.conll", tmp_path / "parts", settings=settings, **call)
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "step-3")
    (tmp_path / "parts" / "checkpoints" / "latest").write_text("step-2")
    (tmp_path / "parts" / "card.md").unlink()
    run = train(
        "bilstm-cnn-tiny", "tag", place / "train.conll", tmp_path / "parts", settings=settings, resume=True, **call
    )
    assert all(torch.equal(a, b) for a, b in zip(whole.learner.parameters(), run.learner.parameters(), strict=True))
    call["beside"] = call["beside"][::-1]
    with pytest.raises(UsageError, match="started with another --beside"):
        train(
            "bilstm-cnn-tiny", "tag", place / "train.conll", tmp_path / "parts", settings=settings, resume=True, **call
        )


# ---- a translator's encoder, and others


def test_a_translator_beside_a_classifier(place, tmp_path, capsys):
    """CoVe: what a task's LSTM reads is the pre-trained model's states beside those of the translator's encoder."""
    out = tmp_path / "cove"
    files = ("--train", place / "train.jsonl", "--valid", place / "dev.jsonl")
    settings = [f"--set={each}" for each in ("task.reader=lstm", "task.reader_dim=8", "task.beside.at=reader", *SHORT)]
    call = (
        "finetune",
        place / "bpe",
        "--task",
        "classify",
        *files,
        "--beside",
        place / "translator",
        "--how",
        "features",
    )
    assert command([str(each) for each in (*call, "--out", out, *settings)]) == 0
    run = load(out)
    features_are_read(run)
    reads = load(place / "bpe").learner.backbone.dim + load(place / "translator").learner.backbone.encoder.dim
    assert run.learner.reader.ahead.cell.kernel.input_size == reads
    capsys.readouterr()
    assert command(["predict", str(out), str(place / "dev.jsonl")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12
    card = (out / "card.md").read_text()
    assert "reads features of other runs" in card and "../translator" not in card and "translator (weights" in card


def test_a_run_that_has_learnt_a_task_can_be_read_too(place, tmp_path, taglm):
    first = train("bilstm-cnn-tiny", "tag", place / "train.conll", tmp_path / "first", settings=FEW, tokenizer="word")
    run = finetune(
        place / "bpe", "classify", place / "train.jsonl", place / "dev.jsonl", tmp_path / "second",
        beside=[first.folder], settings=SHORT,
    )  # fmt: skip
    features_are_read(run)
    with pytest.raises(UsageError, match="stands on other runs itself"):
        finetune(
            place / "bpe", "classify", place / "train.jsonl", place / "dev.jsonl", tmp_path / "third",
            beside=[taglm.folder], settings=[*SHORT, "task.beside.at=output"],
        )  # fmt: skip
    assert not (tmp_path / "third").exists()


def test_batches_do_not_change_the_loss(taglm, place):
    """Neighbours and padding change nothing, features included."""
    examples = list(taglm.learner.read([place / "dev.conll"]))
    whole = taglm.predict_examples(examples)
    alone = [taglm.predict_examples([each])[0] for each in examples]
    for a, b in zip(whole, alone, strict=True):
        np.testing.assert_allclose(a.pop("probabilities"), b.pop("probabilities"), atol=2e-6)
    assert [each["tags"] for each in whole] == [each["tags"] for each in alone]
    encoded = taglm.encoded(examples, "test")
    found = evaluate_examples(taglm.learner, encoded, examples, taglm.device)
    total = sum(taglm.evaluate(place / "dev.conll")["loss"] for _ in range(2)) / 2
    assert found["loss"] == pytest.approx(total, abs=1e-6)


# ---- moved, changed, refused


@pytest.fixture
def moved(place, tmp_path, taglm):
    """The tagger and its language models in another place, as one folder was moved."""
    for name in ("taglm", "forward", "backward"):
        shutil.copytree(place / name, tmp_path / name)
    return tmp_path


def test_what_is_moved_together_still_works(moved, taglm):
    rows = [{"text": line} for line in LINES[36:40]]
    assert load(moved / "taglm").predict(rows) == taglm.predict(rows)


def test_milestones_stand_on_the_same_runs(place, tmp_path):
    settings = [*FEW, "task.beside.at=output", "train.milestones=true", "budget={epochs=2}"]
    run = train(
        "bilstm-cnn-tiny", "tag", place / "train.conll", tmp_path / "run", settings=settings, tokenizer="word",
        beside=[place / "forward"],
    )  # fmt: skip
    (first, *_) = sorted((tmp_path / "run" / "milestones").iterdir())
    assert load(first).beside.width == run.beside.width == 12
    assert len(load(first).predict(LINES[40])) == 1


def test_what_is_moved_apart_must_be_named(moved, capsys):
    (moved / "backward").rename(moved / "elsewhere")
    call = ("predict", moved / "taglm", moved / "taglm" / "text.txt")
    (moved / "taglm" / "text.txt").write_text(LINES[40])
    words = (f"stands on {moved / 'backward'}, which is not there", "--beside")
    fails(capsys, 4, words, *call)
    assert command([str(each) for each in (*call, "--beside", f"{moved / 'forward'},{moved / 'elsewhere'}")]) == 0
    capsys.readouterr()
    fails(capsys, 2, "stands on 2 runs, and 1 are named", *call, "--beside", moved / "forward")
    fails(capsys, 4, "has changed since", *call, "--beside", f"{moved / 'elsewhere'},{moved / 'forward'}")


def test_what_has_changed_is_refused(moved, place, capsys):
    shutil.rmtree(moved / "forward")
    shutil.copytree(place / "bpe", moved / "forward")
    with pytest.raises(ModelError, match="has changed since"):
        load(moved / "taglm")
    shutil.rmtree(moved / "forward")
    shutil.copytree(place / "forward", moved / "forward")
    weights = moved / "forward" / "backbone.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(ModelError, match="is damaged"):
        load(moved / "taglm")


@pytest.mark.parametrize("entry", [None, 3, [], ["../forward"], [{"run": "../forward"}], [{"run": 3, "weights": {}}]])
def test_a_damaged_record_is_refused(moved, entry, capsys):
    path = moved / "taglm" / "config.json"
    path.write_text(json.dumps(read_json(path) | {"beside": entry}))
    listed = moved / "taglm" / "weights.json"
    listed.write_text(json.dumps(read_json(listed) | {"config.json": hashlib.sha256(path.read_bytes()).hexdigest()}))
    (moved / "text.txt").write_text(LINES[40])
    fails(capsys, 4, str(moved / "taglm"), "predict", moved / "taglm", moved / "text.txt")


def test_what_cannot_be_aligned_writes_nothing(place, tmp_path, capsys):
    out = tmp_path / "run"
    call = ("train", "bilstm-cnn-tiny", "--task", "tag", "--train", place / "train.conll", "--out", out, "--beside")
    words = "has tokens of bpe and cannot be aligned with the borders of words"
    fails(capsys, 3, words, *call, place / "bpe", "--set", "task.beside.read=border")
    assert not out.exists()


def test_what_is_refused(place, tmp_path, capsys, taglm):
    out = tmp_path / "run"
    files = ("--train", place / "train.conll", "--valid", place / "dev.conll", "--out", out)
    scratch = ("train", "bilstm-cnn-tiny", "--task", "tag", *files)
    fails(capsys, 2, "name them by --beside", *scratch, "--set", "task.beside.at=1")
    fails(capsys, 2, "it has 1 layers", *scratch, "--beside", place / "forward", "--set", "task.beside.at=1")
    fails(capsys, 2, 'task.reader = "lstm"', *scratch, "--beside", place / "forward", "--set", "task.beside.at=reader")
    fails(capsys, 2, "task.beside.at", *scratch, "--beside", place / "forward", "--set", "task.beside.at=top")
    inside = ("--beside", place / "forward", "--set", "task.beside.at=1")
    fails(capsys, 2, "its layers are not recurrent", "train", "bert-tiny", "--task", "tag", *files, *inside)
    fails(capsys, 4, "is not a run folder", *scratch, "--beside", place / "nowhere")
    fails(capsys, 2, "'' names no run", *scratch, "--beside", "")
    fails(capsys, 2, "'task.beside.dim' = 7", *scratch, "--beside", place / "forward", "--set", "task.beside.dim=7")
    layer = ("--beside", place / "forward", "--set", "task.beside.layers=9")
    fails(capsys, 2, "--beside " + str(place / "forward") + ": 'task.beside.layers' = 9", *scratch, *layer)
    tuned = ("finetune", place / "bpe", "--task", "tag", *files, "--beside", place / "forward")
    fails(capsys, 2, "are trained and read nothing new", *tuned, "--set", "task.beside.at=1")
    fails(capsys, 2, "--beside is for classify", "train", "bahdanau-tiny", "--task", "translate", "--train", place / "pairs.tsv",
          "--out", out, "--beside", place / "forward")  # fmt: skip
    fails(capsys, 2, "stands on other runs", "finetune", taglm.folder, "--task", "tag", *files)
    fails(capsys, 2, "stands on other runs (--beside)", "export", taglm.folder, "--out", out)
    fails(
        capsys,
        2,
        "stands on no other runs",
        "predict",
        place / "bpe",
        place / "text.txt",
        "--beside",
        place / "forward",
    )
    assert not out.exists()
    with pytest.raises(UsageError, match="no vectors of its own"):
        taglm.encode(["a text"])


def test_a_comma_or_the_option_twice(place, tmp_path):
    settings = [f"--set={each}" for each in FEW]
    call = [
        "train",
        "bilstm-cnn-tiny",
        "--task",
        "tag",
        "--train",
        str(place / "train.conll"),
        "--tokenizer",
        "word",
        *settings,
    ]
    both = [str(place / "forward"), str(place / "backward")]
    assert command([*call, "--out", str(tmp_path / "a"), "--beside", ",".join(both)]) == 0
    assert command([*call, "--out", str(tmp_path / "b"), "--beside", both[0], "--beside", both[1]]) == 0
    a, b = (load(tmp_path / name) for name in "ab")
    assert all(torch.equal(x, y) for x, y in zip(a.learner.parameters(), b.learner.parameters(), strict=True))
    assert read_json(tmp_path / "a" / "metrics.json")["beside_flops"] > 0
