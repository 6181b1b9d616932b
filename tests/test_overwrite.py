"""--overwrite removes what seqloom wrote and nothing else; a refused call leaves the folder as it was."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from seqloom import files
from seqloom.cli import run
from seqloom.convert.huggingface import export_folder
from seqloom.files import FolderKind, clear_folder, sole_owner
from tests.training.material import prepared

SMALL = ["--set", "model.dim=20", "--set", "model.num_layers=1", "--set", "batches.budget=256", "--tokens", "600"]


def tree(folder):
    """Every file with its content; of a lock only that it is there."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {name: path.read_bytes() if path.is_file() and name != "lock" else None for name, path in files.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("overwrite")
    data = prepared(place / "data", 60)
    assert run(["pretrain", "gpt2-tiny", "--data", str(data), "--out", str(place / "run"), *SMALL]) == 0
    (place / "text.txt").write_text("a small text .\n" * 40)
    export_folder(place / "run", place / "exported")
    return place


def commands(place, out):
    """Every command that clears a folder, as it would be called for one that is in the way."""
    return {
        "pretrain": ["pretrain", "gpt2-tiny", "--data", str(place / "data"), "--out", str(out), *SMALL],
        "prepare": ["prepare", str(place / "text.txt"), "--out", str(out), "--tokenizer", "byte", "--keep-duplicates"],
        "export": ["export", str(place / "run"), "--out", str(out)],
        "import": ["import", str(place / "exported"), "--out", str(out)],
        "compare": ["compare", "classroom", "--out", str(out)],
    }


@pytest.mark.parametrize("command", ["pretrain", "prepare", "export", "import", "compare"])
@pytest.mark.parametrize("held", ["thesis", "config", "data"])
def test_what_is_not_ours_is_never_deleted(place, tmp_path, capsys, command, held):
    out = tmp_path / "mine"
    (out / "photos").mkdir(parents=True)
    (out / "photos/me.jpg").write_bytes(b"\xff\xd8")
    # names that seqloom uses, too, in a folder that it did not make
    name = {"thesis": "thesis.tex", "config": "config.json", "data": "manifest.json"}[held]
    (out / name).write_text(json.dumps({"name": "my project"}))
    before = tree(out)
    for more in ([], ["--overwrite"]):
        assert run([*commands(place, out)[command], *more]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "choose another" in error
        assert tree(out) == before, "neither a lost file nor a lock"


@pytest.mark.parametrize("command", ["pretrain", "prepare", "export"])
def test_a_foreign_file_among_ours_stops_it(place, tmp_path, capsys, command):
    made = {"pretrain": "run", "prepare": "data", "export": "exported"}[command]
    out = shutil.copytree(place / made, tmp_path / "out")
    (out / "notes").mkdir()
    (out / "notes/diary.txt").write_text("dear diary")
    before = tree(out)
    assert run([*commands(place, out)[command], "--overwrite"]) == 2
    assert "notes/diary.txt" in capsys.readouterr().err
    assert tree(out) == before
    shutil.rmtree(out / "notes")
    assert run([*commands(place, out)[command], "--overwrite"]) == 0


def test_a_link_is_removed_not_followed(place, tmp_path):
    out, elsewhere = shutil.copytree(place / "run", tmp_path / "out"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "letter.txt").write_text("dear")
    (out / "metrics.json").unlink()
    (out / "metrics.json").symlink_to(elsewhere / "letter.txt")
    assert run([*commands(place, out)["pretrain"], "--overwrite"]) == 0
    assert (elsewhere / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize("where", ["here", "above", "home"])
def test_the_working_folder_and_home_are_never_cleared(place, tmp_path, capsys, monkeypatch, where):
    out = shutil.copytree(place / "run", tmp_path / "out")
    (out / "below").mkdir()
    before = tree(out)
    if where == "home":
        monkeypatch.setenv("HOME", str(out))
    else:
        monkeypatch.chdir(out if where == "here" else out / "below")
    target = "." if where == "here" else out
    call = [*commands(place, target)["pretrain"], "--overwrite"]
    assert run(call) == 2
    assert "never clears it" in capsys.readouterr().err
    assert tree(out) == before


def test_a_refused_call_leaves_no_folder_and_no_lock(tmp_path):
    for folder in (tmp_path / "a/b/c", tmp_path):
        with pytest.raises(ValueError, match="wrong"), sole_owner(folder):
            raise ValueError("wrong")
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "kept"
    with pytest.raises(FileNotFoundError), sole_owner(kept):
        shutil.copy(kept / "lock", kept / "result") and shutil.copy(kept / "nothing", kept)
    assert sorted(os.listdir(kept)) == ["lock", "result"], "what was begun keeps its owner's lock"


def test_a_lock_that_was_removed_in_between_holds_nobody(tmp_path, monkeypatch):
    """Whoever opened the file before its owner removed it must not believe that it owns the folder."""
    real, removed = files.fcntl.flock, []

    def flock(descriptor, mode):
        if not removed:  # between opening and locking, the owner before leaves
            removed.append((tmp_path / "lock").unlink())
        real(descriptor, mode)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    call = [sys.executable, "-c", "import sys; from pathlib import Path; from seqloom.files import sole_owner\n"
            "with sole_owner(Path(sys.argv[1])): pass", str(tmp_path)]  # fmt: skip
    with sole_owner(tmp_path):
        other = subprocess.run(call, capture_output=True, text=True)
    assert "BusyError" in other.stderr


def test_planted_a_pattern_that_is_too_wide_is_noticed(place, tmp_path):
    """The check of foreign files works by the pattern alone: with one that takes everything the diary is lost."""
    import re

    out = shutil.copytree(place / "run", tmp_path / "out")
    (out / "diary.txt").write_text("dear diary")
    clear_folder(out, FolderKind("a run", re.compile(".*"), (), lambda folder: True))
    assert not (out / "diary.txt").exists()
