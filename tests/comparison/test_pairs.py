"""Minimal pairs out of held-out text: one thing is wrong, everything else is as it was."""

import json

import pytest

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.comparison import pairs
from seqloom.comparison.pairs import OTHER_NUMBER, read_sentences, write_pairs
from seqloom.comparison.run import settle_plan
from seqloom.errors import DataError
from tests.comparison.plans import GPT, LSTM, plan_of, write_text


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
    held_out = {" ".join(words) for words in read_sentences(data)}
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


WORDS = {**LSTM, "name": "words", "tokenizer": "word", "vocab_size": 40}


def pairs_of(folder, corpus, rows, **changes):
    folder.mkdir(parents=True)
    settle_plan(plan_of(corpus, rows=rows, **changes), folder, "cpu", False)
    return (folder / "pairs-20.jsonl").read_bytes()


def check_rows_do_not_matter(place):
    """Nor does their order, or what words a vocabulary lacks."""
    text = write_text(place / "text.txt")
    found = [
        pairs_of(place / f"out-{i}", text, rows) for i, rows in enumerate(([GPT, WORDS], [WORDS, GPT], [WORDS], [GPT]))
    ]
    assert len(set(found)) == 1 and b"<unk>" not in found[0]
    lines = text.read_text().splitlines()
    assert all(any(row["sentence_good"] in line for line in lines) for row in map(json.loads, found[0].splitlines()))


def test_pairs_do_not_depend_on_rows(tmp_path):
    check_rows_do_not_matter(tmp_path)


def test_planted_pairs_of_the_first_row_are_noticed(tmp_path, monkeypatch):
    """As it was: decoded from the tokens of the row that comes first."""

    def decoded(request):
        folder = sorted((request.train[0].parent).glob("out-*"))[-1]
        first = "word-40" if folder.name in ("out-1", "out-2") else "bpe-300"
        return pairs.prepared_texts(Store.open(folder / "data" / first))

    monkeypatch.setattr(pairs, "held_out_texts", decoded)
    with pytest.raises(AssertionError):
        check_rows_do_not_matter(tmp_path)


def test_unknown_words_of_a_prepared_text_are_left_out(tmp_path):
    text = write_text(tmp_path / "text.txt", 200)
    prepare([text], tmp_path / "data", tokenizer="word", vocab_size=30, valid=0.1, test=0.2)
    write_pairs(tmp_path / "data", tmp_path / "pairs.jsonl", 20)
    assert "<unk>" not in (tmp_path / "pairs.jsonl").read_text()


def test_files_and_their_lossless_tokens_give_the_same(tmp_path):
    text = write_text(tmp_path / "text.txt")
    prepare([text], tmp_path / "data", tokenizer="byte", valid=0.1, test=0.1)
    found = pairs_of(tmp_path / "files", text, [GPT])
    assert pairs_of(tmp_path / "prepared", text, [GPT], text={"prepared": str(tmp_path / "data")}) == found


def test_text_without_sentences(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(f"{i} {i + 1} {i + 2}" for i in range(100)))
    prepare([tmp_path / "text.txt"], tmp_path / "data", vocab_size=300, valid=0.2)
    with pytest.raises(DataError, match="no sentence of 6 to 24 words"):
        write_pairs(tmp_path / "data", tmp_path / "pairs.jsonl", 10)
