"""Checkpoints that survive anything: a kill at any instruction, a full disk, a flipped bit.

A save is a new folder `checkpoints/step-N`; each file in it is written durably, and hashed meanwhile; the manifest with every
file's SHA-256 is written last, and a folder without one does not exist for the reader. `latest` names the newest; resume verifies
what it reads and falls back to the one before, saying so. Nothing is pickled, nothing in a file is executed.

A step that is saved again (stopped where it was saved already, or finished there) is put aside as `step-N.old` until the new one
is complete: a kill in between leaves one of the two. A folder that is deleted loses its manifest first, so that half of it does
not count.
"""

import re
import shutil
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from torch import Tensor

from seqloom.errors import ModelError
from seqloom.files import explained, read_json, sha256, sync, write_bytes, write_json
from seqloom.migrations import CHECKPOINT, NewerFormat, rename_tensors
from seqloom.progress import say
from seqloom.weights import load_tensors, save_tensors

FORMAT = 1  # of the manifest; state.json says its own, which the manifest's hashes protect
FOLDER = re.compile(r"step-(\d{1,12})")
ASIDE = re.compile(r"(step-\d{1,12})\.old")


class Checkpoint(NamedTuple):
    step: int
    state: dict[str, Any]  # counters, cursor, rates: everything that moves and is no tensor
    tensors: dict[str, dict[str, Tensor]]  # "model", "optimizer", "carry"


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    target = folder / f"step-{checkpoint.step}"
    with explained(target):
        folder.mkdir(exist_ok=True)
        if is_complete(target):
            aside = folder / f"{target.name}.old"
            remove(aside)
            target.rename(aside)
        remove(target)
        target.mkdir()
        sync(folder)
    files = {f"{name}.safetensors": tensors for name, tensors in checkpoint.tensors.items()}
    digests = {name: save_tensors(target / name, tensors) for name, tensors in files.items()}
    digests["state.json"] = write_json(target / "state.json", CHECKPOINT.stamp() | checkpoint.state)
    write_json(target / "manifest.json", {"format": FORMAT, "step": checkpoint.step, "sha256": digests})
    name_latest(folder, target.name)
    collect(folder, keep)
    return target


class Writer:
    """Saves in a thread, while the training goes on: one checkpoint at a time. What it is given must not change meanwhile.

    Within it nothing is lost: the next save and the end wait for the one before, and raise what it has raised. Until its manifest
    is written, a checkpoint does not exist, as ever."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    def save(self, folder: Path, checkpoint: Checkpoint, keep: int) -> None:
        self.wait()

        def write() -> None:
            try:
                save(folder, checkpoint, keep)
            except BaseException as error:
                self.failure = error

        self.thread = threading.Thread(target=write, name="seqloom-save")
        self.thread.start()

    def wait(self) -> None:
        """Until what was given is on the disk; raises where it could not be written."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        except Exception as error:
            if kind is None:
                raise
            say(f"warning: the last checkpoint was not written: {error}")


def name_latest(folder: Path, name: str) -> None:
    path, line = folder / "latest", f"{name}\n".encode()
    if not path.is_file() or path.read_bytes() != line:
        write_bytes(path, line)


def is_complete(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def remove(path: Path) -> None:
    """The manifest goes first: half a folder must not look like a whole one."""
    if path.exists():
        if is_complete(path):
            (path / "manifest.json").unlink()
            sync(path)
        shutil.rmtree(path)


def recover(folder: Path) -> None:
    """Brings back what a killed save has put aside and not replaced."""
    if not folder.is_dir():
        return
    with explained(folder):
        for path in list(folder.iterdir()):
            match = ASIDE.fullmatch(path.name)
            if match and is_complete(path) and not is_complete(folder / match[1]):
                remove(folder / match[1])
                path.rename(folder / match[1])


def steps(folder: Path) -> list[int]:
    """The finished checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    found = (FOLDER.fullmatch(path.name) for path in folder.iterdir() if is_complete(path))
    return sorted(int(match[1]) for match in found if match)


def collect(folder: Path, keep: int) -> None:
    """Removes all but the newest `keep` checkpoints, and folders that killed saves have left."""
    recover(folder)
    if not folder.is_dir():
        return
    with explained(folder):
        kept = {f"step-{step}" for step in steps(folder)[-keep:]}
        for path in list(folder.iterdir()):
            if ASIDE.fullmatch(path.name) or (FOLDER.fullmatch(path.name) and path.name not in kept):
                remove(path)


def load(path: Path) -> Checkpoint:
    """Verifies one checkpoint against its manifest and reads it."""
    try:
        manifest = read_json(path / "manifest.json")
        listed = manifest["sha256"]
        if manifest["format"] != FORMAT or path.name != f"step-{manifest['step']}" or "state.json" not in listed:
            raise ModelError(f"{path / 'manifest.json'} is not of this version")
        lost = {file.name for file in path.glob("*.safetensors")} - set(listed)
        if lost:
            raise ModelError(f"{path / 'manifest.json'} is damaged: it does not list {min(lost)}")
        for name, digest in listed.items():
            if not re.fullmatch(r"[a-z]+\.(safetensors|json)", name) or sha256(path / name) != digest:
                raise ModelError(f"{path / name} is damaged: its SHA-256 is not the one in the manifest")
        tensors = {
            name.removesuffix(".safetensors"): rename_tensors(load_tensors(path / name))
            for name in listed
            if name.endswith(".safetensors")
        }
        state = CHECKPOINT.migrate(read_json(path / "state.json"), path / "state.json")
        return Checkpoint(
            manifest["step"], {key: state[key] for key in state if key not in CHECKPOINT.stamp()}, tensors
        )
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({type(error).__name__}: {error})") from error


def load_latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that verifies, which `latest` names from now on; None if there never was one."""
    recover(folder)
    found = steps(folder)
    for step in reversed(found):
        try:
            loaded = load(folder / f"step-{step}")
        except NewerFormat:
            raise
        except ModelError as error:
            say(f"warning: {error}" + ("; falling back to the checkpoint before it" if step > found[0] else ""))
            continue
        name_latest(folder, f"step-{step}")
        return loaded
    if found:
        raise ModelError(f"{folder}: no checkpoint is intact; start again with --overwrite")
    return None
