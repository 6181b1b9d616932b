"""The file with a split's sentences is a shortcut: it never changes what is found."""

import numpy as np
import pytest

from seqloom.batches import sentences as module
from seqloom.batches.prepare import prepare
from seqloom.batches.sentences import find_borders, keep_borders
from seqloom.batches.store import Store
from seqloom.tokens.words import Sentences

DOCUMENTS = ["One sentence here. Another one follows! A third?", "", "Nothing ends", "Two more. Are here."]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(each or " " for each in DOCUMENTS * 4), encoding="utf-8")
    prepare([text], tmp_path / "data", tokenizer="byte", valid=0.25)
    return tmp_path / "data"


def refuse(ids):
    raise AssertionError("sentences are found again")


def is_equal(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_sentences_are_found_once_and_read_afterwards(folder):
    store = Store.open(folder)
    split, find = store.split("train"), Sentences(store.tokenizer)
    whole = find_borders(split, find)
    assert len(whole.spans) > 5
    assert is_equal(keep_borders(split, find), whole)
    assert is_equal(keep_borders(Store.open(folder).split("train"), refuse), whole)
    Store.open(folder, verify=True)


@pytest.mark.parametrize("case", ["missing", "cut", "other bytes", "other rules", "other text", "outside", "too many"])
def test_a_file_that_does_not_fit_is_made_again(folder, case, monkeypatch):
    store = Store.open(folder)
    split, find = store.split("train"), Sentences(store.tokenizer)
    whole = keep_borders(split, find)
    path = split.sentences_file
    key, kept = module.content_key(split), path.read_bytes()
    if case == "missing":
        path.unlink()
    elif case == "cut":
        path.write_bytes(kept[:-8])
    elif case == "other bytes":
        path.write_bytes(b"\xff" * len(kept))
    elif case == "other rules":
        monkeypatch.setattr(module.inspect, "getsource", lambda of: f"other rules of {of.__name__}")
    elif case == "other text":
        valid = store.split("valid")
        keep_borders(valid, find)
        path.write_bytes(valid.sentences_file.read_bytes())
    else:
        spans, counts = whole.spans.copy(), whole.counts.copy()
        if case == "outside":
            spans[0, 1] = split.offsets[1]
        else:
            counts[0] += 1
        path.write_bytes(module.save({"spans": spans, "counts": counts}, {"of": key}))
    with pytest.raises(AssertionError, match="found again"):
        keep_borders(split, refuse)
    assert is_equal(keep_borders(split, find), whole)
    assert is_equal(keep_borders(split, refuse), whole)


def test_beside_a_small_split_nothing_is_written(folder, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1 << 20)
    store = Store.open(folder)
    split, find = store.split("train"), Sentences(store.tokenizer)
    assert is_equal(keep_borders(split, find), find_borders(split, find))
    assert not split.sentences_file.exists()


def test_a_folder_that_cannot_be_written_is_read_all_the_same(folder, monkeypatch):
    store = Store.open(folder)
    split, find = store.split("train"), Sentences(store.tokenizer)

    def fail(path, data):
        raise PermissionError(path)

    monkeypatch.setattr(module, "write_bytes", fail)
    assert is_equal(keep_borders(split, find), find_borders(split, find))
    assert not split.sentences_file.exists()


def test_it_is_no_part_of_prepared_text_but_goes_with_it(folder):
    """`prepare --overwrite` removes it with the rest."""
    store = Store.open(folder)
    keep_borders(store.split("train"), Sentences(store.tokenizer))
    before = store.fingerprint
    prepare([folder.parent / "text.txt"], folder, tokenizer="byte", valid=0.25, overwrite=True)
    assert not Store.open(folder).split("train").sentences_file.exists()
    assert Store.open(folder).fingerprint == before
