"""Durable files: the old one or the new one, in an order that a power cut cannot break; one folder, one process."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seqloom import files
from seqloom.errors import BusyError, FileError, UsageError
from seqloom.files import TEMPORARY, explained, read_json, replace_file, sole_owner, sync, write_bytes, write_json

Replace = Callable[[Path, Callable[[Path], None]], None]


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, 2.5, None, "ü"]})
    assert read_json(path) == {"a": [1, 2.5, None, "ü"]}
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert files.sha256(path) == "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [-float("inf")]}])
def test_a_number_that_is_none_reaches_no_file(tmp_path: Path, value: object) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a.json", value)
    assert os.listdir(tmp_path) == []


class Broken(Exception):
    pass


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt])
def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a"
    write_bytes(path, b"old")

    def write(temporary: Path) -> None:
        temporary.write_bytes(b"ne")
        raise error

    with pytest.raises(error):
        replace_file(path, write)
    assert path.read_bytes() == b"old"
    assert set(os.listdir(tmp_path)) <= {"a", "a" + TEMPORARY}
    write_bytes(path, b"new")  # what was left over is in nobody's way
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["fsync", "replace", "open"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failing_disk_leaves_the_old_or_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    path = tmp_path / "a"
    real, failed = getattr(os, name), 0
    for nth in range(4):
        write_bytes(path, b"old")
        calls = 0

        def failing(*arguments, **options):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            if calls == nth + 1:  # noqa: B023
                raise OSError(code, os.strerror(code), str(path))
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            try:
                write_bytes(path, b"new")
            except FileError:
                failed += 1
        assert path.read_bytes() in (b"old", b"new")
    assert failed >= 1


def order_of(replace: Replace, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a replacement asks of the operating system, in order: write, fsync file, rename, fsync folder."""
    seen: list[str] = []
    target = folder / "a"
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append("fsync folder" if path == folder else f"fsync {path.name.removeprefix('a') or 'target'}")
        real_fsync(descriptor)

    def rename(source: Path, destination: Path) -> None:
        seen.append(f"rename {'over target' if Path(destination) == target else destination}")
        real_replace(source, destination)

    def write(temporary: Path) -> None:
        seen.append("write target" if temporary == target else f"write {temporary.name.removeprefix('a')}")
        temporary.write_bytes(b"new")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "replace", rename)
        replace(target, write)
    assert target.read_bytes() == b"new"
    return seen


RIGHT = [f"write {TEMPORARY}", f"fsync {TEMPORARY}", "rename over target", "fsync folder"]


def test_the_order_of_a_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert order_of(replace_file, tmp_path.resolve(), monkeypatch) == RIGHT


def rename_before_fsync(path: Path, write: Callable[[Path], None]) -> None:
    temporary = path.with_name(path.name + TEMPORARY)
    write(temporary)
    os.replace(temporary, path)
    sync(path)
    sync(path.parent)


def no_fsync_of_the_folder(path: Path, write: Callable[[Path], None]) -> None:
    temporary = path.with_name(path.name + TEMPORARY)
    write(temporary)
    sync(temporary)
    os.replace(temporary, path)


def in_place(path: Path, write: Callable[[Path], None]) -> None:
    write(path)
    sync(path)


@pytest.mark.parametrize("planted", [rename_before_fsync, no_fsync_of_the_folder, in_place])
def test_a_planted_wrong_order_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Replace) -> None:
    assert order_of(planted, tmp_path.resolve(), monkeypatch) != RIGHT


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "no permission"),
        (errno.EPERM, "not permitted"),
        (errno.EROFS, "read-only"),
        (errno.ENOENT, "no such file"),
        (errno.EISDIR, "this is a folder"),
        (errno.ENOTDIR, "a part of this path is a file"),
        (errno.EIO, "input/output error"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_a_system_error_becomes_one_line(code: int, words: str) -> None:
    for filename in (None, "elsewhere"):
        with pytest.raises(FileError) as caught, explained(Path("here")):
            raise OSError(code, os.strerror(code), filename)
        assert caught.value.exit_code == 5
        assert str(caught.value).startswith(f"{filename or 'here'}: ") and words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_other_errors_pass_through() -> None:
    with pytest.raises(KeyError), explained(Path("here")):
        raise KeyError


# ---- one folder, one process

HOLD = """
import sys
from pathlib import Path
from seqloom.files import sole_owner
with sole_owner(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""
TRY = """
import sys
from pathlib import Path
from seqloom.errors import SeqloomError
from seqloom.files import sole_owner
try:
    with sole_owner(Path(sys.argv[1])):
        pass
except SeqloomError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@contextmanager
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def attempt(folder: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", TRY, str(folder)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def test_a_second_process_is_told_who_the_owner_is(tmp_path: Path) -> None:
    folder = tmp_path / "new/run"
    with owner(folder) as process:
        code, line = attempt(folder)
        assert code == BusyError.exit_code == 8
        assert f"{folder} is in use by process {process.pid} on " in line and " since 2" in line
        process.communicate("\n", timeout=20)
        assert process.returncode == 0
        assert attempt(folder) == (0, "")


def test_the_lock_of_a_killed_owner_is_recovered(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    assert f"process {process.pid} " in (tmp_path / "lock").read_text()
    with sole_owner(tmp_path):
        assert f"process {os.getpid()} " in (tmp_path / "lock").read_text()
        assert attempt(tmp_path)[0] == 8
    assert attempt(tmp_path) == (0, "")


def test_a_failure_inside_frees_the_folder(tmp_path: Path) -> None:
    with pytest.raises(Broken), sole_owner(tmp_path):
        raise Broken
    with sole_owner(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_a_file_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError), sole_owner(tmp_path / "file/run"):
        pass
    with pytest.raises(UsageError, match="is a file, not a folder"), sole_owner(tmp_path / "file"):
        pass


def test_json_that_is_none_raises_what_callers_catch(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff{")
    with pytest.raises(ValueError):  # noqa: PT011 - either of its two kinds
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(json.JSONDecodeError):
        read_json(tmp_path / "a.json")
    with pytest.raises(FileError, match="no such file"):
        read_json(tmp_path / "none.json")
