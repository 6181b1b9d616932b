"""Writes vectors of many texts to one file, in bounded memory and in the order of the texts.

.npz     `embeddings` (N, D); with a vector for each token (T, D), and `offsets` (N+1,): those of text k are rows offsets[k] to
         offsets[k + 1]
.jsonl   {"text", "embedding"} on each line; with a vector for each token {"text", "tokens", "embeddings"}
"""

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.files import TEMPORARY, explained, new_file, replace_file
from seqloom.tokens.tokenizer import Tokenizer

Encode = Callable[[Sequence[str], Sequence[str]], Iterable[np.ndarray]]  # texts, and where they are from, for messages


class Written(NamedTuple):
    shape: tuple[int, ...]
    empty: int  # texts without a token
    first_empty: str  # where the first of them is


def write_vectors(
    encode: Encode,
    tokenizer: Tokenizer,
    batches: Iterable[tuple[list[str], list[str]]],
    out: Path,
    each_token: bool,
) -> Written:
    """Writes the file. batches: some texts at a time, and where each is from."""
    new_file(out, "--out", ".npz", ".jsonl")
    sizes: list[int] = []
    empty: list[str] = []
    shape: tuple[int, ...] = ()
    with explained(out), tempfile.TemporaryDirectory(dir=out.parent, prefix=out.name, suffix=TEMPORARY) as folder:
        rows = Path(folder) / "rows"
        with open(rows, "wb") as file:
            for texts, names in batches:
                for text, name, part in zip(texts, names, encode(texts, names), strict=True):
                    if not part.any():
                        empty.append(name)
                    sizes.append(len(part) if each_token else 1)
                    shape = part.shape[1:] if each_token else part.shape
                    file.write(part.tobytes() if out.suffix == ".npz" else json_row(text, part, tokenizer, each_token))
        if not sizes:
            raise DataError("there is no text to embed: the file is empty")
        shape = (sum(sizes), *shape)
        offsets = np.cumsum([0, *sizes]) if each_token else None
        if out.suffix == ".npz":
            replace_file(out, lambda path: pack(path, rows, shape, offsets))
        else:
            replace_file(out, lambda path: os.replace(rows, path))
    return Written(shape, len(empty), empty[0] if empty else "")


def json_row(text: str, part: np.ndarray, tokenizer: Tokenizer, each_token: bool) -> bytes:
    row = {"text": text, "embedding": part.tolist()}
    if each_token:
        row = {
            "text": text,
            "tokens": [tokenizer.token(i) for i in tokenizer.encode(text)],
            "embeddings": part.tolist(),
        }
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def pack(path: Path, rows: Path, shape: tuple[int, ...], offsets: np.ndarray | None) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("embeddings.npy", "w", force_zip64=True) as target, open(rows, "rb") as source:
            header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(target, header)
            shutil.copyfileobj(source, target, 1 << 20)
        if offsets is not None:
            with archive.open("offsets.npy", "w", force_zip64=True) as target:
                np.lib.format.write_array(target, offsets)
