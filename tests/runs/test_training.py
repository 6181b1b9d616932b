"""From a pre-trained run to a task and its answers, by the program's own commands."""

import errno
import json
import os
import random
import shutil
import signal

import numpy as np
import pytest
import torch

from seqloom.batches import labelled as labelled_module
from seqloom.cli import run as main
from seqloom.errors import DataError, Interrupted, UsageError
from seqloom.migrations import RUN
from seqloom.runs import examples as examples_module
from seqloom.runs import training as training_module
from seqloom.runs.load import load, load_language_model, load_predictor
from seqloom.runs.training import finetune, pretrain, train
from seqloom.tasks.transfer import Transfer
from seqloom.training import checkpoint as checkpoints
from tests.tasks.labelled import examples, sentence, write

QUICK = ["budget={epochs=2}", "train.log_every=1"]
SIZES = {"lstm": ["model.dim=24"], "gpt": ["model.dim=24", "model.num_layers=2", "model.num_heads=3"]}
SIZES["bert"] = SIZES["gpt"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A prepared text, forward and backward, short runs over it, and files of every task."""
    folder = tmp_path_factory.mktemp("transfer")
    rng = random.Random(0)
    texts = [f"{sentence(rng, rng.random() < 0.5)} . {sentence(rng, True)} ." for _ in range(200)]
    (folder / "text.txt").write_text("\n".join(texts))
    common = ["--documents", "line", "--valid", "0.1", "--keep-duplicates", "--keep-leaks"]
    assert (
        main(["prepare", str(folder / "text.txt"), "--out", str(folder / "data"), "--tokenizer", "word", *common]) == 0
    )
    given = ["--from-tokenizer", str(folder / "data/tokenizer.json"), "--backward"]
    assert main(["prepare", str(folder / "text.txt"), "--out", str(folder / "data-back"), *given, *common]) == 0
    for name, model, text in [
        ("lstm", "lstm", "data"),
        ("back", "lstm", "data-back"),
        ("gpt", "gpt", "data"),
        ("bert", "bert", "data"),
    ]:
        settings = [f"--set={each}" for each in (*SIZES[model], "budget={steps=5}", "valid.limit=500")]
        assert (
            main(["pretrain", f"{model}-tiny", "--data", str(folder / text), "--out", str(folder / name), *settings])
            == 0
        )
    for task in ("classify", "pair", "regress", "choose", "span"):
        for seed, split in enumerate(("train", "valid", "test")):
            write(
                folder / f"{task}.{split}.json{'' if task == 'span' else 'l'}",
                task,
                examples(task, (48, 16, 16)[seed], seed),
            )
    return folder


def files(place, task):
    ending = "json" if task == "span" else "jsonl"
    return {split: [place / f"{task}.{split}.{ending}"] for split in ("train", "valid", "test")}


def tuned(place, out, model="lstm", task="classify", **options):
    given = files(place, task)
    settings = options.pop("settings", [])
    return finetune(
        place / model, task, given["train"], given["valid"], out, test=given["test"], device="cpu",
        settings=[*QUICK, *settings], **options,
    )  # fmt: skip


@pytest.mark.parametrize("model", ["lstm", "gpt", "bert"])
@pytest.mark.parametrize("task", ["classify", "pair", "regress", "choose", "span"])
def test_any_backbone_serves_any_task(place, tmp_path, model, task):
    run = tuned(place, tmp_path / "run", model, task)
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    again = load_predictor(tmp_path / "run", "cpu").evaluate(files(place, task)["test"])
    assert again["score"] == pytest.approx(metrics["test_scores"]["score"], abs=1e-6)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["format"] == RUN.number and config["from"]["run"] == str(place / model)
    rows = (
        [json.loads(line) for line in files(place, task)["test"][0].read_text().splitlines()] if task != "span" else []
    )
    assert len(run.predict(rows)) == len(rows)


def test_it_begins_with_the_weights_of_the_run(place, tmp_path):
    before = load_language_model(place / "lstm", "cpu").learner.backbone.state_dict()
    frozen = tuned(place, tmp_path / "features", how="features").learner.backbone.state_dict()
    assert all(torch.equal(frozen[name], before[name]) for name in before)
    moved = tuned(place, tmp_path / "all").learner.backbone.state_dict()
    assert not all(torch.equal(moved[name], before[name]) for name in before)


DEEP = ["model.dim=24", "model.num_layers=4", "model.num_heads=3", "model.dropout=0.3"]  # dropout is for training alone
MEMORY = ["model.dim=24", "model.num_layers=2", "model.num_heads=3", "model.mem_len=4", "model.dropout=0.3"]


@pytest.fixture(scope="module")
def frozen(place, tmp_path_factory):
    """The files of tasks beside runs that compute something else when they are trained."""
    folder = tmp_path_factory.mktemp("frozen")
    for path in place.glob("*.json*"):
        shutil.copy(path, folder)
    narrow = ["model.narrow=2", "objective.softmax=adaptive"]
    for name, settings in {"bert": DEEP, "transformer-xl": [*MEMORY, *narrow]}.items():
        short = [*settings, "budget={steps=3}", "valid.limit=500"]
        pretrain(f"{name}-tiny", place / "data", folder / name, settings=short, device="cpu")
    shutil.copytree(place / "lstm", folder / "lstm")
    return folder


def features_run(start, out, kept, monkeypatch, model="bert", task="pair", settings=(), resume=False):
    """The losses of a frozen run, with states that are computed once or in every epoch, its metrics, and how often its backbone
    ran."""
    calls = []
    with monkeypatch.context() as patch:
        if not kept:
            patch.setattr(examples_module.LabelledFiles, "precompute", lambda *_: None)
        true = Transfer.states
        patch.setattr(Transfer, "states", lambda self, batch: (calls.append(batch.states), true(self, batch))[1])
        tuned(start, out, model, task, how="features", settings=list(settings), resume=resume)
    metrics = json.loads((out / "metrics.json").read_text())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line], metrics, sum(states is None for states in calls)


def states_equal(start, folder, monkeypatch, model, task, settings):
    once, metrics, runs = features_run(start, folder / "once", True, monkeypatch, model, task, settings)
    often, plain, more = features_run(start, folder / "often", False, monkeypatch, model, task, settings)
    assert once == pytest.approx(often, abs=1e-5) and runs < more
    for scores in ("valid_scores", "test_scores"):
        assert metrics[scores]["loss"] == pytest.approx(plain[scores]["loss"], abs=1e-5)
    again = load_predictor(folder / "once", "cpu").evaluate(files(start, task)["valid"])
    assert again["loss"] == pytest.approx(metrics["valid_scores"]["loss"], abs=1e-5)
    assert metrics["flops"] < plain["flops"]


CASES = {
    "pair of a bert, mixed": ("bert", "pair", ["task.layers=mix"]),
    "class by four layers of a bert": ("bert", "classify", ["task.layers=concat4"]),
    "choice by a memory, below and above a reader": (
        "transformer-xl", "choose", ["task.reader=lstm", "task.layers=mix", "task.at=both"],
    ),
    "span of an lstm's embeddings": ("lstm", "span", ["task.layers=embedding"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_states_of_a_frozen_model_are_computed_once(frozen, tmp_path, monkeypatch, case):
    states_equal(frozen, tmp_path, monkeypatch, *CASES[case])


def shifted(true):
    """The states of the token before."""

    def states(learner, part, *rest):
        rows, operations = true(learner, part, *rest)
        moved = [row._replace(states=row.states._replace(rows=np.roll(row.states.rows, 1))) for row in rows[0]]
        return [moved, *rows[1:]], operations

    return states


def in_training(true):
    """States with dropout."""

    def states(learner, *rest):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learner, "eval", learner.backbone.train)
            return true(learner, *rest)

    return states


@pytest.mark.parametrize("bug", [shifted, in_training])
def test_planted_states_are_noticed(frozen, tmp_path, monkeypatch, bug):
    monkeypatch.setattr(examples_module, "with_states", bug(examples_module.with_states))
    with pytest.raises(AssertionError):
        states_equal(frozen, tmp_path, monkeypatch, *CASES["pair of a bert, mixed"])


def test_states_that_are_kept_cost_one_forward_pass(place, tmp_path, monkeypatch):
    """Two epochs cost a forward pass of the model less than without keeping them, and the same for each further one."""
    flops = {}
    for epochs in (2, 3):
        for kept in (True, False):
            out = tmp_path / f"{epochs}-{kept}"
            _, metrics, _ = features_run(place, out, kept, monkeypatch, settings=[f"budget={{epochs={epochs}}}"])
            flops[epochs, kept] = metrics["flops"]
    forward = (flops[3, False] - flops[2, False]) - (flops[3, True] - flops[2, True])
    assert forward > 0 and flops[2, False] - flops[2, True] == forward


@pytest.mark.parametrize(
    "settings",
    [
        ["budget={epochs=1}"],
        ["budget={epochs=2,steps=3}"],
        ["budget={epochs=2,minutes=5}"],
        ["budget={flops=3e6}"],
        ["train.precision=bf16"],
    ],
)
def test_states_are_not_kept_where_that_saves_nothing_or_changes_something(place, tmp_path, monkeypatch, settings):
    kept = features_run(place, tmp_path / "kept", True, monkeypatch, settings=settings)
    plain = features_run(place, tmp_path / "plain", False, monkeypatch, settings=settings)
    assert kept[0] == plain[0] and kept[2] == plain[2]


def test_states_need_room_on_the_disk(place, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(labelled_module, "IN_MEMORY", 8)
    on_disk = features_run(place, tmp_path / "disk", True, monkeypatch)
    monkeypatch.setattr(os, "posix_fallocate", full)
    without = features_run(place, tmp_path / "full", True, monkeypatch)
    plain = features_run(place, tmp_path / "plain", False, monkeypatch)
    assert on_disk[2] < without[2] == plain[2] and without[0] == plain[0]


def asked_within(true, batches):
    """The run is asked to stop after so many batches were computed; before its first step, if there are fewer."""

    def states(learner, part, table, device, bar, check):
        left = iter(range(batches))

        def asked():
            if next(left, None) is None:
                signal.raise_signal(signal.SIGTERM)
            check()

        found = true(learner, part, table, device, bar, asked)
        signal.raise_signal(signal.SIGTERM)
        return found

    return states


@pytest.mark.parametrize("batches", [0, 1_000])
def test_a_frozen_run_that_was_stopped_ends_with_the_same_bits(frozen, tmp_path, monkeypatch, batches):
    case = ("bert", "classify", ["task.layers=mix", "budget={epochs=3}"])
    whole = features_run(frozen, tmp_path / "whole", True, monkeypatch, *case)
    with monkeypatch.context() as patch:
        patch.setattr(examples_module, "with_states", asked_within(examples_module.with_states, batches))
        with pytest.raises(Interrupted, match="stopped at step 0, state saved"):
            features_run(frozen, tmp_path / "run", True, monkeypatch, *case)
    found = features_run(frozen, tmp_path / "run", True, monkeypatch, *case, resume=True)
    assert found[0] == whole[0] and found[1]["flops"] == whole[1]["flops"]
    written = [(tmp_path / name / "head.safetensors").read_bytes() for name in ("whole", "run")]
    assert written[0] == written[1]


def test_a_folder_that_is_taken_is_refused_before_a_vocabulary_is_learnt(place, tmp_path, monkeypatch):
    def learn(*_):
        raise AssertionError("the folder was not looked at")

    monkeypatch.setattr(training_module, "learn_tokenizer", learn)
    given = files(place, "classify")
    for folder, words in ((place / "lstm", "holds a run already"), (place, "is not empty and holds no run")):
        with pytest.raises(UsageError, match=words):
            train("lstm-tiny", "classify", given["train"], folder, device="cpu")
    with pytest.raises(AssertionError):
        train("lstm-tiny", "classify", given["train"], tmp_path / "new", device="cpu")


def test_gradual_unfreezing_begins_at_the_top(place, tmp_path):
    before = load_language_model(place / "gpt", "cpu").learner.backbone.state_dict()
    settings = ["budget={epochs=1.9}", "train.watch=loss"]  # the second epoch is begun
    run = tuned(place, tmp_path / "run", "gpt", how="gradual", settings=settings)
    after = run.learner.backbone.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if "layers.0" in name or "embedding" in name} <= same
    config = json.loads((tmp_path / "run/config.json").read_text())["recipe"]["train"]
    assert config["unfreeze"] == 1.0 and config["schedule"]["name"] == "slanted"


def test_sleeping_layers_are_not_clipped_for_and_remember_nothing(place, tmp_path, monkeypatch):
    """In the first epoch of gradual unfreezing the optimizer hears of the top alone."""
    from seqloom.training import loop

    heard, true = [], loop.step

    def listened(optimizer, count, clip, *scaler):
        groups = optimizer.param_groups
        heard.append({group["depth"] for group in groups if any(p.grad is not None for p in group["params"])})
        norm = true(optimizer, count, clip, *scaler)
        assert {group["depth"] for group in groups if any(optimizer.state[p] for p in group["params"])} <= heard[-1]
        return norm

    monkeypatch.setattr(loop, "step", listened)
    tuned(place, tmp_path / "run", "gpt", how="gradual", settings=["budget={epochs=2}", "train.watch=loss"])
    assert len(heard[0]) == 1 and heard[0] < heard[-1] and len(heard[-1]) == 2


def test_an_epoch_has_an_evaluation_where_steps_are_several_batches(place, tmp_path):
    settings = ["batches.examples=4", "train.accumulate=4", "budget={epochs=3}"]
    tuned(place, tmp_path / "run", settings=settings)
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "valid" in line] == [3, 6, 9], "48 examples are 12 batches, 3 steps"


@pytest.mark.parametrize("softmax", ["full", "adaptive"])
def test_language_modelling_goes_on_from_any_objective(place, tmp_path, softmax):
    more = [*SIZES["lstm"], "budget={steps=2}", "valid.limit=500", f"objective.softmax={softmax}"]
    more += ["objective.tie=false"] if softmax != "full" else []
    first = pretrain("awd-lstm-tiny", place / "data", tmp_path / "first", settings=more, device="cpu")
    given = files(place, "classify")
    options = {"settings": [*QUICK, "task.lm=0.5"], "device": "cpu"}
    if softmax != "full":
        with pytest.raises(UsageError, match=r"task\.lm.*all words"):
            finetune(first, "classify", given["train"], given["valid"], tmp_path / "run", **options)
        return
    run = finetune(first, "classify", given["train"], given["valid"], tmp_path / "run", **options)
    assert run.learner.softmax.bias is not None


def test_vectors_of_a_task_are_those_of_its_model(place, tmp_path):
    """Read from the end where it reads so, whatever asks."""
    run = tuned(place, tmp_path / "run", "back", how="features")
    theirs = load_language_model(place / "back", "cpu")
    for pool in ("mean", "none"):
        for one, two in zip(*(each.encode(["the film is good ."], pool=pool) for each in (run, theirs)), strict=True):
            assert np.allclose(one, two, atol=1e-6)


def test_without_validation_the_last_weights_are_kept(place, tmp_path):
    given = files(place, "classify")

    def made(name, **options):
        return finetune(place / "lstm", "classify", given["train"], options.pop("valid", ()), tmp_path / name,
                        test=given["test"], device="cpu", settings=[*QUICK, *options.pop("settings", [])])  # fmt: skip

    last = made("last").learner.state_dict()
    saved = checkpoints.load(
        tmp_path / "last/checkpoints" / f"step-{checkpoints.steps(tmp_path / 'last/checkpoints')[-1]}"
    )
    assert all(torch.equal(last[name], saved.tensors["model"][name]) for name in last)
    made("best", valid=given["valid"])
    recipes = [json.loads((tmp_path / name / "config.json").read_text())["recipe"] for name in ("last", "best")]
    assert [recipe["train"]["watch"] for recipe in recipes] == ["loss", "score"]
    with pytest.raises(UsageError, match="give --valid"):
        made("none", settings=["train.watch=score"])
    assert not (tmp_path / "none").exists()


def test_a_stopped_run_goes_on_to_the_same_bits(place, tmp_path):
    from seqloom.training.loop import Fit

    whole = tuned(place, tmp_path / "whole", settings=["train.save_every=1", "task.dropout=0.3"])
    original = Fit.one_step

    def killed(self, items):
        if self.state.step == 2:
            raise KeyboardInterrupt
        original(self, items)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "one_step", killed)
        with pytest.raises(KeyboardInterrupt):
            tuned(place, tmp_path / "cut", settings=["train.save_every=1", "task.dropout=0.3"])
    cut = tuned(place, tmp_path / "cut", settings=["train.save_every=1", "task.dropout=0.3"], resume=True)
    theirs = whole.learner.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in cut.learner.state_dict().items())


def test_from_scratch(place, tmp_path):
    write(tmp_path / "many.jsonl", "classify", examples("classify", 300, 7))
    given = files(place, "classify")
    run = train(
        "lstm-tiny", "classify", [tmp_path / "many.jsonl"], tmp_path / "run", valid=given["valid"], tokenizer="word",
        device="cpu", settings=["budget={epochs=4}", "model.dim=32", "train.optim.lr=1e-2"],
    )  # fmt: skip
    assert run.evaluate(given["test"])["accuracy"] > 0.9


def test_held_out_texts_are_read_as_they_are_told_about_later(place, tmp_path):
    """What was learnt from is cut at batches.length; what is scored is not, in training as after it."""
    run = tuned(place, tmp_path / "run", settings=["batches.length=4"])
    scores = json.loads((tmp_path / "run/metrics.json").read_text())["test_scores"]
    again = run.evaluate(files(place, "classify")["test"])
    assert again["loss"] == pytest.approx(scores["loss"], rel=1e-6)
    assert run.frame.limit > 100


# ---- backward


def test_a_backward_model_reads_from_the_end(place):
    forward, backward = load_language_model(place / "lstm", "cpu"), load_language_model(place / "back", "cpu")
    text = "the film is good ."
    mirrored = " ".join(reversed(text.split()))
    with torch.no_grad():
        backward.learner.load_state_dict(forward.learner.state_dict())
    ahead, back = forward.score([mirrored])[0], backward.score([text])[0]
    assert back.log_probs == pytest.approx(ahead.log_probs[::-1])
    vectors = forward.encode([mirrored], pool="none")[0], backward.encode([text], pool="none")[0]
    assert np.allclose(vectors[0], vectors[1][::-1], atol=1e-6)
    with pytest.raises(UsageError, match="cannot continue its beginning"):
        backward.generate("the")
    with pytest.raises(DataError, match=r"is read forward, and .* was trained to read backward"):
        load_language_model(place / "back", "cpu").evaluate(place / "data")
    assert load_language_model(place / "back", "cpu").evaluate(place / "data-back")["perplexity"] > 1


def test_both_ways_answer_together(place, tmp_path):
    ahead, back = tuned(place, tmp_path / "ahead"), tuned(place, tmp_path / "back", "back")
    rows = [{"text": "the film is good"}, {"text": "a bad story"}]
    single = [run.predict(rows) for run in (ahead, back)]
    both = ahead.predict(rows, others=[back])
    for i, answer in enumerate(both):
        mean = np.mean([each[i]["probabilities"]["good"] for each in single])
        assert answer["probabilities"]["good"] == pytest.approx(mean, abs=2e-6)
    assert back.frame.backward and not ahead.frame.backward
    assert ahead.evaluate(files(place, "classify")["test"], others=[back])["examples"] == 16


# ---- bad input


def line(capsys):
    found = [each for each in capsys.readouterr().err.splitlines() if each.startswith("seqloom: error:")]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(("rows", "told"), [
    (['{"text": "the film", "label": "good"}'] * 3, "all 3 examples are of the class 'good'"),
    (['{"text": "the film"}'], 'bad.jsonl:1: no "label"'),
    (['{"text": "a", "label": "x", "id": 1}', '{"text": "b", "label": "y", "id": 1}'], "bad.jsonl:2: the id 1"),
    (["no json"], "bad.jsonl:1: not valid JSON"),
    ([], "no example"),
])  # fmt: skip
def test_bad_training_files_are_refused_before_training(place, tmp_path, capsys, rows, told):
    (tmp_path / "bad.jsonl").write_text("\n".join(rows) + "\n")
    code = main(["finetune", str(place / "lstm"), "--task", "classify", "--train", str(tmp_path / "bad.jsonl"),
                 "--valid", str(place / "classify.valid.jsonl"), "--out", str(tmp_path / "run")])  # fmt: skip
    assert code == 3 and told in line(capsys) and not (tmp_path / "run/config.json").exists()


def test_labels_unseen_in_training(place, tmp_path, capsys):
    (tmp_path / "valid.jsonl").write_text('{"text": "the film", "label": "so so"}\n')
    code = main(["finetune", str(place / "lstm"), "--task", "classify", "--train", str(place / "classify.train.jsonl"),
                 "--valid", str(tmp_path / "valid.jsonl"), "--out", str(tmp_path / "run")])  # fmt: skip
    assert code == 3 and "valid.jsonl:1: the label 'so so' is not in the training files" in line(capsys)


@pytest.mark.parametrize(("arguments", "told"), [
    (["--task", "classify", "--how", "half"], "--how"),
    (["--task", "clasify"], "classify"),
    (["--task", "translate"], "seqloom train"),
    (["--task", "classify", "--set", "task.lm=0.5"], "left to right"),
    (["--task", "classify", "--set", "task.layers=mix", "--set", "task.pool=sum"], "task.pool"),
])  # fmt: skip
def test_a_wrong_call(place, tmp_path, capsys, arguments, told):
    code = main(["finetune", str(place / "bert"), *arguments, "--train", str(place / "classify.train.jsonl"),
                 "--valid", str(place / "classify.valid.jsonl"), "--out", str(tmp_path / "run")])  # fmt: skip
    assert code == 2 and told in line(capsys)


def test_predict_answers_every_row(place, tmp_path, capsys):
    tuned(place, tmp_path / "run")
    rows = [
        '{"text": "good", "id": "a"}',
        "{",
        '{"text": 3}',
        '{"text": ""}',
        '{"text": "漢字 \\u0000"}',
        '{"text": "bad film"}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    capsys.readouterr()
    code = main(["predict", str(tmp_path / "run"), str(tmp_path / "rows.jsonl")])
    captured = capsys.readouterr()
    answers = [json.loads(each) for each in captured.out.splitlines()]
    assert code == 3 and len(answers) == 6 and answers[0]["id"] == "a"
    assert ["error" in answer for answer in answers] == [False, True, True, True, True, False]
    assert "4 of 6 rows could not be read" in captured.err
    code = main(
        ["predict", str(tmp_path / "run"), str(place / "classify.test.jsonl"), "--out", str(tmp_path / "told.jsonl")]
    )
    assert code == 0 and len((tmp_path / "told.jsonl").read_text().splitlines()) == 16


@pytest.mark.parametrize("more", [[], ["--curve", "4"], ["--seeds", "1"]])
def test_the_run_that_it_begins_with_is_never_overwritten(place, tmp_path, capsys, more):
    source = tmp_path / "out" / ("seed-0" if "--seeds" in more else "lstm")
    shutil.copytree(place / "lstm", source)
    code = main(["finetune", str(source), "--task", "classify", "--train", str(place / "classify.train.jsonl"), *more,
                 "--valid", str(place / "classify.valid.jsonl"), "--out", str(tmp_path / "out"), "--overwrite"])  # fmt: skip
    assert code == 2 and "the run itself, or holds it" in line(capsys) and (source / "weights.json").exists()


def test_what_is_no_predictor_is_named(place, capsys):
    assert main(["predict", str(place / "lstm"), str(place / "classify.test.jsonl")]) == 2
    assert "is not trained for a task that predicts labels" in line(capsys)


def test_what_a_task_has_learnt_is_no_language_model(place, tmp_path, capsys):
    tuned(place, tmp_path / "run")
    assert main(["generate", str(tmp_path / "run")]) == 2
    assert "use 'seqloom predict'" in line(capsys)
    assert load(tmp_path / "run", "cpu").encode(["the film"]).shape == (1, 24)
