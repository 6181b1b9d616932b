"""The store: reading equals the concatenation of the documents, across shards; damage is noticed."""

import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches.prepare import prepare
from seqloom.batches.store import MANIFEST, Split, Store
from seqloom.errors import DataError, ModelError, SeqloomError

DOCUMENTS = ["one two", "three", "four five six seven", "é", "eight nine ten eleven twelve", "x", "last one"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("store")
    (base / "a.txt").write_text("\n".join(DOCUMENTS) + "\n", encoding="utf-8")
    (base / "t.txt").write_text("held out\n")
    prepare([base / "a.txt"], base / "data", tokenizer="byte", test=base / "t.txt", shard_tokens=16)
    return base / "data"


def flat() -> list[int]:
    return [256, *(token for text in DOCUMENTS for token in (*text.encode(), 256))]


def reads_the_concatenation(split: Split, spans: list[tuple[int, int]]) -> None:
    whole = flat()  # its index 0 is position -1
    expected = [token for start, length in spans for token in whole[start + 1 : start + 1 + length]]
    found = split.read_many([start for start, _ in spans], [length for _, length in spans])
    assert found.dtype == np.int64
    assert found.tolist() == expected
    for start, length in spans:
        assert split.read(start, start + length).tolist() == whole[start + 1 : start + 1 + length]


SIZE = len(flat()) - 1
SPANS = st.lists(
    st.integers(-1, SIZE).flatmap(lambda a: st.tuples(st.just(a), st.integers(0, SIZE - max(a, 0) + (a < 0)))),
    max_size=12,
)


@given(spans=SPANS)
@settings(max_examples=150)
def test_reading_equals_the_concatenation(folder: Path, spans: list[tuple[int, int]]) -> None:
    reads_the_concatenation(Store.open(folder).split("train"), spans)


def test_planted_bug_an_off_by_one_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Split.read_many
    monkeypatch.setattr(Split, "read_many", lambda self, starts, lengths: right(self, np.asarray(starts) + 1, lengths))
    with pytest.raises(AssertionError):
        reads_the_concatenation(Store.open(folder).split("train"), [(3, 10)])


def test_planted_bug_a_shard_border_is_noticed(folder: Path) -> None:
    split = Store.open(folder).split("train")
    split._shards[1] = split._shards[1][::-1]
    with pytest.raises(AssertionError):
        reads_the_concatenation(split, [(-1, SIZE + 1)])


def test_counts_and_offsets(folder: Path) -> None:
    store = Store.open(folder, verify=True)
    split = store.split("train")
    assert len(split.entry.shards) > 2
    assert (split.num_documents, split.num_tokens) == (len(DOCUMENTS), SIZE)
    lengths = [len(text.encode()) + 1 for text in DOCUMENTS]
    assert split.offsets.tolist() == np.cumsum([0, *lengths]).tolist()
    assert split.documents["words"].tolist() == [len(text.split()) for text in DOCUMENTS]
    assert split.documents["characters"].tolist() == [len(text) for text in DOCUMENTS]
    assert split.document_bytes.tolist() == [len(text.encode()) for text in DOCUMENTS]
    assert split.words == sum(len(text.split()) for text in DOCUMENTS)
    for a, b, text in zip(split.offsets, split.offsets[1:], DOCUMENTS, strict=False):
        assert store.tokenizer.decode(split.read(a, b)) == text
        assert split.read(b - 1, b).tolist() == [store.manifest.end_id]
    assert store.splits == ["train", "test"]


def test_reading_outside_is_refused(folder: Path) -> None:
    split = Store.open(folder).split("train")
    for start, length in ((-2, 1), (0, SIZE + 1), (SIZE, 1), (3, -1)):
        with pytest.raises(IndexError):
            split.read_many([start], [length])
    with pytest.raises(ValueError, match="2 starts"):
        split.read_many([0, 1], [1])
    assert split.read_many([], []).size == 0
    assert split.read(-1, 0).tolist() == [256]
    assert split.read(SIZE, SIZE).size == 0


def test_threads_read_the_same(folder: Path) -> None:
    split = Store.open(folder).split("train")
    found: list[list[int]] = []
    work = [threading.Thread(target=lambda: found.append(split.read(-1, SIZE).tolist())) for _ in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert found == [flat()] * 8


def copy(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def test_damage_is_noticed_with_a_remedy(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no such folder.*seqloom prepare"):
        Store.open(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="preparation was interrupted"):
        Store.open(tmp_path / "empty")
    with pytest.raises(DataError, match=r"no split 'valid' .it has: train, test.*--valid"):
        Store.open(folder).split("valid")

    short = copy(folder, tmp_path / "short")
    path = short / "train-00001.tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"train-00001.tokens.bin has \d+ bytes"):
        Store.open(short)

    flipped = copy(folder, tmp_path / "flipped")
    path = flipped / "train-00000.docs.bin"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    Store.open(flipped)
    with pytest.raises(DataError, match="damaged"):
        Store.open(flipped, verify=True)

    other = copy(folder, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    tokenizer["added_tokens"][1]["content"] = "<other>"
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match="not the tokenizer"):
        _ = Store.open(other).tokenizer


def test_every_flipped_bit_of_the_manifest_is_noticed_or_harmless(folder: Path, tmp_path: Path) -> None:
    """Nothing but our own errors comes out, and a manifest that still opens and verifies describes the same tokens."""
    damaged = copy(folder, tmp_path / "damaged")
    good = (folder / MANIFEST).read_bytes()
    whole = Store.open(folder)
    rng = np.random.default_rng(0)
    for _ in range(200):
        data = bytearray(good)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        (damaged / MANIFEST).write_bytes(data)
        try:
            store = Store.open(damaged, verify=True)
        except SeqloomError:
            continue
        assert store.fingerprint == whole.fingerprint


def test_names_in_a_manifest_choose_no_path(folder: Path, tmp_path: Path) -> None:
    hostile = copy(folder, tmp_path / "hostile")
    manifest = json.loads((hostile / MANIFEST).read_text())
    for change in ({"file": "../../etc/passwd"}, {"file": "train-00007"}):
        changed = json.loads(json.dumps(manifest))
        changed["splits"]["train"]["shards"][0].update(change)
        (hostile / MANIFEST).write_text(json.dumps(changed))
        with pytest.raises(DataError):
            Store.open(hostile)
    (hostile / MANIFEST).write_text(json.dumps(manifest | {"surprise": 1}))
    with pytest.raises(DataError, match="surprise"):
        Store.open(hostile)


def test_a_token_outside_the_vocabulary_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "data")
    path = tmp_path / "data/train-00001.tokens.bin"
    ids = np.fromfile(path, "<u2")
    ids[3] = 60_000
    ids.tofile(path)
    split = Store.open(tmp_path / "data").split("train")
    assert split.read(0, 10).tolist() == flat()[1:11]
    with pytest.raises(DataError, match=r"'train' has the token 60,000, outside the vocabulary"):
        split.read(0, split.num_tokens)


@pytest.mark.parametrize("change", [{"documents": 6}, {"documents": 1 << 70}, {"tokens": -1}, {"words": 1 << 64}])
def test_counts_that_do_not_add_up_are_refused(folder: Path, tmp_path: Path, change: dict[str, int]) -> None:
    shutil.copytree(folder, tmp_path / "data")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["splits"]["train"] |= change
    (tmp_path / "data" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="prepare the data again"):
        Store.open(tmp_path / "data")
