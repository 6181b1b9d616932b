"""Pairs of texts stay pairs: nothing is lost, nothing moves against its partner."""

import gzip
import json
import lzma

import pytest

from seqloom.errors import DataError, UsageError
from seqloom.text.pairs import read_pairs, repeated_sources, survey_pairs
from seqloom.text.tagged import read_tagged


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def pairs_of(*paths):
    return [pair[:2] for pair in read_pairs(paths)]


def test_aligned_files_keep_order_and_empty_lines(tmp_path):
    a = write(tmp_path, "a.en", "one\n\nthree\r\n")
    b = write(tmp_path, "a.de", "\ufeffeins\nzwei\ndrei")
    assert pairs_of(a, b) == [("one", "eins"), ("", "zwei"), ("three", "drei")]
    assert [pair.place for pair in read_pairs((a, b))][2].endswith("a.en:3")


def test_packed_files(tmp_path):
    a = write(tmp_path, "a.en.gz", gzip.compress(b"one\ntwo\n"))
    b = write(tmp_path, "a.de.xz", lzma.compress(b"eins\nzwei\n"))
    assert pairs_of(a, b) == [("one", "eins"), ("two", "zwei")]


def test_tsv_and_jsonl(tmp_path):
    rows = [("one", "eins"), ("two", "")]
    tsv = write(tmp_path, "p.tsv", "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    lines = [json.dumps({"source": a, "target": b}) for a, b in rows]
    assert pairs_of(tsv) == pairs_of(write(tmp_path, "p.jsonl", "\n".join(lines) + "\n")) == rows


@pytest.mark.parametrize("short", [0, 1])
def test_files_of_unequal_length_are_refused_with_both_counts(tmp_path, short):
    texts = ["a\nb\nc\n", "a\nb\nc\nd\ne\n"]
    paths = [write(tmp_path, "x.en", texts[short]), write(tmp_path, "x.de", texts[1 - short])]
    with pytest.raises(DataError, match=r"has 3 lines, .* has 5"):
        pairs_of(*paths)


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("p.tsv", "a\tb\nc\n", DataError, "p.tsv:2: 1 columns"),
        ("p.tsv", "a\tb\tc\n", DataError, "p.tsv:1: 3 columns"),
        ("p.jsonl", '{"source": "a"}\n', DataError, 'p.jsonl:1: not an object with the strings "source"'),
        ("p.jsonl", '{"source": "a", "target": 3}\n', DataError, "p.jsonl:1"),
        ("p.jsonl", "{\n", DataError, "p.jsonl:1: not valid JSON"),
        ("p.txt", "a\n", UsageError, "two aligned files"),
        ("p.tsv", b"a\t\xff\n", DataError, "p.tsv:1: not valid UTF-8"),
        ("p.tsv", b"a\t\0\n", DataError, "p.tsv:1: the line has a NUL byte"),
    ],
)
def test_what_is_no_pair_is_named_by_its_line(tmp_path, name, data, error, message):
    with pytest.raises(error, match=message):
        pairs_of(write(tmp_path, name, data))


def test_three_files_are_no_pair(tmp_path):
    with pytest.raises(UsageError, match="3 files"):
        pairs_of(*[write(tmp_path, f"{i}.en", "a\n") for i in range(3)])


def test_what_is_odd_is_counted_and_named(tmp_path):
    rows = [("a b", "c d"), ("", "x"), ("a b", "c d"), ("same", "same"), ("one", "eins " * 7), ("two words", "zwei")]
    path = write(tmp_path, "p.tsv", "".join(f"{a}\t{b}\n" for a, b in rows))
    found = survey_pairs([path])
    assert found["pairs"] == 6 and found["source"] == {"words": 8, "mean": 8 / 6, "longest": 2}
    places = {kind: each["places"] for kind, each in found["problems"].items()}
    assert places == {
        "an empty side": [f"{path}:2"],
        "the same pair again": [f"{path}:3"],
        "source and target are the same": [f"{path}:4"],
        "one side has more than 3 times the words of the other": [f"{path}:5"],
    }
    with pytest.raises(DataError, match="the files are empty"):
        survey_pairs([write(tmp_path, "e.tsv", "")])


def test_held_out_sources_in_the_training_text_are_found(tmp_path):
    train = write(tmp_path, "t.tsv", "a\tx\nb\ty\n\tz\n")
    valid = write(tmp_path, "v.tsv", "c\tx\nb\tother\n\tz\n")
    assert repeated_sources(read_pairs([valid]), read_pairs([train])) == [f"{valid}:2"]


def test_half_a_character_is_no_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"source": "a", "target": "b"}\n{"source": "a", "target": "\\ud800"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: not valid JSON \(half of a character"):
        list(read_pairs([path]))
    path.write_text('{"words": ["a", "\\udfff"], "tags": ["O", "O"]}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:1: not valid JSON \(half of a character"):
        list(read_tagged([path]))
    path.write_text('{"source": "\\ud83d\\ude42", "target": "b"}\n')  # two halves are a whole
    assert next(iter(read_pairs([path]))).source == "🙂"
