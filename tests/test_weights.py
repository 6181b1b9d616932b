"""Tensors on disk: there and back; whatever else is in the file, it is refused by name and nothing large is allocated."""

import json
import pickle
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seqloom import weights
from seqloom.errors import ModelError
from seqloom.files import sha256
from seqloom.recipes.library import find_recipe
from seqloom.weights import (
    MAX_HEADER,
    MAX_TENSORS,
    TYPES,
    check_fit,
    fill,
    load_tensors,
    save_tensors,
    shapes_only,
    unique,
)


def example() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {
        "weight": torch.randn(7, 5),
        "half": torch.randn(3).to(torch.bfloat16),
        "steps": torch.tensor(12),
        "empty": torch.zeros(0, 4),
        "layers.0.bias": torch.randn(5, dtype=torch.float64),
        "seen": torch.tensor([True, False]),
    }


def test_there_and_back(tmp_path: Path) -> None:
    tensors = example()
    tensors["turned"] = torch.randn(4, 3).T  # not contiguous
    save_tensors(tmp_path / "a.safetensors", tensors)
    found = load_tensors(tmp_path / "a.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == 0o644
    save_tensors(tmp_path / "none.safetensors", {})
    assert load_tensors(tmp_path / "none.safetensors") == {}


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_its_bytes_are_those_of_the_library_and_are_hashed_on_the_way(
    tmp_path: Path, metadata: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = {f"{'ab'[i % 2]}{i}é": (10 * torch.randn(3, i)).to(kind) for i, kind in enumerate(TYPES)}
    tensors |= {"scalar": torch.tensor(2.0), "long": torch.randn(5000), "turned": torch.randn(4, 3).T}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "theirs", metadata)
    for at_once in (7, 8 << 20):
        monkeypatch.setattr(weights, "AT_ONCE", at_once)
        digest = save_tensors(tmp_path / "ours", tensors, metadata)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
        assert digest == sha256(tmp_path / "theirs")


def test_a_file_that_changes_later_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"a": torch.ones(1000)})
    found = load_tensors(path)["a"]
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert torch.equal(found, torch.ones(1000))


# ---- hostile files


def built(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def entry(shape: Any, begin: Any, end: Any, dtype: Any = "F32", **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


HOSTILE = {
    "empty": b"",
    "seven bytes": b"\0" * 7,
    "no header": b"\0" * 8,
    "header longer than the file": built({}, length=1000),
    "header of 2⁶³ bytes": built({}, length=1 << 63),
    "header over the limit": built(b" " * (MAX_HEADER - 1) + b"{}"),
    "no JSON": built(b"not JSON"),
    "half a JSON": built(b'{"a": '),
    "no UTF-8": built(b'{"\xff": 1}'),
    "a list": built([]),
    "a number": built(5),
    "null": built(None),
    "deep": built(b"[" * 200_000),
    "deep objects": built(b'{"a":' * 100_000),
    "endless number": built(b'{"a": ' + b"9" * 10_000 + b"}"),
    "entry is a list": built({"a": []}),
    "entry is null": built({"a": None}),
    "no shape": built({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, b"1234"),
    "no dtype": built({"a": {"shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    "no offsets": built({"a": {"shape": [1], "dtype": "F32"}}, b"1234"),
    "three offsets": built({"a": {"shape": [1], "dtype": "F32", "data_offsets": [0, 2, 4]}}, b"1234"),
    "offsets are text": built({"a": {"shape": [1], "dtype": "F32", "data_offsets": "04"}}, b"1234"),
    "offsets are floats": built({"a": entry([1], 0.0, 4.0)}, b"1234"),
    "offsets are booleans": built({"a": entry([1], False, True, "U8")}, b"1"),
    "overlap": built({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)),
    "twice the same place": built({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, bytes(4)),
    "gap between": built({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)),
    "gap before": built({"a": entry([1], 4, 8)}, bytes(8)),
    "bytes after": built({"a": entry([1], 0, 4)}, bytes(5)),
    "bytes without tensor": built({}, bytes(4)),
    "truncated": built({"a": entry([2], 0, 8)}, bytes(7)),
    "no data": built({"a": entry([2], 0, 8)}),
    "negative offsets": built({"a": entry([1], -4, 0)}, bytes(4)),
    "backwards": built({"a": entry([1], 4, 0)}, bytes(4)),
    "same name twice": built(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        b"12",
    ),
    "same key twice": built(b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', b"1"),
    "unknown type": built({"a": entry([1], 0, 4, "F128")}, bytes(4)),
    "type is a path": built({"a": entry([1], 0, 4, "../../x")}, bytes(4)),
    "type is a list": built({"a": entry([1], 0, 4, ["F32"])}, bytes(4)),
    "wrong size": built({"a": entry([3], 0, 8)}, bytes(8)),
    "negative": built({"a": entry([-1], 0, -4)}),
    "twice negative": built({"a": entry([-1, -1], 0, 4)}, bytes(4)),
    "huge": built({"a": entry([1 << 62], 0, 1 << 64)}),
    "huge, overflowing to 4": built({"a": entry([1 << 32, 1 << 32], 0, 0)}),
    "nothing times huge": built({"a": entry([0, 1 << 64, 1 << 64], 0, 0)}),
    "nothing times 10¹⁰⁰": built({"a": entry([0, 10**100], 0, 0)}),
    "nine dimensions": built({"a": entry([1] * 9, 0, 4)}, bytes(4)),
    "a million dimensions": built({"a": entry([1] * 1_000_000, 0, 4)}, bytes(4)),
    "float shape": built({"a": entry([1.0], 0, 4)}, bytes(4)),
    "boolean shape": built({"a": entry([True], 0, 4)}, bytes(4)),
    "text shape": built({"a": entry("1", 0, 4)}, bytes(4)),
    "object shape": built({"a": entry({}, 0, 4)}, bytes(4)),
    "NaN shape": built(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)),
    "unprintable name": built({"a\nb": entry([1], 0, 4)}, bytes(4)),
    "endless name": built({"a" * 1000: entry([1], 0, 4)}, bytes(4)),
    "lone surrogate": built(b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
    "metadata is a list": built({"__metadata__": [], "a": entry([1], 0, 4)}, bytes(4)),
    "metadata of numbers": built({"__metadata__": {"a": 1}}),
    "too many tensors": built({f"{i}": entry([0], 0, 0) for i in range(MAX_TENSORS + 1)}),
    "pickle": pickle.dumps({"a": [1, 2, 3]}),
    "old pickle": pickle.dumps({"a": [1, 2, 3]}, protocol=0),
    "zip": b"PK\x03\x04" + bytes(100),
}


# these pass our look at the header and are refused by the library
LIBRARY = {"nothing times huge", "nothing times 10¹⁰⁰", "object shape", "metadata is a list", "metadata of numbers"}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(ModelError) as caught:
        load_tensors(path)
    line = str(caught.value)
    kind = "is damaged: " if name in LIBRARY else "is damaged or no safetensors file: "
    assert line.startswith(f"{path} {kind}") and "\n" not in line and len(line) < 1000


def test_what_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "a.safetensors", tmp_path):
        with pytest.raises(ModelError, match="is missing"):
            load_tensors(path)


@pytest.mark.parametrize("protocol", [1, 2, 5])
def test_a_torch_file_is_refused_and_not_executed(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "a.safetensors"
    for zipped in (True, False):
        torch.save(example(), path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
        with pytest.raises(ModelError, match="damaged"):
            load_tensors(path)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The file with a few bytes changed, dropped, doubled or moved; mostly in its header, where it matters."""
    changed = bytearray(data)
    header = 8 + int.from_bytes(data[:8], "little")
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(max(min(header, len(changed)), 1) if rng.random() < 0.8 else max(len(changed), 1))
        match rng.randrange(7):
            case 0:
                changed[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                changed[place : place + 1] = rng.choice(b'0123456789[]{},:"-.eE').to_bytes(1, "little")
            case 2:
                del changed[place : place + rng.randint(1, 8)]
            case 3:
                changed[place:place] = changed[place : place + rng.randint(1, 40)]
            case 4:
                changed[place:place] = rng.choice((b"99999999", b"-1", b"null", b"1e400", b"NaN", b"[[[[", b"\\ud800"))
            case 5:
                del changed[place:]
            case 6:
                changed += rng.randbytes(rng.randint(1, 8))
    if rng.random() < 0.5 and len(changed) > 8:  # a length that fits, so that the mutation gets past the first check
        end = changed.rfind(b"}") + 1
        changed[:8] = max(end - 8, 0).to_bytes(8, "little")
    return bytes(changed)


def test_1000_mutations_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, example())
    data, rng, refused = path.read_bytes(), random.Random(0), 0
    tracemalloc.start()
    try:
        for _ in range(1000):
            path.write_bytes(mutated(data, rng))
            try:
                load_tensors(path)
            except ModelError:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert 600 < refused < 1000


def test_a_length_that_lies_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    tracemalloc.start()
    try:
        for length in (MAX_HEADER, MAX_HEADER + 1, 1 << 40, (1 << 64) - 1):
            path.write_bytes(built({"a": entry([1 << 40], 0, 1 << 42)}, length=length))
            with pytest.raises(ModelError):
                load_tensors(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# ---- modules


class Tied(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(6, width)
        self.out = nn.Linear(width, 6, bias=False)
        self.out.weight = self.table.weight
        self.norm = nn.BatchNorm1d(width)


def test_shared_tensors_are_stored_once_and_restored(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, other = Tied(), Tied()
    assert "out.weight" not in unique(module) and "table.weight" in unique(module)
    assert "norm.running_mean" in unique(module)
    save_tensors(tmp_path / "a.safetensors", unique(module))
    fill(other, load_tensors(tmp_path / "a.safetensors"), tmp_path)
    assert other.out.weight is other.table.weight
    assert torch.equal(other.out.weight, module.table.weight)
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    module = Tied()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    tensors = {name: tensor.detach().clone() + 1 for name, tensor in unique(module).items()}
    tensors["strange"] = torch.zeros(1)
    del tensors["norm.bias"]
    tensors["table.weight"] = torch.zeros(6, 5)
    for check in (fill, check_fit):
        with pytest.raises(ModelError) as caught:
            check(module, tensors, tmp_path)
        line = str(caught.value)
        assert str(tmp_path) in line
        assert "'norm.bias' is missing" in line and "'strange' is unexpected" in line
        assert "'table.weight' is (6, 5), not (6, 4)" in line
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    with pytest.raises(ModelError, match="and 3 more"):
        fill(module, {}, tmp_path)


def test_models_are_built_without_memory_and_without_chance() -> None:
    def built() -> dict[str, Tensor]:
        return find_recipe("bert-tiny").learner(100).state_dict()

    before = torch.get_rng_state()
    with shapes_only():
        found = built()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(tensor.is_meta for tensor in found.values())
    assert {name: tensor.shape for name, tensor in found.items()} == {n: t.shape for n, t in built().items()}


def test_fit_is_checked_without_memory() -> None:
    with shapes_only():
        huge = nn.Linear(1 << 20, 1 << 20)
    with pytest.raises(ModelError, match=r"'weight' is \(2, 2\), not \(1048576, 1048576\)"):
        check_fit(huge, {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}, Path("run"))
