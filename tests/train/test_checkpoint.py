"""Checkpoints: no instruction at which a save can be killed, no failing disk and no flipped bit loses the run."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqloom import files
from seqloom.errors import FileError, ModelError
from seqloom.train import checkpoint as checkpoints
from seqloom.train.checkpoint import Checkpoint


def example(step: int) -> Checkpoint:
    torch.manual_seed(step)
    tensors = {
        "model": {"weight": torch.randn(7, 5), "bias": torch.randn(5)},
        "optimizer": {"weight:exp_avg": torch.randn(7, 5), "weight:step": torch.tensor(float(step))},
        "carry": {"0": torch.randn(2, 5)},
    }
    return Checkpoint(step, {"step": step, "tokens": 100 * step, "smooth": 1 / 3}, tensors)


def same(a: Checkpoint, b: Checkpoint) -> bool:
    return (
        a.step == b.step
        and a.state == b.state
        and all(torch.equal(t, b.tensors[kind][name]) for kind, part in a.tensors.items() for name, t in part.items())
    )


def test_there_and_back(tmp_path):
    for step in (10, 20, 30):
        checkpoints.save(tmp_path, example(step), keep=2)
    assert checkpoints.steps(tmp_path) == [20, 30]
    assert (tmp_path / "latest").read_text() == "step-30\n"
    assert same(checkpoints.load_latest(tmp_path), example(30))
    assert checkpoints.load_latest(tmp_path / "nothing") is None


# A save in a process of its own, which kills itself at its N-th call of the operating system's file functions.
SAVE_AND_DIE = """
import builtins, os, signal, sys
from pathlib import Path
from seqloom.train import checkpoint as checkpoints
from tests.train.test_checkpoint import example

folder, fatal, planted = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if planted == "manifest first":  # what a careless save would do
    write_json = checkpoints.write_json
    save_tensors = checkpoints.save_tensors
    kept = []
    checkpoints.save_tensors = lambda path, tensors: kept.append((path, tensors))
    checkpoints.sha256 = lambda path: "0" * 64
    def early(path, value):
        write_json(path, value)
        if path.name == "manifest.json":
            for late in kept:
                save_tensors(*late)
    checkpoints.write_json = early
calls = 0
def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call
for name in ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "chmod", "close"):
    setattr(os, name, counted(getattr(os, name)))
builtins.open = counted(builtins.open)
checkpoints.save(folder, example(20), keep=1)
print(calls)
"""


def save_and_die(folder: Path, fatal: int, planted: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", SAVE_AND_DIE, str(folder), str(fatal), planted]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_killed_at_every_file_operation_of_a_save(tmp_path):
    """keep=1 is the hardest case: the old checkpoint is deleted in the same call."""
    base = tmp_path / "base"
    checkpoints.save(base, example(10), keep=1)
    shutil.copytree(base, tmp_path / "count")
    total = int(save_and_die(tmp_path / "count", -1).stdout)
    assert total > 20, "the operations are not seen"
    ended = {10: 0, 20: 0}
    for fatal in range(1, total + 1):
        folder = tmp_path / f"at-{fatal}"
        shutil.copytree(base, folder)
        assert save_and_die(folder, fatal).returncode == -9
        found = checkpoints.load_latest(folder)
        assert found is not None and same(found, example(found.step)), f"lost at operation {fatal}"
        ended[found.step] += 1
        checkpoints.collect(folder, keep=1)
        checkpoints.save(folder, example(20), keep=1)  # and the next save works
        assert same(checkpoints.load_latest(folder), example(20))
        left = [path.name for path in folder.rglob("*") if path.name.endswith(files.TEMPORARY)]
        assert not left, "orphans stay"
    assert all(ended.values()), ended


def test_planted_early_manifest_is_noticed(tmp_path):
    base = tmp_path / "base"
    checkpoints.save(base, example(10), keep=1)
    shutil.copytree(base, tmp_path / "count")
    total = int(save_and_die(tmp_path / "count", -1, "manifest first").stdout)
    lost = 0
    for fatal in range(1, total + 1, 3):
        folder = tmp_path / f"at-{fatal}"
        shutil.copytree(base, folder)
        save_and_die(folder, fatal, "manifest first")
        try:
            found = checkpoints.load_latest(folder)
            lost += found is None or not same(found, example(found.step))
        except ModelError:
            lost += 1
    assert lost > 0


def flips_noticed(folder: Path, count: int, seed: int) -> int:
    rng = random.Random(seed)
    noticed = 0
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    sizes = [path.stat().st_size for path in paths]
    for _ in range(count):
        path = rng.choices(paths, sizes)[0] if rng.random() < 0.5 else rng.choice(paths)
        data = bytearray(path.read_bytes())
        place = rng.randrange(len(data))
        data[place] ^= 1 << rng.randrange(8)
        original = path.read_bytes()
        path.write_bytes(data)
        try:
            checkpoints.load(folder)
        except ModelError:
            noticed += 1
        path.write_bytes(original)
    checkpoints.load(folder)
    return noticed


def test_200_of_200_flipped_bits_are_noticed(tmp_path):
    folder = checkpoints.save(tmp_path, example(10), keep=1)
    assert flips_noticed(folder, 200, 0) == 200


def test_planted_unchecked_hash_is_noticed(tmp_path, monkeypatch):
    folder = checkpoints.save(tmp_path, example(10), keep=1)
    listed = json.loads((folder / "manifest.json").read_text())["sha256"]
    monkeypatch.setattr(checkpoints, "sha256", lambda path: listed.get(path.name))
    assert flips_noticed(folder, 200, 0) < 200


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, capsys):
    for step in (10, 20):
        checkpoints.save(tmp_path, example(step), keep=2)
    path = tmp_path / "step-20" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert same(checkpoints.load_latest(tmp_path), example(10))
    assert "step-20/model.safetensors is damaged" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "step-10")
    with pytest.raises(ModelError, match="no checkpoint is intact"):
        checkpoints.load_latest(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("name", ["fsync", "replace", "open", "mkdir"])
def test_a_failing_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, name, code):
    function = getattr(os, name)
    for nth in range(1, 40):
        folder = tmp_path / str(nth)
        checkpoints.save(folder, example(10), keep=1)
        calls = 0

        def failing(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == nth:  # noqa: B023
                raise OSError(code, os.strerror(code), str(arguments[0]))
            return function(*arguments, **options)

        monkeypatch.setattr(os, name, failing)
        try:
            checkpoints.save(folder, example(20), keep=1)
            if calls < nth:  # the save has no further call that could fail
                break
        except FileError as error:
            assert error.exit_code == 5
        finally:
            monkeypatch.undo()
        found = checkpoints.load_latest(folder)
        assert found is not None and same(found, example(found.step))
    else:
        pytest.fail("the call never got through")


@pytest.mark.parametrize(
    "manifest",
    [
        "[]",
        "{}",
        "null",
        '{"format": 1, "step": 10, "sha256": {"../../outside.json": "00", "state.json": "00"}}',
        '{"format": 1, "step": 10, "sha256": {"/etc/passwd": "00", "state.json": "00"}}',
        '{"format": 2, "step": 10, "sha256": {}}',
        "\x00",
    ],
)
def test_a_hostile_manifest_is_refused(tmp_path, manifest):
    folder = checkpoints.save(tmp_path, example(10), keep=1)
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(ModelError):
        checkpoints.load(folder)
