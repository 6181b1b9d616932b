"""Pictures with captions, and features of their regions, out of files.

    captions.jsonl   {"image": "a.png", "captions": ["a dog", …]}, or "caption" with one
    captions.tsv     image, tab, caption; an image may have several rows
    a folder         with one of the two in it; pictures that no row names are left out, and counted

Paths stand relative to the file that names them, or are absolute. PNG, JPEG and PPM are read by Pillow (extra `vision`); the
header is checked before a pixel is decoded, so that no file can ask for more memory than MAX_PIXELS need. An image that ends in
.npz is an array `regions` (R, D) of published features, read without pickle.
"""

import importlib.util
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError, ModelError, UsageError
from seqloom.files import parse_json
from seqloom.text.labelled import text_of
from seqloom.text.pairs import lines
from seqloom.text.read import file_extension, file_format
from seqloom.text.tables import say_once

FORMATS = {"PNG": (".png",), "JPEG": (".jpg", ".jpeg"), "PPM": (".ppm", ".pgm", ".pbm", ".pnm")}
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)
FEATURES = ".npz"
MAX_PIXELS = 50_000_000
MAX_BYTES = 256 << 20  # of a file
MAX_REGIONS = 1 << 14
LEAST_SIDE = 4  # pixels
PNG_MARK = b"\x89PNG\r\n\x1a\n"
INSTALL = 'pip install "seqloom[vision]"'
# what decoders raise about files that are damaged, or of kinds that they do not know
DAMAGED = (
    OSError, EOFError, ValueError, SyntaxError, TypeError, ArithmeticError, LookupError, RuntimeError,
    struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip


class Captioned(NamedTuple):
    """A picture and what is said of it."""

    image: Path
    captions: tuple[str, ...]
    place: str  # file:line
    row: Mapping[str, Any]  # all fields of a jsonl


def pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise ModelError(f"pictures need 'Pillow': {INSTALL}") from None
    return Image, ImageOps


def read_image(path: Path, side: int, place: str = "") -> np.ndarray:
    """(side, side, 3) uint8: the whole picture, resized. DataError with its place where it cannot be used."""
    where = f"{place}: {path}" if place else str(path)
    check_file(path, where)
    if importlib.util.find_spec("PIL") is None and path.suffix.lower() == ".png":
        return read_plain_png(path, side, where)
    image, turn = pillow()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pillow, about sizes that are checked here
        try:
            with image.open(path) as opened:
                check_header(opened, path, where)
                opened.draft("RGB", (2 * side, 2 * side))  # a large JPEG is decoded at a fraction of its size
                opened.load()
                found = turn.exif_transpose(opened)
                if found.mode in ("RGBA", "LA", "PA") or "transparency" in found.info:
                    clear = found.convert("RGBA")
                    found = image.alpha_composite(image.new("RGBA", clear.size, (255, 255, 255, 255)), clear)
                found = found.convert("RGB")
                if found.size != (side, side):
                    found = found.resize((side, side), image.Resampling.BILINEAR)
                return np.asarray(found, np.uint8)
        except image.DecompressionBombError:
            raise DataError(f"{where}: more than {MAX_PIXELS:,} pixels: make it smaller") from None
        except image.UnidentifiedImageError:
            raise DataError(f"{where}: no PNG, JPEG or PPM: convert it, or leave it out") from None
        except DAMAGED as error:
            raise DataError(f"{where}: damaged or truncated ({brief(error)}): replace it, or leave it out") from None


def brief(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__


def read_plain_png(path: Path, side: int, where: str) -> np.ndarray:
    """The same without Pillow, of pictures that `seqloom scenes` has drawn: 8 bits RGB, no filter, of the right size."""
    data = path.read_bytes()
    at, packed = 8, b""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    plain = data[:8] == PNG_MARK and data[12:16] == b"IHDR" and data[16:29] == header
    while plain and at + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    try:
        rows = zlib.decompressobj().decompress(packed, side * (3 * side + 1) + 1) if plain else b""
    except zlib.error:
        rows = b""
    found = np.frombuffer(rows, np.uint8)
    if found.size != side * (3 * side + 1) or found.reshape(side, -1)[:, 0].any():
        raise ModelError(f"{where}: no plain PNG of {side} × {side} pixels, and others need 'Pillow': {INSTALL}")
    return found.reshape(side, -1)[:, 1:].reshape(side, side, 3)


def check_file(path: Path, where: str) -> None:
    try:
        there = path.is_file()
        size = path.stat().st_size if there else 0
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise DataError(f"{where}: cannot be opened ({error.strerror}): check the path and its rights") from None
    if not there:
        raise DataError(
            f"{where}: there is no such picture: check the path, which is relative to the file that names it"
        )
    if size > MAX_BYTES:
        raise DataError(f"{where}: larger than {MAX_BYTES >> 20} MB: make it smaller")


def check_header(opened: Any, path: Path, where: str) -> None:
    """What can be refused before a pixel is decoded. opened: by pillow."""
    if opened.format not in FORMATS:
        raise DataError(f"{where}: its format is {opened.format}: convert it to PNG, JPEG or PPM")
    if path.suffix.lower() not in FORMATS[opened.format]:
        raise DataError(
            f"{where}: its content is {opened.format}: rename it to {FORMATS[opened.format][0]}, if it is meant"
        )
    if getattr(opened, "n_frames", 1) > 1:
        raise DataError(f"{where}: an animation of {opened.n_frames} pictures: save one of them")
    if is_deep(opened):
        raise DataError(f"{where}: more than 8 bits a channel: convert it to 8")
    if opened.mode == "CMYK":
        raise DataError(f"{where}: its colours are CMYK, for print: convert it to RGB")
    width, height = opened.size
    if width * height > MAX_PIXELS:
        raise DataError(f"{where}: {width:,} × {height:,} is more than {MAX_PIXELS:,} pixels: make it smaller")
    if min(width, height) < LEAST_SIDE:
        raise DataError(f"{where}: {width} × {height} pixels: at least {LEAST_SIDE} × {LEAST_SIDE} are needed")


def is_deep(opened: Any) -> bool:
    """Whether a channel has more than 8 bits, of which pillow drops the lower ones where there are several channels."""
    parts = [part for tile in opened.tile for part in (tile[3] if isinstance(tile[3], tuple) else (tile[3],))]
    depth = any(";16" in part if isinstance(part, str) else isinstance(part, int) and part > 255 for part in parts)
    return depth or opened.mode[0] in "IF"


def read_regions(path: Path, width: int, place: str = "") -> np.ndarray:
    """(R, width) float32 features of a picture's regions. The header is checked before memory is taken."""
    where = f"{place}: {path}" if place else str(path)
    check_file(path, where)
    try:
        with zipfile.ZipFile(path) as packed:
            name = next((each for each in packed.namelist() if each in ("regions.npy", "features.npy")), None)
            if name is None:
                raise DataError(f"{where}: no array 'regions' in it: save features with np.savez(file, regions=…)")
            with packed.open(name) as member:
                version = np.lib.format.read_magic(member)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(member)
    except DAMAGED as error:
        raise DataError(f"{where}: no .npz of numpy ({brief(error)}): replace it") from None
    if len(shape) != 2 or dtype.kind != "f":
        raise DataError(f"{where}: shape {shape} of {dtype}: regions are numbers (R, D)")
    if shape[1] != width:
        raise DataError(
            f"{where}: features of {shape[1]} numbers, the model reads {width}: set model.features={shape[1]}"
        )
    if not 1 <= shape[0] <= MAX_REGIONS:
        raise DataError(f"{where}: {shape[0]:,} regions: a picture has 1 to {MAX_REGIONS:,}")
    try:
        with np.load(path, allow_pickle=False) as found, np.errstate(over="ignore"):
            values = found[name.removesuffix(".npy")].astype(np.float32)
    except DAMAGED as error:
        raise DataError(f"{where}: damaged ({brief(error)}): replace it") from None
    if not np.isfinite(values).all():
        raise DataError(f"{where}: some of its numbers are not finite: compute the features anew")
    return values


# ---- captions


def captions_file(path: Path) -> Path:
    """The file of captions itself, or the one in a folder."""
    if not path.is_dir():
        return path
    for name in ("captions.jsonl", "captions.tsv"):
        if (path / name).is_file():
            return path / name
    raise DataError(
        f"{path}: no captions.jsonl and no captions.tsv in this folder: a picture needs a caption to learn from"
    )


def read_captions(paths: Sequence[Path]) -> list[Captioned]:
    """Every picture with its captions, in order."""
    found: list[Captioned] = []
    for given in paths:
        path = captions_file(given)
        form = file_format(path)
        if form == "jsonl":
            rows = list(json_rows(path))
        elif file_extension(path) == "tsv":
            rows = list(tsv_rows(path))
        else:
            raise UsageError(
                f"{path}: captions are a .jsonl, a .tsv (image, tab, caption), or a folder with one of them"
            )
        if not rows:
            raise DataError(f"{path}: no captions: the file is empty")
        rows = one_row_each(rows, path)
        if given.is_dir():
            say_without_captions(given, rows)
        found += rows
    return found


def one_row_each(rows: Sequence[Captioned], path: Path) -> list[Captioned]:
    """The rows of one picture, wherever they stand, as one; a caption that it has already is left out and reported."""
    found: dict[Path, Captioned] = {}
    repeated = []
    for row in rows:
        before = found.setdefault(row.image, row)
        if before is not row:
            more = [each for each in row.captions if each not in before.captions]
            repeated += [row.place] if len(more) < len(row.captions) else []
            found[row.image] = Captioned(row.image, (*before.captions, *more), before.place, {})
    if repeated:
        first = ", ".join(repeated[:3])
        say_once(
            f"{path}: {len(repeated):,} rows repeat a caption of their picture, which is left out (first: {first})"
        )
    return list(found.values())


def say_without_captions(folder: Path, rows: Sequence[Captioned]) -> None:
    named = {row.image.resolve() for row in rows}
    without = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.resolve() not in named
    )
    if without:
        first = ", ".join(map(str, without[:3]))
        say_once(f"{folder}: {len(without):,} pictures without captions are left out (first: {first})")


def json_rows(path: Path) -> Iterator[Captioned]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f'{place}: not an object with "image" and "captions"')
        given = [row["caption"]] if "captions" not in row and "caption" in row else row.get("captions")
        if not isinstance(given, list) or not given:
            raise DataError(f'{place}: no "captions": give a list of texts')
        try:
            image = text_of(row, "image")
            texts = tuple(" ".join(text_of({"a caption": each}, "a caption").split()) for each in given)
        except ValueError as wrong:
            raise DataError(f"{place}: {wrong}") from None
        yield Captioned(path.parent / image, texts, place, row)


def tsv_rows(path: Path) -> Iterator[Captioned]:
    for number, line in enumerate(lines(path), 1):
        place = f"{path}:{number}"
        columns = line.split("\t")
        if not line.strip() or (number == 1 and [each.lower() for each in columns] == ["image", "caption"]):
            continue
        if len(columns) != 2 or not all(each.strip() for each in columns):
            raise DataError(f"{place}: {len(columns)} columns with text: a row is an image, a tab and its caption")
        yield Captioned(path.parent / columns[0].strip(), (" ".join(columns[1].split()),), place, {})
