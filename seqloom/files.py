"""Durable files: a file is either the old one or the new one, never half of it, whatever kills the process.

Every byte that must survive goes through `replace_file`: temporary name, flush, fsync, rename, fsync of the folder.
"""

import errno
import hashlib
import importlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import BusyError, DataError, FileError, ModelError, UsageError

fcntl: Any
try:
    import fcntl
except ImportError:  # on Windows, where files are locked and forced to the disk in another way
    fcntl = None

TEMPORARY = ".tmp"  # what a killed writer leaves behind ends so, and is removed at the next start
SCRATCH = re.compile(r"\.tmp[A-Za-z0-9]{6}")  # what safetensors writes into before it renames


def new_file(path: Path, option: str, *endings: str) -> Path:
    """Where a result may be written; asked before anything is computed, and nothing is overwritten."""
    if endings and path.suffix not in endings:
        raise UsageError(f"{option} {path}: name a file that ends in {' or '.join(endings)}")
    if path.exists():
        raise UsageError(f"{path} exists already: choose another file for {option}")
    if not path.parent.is_dir():
        raise FileError(f"{path}: no such file or folder: there is no folder {path.parent}")
    return path


def check_run_folder(folder: Path) -> None:
    """Raises ModelError for a folder that is no run: asked before anything heavy is imported."""
    if not (folder / "config.json").is_file():
        if not folder.exists():
            raise ModelError(f"{folder} is not a run folder: there is no such folder")
        raise ModelError(f"{folder} is not a run folder: it has no config.json")


def check_prepared_folder(folder: Path) -> None:
    """Raises DataError where there is no folder of prepared text: asked before anything heavy is imported."""
    if not folder.exists():
        raise DataError(f"{folder}: no such folder: make it with 'seqloom prepare TEXT... --out {folder}'")


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file beside `path`, then puts it in place durably."""
    temporary = path.with_name(path.name + TEMPORARY)
    with explained(path):
        write(temporary)
        sync(temporary)
        replace(temporary, path)
        sync(path.parent)


def replace(temporary: Path, path: Path) -> None:
    """Renames a file over another one. Windows refuses while anybody reads the old one, a virus scanner for example."""
    for pause in (0.01, 0.1, 1.0) if fcntl is None else ():
        with suppress(PermissionError):
            os.replace(temporary, path)
            return
        time.sleep(pause)
    os.replace(temporary, path)


def write_bytes(path: Path, data: bytes) -> str:
    """Returns the SHA-256 of what was written."""

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            file.write(data)

    replace_file(path, write)
    return hashlib.sha256(data).hexdigest()


def write_json(path: Path, value: Any) -> str:
    """Strict JSON: a NaN in a record is a bug that must not reach a reader. Returns the SHA-256 of what was written."""
    return write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    with explained(path):
        return parse_json(path.read_text(encoding="utf-8"))


def read_record(path: Path, remedy: str) -> dict[str, Any]:
    """A JSON object that seqloom has written; one that is damaged is said in one line, with what to do."""
    try:
        found = read_json(path)
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({str(error)[:200]}): {remedy}") from error
    return found


HALF = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON spells half of a character
HALVES = re.compile("[\ud800-\udfff]")


def parse_json(text: str | bytes) -> Any:
    """Any file's JSON. A half of a character (\\ud800) is an error here, because no later step could write or encode it."""
    value = json.loads(text)
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if HALF.search(text) and HALVES.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("half of a character (a lone surrogate such as \\ud800)")
    return value


def sync(path: Path) -> None:
    """Forces a file or a folder to the disk; on Windows a file, because folders cannot be opened there."""
    if fcntl is None and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if fcntl is not None else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(record: dict[str, Any]) -> str:
    """The SHA-256 of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


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
    """Makes a folder and those above it; an existing one stays as it is."""
    if folder.is_file():
        raise UsageError(f"{folder} is a file, not a folder: choose another --out")
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


class FolderKind(NamedTuple):
    """What seqloom writes into one kind of folder: all that `--overwrite` may ever remove from it."""

    name: str  # "a run", "a comparison"
    files: re.Pattern[str]  # of their paths below the folder; temporary files and the lock are known without it
    folders: tuple[str, ...]  # that hold nothing of anybody else's
    is_one: Callable[[Path], bool]  # by a file that only seqloom writes
    last: str = ""  # the file by which it is known is removed last: a kill in between leaves what can be cleared again


def clear_folder(folder: Path, kind: FolderKind) -> None:
    """Remove what seqloom has written into a folder of this kind. Refuses, before anything is removed, folders that are somebody
    else's or hold anything besides."""
    check_clearable(folder, kind)
    with explained(folder):
        for path in sorted(files_below(folder), key=lambda path: (path == kind.last, path)):
            if path != "lock":
                (folder / path).unlink(missing_ok=True)
        for top in kind.folders:
            if (folder / top).is_dir():
                for place, _, _ in os.walk(folder / top, topdown=False):
                    os.rmdir(place)


def check_clearable(folder: Path, kind: FolderKind) -> None:
    """Raises UsageError where `clear_folder` would refuse."""
    if contents(folder, kind):
        if is_protected(folder):
            raise UsageError(
                f"{folder} is the home folder, the working folder or above one of them: --overwrite never clears it; "
                f"choose another --out"
            )
        if not kind.is_one(folder):
            raise UsageError(f"{folder} is not empty and does not hold {kind.name}: choose another --out")
        foreign = next((path for path in files_below(folder) if not is_known(path, kind)), None)
        if foreign is not None:
            raise UsageError(
                f"{folder} holds {foreign!r}, which is not part of {kind.name}: move it elsewhere, or choose another --out"
            )


def contents(folder: Path, kind: FolderKind) -> list[str]:
    """Names of what a folder holds, apart from the lock and what killed writers have left."""
    names = (entry.name for entry in folder.iterdir())
    return [name for name in names if name != "lock" and not (is_temporary(name) and is_known(name, kind))]


def remove_leftovers(folder: Path, kind: FolderKind) -> None:
    """Removes what killed writers have left, at any depth. For the owner of the folder; files of unknown names stay."""
    with explained(folder):
        for path in list(files_below(folder)):
            if is_temporary(Path(path).name) and is_known(path, kind):
                (folder / path).unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY) or SCRATCH.fullmatch(name) is not None


def files_below(folder: Path) -> Iterator[str]:
    """Paths of all files, and of links to anywhere, which are not followed."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in sorted((*files, *links)):
            yield str((Path(place) / name).relative_to(folder))


def is_known(path: str, kind: FolderKind) -> bool:
    """Whether a path below a folder of this kind is one that seqloom writes, or the temporary form of one."""
    if SCRATCH.fullmatch(Path(path).name):  # known where weights are
        return any(is_known(str(Path(path).with_name(f"{name}.safetensors")), kind) for name in ("backbone", "model"))
    return path == "lock" or kind.files.fullmatch(path.removesuffix(TEMPORARY)) is not None


def is_protected(folder: Path) -> bool:
    """The working folder, the user's home, and every folder above them, up to the root."""
    here, kept = folder.resolve(), [Path.cwd()]
    with suppress(RuntimeError):  # nobody's home is known
        kept.append(Path.home().resolve())
    return any(here == place or here in place.parents for place in kept)


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """One folder, one process. The kernel drops the lock with its owner, so a killed one blocks nobody. A call that fails before
    it has written anything leaves nothing behind: neither the lock nor a folder that was not there."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    make_folder(folder)
    with explained(folder):
        before = {entry.name for entry in folder.iterdir()}
        descriptor = lock(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if "lock" not in before and {entry.name for entry in folder.iterdir()} == before | {"lock"}:
                (folder / "lock").unlink()
                for place in missing:
                    place.rmdir()
        raise
    finally:
        os.close(descriptor)


def lock(folder: Path) -> int:
    """An open file that no other process has locked."""
    while True:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            lock_file(descriptor)
            if not is_file(folder / "lock", descriptor):  # whoever held it has removed it in between
                os.close(descriptor)
                continue
            record = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, record.encode())
            return descriptor
        except BlockingIOError:
            os.lseek(descriptor, 0, os.SEEK_SET)
            owner = os.read(descriptor, 1024).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise BusyError(f"{folder} is in use by {owner}: wait for it, stop it, or choose another folder") from None
        except BaseException:
            os.close(descriptor)
            raise


LOCKED_BYTE = 1 << 30  # Windows locks bytes, and nobody can read them then: one far behind the record


def lock_file(descriptor: int) -> None:
    """Raises BlockingIOError where another process has the lock; it falls with the process."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    windows = importlib.import_module("msvcrt")
    os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
    try:
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EDEADLK):
            raise BlockingIOError(error.errno, "locked") from error
        raise


def is_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
