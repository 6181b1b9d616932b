"""Whatever goes wrong is one line that says what, where and what to do, with the exit code of its kind."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom import errors, files
from seqloom.batch import Loss
from seqloom.cli import fail, run
from seqloom.objectives.next_token import NextToken
from seqloom.runs.load import load
from seqloom.training import checkpoint as checkpoints
from tests.training.material import prepared

Capture = pytest.CaptureFixture[str]
SETTINGS = ("batches.streams=4", "batches.length=16", "model.dim=16", "budget.steps=20", "train.save_every=5")
SMALL = tuple(part for setting in SETTINGS for part in ("--set", setting))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("made") / "data", 300)


def one_line(err: str) -> str:
    """The failure on standard error: one line, the last, and nothing of Python's own."""
    lines = err.splitlines()
    assert [line.startswith("seqloom: error: ") for line in lines].count(True) == 1, err
    assert lines[-1].startswith("seqloom: error: "), err
    assert "Traceback" not in err and "should not happen" not in err
    return lines[-1]


def fails(capsys: Capture, code: int, words: str | tuple[str, ...], *arguments: object) -> str:
    found = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    line = one_line(err)
    assert (found, out) == (code, ""), line
    for word in (words,) if isinstance(words, str) else words:
        assert word in line, line
    return line


def pretrain(data: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("pretrain", "lstm-tiny", "--data", data, "--out", out, *SMALL, *more)


def test_a_file_is_no_folder_to_write(data: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "mine"
    out.write_text("the cat sees the dog\n" * 50)
    words = f"{out} is a file, not a folder: choose another --out"
    fails(capsys, 2, words, "prepare", out, "--out", out)
    fails(capsys, 2, words, *pretrain(data, out))
    fails(capsys, 2, words, *pretrain(data, out, "--find-lr"))
    assert out.read_text().startswith("the cat")


def test_a_tokenizer_without_a_mask_is_named(data: Path, tmp_path: Path, capsys: Capture) -> None:
    path, values = tmp_path / "a.json", json.loads((data / "tokenizer.json").read_text())
    values["added_tokens"] = [each for each in values["added_tokens"] if each["content"] != "<mask>"]
    path.write_text(json.dumps(values))
    (tmp_path / "a.txt").write_text("the cat sees the dog\n" * 50)
    out = tmp_path / "unmasked"
    assert run(["prepare", str(tmp_path / "a.txt"), "--out", str(out), "--from-tokenizer", str(path)]) == 0
    capsys.readouterr()
    words = f"{out / 'tokenizer.json'} has no mask token"
    fails(capsys, 4, words, "pretrain", "roberta-tiny", "--data", out, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- recipes


def test_every_wrong_key_is_named(data: Path, tmp_path: Path, capsys: Capture) -> None:
    wrong = ("model.dims=5", "train.optim.lrr=1", "batch.length=3", "train.keep=0", "objective.name=hidden")
    settings = [part for setting in wrong for part in ("--set", setting)]
    words = (
        "'model.dims' (did you mean 'dim'?)",
        "'train.optim.lrr' (did you mean 'lr'?)",
        "'batch'",
        "'train.keep' = 0",
    )
    line = fails(capsys, 2, (*words, "objective.name = hidden"), *pretrain(data, tmp_path / "run", *settings))
    assert line.startswith("seqloom: error: lstm-tiny: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("dim", "path=value"),
        ("model.dim.x=3", "'dim' is a value, not a section"),
        ("model.name=[1]", "unknown model"),
        ("model=5", "'model' = 5"),
        ("model.dim=nan", "'model.dim'"),
        ("train.optim.lr=inf", "'train.optim.lr'"),
        ("model.dim=1000000000000", "'model.dim'"),
        ("budget={}", "needs at least one of tokens, words, minutes, epochs, steps"),
        ("budget.steps=0", "'budget.steps' = 0"),
        ("batches.streams=100000", "lower one of them"),
        ("batches.kind=square", "'batches.kind'"),
    ],
)
def test_a_wrong_setting(setting: str, words: str, data: Path, tmp_path: Path, capsys: Capture) -> None:
    fails(capsys, 2, words, *pretrain(data, tmp_path / "run", "--set", setting))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--words", "--tokens", "--minutes"])
@pytest.mark.parametrize("value", ["0", "-5", "nan", "inf", "many"])
def test_a_budget_of_nothing(option: str, value: str, data: Path, tmp_path: Path, capsys: Capture) -> None:
    fails(capsys, 2, option.strip("-"), *pretrain(data, tmp_path / "run", option, value))
    assert not (tmp_path / "run").exists()


def test_a_context_longer_than_the_models(data: Path, tmp_path: Path, capsys: Capture) -> None:
    call = ("pretrain", "gpt2-tiny", "--data", data, "--out", tmp_path / "run", "--set", "batches.length=500")
    fails(capsys, 2, ("'batches.length' = 500", "'model.max_len' = 128"), *call)


def test_streams_for_a_model_without_a_state(data: Path, tmp_path: Path, capsys: Capture) -> None:
    call = ("pretrain", "gpt2-tiny", "--data", data, "--out", tmp_path / "run", "--set", "batches.kind=streams")
    fails(capsys, 2, "recurrent", *call)


def test_an_unknown_recipe(data: Path, tmp_path: Path, capsys: Capture) -> None:
    options = ("--data", data, "--out", tmp_path / "run")
    fails(capsys, 2, "unknown recipe 'lstm-tinny' (did you mean 'lstm-tiny'?)", "pretrain", "lstm-tinny", *options)
    fails(capsys, 2, "none.toml: no such recipe file", "pretrain", tmp_path / "none.toml", *options)


@pytest.mark.parametrize("text", ["model = ", "[model\n", "a = 1\na = 2", "\x00", "[" * 10_000, "a = " + "[" * 10_000])
def test_a_recipe_that_is_no_toml(text: str, data: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "my.toml").write_text(text)
    options = ("--data", data, "--out", tmp_path / "run")
    fails(capsys, 2, "my.toml is not valid TOML", "pretrain", tmp_path / "my.toml", *options)


def test_an_empty_recipe(data: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "my.toml").write_text("")
    words = ("'model' is missing", "'budget' is missing")
    fails(capsys, 2, words, "pretrain", tmp_path / "my.toml", "--data", data, "--out", tmp_path / "run")


# ---- data


def test_missing_data(tmp_path: Path, capsys: Capture) -> None:
    fails(capsys, 3, ("no such folder", "seqloom prepare"), *pretrain(tmp_path / "none", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_data_of_an_unfinished_prepare(data: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data/manifest.json").unlink()
    fails(
        capsys,
        3,
        ("has no manifest.json", "preparation was interrupted"),
        *pretrain(tmp_path / "data", tmp_path / "run"),
    )


def test_damaged_data(data: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(data, tmp_path / "data")
    with open(tmp_path / "data/train-00000.tokens.bin", "ab") as file:
        file.write(b"xx")
    fails(capsys, 3, "damaged, prepare the data again", *pretrain(tmp_path / "data", tmp_path / "run"))


def test_an_empty_training_split(data: Path, tmp_path: Path, capsys: Capture) -> None:
    shutil.copytree(data, tmp_path / "data")
    manifest = json.loads((data / "manifest.json").read_text())
    nothing = dict.fromkeys(manifest["splits"]["train"], 0) | {"shards": [], "surface_bits": 0.0, "unknown_bits": 0.0}
    manifest["splits"]["train"] = nothing
    (tmp_path / "data/manifest.json").write_text(json.dumps(manifest))
    fails(capsys, 3, "its training split is empty", *pretrain(tmp_path / "data", tmp_path / "run"))
    del manifest["splits"]["train"]
    (tmp_path / "data/manifest.json").write_text(json.dumps(manifest))
    fails(capsys, 3, "has no split 'train'", *pretrain(tmp_path / "data", tmp_path / "run"))


# ---- files


def test_a_folder_that_cannot_be_made(data: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("mine")
    fails(capsys, 5, str(tmp_path / "file"), *pretrain(data, tmp_path / "file/run"))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_without_permission(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)  # rights do not stop a test that runs as root
    fails(capsys, 5, "no permission", *pretrain(data, tmp_path / "run"))


def when(path_part: str, error: OSError, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, failing where its first argument names the path."""

    def failing(first: Any, *rest: Any, **options: Any) -> Any:
        name = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
        if path_part in name:
            raise error
        return function(first, *rest, **options)

    return failing


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize(
    "place", ["step-10/model.safetensors", "step-10/manifest.json", "step-10/state.json", "latest"]
)
def test_a_full_disk_loses_no_checkpoint(
    name: str, place: str, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = pretrain(data, tmp_path / "run")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place)
    with monkeypatch.context() as patch:
        real = getattr(os, name)
        failing = when(place, full, real)

        def later(*arguments: Any, **options: Any) -> Any:
            if not (tmp_path / "run/checkpoints/step-10").exists():  # "latest" is written at step 5 too
                return real(*arguments, **options)
            return failing(*arguments, **options)

        patch.setattr(os, name, later)
        fails(capsys, 5, ("the disk is full", "run the same command again"), *call)
    kept = checkpoints.load_latest(tmp_path / "run/checkpoints")
    assert kept is not None and kept.step == (10 if place == "latest" else 5)
    assert run([str(argument) for argument in (*call, "--resume")]) == 0
    assert f"resuming at step {kept.step}" in capsys.readouterr().err
    load(tmp_path / "run", "cpu")
    assert not list((tmp_path / "run").rglob(f"*{files.TEMPORARY}"))


def test_a_full_disk_while_tensors_are_written(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from seqloom import weights

    def full(tensor: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(weights, "_bytes_of", full)
        fails(capsys, 5, "the disk is full", *pretrain(data, tmp_path / "run"))
    assert run([str(argument) for argument in pretrain(data, tmp_path / "run", "--resume")]) == 0


def test_a_folder_in_use(data: Path, tmp_path: Path, capsys: Capture) -> None:
    hold = (
        "import sys; from pathlib import Path; from seqloom.files import sole_owner\n"
        "with sole_owner(Path(sys.argv[1])): print('held', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        for option in ((), ("--resume",), ("--overwrite",)):
            fails(capsys, 8, f"in use by process {process.pid}", *pretrain(data, tmp_path / "run", *option))
    finally:
        process.communicate("\n", timeout=20)
    assert run([str(argument) for argument in pretrain(data, tmp_path / "run")]) == 0


# ---- models


def test_a_damaged_run(data: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run([str(argument) for argument in pretrain(data, tmp_path / "run")]) == 0
    capsys.readouterr()
    evaluate = ("evaluate", tmp_path / "run", "--data", data)
    weights = tmp_path / "run/backbone.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    fails(capsys, 4, ("backbone.safetensors is damaged", "--overwrite"), *evaluate)
    weights.unlink()
    fails(capsys, 4, "backbone.safetensors is missing", *evaluate)
    (tmp_path / "run/card.md").rename(tmp_path / "card.md")  # its training goes on
    fails(capsys, 4, ("backbone.safetensors is missing", "--resume the run"), *evaluate)
    (tmp_path / "card.md").rename(tmp_path / "run/card.md")
    weights.write_bytes(content)
    fails(capsys, 3, "has no split 'test'", *evaluate, "--split", "test")
    fails(capsys, 3, "no such folder", "evaluate", tmp_path / "run", "--data", tmp_path / "none")
    (tmp_path / "run/config.json").write_text("{")
    fails(capsys, 4, "config.json is damaged", *evaluate)
    fails(capsys, 4, "config.json is damaged", *pretrain(data, tmp_path / "run", "--resume"))
    fails(capsys, 4, "not a run folder", "evaluate", tmp_path, "--data", data)


def test_no_checkpoint_is_intact(data: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run([str(argument) for argument in pretrain(data, tmp_path / "run")]) == 0
    capsys.readouterr()
    for state in (tmp_path / "run/checkpoints").glob("*/state.json"):
        state.write_text("{}")
    words = ("no checkpoint is intact", "--overwrite")
    fails(capsys, 4, words, *pretrain(data, tmp_path / "run", "--resume"))


# ---- numbers


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_loss(
    broken: float, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, calls = NextToken.forward, 0

    def failing(self: NextToken, example: Any, carry: Any = None) -> Loss:
        nonlocal calls
        calls += self.training
        loss = forward(self, example, carry)
        return loss._replace(total=loss.total * broken) if calls > 7 else loss

    monkeypatch.setattr(NextToken, "forward", failing)
    call = pretrain(data, tmp_path / "run", "--set", "budget.steps=100", "--set", "train.log_every=1")
    words = (
        "no finite gradient",
        "at step 17",
        "lower the rate",
        "--set train.optim.lr=",
        "the last checkpoint is kept",
    )
    fails(capsys, 7, words, *call)
    kept = checkpoints.load_latest(tmp_path / "run/checkpoints")
    assert kept is not None and kept.step == 15
    assert all(torch.isfinite(tensor).all() for part in kept.tensors.values() for tensor in part.values())
    monkeypatch.undo()
    assert run([str(argument) for argument in (*call, "--resume")]) == 0


@pytest.mark.parametrize("recipe", ["lstm-tiny", "gpt2-tiny"])
@pytest.mark.parametrize("rate", ["1e3", "1e30"])
def test_a_rate_that_is_far_too_high(recipe: str, rate: str, data: Path, tmp_path: Path, capsys: Capture) -> None:
    batches = "batches={budget=128, length=32}" if recipe == "gpt2-tiny" else "batches.streams=4"
    high = (f"train.optim.lr={rate}", "train.optim.clip=0", "train.schedule.warmup=0", "budget.steps=60", batches)
    settings = [part for setting in high for part in ("--set", setting)]
    call = ["pretrain", recipe, "--data", data, "--out", tmp_path / "run", *settings]
    code = run([str(argument) for argument in call])
    _, err = capsys.readouterr()
    if code == 0:  # it may have come down again: then every number is one
        metrics = json.loads((tmp_path / "run/metrics.json").read_text(), parse_constant=lambda text: pytest.fail(text))
        assert metrics["valid_loss"] > 0
    else:
        line = one_line(err)
        assert code == 7 and "at step" in line and "lower the rate" in line


# ---- machines


def test_no_cuda(data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    fails(capsys, 2, ("--device cuda", "--device cpu"), *pretrain(data, tmp_path / "run", "--device", "cuda"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text("{}")
    fails(capsys, 2, "--device cuda", "evaluate", tmp_path / "run", "--data", data, "--device", "cuda")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried…"),
        MemoryError(),
    ],
)
@pytest.mark.parametrize("method", ["forward", "__init__"])
def test_out_of_memory(
    error: Exception, method: str, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(NextToken, method, exhausted)
        fails(capsys, 6, ("out of memory", "batches.budget"), *pretrain(data, tmp_path / "run"))
    assert run([str(argument) for argument in pretrain(data, tmp_path / "run", "--resume")]) == 0
    capsys.readouterr()
    monkeypatch.setattr(NextToken, "losses" if method == "forward" else "__init__", exhausted)
    fails(capsys, 6, "out of memory", "evaluate", tmp_path / "run", "--data", data)


def test_ctrl_c_outside_of_the_loop(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NextToken, "__init__", pressed)
    fails(capsys, 75, "stopped", *pretrain(data, tmp_path / "run"))


def test_a_bug_of_ours_is_one_line_too(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("one\nof ours")

    monkeypatch.setattr(NextToken, "__init__", wrong)
    monkeypatch.setattr(errors, "DEBUG", False)  # and put back in the end
    assert run([str(argument) for argument in pretrain(data, tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert (
        err.splitlines()[-1].startswith("seqloom: error: ZeroDivisionError: one of ours (") and "Traceback" not in err
    )
    assert run(["--debug", *(str(argument) for argument in pretrain(data, tmp_path / "run", "--overwrite"))]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err and err.splitlines()[-1].startswith("seqloom: error: ")


# ---- signals, with a process of its own


def started(data: Path, out: Path, *more: object) -> "subprocess.Popen[str]":
    call = pretrain(data, out, "--set", "train.save_every=1000000", "--set", "budget.steps=1000000", *more)
    return subprocess.Popen(
        [sys.executable, "-m", "seqloom", *(str(argument) for argument in call)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_state(
    number: signal.Signals, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run/metrics.jsonl"
    process = started(data, tmp_path / "run", "--minutes", 5)
    try:
        wait_until(lambda: log.exists() and log.stat().st_size > 0, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out) == (75, "")
    line = one_line(err)
    kept = checkpoints.load_latest(tmp_path / "run/checkpoints")
    assert kept is not None and kept.step > 0
    assert f"stopped at step {kept.step}, state saved in {tmp_path / 'run'}" in line and "--resume" in line
    # five minutes are more than a test has: it goes on as if they were nearly over
    from seqloom.training.state import TrainState

    spent = TrainState.spent
    monkeypatch.setattr(
        TrainState, "spent", lambda self, budget: 1.0 if self.step >= kept.step + 5 else spent(self, budget)
    )
    call = pretrain(data, tmp_path / "run", "--set", "train.save_every=1000000", "--set", "budget.steps=1000000")
    assert run([str(argument) for argument in (*call, "--minutes", 5, "--resume")]) == 0
    out, err = capsys.readouterr()
    assert f"resuming at step {kept.step:,}" in err and f"{kept.step + 5:,} steps" in out


@pytest.mark.parametrize(("command", "unbuffered"), [("models", ""), ("recipes", "1"), ("--help", ""), ("--help", "1")])
def test_a_reader_that_leaves_early(command: str, unbuffered: str) -> None:
    """`seqloom models | head -1`"""
    process = subprocess.Popen(
        [sys.executable, "-m", "seqloom", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # before anything was written
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), err) == (0, "")


def test_a_failure_that_quotes_much_keeps_its_beginning_and_its_remedy(capsys: Capture) -> None:
    assert fail(f"file.json: {'x' * 10_000}: do this instead", 4) == 4
    line = one_line(capsys.readouterr().err)
    assert (
        line.startswith("seqloom: error: file.json: xxx") and line.endswith("x: do this instead") and len(line) < 1300
    )
