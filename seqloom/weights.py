"""Tensors on disk: safetensors only, checked before anything is allocated, so that a file from a stranger can be read."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as parse_tensors
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seqloom.errors import ModelError
from seqloom.files import explained, replace_file

DRAWS = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "xavier_uniform_", "xavier_normal_")
MAX_HEADER = 16 << 20
MAX_TENSORS = 100_000
MAX_DIMENSIONS = 8
AT_ONCE = 8 << 20  # bytes that are written and hashed
TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
WRITTEN = ["BOOL", "U8", "I8", "I16", "F16", "BF16", "I32", "F32", "F64", "I64"]  # the last of them first
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within it models are built without memory."""
    with torch.device("meta"), Undrawn():
        yield


class Undrawn(TorchFunctionMode):
    """Nothing is drawn: what has no memory keeps no values, and torch would load its compiler, for a second, to draw them."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> str:
    """Writes a safetensors file, the same bytes that its own library writes, and returns their SHA-256, which is made on the way:
    large files are not read again, and no second copy of the tensors is made."""
    header, order = _header(tensors, metadata)
    digest = hashlib.sha256()

    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            for part in itertools.chain([memoryview(header)], (_bytes_of(tensors[name]) for name in order)):
                for begin in range(0, len(part), AT_ONCE):
                    file.write(part[begin : begin + AT_ONCE])
                    digest.update(part[begin : begin + AT_ONCE])

    replace_file(path, write)
    return digest.hexdigest()


def _header(tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> tuple[bytes, list[str]]:
    """The head of a file, and the order of the tensors in it: wide types first, so that all are aligned."""
    types = {name: TYPES[tensor.dtype] for name, tensor in tensors.items()}
    order = sorted(tensors, key=lambda name: (-WRITTEN.index(types[name]), name))
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    reached = 0
    for name in order:
        size = tensors[name].numel() * BYTES[types[name]]
        entries[name] = {
            "dtype": types[name], "shape": list(tensors[name].shape), "data_offsets": [reached, reached + size],
        }  # fmt: skip
        reached += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, order


def _bytes_of(tensor: Tensor) -> memoryview:
    plain = tensor.detach().contiguous().cpu().reshape(-1)
    return plain.view(torch.uint8).numpy().data if plain.numel() else memoryview(b"")


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes in a file, without its numbers."""
    with explained(path), open(path, "rb") as file:
        return _check_header(path, file.read(8), file, path.stat().st_size)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a whole file. It is not mapped: a file that changes later must not change a model in use."""
    with explained(path):
        if not path.is_file():
            raise ModelError(f"{path} is missing: the run is unfinished or damaged; pretrain it again or --resume it")
        size = path.stat().st_size
        with open(path, "rb") as file:
            _check_header(path, file.read(8), file, size)
            file.seek(0)
            data = file.read()
    try:
        return parse_tensors(data)
    except Exception as error:
        raise ModelError(f"{path} is damaged: {error}") from error


def _check_header(path: Path, prefix: bytes, file: Any, size: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a header in which everything fits: names, types, sizes, and the file's length."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > MAX_HEADER or 8 + length > size:
        raise _damaged(path, f"its header claims {length:,} bytes, the file has {size:,}")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise _damaged(path, "a name occurs twice")
        return dict(pairs)

    try:
        header = json.loads(file.read(length), object_pairs_hook=no_duplicates)
        header.pop("__metadata__", None)
        if len(header) > MAX_TENSORS:
            raise _damaged(path, f"{len(header):,} tensors, at most {MAX_TENSORS:,} are read")
        spans = [_check_entry(path, name, entry) for name, entry in header.items()]
        _check_spans(path, spans, size - 8 - length)
        return {name: tuple(entry["shape"]) for name, entry in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, f"unreadable header ({type(error).__name__})") from error


def _damaged(path: Path, what: str) -> ModelError:
    shown = what if len(what) < 200 else what[:199] + "…"  # a stranger's file may have much to quote
    return ModelError(f"{path} is damaged or no safetensors file: {shown}")


def _check_entry(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """Where the tensor of an entry begins and ends, if its name, type, shape and size are sound."""
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if len(name) > 512 or not name.isprintable():
        raise _damaged(path, "a tensor has an unprintable or endless name")
    if entry["dtype"] not in BYTES:
        raise _damaged(path, f"tensor '{name}' has the unknown type {entry['dtype']!r}")
    if len(shape) > MAX_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise _damaged(path, f"tensor '{name}' has the shape {shape}")
    size = math.prod(shape) * BYTES[entry["dtype"]]
    if type(begin) is not int or type(end) is not int or end - begin != size:
        raise _damaged(path, f"the size of tensor '{name}' does not fit its shape {shape}")
    return begin, end


def _check_spans(path: Path, spans: list[tuple[int, int]], size: int) -> None:
    """The tensors lie one after another and fill the file."""
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise _damaged(path, "its tensors overlap or leave gaps")
        reached = end
    if reached != size:
        raise _damaged(path, f"its tensors need {reached:,} bytes, the file has {size:,}")


def unique(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module with each shared tensor once, under its first name."""
    seen: set[Tensor] = set()
    kept = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if tensor not in seen:
            seen.add(tensor)
            kept[name] = tensor
    return kept


def fill(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Puts tensors into a module; every name and shape must fit."""
    check_fit(module, tensors, path)
    module.load_state_dict(tensors, strict=False)  # a shared tensor is filled through its first name


def check_fit(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    own = unique(module)
    wrong = [f"'{name}' is missing" for name in own if name not in tensors]
    wrong += [f"'{name}' is unexpected" for name in tensors if name not in own]
    wrong += [
        f"'{name}' is {tuple(tensors[name].shape)}, not {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ModelError(f"{path} does not fit the model of config.json: {'; '.join(wrong[:3])}{more}")
