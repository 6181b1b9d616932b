"""Where the modules of Unix are missing: everything can be imported, and a run goes from text to an evaluated model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.cli import run
from tests.training.material import prepared

SCRIPT = Path(__file__).with_name("windows.py")
ROOT = SCRIPT.parents[1]
SMALL = [
    "--set",
    "model.dim=16",
    "--set",
    "batches.streams=4",
    "--set",
    "batches.length=16",
    "--set",
    "valid.limit=200",
]


def on_windows(*arguments: object) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_every_module_can_be_imported() -> None:
    done = on_windows("import")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 200


@pytest.mark.slow
def test_from_text_to_an_evaluated_run(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the cat number {i} sees the dog number {i * 7 % 50}\n" for i in range(400)))
    data, out = tmp_path / "data", tmp_path / "run"
    done = on_windows("prepare", text, "--out", data, "--valid", "0.1", "--tokenizer", "word", "--workers", "1")
    assert done.returncode == 0, done.stderr
    budget = ["--set", "train.save_every=5", "--set", "budget.steps=12"]
    done = on_windows("pretrain", "lstm-tiny", "--data", data, "--out", out, *SMALL, *budget)
    assert done.returncode == 0, done.stderr
    assert (out / "checkpoints" / "latest").read_text().strip() == "step-12"
    done = on_windows("evaluate", out, "--data", data, "--json")
    assert done.returncode == 0 and "perplexity" in done.stdout, done.stderr
    # what was made there can be used here
    assert run(["evaluate", str(out), "--data", str(data), "--json"]) == 0


@pytest.mark.slow
def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """Held there, it is in use for others; and when its owner is gone, it is free."""
    data, held = prepared(tmp_path / "data", 50), tmp_path / "run"
    script = (
        f"import sys, torch; sys.path.insert(0, {str(ROOT)!r}); from tests.windows import hide_unix; hide_unix()\n"
        f"from pathlib import Path; from seqloom.files import sole_owner\n"
        f"with sole_owner(Path({str(held)!r})):\n    print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "held\n"
        call = ("pretrain", "lstm-tiny", "--data", data, "--out", held, *SMALL, "--set", "budget={steps=2}")
        done = on_windows(*call)
        assert done.returncode == 8 and f"in use by process {owner.pid} " in done.stderr, done.stderr
        owner.communicate("")
    done = on_windows(*call)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("refusals", [2, 9])
def test_a_rename_that_is_refused_is_tried_again(
    refusals: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqloom import files
    from seqloom.errors import FileError

    real, tries = os.replace, 0

    def scanned(source: Path, target: Path) -> None:
        nonlocal tries
        tries += 1
        if tries <= refusals:
            raise PermissionError(13, "Permission denied", str(target))
        real(source, target)

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(files.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(files.os, "replace", scanned)
    if refusals < 4:
        files.write_bytes(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"new"
    else:
        with pytest.raises(FileError):
            files.write_bytes(tmp_path / "file", b"new")
        assert tries == 4
