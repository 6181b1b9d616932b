"""Minimal pairs out of held-out text: one thing is wrong, everything else is as it was."""

import json

import pytest

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.comparison.pairs import OTHER_NUMBER, held_out_sentences, write_pairs
from seqloom.errors import DataError
from tests.comparison.plans import write_text


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    prepare([write_text(folder / "text.txt", 200)], folder / "data", vocab_size=300, valid=0.1, test=0.2)
    return folder / "data"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_thing_is_wrong(data, tmp_path):
    count = write_pairs(data, tmp_path / "pairs.jsonl", 30)
    found = rows(tmp_path / "pairs.jsonl")
    assert count == len(found) == 90 and {row["UID"] for row in found} == {"order", "agreement", "word"}
    held_out = {" ".join(words) for words in held_out_sentences(Store.open(data))}
    for row in found:
        good, bad = row["sentence_good"].split(), row["sentence_bad"].split()
        assert row["sentence_good"] in held_out and len(good) == len(bad)
        changed = [i for i, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b]
        if row["UID"] == "order":
            i, j = changed
            assert j == i + 1 and (good[i], good[j]) == (bad[j], bad[i])
        else:
            (i,) = changed
            assert row["UID"] != "agreement" or OTHER_NUMBER[good[i]] == bad[i]
            assert row["UID"] != "word" or any(bad[i] in sentence.split() for sentence in held_out)


def test_the_same_every_time(data, tmp_path):
    for name in ("a", "b"):
        write_pairs(data, tmp_path / name, 25)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_training_text_is_not_asked_about(data, tmp_path):
    store = Store.open(data)
    split = store.split("train")
    seen = store.tokenizer.decode(split.read(0, split.num_tokens).tolist())
    write_pairs(data, tmp_path / "pairs.jsonl", 30)
    assert sum(row["sentence_good"] in seen for row in rows(tmp_path / "pairs.jsonl")) <= 9, (
        "held-out sentences are others"
    )


def test_text_without_sentences(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"{i} {i + 1} {i + 2}" for i in range(100)))
    prepare([tmp_path / "text.txt"], tmp_path / "data", vocab_size=300, valid=0.2)
    with pytest.raises(DataError, match="no sentence of 6 to 24 words"):
        write_pairs(tmp_path / "data", tmp_path / "pairs.jsonl", 10)
