"""Durable files: a file is either the old one or the new one, never half of it, whatever kills the process.

Every byte that must survive goes through `replace_file`: temporary name, flush, fsync, rename, fsync of the folder.
"""

import errno
import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqloom.errors import BusyError, FileError, UsageError

TEMPORARY = ".tmp"  # what a killed writer leaves behind ends so, and is collected at the next start


def new_file(path: Path, option: str, *endings: str) -> Path:
    """Where a result may be written; asked before anything is computed, and nothing is overwritten."""
    if endings and path.suffix not in endings:
        raise UsageError(f"{option} {path}: name a file that ends in {' or '.join(endings)}")
    if path.exists():
        raise UsageError(f"{path} exists already: choose another file for {option}")
    if not path.parent.is_dir():
        raise FileError(f"{path}: no such file or folder: there is no folder {path.parent}")
    return path


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file beside `path`, then puts it in place durably."""
    temporary = path.with_name(path.name + TEMPORARY)
    with explained(path):
        write(temporary)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            file.write(data)

    replace_file(path, write)


def write_json(path: Path, value: Any) -> None:
    """Strict JSON: a NaN in a record is a bug that must not reach a reader."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    with explained(path):
        return json.loads(path.read_text(encoding="utf-8"))


def sync(path: Path) -> None:
    """Forces a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an operating-system error into one line that says which file and what to do."""
    try:
        yield
    except OSError as error:
        remedy = {
            errno.ENOSPC: "the disk is full: free some space, then run the same command again",
            errno.EDQUOT: "the disk quota is used up: free some space, then run the same command again",
            errno.EACCES: "no permission: choose a folder that you may write to, or change its rights",
            errno.EPERM: "not permitted: choose a folder that you may write to",
            errno.EROFS: "the file system is read-only: choose another folder",
            errno.ENOENT: "no such file or folder",
            errno.EISDIR: "this is a folder, a file was expected",
            errno.ENOTDIR: "a part of this path is a file, a folder was expected",
            errno.EIO: "the disk reports an input/output error",
        }.get(error.errno or 0, error.strerror or str(error))
        if error.errno == errno.ENOENT and not path.parent.exists():
            raise FileError(f"{path}: {remedy}: there is no folder {path.parent}") from error
        raise FileError(f"{error.filename or path}: {remedy}") from error


def make_folder(folder: Path) -> None:
    """With those above it; one that is there stays as it is."""
    if folder.is_file():
        raise UsageError(f"{folder} is a file, and a folder is wanted: choose another --out")
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """One folder, one process. The kernel drops the lock with its owner, so a killed one blocks nobody."""
    make_folder(folder)
    with explained(folder):
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 1024, 0).decode(errors="replace").strip() or "another process"
            raise BusyError(f"{folder} is in use by {owner}: wait for it, stop it, or choose another folder") from None
        record = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        with explained(folder):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, record.encode(), 0)
        yield
    finally:
        os.close(descriptor)
