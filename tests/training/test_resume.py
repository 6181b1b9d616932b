"""A run that was killed and resumed ends with the same bits as one that was not."""

import json
import os
import random
import signal
import time
import traceback
from pathlib import Path

import pytest

from seqloom import progress
from seqloom.batch import STATIC, EncoderDecoder
from seqloom.errors import DataError, Interrupted, ModelError, UsageError
from seqloom.models import MODELS, model_class
from seqloom.runs.training import pretrain, train
from seqloom.training import checkpoint as checkpoints
from seqloom.training.loop import Fit
from tests.tasks.labelled import examples, write
from tests.training.material import prepared, write_pairs

SAME = ("roberta", "xlm", "xlm-r", "ernie")  # as bert, but for a number or two
TRAINED = [name for name in MODELS if model_class(name).learns_from != "counts" and name not in SAME]
BRIEFLY = [
    name for name in ("elmo", "electra", "albert", "word2vec", "glove", "transformer-xl", "bart") if name in TRAINED
]
UNTRAINED = [name for name in TRAINED if model_class(name).learns_from == "labels"]  # not pre-trained
PAIRED = [name for name in UNTRAINED if issubclass(model_class(name), EncoderDecoder)]
LABELLED = [name for name in UNTRAINED if name not in PAIRED]
OFTEN = ("lstm", "gpt2")  # of streams, of sequences; the others are as often among the long tests
TIMES = {"seconds", "device_seconds", "tokens_per_second", "joules", "log_bytes"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A prepared text, and beside it aligned files."""
    folder = tmp_path_factory.mktemp("resume")
    write_pairs(folder, 200)
    write_pairs(folder, 20, 1, "valid")
    for seed, (split, count) in enumerate({"train": 200, "valid": 20}.items()):
        write(folder / f"{split}.jsonl", "classify", examples("classify", count, seed))
    return prepared(folder / "data", 1200)


def run(name: str, data: Path, out: Path, chosen: list[str], **options) -> None:
    """One run of a model's tiny recipe, whatever it learns from."""
    if name not in PAIRED + LABELLED:
        pretrain(f"{name}-tiny", data, out, settings=chosen, **options)
        return
    sides = ("en", "xx") if name in PAIRED else ("jsonl",)
    files = {split: [data.parent / f"{split}.{side}" for side in sides] for split in ("train", "valid")}
    train(
        f"{name}-tiny",
        "translate" if name in PAIRED else "classify",
        files["train"],
        out,
        valid=files["valid"],
        tokenizer="word",
        settings=chosen,
        **options,
    )


def settings(name: str, steps: int, save_every: int = 7, workers: int = 1) -> list[str]:
    """Small enough to be quick; several epochs, evaluations between saves, an odd number of batches a step."""
    # so that the generator matters; what learns from windows draws them anyway
    small = [] if getattr(model_class(name), "learns_from", "") in STATIC else ["model.dropout=0.1"]
    small += ["model.proj_dim=12"] if name in ("big-lstm", "elmo") else []
    small += ["model.embedding_dim=12"] if name == "text-cnn" else ["model.dim=20"]
    small += ["objective.passes=1"] if name == "glove" else []
    streams = getattr(model_class(name), "carries", False)
    shapes = ["batches.streams=8" if streams else "batches.budget=256", "batches.length=32", "batches.examples=8"]
    return [
        *small,
        *shapes,
        f"budget={{steps={steps}}}",
        f"train.save_every={save_every}",
        f"train.workers={workers}",
        "train.accumulate=3",
        "train.eval_every=11",
        "train.log_every=4",
        "train.schedule.warmup=5",
        "valid.limit=500",
    ]


def fingerprint(folder: Path) -> dict[str, object]:
    """Everything that must be the same: weights, optimizer, carried state, counters, cursor and metrics."""
    newest = folder / "checkpoints" / (folder / "checkpoints" / "latest").read_text().strip()
    found = checkpoints.load(newest)
    hashes = json.loads((newest / "manifest.json").read_text())["sha256"]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "tensors": {name: value for name, value in hashes.items() if name.endswith(".safetensors")},
        "best": weights((folder / "weights.json").read_text()),
        "state": {key: value for key, value in found.state.items() if key not in TIMES},
        "metrics": [{key: value for key, value in line.items() if key not in TIMES} for line in lines],
    }


def weights(listed: str) -> dict[str, str]:
    """config.json is left out: it names how often to save, which the tests change."""
    return {name: value for name, value in json.loads(listed).items() if name.endswith(".safetensors")}


def interrupted_run(name: str, data: Path, out: Path, steps: int, stops: int, monkeypatch) -> None:
    """Breaks off without warning at random steps, `stops` times, and resumes each time with other workers."""
    rng = random.Random(1)
    one_step, countdown = Fit.one_step, 0

    def fragile(fit, items):
        nonlocal countdown
        countdown -= 1
        if countdown == 0:
            raise ConnectionAbortedError("power cut")
        one_step(fit, items)

    with monkeypatch.context() as patch:
        patch.setattr(Fit, "one_step", fragile)
        for i in range(stops):
            countdown = rng.randint(1, 6)
            with pytest.raises(ConnectionAbortedError):
                run(name, data, out, settings(name, steps, 3, rng.choice((0, 1, 3))), resume=i > 0)
        countdown = -1
        run(name, data, out, settings(name, steps, 3, 2), resume=True)


@pytest.mark.parametrize(
    ("name", "steps", "stops"),
    [
        *((name, 40, 9) for name in OFTEN),
        *(pytest.param(name, 24, 2, marks=pytest.mark.long) for name in BRIEFLY),
        *(pytest.param(name, 80, 20, marks=pytest.mark.long) for name in TRAINED),
    ],
)
def test_interruptions_change_no_bit(name, steps, stops, data, tmp_path, monkeypatch):
    run(name, data, tmp_path / "whole", settings(name, steps))
    interrupted_run(name, data, tmp_path / "broken", steps, stops, monkeypatch)
    whole, broken = fingerprint(tmp_path / "whole"), fingerprint(tmp_path / "broken")
    assert whole["metrics"] == broken["metrics"]
    assert whole == broken
    assert len({line["epoch"] for line in whole["metrics"] if "epoch" in line}) > 1, "the run should pass an epoch"


def test_interruptions_change_no_bit_of_experts(data, tmp_path, monkeypatch):
    """Which experts are tried is drawn at random."""
    right = settings
    experts = ["model.experts=4"]
    monkeypatch.setitem(globals(), "settings", lambda *given: [*right(*given), *experts])
    run("gpt2", data, tmp_path / "whole", settings("gpt2", 12))
    interrupted_run("gpt2", data, tmp_path / "broken", 12, 2, monkeypatch)
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "broken")


@pytest.mark.parametrize("lost", ["carry", "optimizer", "cursor", "seed"])
def test_planted_loss_of_state_is_noticed(lost, data, tmp_path, monkeypatch):
    pretrain("lstm-tiny", data, tmp_path / "whole", settings=settings("lstm", 30))
    restore = Fit.restore

    def forgetful(fit):
        restore(fit)
        if lost == "carry":
            fit.carry = {0: fit.learner.start(fit.loader.batches.rows)}
        elif lost == "optimizer":
            fit.optimizer.state.clear()
        elif lost == "cursor":
            fit.state.batch = 0
        else:
            fit.seed += 1

    monkeypatch.setattr(Fit, "restore", forgetful)
    interrupted_run("lstm", data, tmp_path / "broken", 30, 4, monkeypatch)
    assert fingerprint(tmp_path / "whole") != fingerprint(tmp_path / "broken")


def kill_and_resume(name: str, data: Path, out: Path, steps: int, kills: int, seed: int) -> tuple[int, int]:
    """kill -9 at random moments. Returns how often it was killed, and how often inside a save."""
    rng = random.Random(seed)
    killed = inside = 0
    while True:
        process = os.fork()
        if process == 0:
            status = 1
            try:
                progress.QUIET = True
                chosen = settings(name, steps, 2, rng.choice((0, 1, 3)))
                run(name, data, out, chosen, resume=True)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        rng.random()
        if killed < kills:
            time.sleep(rng.uniform(0.02, 0.25))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            killed += 1
            folders = [path for path in (out / "checkpoints").glob("step-*") if path.is_dir()]
            inside += any(not (path / "manifest.json").exists() for path in folders)
            continue
        assert os.WEXITSTATUS(status) == 0
        return killed, inside


@pytest.mark.long
@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_kill_minus_nine_at_twenty_random_moments(name, data, tmp_path):
    run(name, data, tmp_path / "whole", settings(name, 120))
    killed, inside = kill_and_resume(name, data, tmp_path / "killed", 120, 20, seed=7)
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "killed")
    print(f"{name}: killed {killed} times, {inside} of them inside a save")
    assert killed >= 5, "the run was over before it could be killed"


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINED)
def test_two_hundred_random_kills(name, data, tmp_path):
    run(name, data, tmp_path / "whole", settings(name, 900))
    killed, inside = kill_and_resume(name, data, tmp_path / "killed", 900, 200, seed=8)
    print(f"{name}: killed {killed} times, {inside} of them inside a save")
    assert killed >= 40 and inside > 0
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "killed")


def test_a_finished_run_resumes_to_itself(data, tmp_path):
    pretrain("gpt2-tiny", data, tmp_path / "run", settings=settings("gpt2", 12))
    before = fingerprint(tmp_path / "run")
    pretrain("gpt2-tiny", data, tmp_path / "run", settings=settings("gpt2", 12), resume=True)
    assert fingerprint(tmp_path / "run") == before


def test_asked_to_stop_it_saves_and_can_go_on(data, tmp_path, monkeypatch):
    pretrain("gru-tiny", data, tmp_path / "whole", settings=settings("gru", 30))
    one_step = Fit.one_step

    def asked(fit, items):
        one_step(fit, items)
        if fit.state.step == 11:  # an evaluation is due: it must be made up for
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Fit, "one_step", asked)
    with pytest.raises(Interrupted, match="--resume") as stopped:
        pretrain("gru-tiny", data, tmp_path / "broken", settings=settings("gru", 30))
    assert stopped.value.exit_code == 75
    monkeypatch.setattr(Fit, "one_step", one_step)
    pretrain("gru-tiny", data, tmp_path / "broken", settings=settings("gru", 30), resume=True)
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "broken")


def test_what_is_resumed_must_be_the_same_run(data, tmp_path):
    pretrain("gpt2-tiny", data, tmp_path / "run", settings=settings("gpt2", 4))
    with pytest.raises(UsageError, match="another seed"):
        pretrain("gpt2-tiny", data, tmp_path / "run", settings=settings("gpt2", 4), seed=1, resume=True)
    with pytest.raises(UsageError, match="another recipe"):
        pretrain("gpt2-tiny", data, tmp_path / "run", settings=settings("gpt2", 5), resume=True)
    other = prepared(tmp_path / "other", 1000)
    with pytest.raises(DataError, match="fingerprints differ"):
        pretrain("gpt2-tiny", other, tmp_path / "run", settings=settings("gpt2", 4), resume=True)


def test_settings_that_are_left_out_are_those_of_before(data, tmp_path):
    """A size may get a setting that its older runs lack: they go on as they were, if that is said."""
    known = settings("gpt2", 4)
    pretrain("gpt2-tiny", data, tmp_path / "run", settings=known)
    again = pretrain("gpt2-tiny", data, tmp_path / "run", settings=[*known, "model.attention_dropout=0"], resume=True)
    assert "attention_dropout" not in again.config["recipe"]["model"]
    with pytest.raises(UsageError, match="another recipe"):
        pretrain("gpt2-tiny", data, tmp_path / "run", settings=[*known, "model.window=8"], resume=True)


@pytest.mark.parametrize("recipe", ["gpt2", [1], None])
def test_a_damaged_recipe_is_said(data, tmp_path, recipe):
    known = settings("gpt2", 2)
    pretrain("gpt2-tiny", data, tmp_path / "run", settings=known)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": recipe}))
    with pytest.raises(ModelError, match=r"config\.json is damaged"):
        pretrain("gpt2-tiny", data, tmp_path / "run", settings=known, resume=True)
