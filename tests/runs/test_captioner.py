"""From scenes to captions, answers and maps: training, exact resume, transfer, and what is refused, by the command line."""

import json

import numpy as np
import pytest
import torch

from seqloom.cli import run as command
from seqloom.errors import DataError, UsageError
from seqloom.runs.captioner import Captioner
from seqloom.runs.load import load, load_captioner
from seqloom.runs.predictor import Predictor
from seqloom.runs.training import finetune, train
from seqloom.runs.vit import read_vit
from seqloom.tasks.caption import Caption
from seqloom.text.images import read_captions
from seqloom.text.scenes import write_scenes
from seqloom.weights import load_tensors
from tests.text.test_images import BAD

QUICK = ["budget={steps=8}", "train.eval_every=4", "train.save_every=4", "batches.budget=256", "model.channels=[4,8,8]"]
LABELLED = ["budget={steps=4}", "batches.examples=8", "model.channels=[4,8,8]"]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenes") / "out"
    write_scenes(path, {"train": 24, "valid": 6, "test": 6, "composed": 4})
    return path


@pytest.fixture(scope="module")
def run(scenes, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "soft"
    return train(
        "show-attend-tell-tiny", "caption", scenes / "train.jsonl", out, valid=scenes / "valid.jsonl",
        test=scenes / "test.jsonl", settings=QUICK, device="cpu",
    )  # fmt: skip


def test_a_run_is_scored_and_loaded(run, scenes):
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert {"cider", "bleu", "exact_match", "pointing", "pointing_chance"} <= set(metrics["test_scores"])
    assert 0 < metrics["test_scores"]["pointing_chance"] < 0.2
    assert "captions of test | CIDEr-D" in (run.folder / "card.md").read_text()
    again = load(run.folder, "cpu")
    images = [row.image for row in read_captions([scenes / "test.jsonl"])]
    assert isinstance(again, Captioner)
    assert [each["caption"] for each in again(images)] == [each["caption"] for each in run(images)]


def resumed_with_the_same_bits(recipe, own, scenes, tokenizer, tmp_path, monkeypatch):
    settings = [*QUICK[1:], "budget={steps=8}", "train.schedule={name='constant',warmup=0}", *own]
    settings = [each for each in settings if "captioner" not in recipe or "channels" not in each]

    def made(out, **options):
        return train(
            recipe, "caption", scenes / "train.jsonl", tmp_path / out, valid=scenes / "valid.jsonl",
            settings=settings, device="cpu", from_tokenizer=tokenizer, **options,
        )  # fmt: skip

    whole = made("whole")
    right, calls = Caption.forward, []

    def counted(self, example, carry=None):
        calls.append(1)
        if len(calls) == 7:
            raise RuntimeError("the machine fails")
        return right(self, example, carry)

    with monkeypatch.context() as patch:
        patch.setattr(Caption, "forward", counted)
        with pytest.raises(RuntimeError, match="the machine fails"):
            made("parts")
        again = made("parts", resume=True)
    assert len(calls) == 7 + 4, "it goes on behind the checkpoint of step 4"
    ours, theirs = (load_tensors(each.folder / "backbone.safetensors") for each in (whole, again))
    assert all(bool((ours[name] == theirs[name]).all()) for name in ours)


@pytest.mark.parametrize(
    ("recipe", "own"),
    [
        ("show-attend-tell-tiny", []),
        ("show-attend-tell-tiny", ["model.attention=hard"]),
        ("show-tell-tiny", []),
        ("captioner-tiny", ["model.dropout=0.2"]),
    ],
)
def test_stopped_and_resumed_it_ends_with_the_same_bits(recipe, own, scenes, tmp_path, run, monkeypatch):
    resumed_with_the_same_bits(recipe, own, scenes, run.folder / "tokenizer.json", tmp_path, monkeypatch)


@pytest.mark.parametrize("forgotten", ["baseline", "mean"])
def test_planted_resumes_are_noticed(forgotten, scenes, tmp_path, run, monkeypatch):
    """What moves with training is not stored: the baseline of rewards, the means that show-tell normalises by."""
    recipe, own = ("show-tell-tiny", []) if forgotten == "mean" else ("show-attend-tell-tiny", ["model.attention=hard"])
    register = torch.nn.Module.register_buffer

    def wrong(self, name, tensor, persistent=True):
        register(self, name, tensor, persistent and name != forgotten)

    monkeypatch.setattr(torch.nn.Module, "register_buffer", wrong)
    with pytest.raises(AssertionError, match=r"all\("):
        resumed_with_the_same_bits(recipe, own, scenes, run.folder / "tokenizer.json", tmp_path, monkeypatch)


@pytest.mark.parametrize("ending", ["html", "png", "json", "csv"])
def test_maps(ending, run, scenes, tmp_path, capsys):
    image = scenes / "images" / "test-00000.png"
    out = tmp_path / f"maps.{ending}"
    assert (
        command(["caption", str(run.folder), str(image), "--maps", str(out), "--max-new", "5", "--device", "cpu"]) == 0
    )
    assert str(image) in capsys.readouterr().out and out.stat().st_size > 50
    if ending == "json":
        found = json.loads(out.read_text())["pictures"][0]
        assert np.allclose(np.array(found["weights"]).sum(1), 1, atol=1e-3)
    if ending == "html":
        assert "data:image/png;base64," in out.read_text()


def test_questions_and_labels(run, scenes, tmp_path):
    asked = train(
        "show-attend-tell-tiny", "choose", scenes / "questions-train.jsonl", tmp_path / "q",
        valid=scenes / "questions-valid.jsonl", settings=LABELLED, device="cpu",
    )  # fmt: skip
    assert isinstance(asked, Predictor)
    rows = [json.loads(line) for line in (scenes / "questions-test.jsonl").read_text().splitlines()][:3]
    named = [row | {"image": str(scenes / row["image"])} for row in rows]
    assert all(each["label"] in range(4) for each in asked.predict(named))
    assert "error" in next(iter(asked.predict([{"text": "a", "choices": 3}])))
    (tmp_path / "bad.png").write_bytes(b"no picture")
    row = {"text": "a", "choices": ["b", "c"]}
    rows = [row, named[0], row | {"image": str(tmp_path / "bad.png"), "id": "x"}, row | {"image": "none.png"}]
    found = list(asked.predict(rows))
    assert 'no "image"' in found[0]["error"] and found[1]["label"] == asked.predict(named)[0]["label"]
    assert found[2]["id"] == "x" and found[2]["error"].endswith("no PNG, JPEG or PPM: convert it, or leave it out")
    assert "no such picture" in found[3]["error"]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["predict", str(asked.folder), str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    assert command([*given, "--device", "cpu"]) == 3
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert ["error" in each for each in found] == [True, False, True, True]
    assert f"{tmp_path / 'rows.jsonl'}:3: " in found[2]["error"]
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"label": 0}))
    with pytest.raises(DataError, match=r'rows\.jsonl:1: no "image"'):
        asked.evaluate(tmp_path / "rows.jsonl")
    labels = [scenes / f"labels-{split}.jsonl" for split in ("train", "valid")]
    both = [json.loads(line) for path in labels for line in path.read_text().splitlines()]
    for row in both:
        row["label"] = row["label"].split()[1]
    for name, some in (("t", both[:24]), ("v", both[24:])):
        (scenes / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    for how in ("features", "finetune"):
        tuned = finetune(
            run, "classify", scenes / "t.jsonl", scenes / "v.jsonl", tmp_path / how, how=how, device="cpu",
            settings=LABELLED[:2],
        )  # fmt: skip
        ours, theirs = (each.learner.backbone for each in (tuned, run))
        same = bool((ours.model.encoder.cnn.keep[0].weight == theirs.encoder.cnn.keep[0].weight).all())
        assert same == (how == "features")
    with pytest.raises(DataError, match='only an "image"'):
        train(
            "lstm-tiny", "classify", scenes / "t.jsonl", tmp_path / "text", settings=["budget={steps=2}"], device="cpu"
        )


def test_what_is_refused(run, scenes, tmp_path, capsys):
    with pytest.raises(UsageError, match="is no captioner"):
        load_captioner(train("lstm-tiny", "choose", scenes / "questions-test.jsonl", tmp_path / "lm",
                             settings=LABELLED[:2], device="cpu").folder)  # fmt: skip
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert command(["caption", str(run.folder), str(tmp_path / "bad.png"), "--device", "cpu"]) == 3
    assert command(["caption", str(run.folder), str(tmp_path / "none.png"), "--device", "cpu"]) == 3
    (tmp_path / "captions.tsv").write_text("bad.png\ta dog\n")
    arguments = [
        "train",
        "show-tell-tiny",
        "--task",
        "caption",
        "--train",
        str(tmp_path),
        "--out",
        str(tmp_path / "run"),
    ]
    assert command([*arguments, "--device", "cpu"]) == 3
    assert "captions.tsv:1: " in capsys.readouterr().err
    np.savez(tmp_path / "f.npz", regions=np.ones((3, 4)))
    assert command(["caption", str(run.folder), str(tmp_path / "f.npz"), "--device", "cpu"]) == 3
    assert "model.features" in capsys.readouterr().err


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures_are_one_line_of_the_command(name, run, tmp_path, capsys):
    """In a file of captions with its line, and given by name."""
    make, message = BAD[name]
    make(tmp_path / name)
    (tmp_path / "c.tsv").write_text(f"image\tcaption\n{name}\ta dog\n")
    for arguments, place in (
        (["evaluate", str(run.folder), "--test", str(tmp_path / "c.tsv")], f"{tmp_path / 'c.tsv'}:2: "),
        (["caption", str(run.folder), str(tmp_path / name)], ""),
    ):
        capsys.readouterr()
        assert command([*arguments, "--device", "cpu"]) == 3
        out, said = capsys.readouterr()
        assert not out and said.startswith(f"seqloom: error: {place}{tmp_path / name}: ") and message in said
        assert said.count("\n") == 1 and "Traceback" not in said and "bug" not in said


def test_features_of_regions_in_place_of_pictures(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for i in range(6):
        np.savez(tmp_path / f"{i}.npz", regions=rng.normal(size=(3 + i % 2, 5)))
    (tmp_path / "captions.tsv").write_text("".join(f"{i}.npz\tthing {'abcdef'[i]} here\n" for i in range(6)))
    for recipe in ("show-tell-tiny", "show-attend-tell-tiny", "captioner-tiny"):
        settings = ["model.features=5", "budget={steps=3}", "batches.budget=64", "train.eval_every=2"]
        made = train(recipe, "caption", tmp_path, tmp_path / recipe, settings=settings, device="cpu")
        assert made([tmp_path / "0.npz"])[0]["caption"] is not None
        with pytest.raises(DataError, match="reads features of regions"):
            made([tmp_path / "0.png"])
        np.savez(tmp_path / "wide.npz", regions=np.ones((3, 7)))
        assert command(["caption", str(made.folder), str(tmp_path / "wide.npz"), "--device", "cpu"]) == 3
        assert "wide.npz: features of 7 numbers, the model reads 5" in capsys.readouterr().err
        maps = ["caption", str(made.folder), str(tmp_path / "0.npz"), "--maps", str(tmp_path / "m.html")]
        assert command([*maps, "--device", "cpu"]) == 2
        assert not capsys.readouterr().out, "nothing is written before what is wrong is known"


@pytest.fixture
def vit(tmp_path):
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=8
    )
    ViTModel(config).save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


def test_training_begins_with_a_vision_transformer(vit, scenes, tmp_path, capsys):
    given = ["--train", str(scenes / "train.jsonl"), "--set", "budget.steps=1", "--lr", "1e-9", "--device", "cpu"]
    given += ["--vit", str(vit)]
    plain = ["train", "captioner-tiny", "--task", "caption", *given, "--out", str(tmp_path / "run")]
    assert command(plain) == 0
    found, wanted = load_captioner(tmp_path / "run", "cpu").learner.backbone.encoder.state_dict(), read_vit(vit)
    assert set(found) == set(wanted)
    assert all(np.allclose(found[name], wanted[name], atol=1e-6) for name in wanted)
    for recipe, more, message in (
        ("show-tell-tiny", [], "only the encoder of captioner"),
        ("captioner-tiny", ["--set", "model.features=4"], "reads pixels"),
        ("captioner-tiny", ["--vectors", str(scenes / "train.jsonl")], "do not go together"),
    ):
        assert command(["train", recipe, "--task", "caption", *given, *more, "--out", str(tmp_path / "no")]) == 2
        assert message in capsys.readouterr().err


def test_scenes_by_command(tmp_path, capsys):
    assert (
        command(
            ["scenes", "--out", str(tmp_path / "s"), "--train", "2", "--valid", "0", "--test", "0", "--composed", "1"]
        )
        == 0
    )
    assert "2 scenes, 10 captions" in capsys.readouterr().out
    assert command(["scenes", "--out", str(tmp_path / "s")]) == 2
    assert command(["scenes", "--out", str(tmp_path / "t"), "--grid", "5"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "RUN", "--text", "a", "--show", "attention", "--out", "a.html"], "which reads no texts"),
        (["inspect", "RUN", "--text", "a", "--show", "cells", "--out", "a.html"], "which reads no texts"),
        (["embed", "RUN", "FILE", "--out", "a.npz"], "which reads no texts"),
        (["serve", "RUN", "--port", "0"], "reads pictures, which the server does not take"),
        (["generate", "RUN"], "is a captioner, no language model"),
        (["translate", "RUN", "FILE"], "is not a translator"),
        (["evaluate", "RUN", "--test", "FILE", "--tokenize", "char"], "not with captioners"),
    ],
)  # fmt: skip
def test_what_a_captioner_is_not_for_is_refused_in_words(
    arguments, message, run, scenes, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given = {"RUN": str(run.folder), "FILE": str(scenes / "test.jsonl")}
    assert command([given.get(each, each) for each in arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and "bug" not in said


def test_a_captioner_is_evaluated_with_another_beam(run, scenes, capsys):
    given = [
        "evaluate",
        str(run.folder),
        "--test",
        str(scenes / "test.jsonl"),
        "--beam",
        "1",
        "--device",
        "cpu",
        "--json",
    ]
    assert command(given) == 0
    assert {"cider", "bleu", "pointing", "exact_match"} <= set(json.loads(capsys.readouterr().out))
