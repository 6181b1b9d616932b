"""Checkpoints: no instruction at which a save can be killed, no failing disk and no flipped bit loses the run."""

import errno
import json
import os
import random
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seqloom import files
from seqloom.errors import FileError, ModelError
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import Checkpoint
from tests.killing import die_at


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


def save_and_die(folder: Path, fatal: int, plant: Callable[[], None] = lambda: None, step: int = 20) -> int:
    def work() -> None:
        plant()
        checkpoints.save(folder, example(step), keep=1)

    return die_at(fatal, work)


PARTS = ("carry.safetensors", "manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")
WHOLE = {"latest", *(f"step-20/{name}" for name in PARTS)}
KIND = files.FolderKind("a test", re.compile(r"[^/]+/(latest|step-\d+/[a-z]+\.(json|safetensors))"), (), lambda _: True)


def listing(folder: Path) -> set[str]:
    return set(files.files_below(folder))


def survivors(tmp_path: Path, plant: Callable[[], None] = lambda: None, step: int = 20) -> dict[int | None, int]:
    """Kills a save at each of its operations; how often which checkpoint was found afterwards. keep=1 is the hardest
    case: the old checkpoint is deleted in the same call. step: that is saved after step 10, or again."""
    base = tmp_path / "base"
    checkpoints.save(base, example(10), keep=1)
    shutil.copytree(base, tmp_path / "count")
    total = save_and_die(tmp_path / "count", -1, plant, step)
    assert total > 20, "the operations are not seen"
    found_steps: dict[int | None, int] = {}
    for fatal in range(1, total + 1):
        folder = tmp_path / f"at-{fatal}"
        shutil.copytree(base, folder)
        assert save_and_die(folder, fatal, plant, step) == -9
        try:
            found = checkpoints.load_latest(folder)
        except ModelError:
            found = None
        newest = found.step if found is not None and same(found, example(found.step)) else None
        found_steps[newest] = found_steps.get(newest, 0) + 1
        checkpoints.collect(folder, keep=1)
        if found is not None:
            assert (folder / "latest").read_text() == f"step-{found.step}\n"
        checkpoints.save(folder, example(20), keep=1)  # and the next save works
        assert same(checkpoints.load_latest(folder), example(20))
        files.remove_leftovers(folder.parent, KIND)
        assert listing(folder) == WHOLE, "orphans stay"
    return found_steps


def test_killed_at_every_file_operation_of_a_save(tmp_path):
    found = survivors(tmp_path)
    assert set(found) == {10, 20}, found


def test_killed_while_the_same_step_is_saved_again(tmp_path):
    """A run that ends where it was saved a moment ago: the only checkpoint is replaced, and never lost."""
    assert set(survivors(tmp_path, step=10)) == {10}


@pytest.mark.long
def test_planted_deletion_before_the_same_step_is_saved_again_is_noticed(tmp_path):
    def plant():
        rename = Path.rename

        def lost(path, target):
            checkpoints.remove(path) if str(target).endswith(".old") else rename(path, target)

        Path.rename = lost

    assert None in survivors(tmp_path, plant, step=10)


@pytest.mark.parametrize("lost", ["manifest.json", "model.safetensors"])
def test_half_a_deleted_checkpoint_is_no_damage(tmp_path, capsys, lost, monkeypatch):
    """Killed while an old one was deleted: its manifest is gone first, so that it is not even tried."""
    for step in (10, 20):
        checkpoints.save(tmp_path, example(step), keep=2)
    monkeypatch.setattr(shutil, "rmtree", lambda path: (path / lost).unlink(missing_ok=True))
    checkpoints.remove(tmp_path / "step-20")
    monkeypatch.undo()
    assert same(checkpoints.load_latest(tmp_path), example(10))
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_planted_early_manifest_is_noticed(tmp_path):
    """What a careless save would do: the manifest before the tensors."""

    def plant():
        write_json, save_tensors, waiting = checkpoints.write_json, checkpoints.save_tensors, []
        checkpoints.save_tensors = lambda path, tensors: waiting.append((path, tensors))
        checkpoints.sha256 = lambda path: "0" * 64

        def early(path, value):
            write_json(path, value)
            if path.name == "manifest.json":
                for late in waiting:
                    save_tensors(*late)

        checkpoints.write_json = early

    assert None in survivors(tmp_path, plant)


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
        except FileError:
            pass
        finally:
            monkeypatch.undo()
        found = checkpoints.load_latest(folder)
        assert found is not None and same(found, example(found.step))
    else:
        pytest.fail("the call never got through")


def held_back(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Saves wait, after their files and before their manifest, until this is set."""
    free, write_json = threading.Event(), checkpoints.write_json

    def wait_and_write(path: Path, value: object) -> str:
        if path.name == "manifest.json":
            assert free.wait(20)
        return write_json(path, value)

    monkeypatch.setattr(checkpoints, "write_json", wait_and_write)
    return free


def test_a_save_in_a_thread_holds_nobody_up_and_does_not_exist_until_it_is_whole(tmp_path, monkeypatch):
    checkpoints.save(tmp_path, example(10), keep=1)
    free = held_back(monkeypatch)
    with checkpoints.Writer() as writer:
        writer.save(tmp_path, example(20), keep=1)
        assert checkpoints.steps(tmp_path) == [10]
        assert same(checkpoints.load_latest(tmp_path), example(10)), "what a kill would leave"
        free.set()
        writer.save(tmp_path, example(30), keep=1)  # waits for the one before
        assert 20 in checkpoints.steps(tmp_path) or 30 in checkpoints.steps(tmp_path)
    assert checkpoints.steps(tmp_path) == [30] and same(checkpoints.load_latest(tmp_path), example(30))


@pytest.mark.parametrize("moment", ["the next save", "the end", "another failure"])
def test_what_a_writer_could_not_write_is_said(tmp_path, monkeypatch, capsys, moment):
    def full(path, tensors):
        raise FileError(f"{path}: the disk is full")

    def work():
        with checkpoints.Writer() as writer:
            writer.save(tmp_path, example(20), keep=1)
            if moment == "the next save":
                writer.save(tmp_path, example(30), keep=1)
                pytest.fail("it says nothing")
            if moment == "another failure":
                raise ValueError("of the training")

    checkpoints.save(tmp_path, example(10), keep=1)
    monkeypatch.setattr(checkpoints, "save_tensors", full)
    with pytest.raises(ValueError if moment == "another failure" else FileError) as raised:
        work()
    monkeypatch.undo()
    if moment == "another failure":
        assert "the last checkpoint was not written" in capsys.readouterr().err
    else:
        assert "step-20" in str(raised.value) and "the disk is full" in str(raised.value)
    assert same(checkpoints.load_latest(tmp_path), example(10))


def test_the_hashes_are_those_of_the_files(tmp_path):
    folder = checkpoints.save(tmp_path, example(10), keep=1)
    listed = json.loads((folder / "manifest.json").read_text())["sha256"]
    assert listed == {name: files.sha256(folder / name) for name in listed} and len(listed) == 4


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


@pytest.mark.parametrize("name", ["model", "carry"])
def test_a_file_that_is_not_listed_is_noticed(name, tmp_path):
    for step in (10, 20):
        checkpoints.save(tmp_path, example(step), keep=2)
    path = tmp_path / "step-20/manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"][f"{name}.safetensors"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=f"does not list {name}.safetensors"):
        checkpoints.load(tmp_path / "step-20")
    assert same(checkpoints.load_latest(tmp_path), example(10))
