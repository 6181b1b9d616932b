"""Pictures and captions out of files: what is read, and what is refused with its place."""

import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seqloom.batches.pictures import Pictures, PictureSize
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.text import images
from seqloom.text.images import read_captions, read_image, read_plain_png, read_regions
from seqloom.text.scenes import png
from tests.mutation import damaged

PEAK = """
import resource, sys
from pathlib import Path
from seqloom.errors import DataError
from seqloom.text.images import pillow, read_image, read_regions
pillow()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name in sys.argv[1:]:
    try:
        read_regions(Path(name), 8) if name.endswith("npz") else read_image(Path(name), 16)
    except DataError:
        print("refused")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (24, 24, 3), np.uint8)


def saved(path, pixels=PIXELS, mode="RGB", **options):
    Image.fromarray(pixels).convert(mode).save(path, **options)
    return path


def header_only(path, width, height):
    """A PNG that says how large it is, and has next to nothing in it."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    return path


def test_what_is_drawn_is_read_again(tmp_path):
    (tmp_path / "a.png").write_bytes(png(PIXELS))
    assert np.array_equal(read_image(tmp_path / "a.png", 24), PIXELS)
    assert np.array_equal(read_plain_png(tmp_path / "a.png", 24, "a"), PIXELS)
    assert read_image(tmp_path / "a.png", 8).shape == (8, 8, 3)


def test_without_pillow(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(png(PIXELS))
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda name: None)
    assert np.array_equal(read_image(tmp_path / "a.png", 24), PIXELS)
    with pytest.raises(ModelError, match="seqloom\\[vision\\]"):
        read_image(tmp_path / "a.png", 16)
    (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:200])
    with pytest.raises(ModelError, match="Pillow"):
        read_image(tmp_path / "c.png", 24)


def test_other_forms_of_the_same(tmp_path):
    for name, mode, options in (
        ("a.ppm", "RGB", {}), ("a.png", "RGB", {}), ("p.png", "P", {}), ("g.pgm", "L", {}), ("o.png", "1", {}),
    ):  # fmt: skip
        found = read_image(saved(tmp_path / name, mode=mode, **options), 24)
        assert found.shape == (24, 24, 3) and found.dtype == np.uint8
        assert mode != "RGB" or np.array_equal(found, PIXELS)
    smooth = np.full((24, 24, 3), (200, 30, 90), np.uint8)
    assert abs(read_image(saved(tmp_path / "a.jpg", smooth), 24).astype(int) - smooth).max() < 12


def test_what_is_clear_is_white(tmp_path):
    clear = np.zeros((8, 8, 4), np.uint8)
    Image.fromarray(clear).save(tmp_path / "a.png")
    assert (read_image(tmp_path / "a.png", 8) == 255).all()


def test_pictures_are_turned_as_they_say(tmp_path):
    tall = np.zeros((8, 8, 3), np.uint8)
    tall[:4] = 255
    exif = Image.Exif()
    exif[274] = 3  # upside down
    Image.fromarray(tall).save(tmp_path / "a.jpg", exif=exif, quality=95)
    found = read_image(tmp_path / "a.jpg", 8)
    assert found[:3].mean() < 40 and found[5:].mean() > 215


def truncated(path):
    data = (saved(path)).read_bytes()
    path.write_bytes(data[: len(data) // 2])


def animated(path):
    frames = [Image.fromarray(RNG.integers(0, 256, (24, 24, 3), np.uint8)) for _ in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def cmyk(path):
    Image.fromarray(PIXELS).convert("CMYK").save(path)


def png_of(header, rows, more=b""):
    """A PNG of a header's numbers and raw rows."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    parts = (
        chunk(b"IHDR", struct.pack(">IIBBBBB", *header)),
        more,
        chunk(b"IDAT", zlib.compress(rows)),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def deep_png():
    return png_of((8, 8, 16, 2, 0, 0, 0), (b"\0" + b"\1\2" * 24) * 8)


def text_bomb():
    data = b"zTXta\0\0" + zlib.compress(bytes(20_000_000), 9)
    text = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return png_of((8, 8, 8, 2, 0, 0, 0), (b"\0" + b"\1" * 24) * 8, text)


def huge_jpeg():
    found = io.BytesIO()
    Image.fromarray(PIXELS).save(found, "JPEG")
    data = bytearray(found.getvalue())
    sizes = data.find(b"\xff\xc0") + 5
    data[sizes : sizes + 4] = struct.pack(">HH", 60_000, 60_000)
    return bytes(data)


BAD = {
    "truncated.png": (truncated, "damaged or truncated"),
    "truncated.jpg": (truncated, "damaged or truncated"),
    "animated.png": (animated, "animation of 3 pictures"),
    "deep.png": (lambda path: Image.fromarray(np.zeros((9, 9), np.uint16)).save(path), "bits a channel: convert it to 8"),
    "deep-colours.png": (lambda path: path.write_bytes(deep_png()), "more than 8 bits a channel"),
    "deep.ppm": (lambda path: path.write_bytes(b"P6\n8 8\n65535\n" + b"\1\2" * 192), "more than 8 bits a channel"),
    "deep.pgm": (lambda path: path.write_bytes(b"P5\n8 8\n65535\n" + b"\1\2" * 64), "more than 8 bits a channel"),
    "bomb.jpg": (lambda path: path.write_bytes(huge_jpeg()), "more than 50,000,000 pixels"),
    "bomb.ppm": (lambda path: path.write_bytes(b"P6\n100000 100000\n255\n" + b"\0" * 99), "more than 50,000,000 pixels"),
    "truncated.ppm": (truncated, "damaged or truncated"),
    "text-bomb.png": (lambda path: path.write_bytes(text_bomb()), "damaged or truncated"),
    "pipe.png": (lambda path: os.mkfifo(path), "no such picture"),
    "loop.png": (lambda path: path.symlink_to(path.name), "no such picture"),
    "device.png": (lambda path: path.symlink_to("/dev/zero"), "no such picture"),
    "print.jpg": (cmyk, "CMYK"),
    "dot.png": (lambda path: saved(path, PIXELS[:1, :1]), "1 × 1 pixels"),
    "bomb.png": (lambda path: header_only(path, 100_000, 100_000), "more than 50,000,000 pixels"),
    "wide.png": (lambda path: header_only(path, 20_000, 5_000), "20,000 × 5,000 is more than"),
    "wrong.png": (lambda path: path.write_bytes(saved(path.with_suffix(".jpg")).read_bytes()), "its content is JPEG"),
    "gif.png": (lambda path: path.write_bytes(saved(path.with_suffix(".gif")).read_bytes()), "its format is GIF"),
    "text.png": (lambda path: path.write_text("no picture at all"), "no PNG, JPEG or PPM"),
    "empty.png": (lambda path: path.write_bytes(b""), "no PNG, JPEG or PPM"),
    "missing.png": (lambda path: None, "no such picture"),
    "folder.png": (lambda path: path.mkdir(), "no such picture"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures_are_refused_with_their_place(name, tmp_path):
    make, message = BAD[name]
    make(tmp_path / name)
    with pytest.raises(DataError, match=f"captions.tsv:7: .*{name}: .*{message}") as error:
        read_image(tmp_path / name, 16, "captions.tsv:7")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a" * 300 + ".npz"])
def test_names_that_no_disk_takes(name, tmp_path):
    read = (
        (lambda path: read_regions(path, 8, "c.tsv:7"))
        if name.endswith("npz")
        else (lambda path: read_image(path, 16, "c.tsv:7"))
    )
    with pytest.raises(DataError, match=r"c\.tsv:7: .*cannot be opened \(File name too long\)"):
        read(tmp_path / name)


def test_bombs_take_no_memory(tmp_path):
    """Measured by the system: decoders take memory behind Python's back."""
    for name in BAD:
        if "bomb" in name:
            BAD[name][0](tmp_path / name)
    npz(tmp_path / "shape.npz", "(16385, 8)", bytes(100))
    npz(tmp_path / "width.npz", "(4, 8000000000)", bytes(100))
    npz(tmp_path / "long.npz", "(4, 8)", bytes(100_000_000))  # what stands behind the array is not read
    found = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run([sys.executable, "-c", PEAK, *found], capture_output=True, text=True, check=True, timeout=60)
    *refused, kilobytes = done.stdout.split()
    assert len(refused) == len(found) - 1 and int(kilobytes) < 30_000


def npz(path, shape, data):
    """An .npz whose array says that it has this shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("regions.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def test_a_file_that_is_too_large_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="larger than"):
        read_image(saved(tmp_path / "a.png"), 16)


# ---- features of regions


def test_features(tmp_path):
    values = RNG.normal(size=(5, 8)).astype(np.float16)
    np.savez(tmp_path / "a.npz", regions=values)
    assert np.allclose(read_regions(tmp_path / "a.npz", 8), values)
    np.savez(tmp_path / "b.npz", features=values.astype(np.float64), other=np.ones(3))
    assert read_regions(tmp_path / "b.npz", 8).dtype == np.float32


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"regions": np.ones((5, 7))}, "features of 7 numbers, the model reads 8: set model.features=7"),
        ({"regions": np.ones(5)}, "shape \\(5,\\)"),
        ({"regions": np.ones((5, 8), int)}, "shape \\(5, 8\\) of int64"),
        ({"regions": np.ones((0, 8))}, "0 regions"),
        ({"regions": np.full((2, 8), np.nan)}, "not finite"),
        ({"vectors": np.ones((5, 8))}, "no array 'regions'"),
        ({"regions": np.array([[object()] * 8])}, "shape \\(1, 8\\) of object"),
    ],
)
def test_bad_features(arrays, message, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_regions(tmp_path / "a.npz", 8, "x:1")


def test_features_that_are_damaged(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, regions=np.ones((50, 8)))
    (tmp_path / "a.npz").write_bytes(buffer.getvalue()[:300])
    (tmp_path / "b.npz").write_bytes(b"PK no zip")
    for name in ("a.npz", "b.npz"):
        with pytest.raises(DataError, match=r"no \.npz of numpy|damaged"):
            read_regions(tmp_path / name, 8)


class Executed:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "executed")


def test_a_pickle_is_never_executed(tmp_path):
    mark = tmp_path / "mark"
    inside = np.empty((1, 8), object)
    inside[:] = Executed(mark)
    np.savez(tmp_path / "a.npz", regions=inside)
    np.savez(tmp_path / "b.npz", regions=np.ones((2, 8)), other=inside)
    (tmp_path / "c.npz").write_bytes(pickle.dumps(Executed(mark)))
    inside.dump(tmp_path / "d.npz")
    with pytest.raises(DataError, match="of object"):
        read_regions(tmp_path / "a.npz", 8)
    assert read_regions(tmp_path / "b.npz", 8).shape == (2, 8)
    for name in ("c.npz", "d.npz"):
        with pytest.raises(DataError, match=r"no \.npz of numpy"):
            read_regions(tmp_path / name, 8)
    assert not mark.exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as unsafe:  # planted: this is what it would have done
        assert unsafe["regions"].shape == (1, 8) and mark.exists()


def fuzz(count, folder):
    rng, files = random.Random(1), {}
    turned = Image.Exif()
    turned[274] = 6
    forms = {
        "a.png": {}, "b.png": {"mode": "P"}, "c.png": {"exif": turned}, "a.jpg": {}, "b.jpg": {"mode": "L", "progressive": True},
        "c.jpg": {"exif": turned}, "a.ppm": {}, "a.pgm": {"mode": "L"},
    }  # fmt: skip
    for name, options in forms.items():
        files[name] = saved(folder / name, **options).read_bytes()
    for name, save in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        save(folder / name, regions=np.linspace(0, 1, 240).reshape(30, 8))
        files[name] = (folder / name).read_bytes()
    for number in range(count):
        name = list(files)[number % len(files)]
        (folder / name).write_bytes(damaged(files[name], rng))
        try:
            if name.endswith(".npz"):
                found = read_regions(folder / name, 8, "c.tsv:1")
                assert found.shape[1] == 8 and np.isfinite(found).all()
            else:
                assert read_image(folder / name, 16, "c.tsv:1").shape == (16, 16, 3)
        except DataError as refused:
            said = str(refused)
            assert said.startswith("c.tsv:1: ") and "\n" not in said and len(said) < 400 + len(str(folder))


def test_some_damaged_pictures(tmp_path):
    fuzz(400, tmp_path)


@pytest.mark.long
def test_thousands_of_damaged_pictures(tmp_path):
    fuzz(20_000, tmp_path)


@pytest.mark.parametrize("damage", ["deflate", "method", "encrypted"])
def test_archives_that_cannot_be_unpacked(damage, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", regions=np.linspace(0, 1, 240).reshape(30, 8))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    entry = data.find(b"PK\x01\x02")
    if damage == "deflate":
        data[60:80] = b"\xff" * 20
    elif damage == "method":
        data[8] = data[entry + 10] = 99
    else:
        data[6] |= 1
        data[entry + 8] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(DataError, match=r"no \.npz of numpy|damaged"):
        read_regions(tmp_path / "a.npz", 8)


# ---- captions


@pytest.mark.parametrize("way", ["absolute", "above", "link"])
def test_pictures_may_lie_anywhere(way, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
    saved(outside / "a.png")
    (inside / "linked").symlink_to(outside)
    name = {"absolute": str(outside / "a.png"), "above": "../out/a.png", "link": "linked/a.png"}[way]
    (inside / "captions.tsv").write_text(f"{name}\ta dog\n")
    (row,) = read_captions([inside])
    assert Pictures(PictureSize(16, 16)).read(row.image, row.place).shape == (16, 16, 3)


def test_rows_of_one_picture_become_one(tmp_path, capsys):
    rows = [{"image": name, "caption": text} for name, text in (("a.png", "one"), ("b.png", "two"), ("a.png", "three"))]
    rows += [{"image": "a.png", "captions": ["one", "four"]}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "c.tsv").write_text("a.png\tone\nb.png\ttwo\na.png\tthree\na.png\tone\na.png\tfour\n")
    for name in ("c.jsonl", "c.tsv"):
        assert [row.captions for row in read_captions([tmp_path / name])] == [("one", "three", "four"), ("two",)]
        said = " ".join(capsys.readouterr().err.split())
        assert f"1 rows repeat a caption of their picture, which is left out (first: {tmp_path / name}:4)" in said


def test_captions_of_jsonl_and_tsv(tmp_path):
    rows = [{"image": "a.png", "captions": ["one  dog", "a dog"], "id": 3}, {"image": "sub/b.png", "caption": "cats"}]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    found = read_captions([tmp_path])
    assert [row.captions for row in found] == [("one dog", "a dog"), ("cats",)]
    assert found[1].image == tmp_path / "sub" / "b.png" and found[1].place.endswith("captions.jsonl:2")
    (tmp_path / "c.tsv").write_text("image\tcaption\na.png\tone\nb.png\ttwo\na.png\tthree\n")
    found = read_captions([tmp_path / "c.tsv"])
    assert [row.captions for row in found] == [("one", "three"), ("two",)]


def test_pictures_without_captions_are_said(tmp_path, capsys):
    (tmp_path / "captions.tsv").write_text("a.png\tone\n")
    for name in ("a.png", "b.png", "c.jpg"):
        (tmp_path / name).write_bytes(b"")
    for _ in range(2):  # as training does: for the vocabulary, and for the pairs
        assert len(read_captions([tmp_path])) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert (
        said.count(f"2 pictures without captions are left out (first: {tmp_path / 'b.png'}, {tmp_path / 'c.jpg'})") == 1
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.tsv", "a.png\tone\nb.png\n", "c.tsv:2: 1 columns"),
        ("c.tsv", "a.png\t \n", "c.tsv:1: 2 columns with text"),
        ("c.tsv", "", "no captions: the file is empty"),
        ("c.jsonl", '{"image": "a.png"}\n', 'c.jsonl:1: no "captions"'),
        ("c.jsonl", '{"captions": ["a"]}\n', 'c.jsonl:1: no "image"'),
        ("c.jsonl", '{"image": "a.png", "captions": []}\n', 'no "captions"'),
        ("c.jsonl", '{"image": "a.png", "captions": [3]}\n', "not a string"),
        ("c.jsonl", "[1]\n", "not an object"),
        ("c.jsonl", "{\n", "not valid JSON"),
    ],
)
def test_bad_captions(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_captions([tmp_path / name])


def test_files_that_hold_no_captions(tmp_path):
    with pytest.raises(DataError, match=r"no captions\.jsonl and no"):
        read_captions([tmp_path])
    (tmp_path / "a.md").write_text("x")
    with pytest.raises(UsageError, match="captions are a"):
        read_captions([tmp_path / "a.md"])
