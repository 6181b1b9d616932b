"""What every unit of a recurrent model does at every token of a text, as one .npz. Karpathy et al., 2015 (arXiv 1506.02078).

layer{i}.{gate}   (T, D) after the token was read; layer{i}.h is what the layer hands on where its gates name no h
tokens            (T,)   ids
offsets           (T, 2) the characters of its line that each token stands for, from and to
borders           (lines + 1,) the tokens of line k are rows borders[k] to borders[k + 1]

Every line is read as a text of its own, from the end token on. Two passes: the first counts, so that the size is known
before anything is computed; the second appends to one file an array, and these are packed one after the other.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import Backbone, Ragged, State, ragged, to_device
from seqloom.errors import DataError, FileError, UsageError
from seqloom.files import TEMPORARY, explained, new_file, replace_file
from seqloom.progress import Progress, human
from seqloom.tokens.tokenizer import Tokenizer

AT_ONCE = 4096  # tokens in memory
Lines = Callable[[], Iterator[str]]  # read twice


def write_cells(backbone: Backbone, tokenizer: Tokenizer, lines: Lines, out: Path, device: torch.device) -> int:
    """Writes the file and returns the number of tokens."""
    if not any(getattr(backbone, "gates", ())):  # an encoder–decoder has none of its own
        raise UsageError("--cells shows the units of recurrent models, and this model has none")
    new_file(out, "--cells")
    sizes = [len(tokenizer.encode(line)) for line in lines()]
    total = sum(sizes)
    widths = {name: values.shape[1] for name, values in activations(backbone, [[tokenizer.end_id]], device).items()}
    arrays: dict[str, tuple[Any, tuple[int, ...]]] = {
        name: (np.float32, (total, width)) for name, width in widths.items()
    }
    arrays |= {
        "tokens": (np.int64, (total,)),
        "offsets": (np.int64, (total, 2)),
        "borders": (np.int64, (len(sizes) + 1,)),
    }
    check_space(out, [int(np.prod(shape)) * np.dtype(kind).itemsize for kind, shape in arrays.values()])
    with explained(out), tempfile.TemporaryDirectory(dir=out.parent, prefix=out.name, suffix=TEMPORARY) as folder:
        paths = {name: Path(folder) / str(i) for i, name in enumerate(arrays)}
        with ExitStack() as opened, Progress("cells", total=float(total), unit="tokens") as bar:
            files = {name: opened.enter_context(open(path, "wb")) for name, path in paths.items()}
            for name, (kind, shape) in arrays.items():
                header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(files[name], header)
            files["borders"].write(np.cumsum([0, *sizes], dtype=np.int64).tobytes())
            written = 0
            for part in rows(backbone, tokenizer, lines(), device):
                for name, values in part.items():
                    files[name].write(np.ascontiguousarray(values, dtype=arrays[name][0]).tobytes())
                written += len(part["tokens"])
                bar.advance(len(part["tokens"]))
        if written != total:
            raise DataError(f"the text changed while it was read: {total:,} tokens at first, then {written:,}")
        replace_file(out, lambda temporary: pack_arrays(temporary, paths))
    return total


def check_space(out: Path, sizes: list[int]) -> None:
    """All arrays, and one of them twice while it is packed."""
    needed = sum(sizes) + max(sizes)
    with explained(out):
        free = shutil.disk_usage(out.parent).free
    if needed > free:
        raise FileError(
            f"{out} would take {needed:,} bytes ({human(needed)}B), its disk has {free:,} free: "
            f"choose another disk, or a shorter text"
        )


def pack_arrays(out: Path, paths: dict[str, Path]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, path in paths.items():
            archive.write(path, f"{name}.npy")
            path.unlink()


def rows(
    backbone: Backbone, tokenizer: Tokenizer, lines: Iterator[str], device: torch.device
) -> Iterator[dict[str, np.ndarray]]:
    """All arrays but the borders, stretch by stretch."""
    waiting: list[tuple[list[int], list[tuple[int, int]]]] = []
    for line in lines:
        waiting.append(tokenizer.encode_with_offsets(line))
        if sum(len(ids) + 1 for ids, _ in waiting) >= AT_ONCE:
            yield from read_texts(backbone, tokenizer.end_id, waiting, device)
            waiting = []
    if waiting:
        yield from read_texts(backbone, tokenizer.end_id, waiting, device)


def read_texts(
    backbone: Backbone, end_id: int, texts: list[tuple[list[int], list[tuple[int, int]]]], device: torch.device
) -> Iterator[dict[str, np.ndarray]]:
    """Short texts together; the last may be long, and is read in pieces, its state carried."""
    *short, (ids, offsets) = texts
    if short:
        found = activations(backbone, [[end_id, *own] for own, _ in short], device)
        kept = np.concatenate([[False] + [True] * len(own) for own, _ in short])  # not what the end token did
        spans = np.array([span for _, own in short for span in own], np.int64).reshape(-1, 2)
        tokens = np.array([token for own, _ in short for token in own], np.int64)
        yield {name: values[kept] for name, values in found.items()} | {"tokens": tokens, "offsets": spans}
    read: list[int] = [end_id, *ids]
    state: State | None = None
    for begin in range(0, len(read), AT_ONCE):
        batch = one_text(read[begin : begin + AT_ONCE], begin)
        found, state = record_units(backbone, batch, state, device)
        skip = 1 if begin == 0 else 0
        here = slice(begin + skip - 1, begin + AT_ONCE - 1)
        spans = np.array(offsets[here], np.int64).reshape(-1, 2)
        tokens = np.array(ids[here], np.int64)
        yield {name: values[skip:] for name, values in found.items()} | {"tokens": tokens, "offsets": spans}


def one_text(ids: list[int], begin: int) -> Ragged:
    return ragged(torch.tensor(ids), torch.tensor([len(ids)]), len(ids), torch.tensor([begin]))


def activations(backbone: Backbone, texts: list[list[int]], device: torch.device) -> dict[str, np.ndarray]:
    lengths = torch.tensor([len(text) for text in texts])
    batch = ragged(torch.tensor([token for text in texts for token in text]), lengths)
    return record_units(backbone, batch, None, device)[0]


@torch.no_grad()
def record_units(
    backbone: Backbone, batch: Ragged, state: State | None, device: torch.device
) -> tuple[dict[str, np.ndarray], State | None]:
    """Every gate and every layer's h at every token of a batch, (T, D) each, by name."""
    output = backbone(to_device(batch, device), state=state, layers=True, maps=True)
    found: dict[str, Tensor] = {}
    for i, (names, gates, hidden) in enumerate(zip(backbone.gates, output.maps, output.layers[1:], strict=True)):
        found[f"layer{i}.h"] = hidden
        found |= {f"layer{i}.{name}": values for name, values in zip(names, gates.unbind(1), strict=True)}
    return {name: values.float().cpu().numpy() for name, values in found.items()}, output.state
