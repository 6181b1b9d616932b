"""Pictures of a run: each file is decoded once, and kept on disk, not in memory."""

import errno
import tempfile

import numpy as np
import pytest

from seqloom.batches import pictures
from seqloom.batches.pictures import Pictures, PictureSize, decode, take_pictures
from seqloom.errors import FileError
from seqloom.text.scenes import png

RNG = np.random.default_rng(0)
PIXELS, FEATURES = PictureSize(8, 4), PictureSize(0, 0, 5)


def made(size, count):
    """Arrays of this size; features of one to four regions."""
    if size.features:
        return [RNG.normal(size=(1 + i % 4, size.features)).astype(np.float32) for i in range(count)]
    return list(RNG.integers(0, 256, (count, size.side, size.side, 3), np.uint8))


def kept(size, arrays):
    store = Pictures(size)
    assert [store.add(each) for each in arrays] == list(range(len(arrays))) and len(store) == len(arrays)
    return store


@pytest.mark.parametrize("size", [PIXELS, FEATURES], ids=["pixels", "features"])
@pytest.mark.parametrize("shard", [1, 500, 1 << 20])
def test_pictures_come_back_from_their_files(size, shard, monkeypatch):
    monkeypatch.setattr(pictures, "SHARD", shard)
    arrays = made(size, 21)
    store = kept(size, arrays)
    assert len(store.files) == {1: 21, 1 << 20: 1}.get(shard, len(store.files)) and (
        shard != 500 or 1 < len(store.files) < 21
    )
    for i in RNG.permutation(21):
        assert np.array_equal(store.one(i), arrays[i])
    more = made(size, 9)  # behind what has been read
    for each in more:
        store.add(each)
    assert all(np.array_equal(store.one(i), each) for i, each in enumerate(arrays + more))
    assert isinstance(store.one(0).base, np.memmap) and not store.one(0).flags.writeable
    found = take_pictures([(store, 3), (store, 25)])
    assert np.array_equal(found.values.numpy(), (np.concatenate if size.features else np.stack)([arrays[3], more[4]]))


def test_what_is_on_them_is_what_they_are_known_by(monkeypatch):
    arrays = made(PIXELS, 6)
    whole = kept(PIXELS, arrays).fingerprint
    monkeypatch.setattr(pictures, "SHARD", 1)
    assert kept(PIXELS, arrays).fingerprint == whole
    assert whole not in (kept(PIXELS, arrays[::-1]).fingerprint, kept(PIXELS, arrays[:5]).fingerprint)


@pytest.mark.parametrize("size", [PIXELS, FEATURES], ids=["pixels", "features"])
def test_each_file_is_decoded_once(size, tmp_path, monkeypatch):
    arrays, paths = made(size, 3), []
    for i, each in enumerate(arrays):
        paths.append(tmp_path / f"{i}{'.npz' if size.features else '.png'}")
        if size.features:
            np.savez(paths[-1], regions=each)
        else:
            paths[-1].write_bytes(png(each))
    read, right = [], Pictures.read
    monkeypatch.setattr(Pictures, "read", lambda self, path, place="": read.append(path) or right(self, path, place))
    store, numbers = decode([(paths[i], f"c:{i}") for i in (0, 1, 0, 2, 1, 0)], size, "test")
    assert numbers == [0, 1, 0, 2, 1, 0] and read == paths
    for path in paths:
        path.unlink()
    assert all(np.array_equal(store.one(i), each) for i, each in enumerate(arrays))


def test_a_full_disk_is_said_in_one_line(monkeypatch):
    class Full:
        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(FileError, match="the disk is full"):
        Pictures(PIXELS).add(made(PIXELS, 1)[0])
