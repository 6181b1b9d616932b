"""A part of a prepared text: whole documents, nested, with the same tokenizer and held-out text."""

import numpy as np
import pytest

from seqloom.batches import subset as module
from seqloom.batches.store import Store
from seqloom.batches.subset import subset
from seqloom.errors import DataError, UsageError
from tests.training.material import prepared


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("subset") / "data", 400)


def documents(folder, split="train"):
    found = Store.open(folder, verify=True).split(split)
    return [tuple(found.read(a, b).tolist()) for a, b in zip(found.offsets, found.offsets[1:], strict=False)]


def test_whole_documents_that_are_nested(data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 37)
    whole = Store.open(data).split("train")
    sizes = [whole.words // 8, whole.words // 2, whole.words]
    parts = []
    for words in sizes:
        manifest = subset(data, words, tmp_path / f"{words}", shard_tokens=100)
        entry = manifest.splits["train"]
        assert 0.8 * words < entry.words <= words and len(entry.shards) > 1
        parts.append(documents(tmp_path / f"{words}"))
        for split in ("valid", "test"):
            if split in manifest.splits:
                assert documents(tmp_path / f"{words}", split) == documents(data, split)
    assert parts[2] == documents(data)
    assert set(parts[0]) <= set(parts[1]) <= set(parts[2]) and len(parts[0]) < len(parts[1]) < len(parts[2])
    prints = {Store.open(tmp_path / f"{words}").manifest.fingerprint for words in sizes}
    assert len(prints) == 3


def test_counts_are_those_of_its_documents(data, tmp_path):
    whole = Store.open(data).split("train")
    part = subset(data, whole.words / 3, tmp_path / "part").splits["train"]
    found = Store.open(tmp_path / "part").split("train")
    assert part.tokens == found.num_tokens == int(found.documents["tokens"].sum())
    assert part.bytes == int(found.documents["bytes"].sum()) and part.words == int(found.documents["words"].sum())
    assert np.isin(found.documents["bytes"], whole.documents["bytes"]).all()


def test_a_finished_one_is_left_as_it_is_and_a_killed_one_made_anew(data, tmp_path):
    first = subset(data, 500, tmp_path / "part")
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "part").iterdir() if path.name != "lock"}
    assert subset(data, 500, tmp_path / "part") == first
    assert {
        path.name: path.stat().st_mtime_ns for path in (tmp_path / "part").iterdir() if path.name != "lock"
    } == times
    with pytest.raises(UsageError, match="holds another text"):
        subset(data, 600, tmp_path / "part")
    (tmp_path / "part" / "manifest.json").unlink()
    assert subset(data, 600, tmp_path / "part").splits["train"].words <= 600


def test_more_than_there_is_and_less_than_a_document(data, tmp_path):
    with pytest.raises(DataError, match="fewer than 1,000,000,000"):
        subset(data, 1e9, tmp_path / "a")
    with pytest.raises(DataError, match="documents are taken whole"):
        subset(data, 1, tmp_path / "b")
