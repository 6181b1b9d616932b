"""A folder as `transformers` keeps it: config.json and weights, in one file or several.

Names in it choose from what lies in the folder itself, and headers are checked before anything is read. A pickle is read
in a process of its own that may build tensors and nothing else.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from seqloom.convert import unpickle
from seqloom.errors import ModelError, UsageError
from seqloom.files import explained, parse_json
from seqloom.weights import MAX_HEADER, load_tensors, read_shapes

WHOLE = "model.safetensors"
INDEX = f"{WHOLE}.index.json"
PICKLE = "pytorch_model.bin"
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\.safetensors")
MAX_FILES = 1000
PATIENCE = 600  # seconds for reading a pickle


class Weights(NamedTuple):
    shapes: dict[str, tuple[int, ...]]
    files: list[Path]

    def read(self) -> dict[str, Tensor]:
        return {name: tensor for file in self.files for name, tensor in load_tensors(file).items()}


def read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder: give one with config.json and {WHOLE}, or hub:NAME")
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} has no config.json: it is not the folder of a model")
    return read_object(path)


def read_object(path: Path, limit: int = MAX_HEADER) -> dict[str, Any]:
    with explained(path):
        if path.stat().st_size > limit:
            raise ModelError(f"{path} is larger than {limit >> 20} MB, too large for this file")
        raw = path.read_bytes()
    try:
        found = parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} does not contain a JSON object")
    return found


@contextmanager
def open_weights(folder: Path) -> Iterator[Weights]:
    """Names and shapes; what a pickle held lies in files for as long as this is open."""
    if (folder / WHOLE).is_file():
        yield Weights(read_shapes(folder / WHOLE), [folder / WHOLE])
    elif (folder / INDEX).is_file():
        yield read_index(folder)
    elif (folder / PICKLE).is_file():
        with tempfile.TemporaryDirectory(prefix="seqloom-") as place:
            file = Path(place) / WHOLE
            read_pickle(folder / PICKLE, file)
            yield Weights(read_shapes(file), [file])
    else:
        raise ModelError(f"{folder} has no weights: neither {WHOLE} nor {INDEX} nor {PICKLE}")


def read_index(folder: Path) -> Weights:
    path = folder / INDEX
    listed = read_object(path).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise ModelError(f"{path} has no weight_map")
    wrong = [name for name in listed.values() if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name)]
    if wrong:
        raise ModelError(f"{path}: {str(wrong[0])[:60]!r} is not the plain name of a safetensors file in this folder")
    names = sorted(set(listed.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or len(names) > MAX_FILES:
        raise ModelError(f"{path}: {missing[0]} is missing" if missing else f"{path}: more than {MAX_FILES} files")
    shapes: dict[str, tuple[int, ...]] = {}
    for file in names:
        found = read_shapes(folder / file)
        unlisted = [name for name in found if listed.get(name) != file]
        if unlisted:
            raise ModelError(f"{path} does not list {unlisted[0]!r} in {file}, where it is")
        shapes |= found
    absent = [name for name in listed if name not in shapes]
    if absent:
        raise ModelError(f"{path}: {listed[absent[0]]} has no tensor {absent[0][:60]!r}")
    return Weights(shapes, [folder / name for name in names])


def read_pickle(path: Path, target: Path) -> None:
    command = [sys.executable, "-I", str(Path(unpickle.__file__)), str(path.resolve()), str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{path} could not be read in {PATIENCE} seconds: convert it to safetensors") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(
            f"{path} is not a plain file of tensors, so it was not read ({last[:200]}): if you trust it, convert it to "
            f"safetensors"
        )
