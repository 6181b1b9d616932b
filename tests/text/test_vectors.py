"""Files of word vectors: every format read and written, and files that are none."""

import numpy as np
import pytest

from seqloom.errors import DataError, UsageError
from seqloom.text import vectors
from seqloom.text.vectors import WordVectors, read_all_vectors, read_vectors, write_vectors_file
from tests.contract.test_planted import noticed

WORDS = ["the", "naïve", "</s>", "東京", "x-ray"]


def made(count: int = 5, width: int = 7) -> WordVectors:
    rng = np.random.default_rng(0)
    found = rng.standard_normal((count, width)).astype(np.float32) * np.float32(10) ** rng.integers(-20, 5, (count, 1))
    return WordVectors(WORDS[:count], found.astype(np.float32))


def comes_back(path) -> None:
    """Bit by bit, in every format."""
    given = made()
    write_vectors_file(path, given)
    found = read_all_vectors(path)
    assert found.words == given.words and found.vectors.dtype == np.float32
    assert found.vectors.tobytes() == given.vectors.tobytes()


@pytest.mark.parametrize("suffix", [".bin", ".vec", ".txt"])
def test_what_is_written_comes_back(suffix, tmp_path):
    comes_back(tmp_path / f"v{suffix}")
    first = (tmp_path / f"v{suffix}").read_bytes().split(b"\n")[0]
    assert (first == b"5 7") == (suffix != ".txt")
    write_vectors_file(tmp_path / f"again{suffix}", read_all_vectors(tmp_path / f"v{suffix}"))
    assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"v{suffix}").read_bytes()


def test_planted_rounding_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors.Row, "vector", lambda self: np.array(self.numbers, np.float32).round(4))
    noticed(comes_back, tmp_path / "v.vec")


def test_bin_without_newlines(tmp_path):
    """As some programs write it."""
    given = made()
    rows = b"".join(word.encode() + b" " + row.tobytes() for word, row in zip(*given, strict=True))
    (tmp_path / "v.bin").write_bytes(b"5 7\n" + rows)
    found = read_all_vectors(tmp_path / "v.bin")
    assert found.words == WORDS and found.vectors.tobytes() == given.vectors.tobytes()
    assert set(read_vectors(tmp_path / "v.bin", {"the", "nothing"})) == {"the"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\ncat 1\n", ":2: 1 numbers, but the first line has 2"),
        ("the 1 2\ncat 1 2 3\n", ":2: 3 numbers, but the first line has 2"),
        ("1 2\nthe 1 2 3\n", ":2: 3 numbers, but the header says 2"),
        ("the 1 2\nthe 3 4\n", ":2: the word 'the' has a vector already"),
        ("the 1 nan\n", ":1: a number of the word 'the' is not finite"),
        ("the 1 inf\n", ":1: a number of the word 'the' is not finite"),
        ("3 2\nthe 1 2\ncat 3 4\n", "the header says 3 words, and 2 follow"),
        ("1 2\nthe 1 2\ncat 3 4\n", "the header says 1 words, and 2 follow"),
        ("3 2\n", "no vectors"),
        ("", "no vectors"),
        ("2 0\nthe 1 2\ncat 3 4\n", ":1: the header says 0 numbers a word"),
        ("1 99999999\nthe 1 2\n", ":1: the header says 99,999,999 numbers a word"),
        ("the\t1\t2\n", r":1: no number behind 'the\\t1\\t2'"),
        ("the 1 2\n 3 4\n", ":2: 2 numbers without a word"),
        ("the 1 1e39\n", ":1: a number of the word 'the' is not finite"),
        ("a" + " 1" * 70_000 + "\n", "70,000 numbers of one word"),
    ],
)
def test_bad_text(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        read_all_vectors(tmp_path / "v.txt")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no header"),
        (b"hello\n", "no header"),
        (b"x" * 5000, "no header"),
        (b"2 0\n", "0 numbers a word"),
        (b"2 99999999\n", "99,999,999 numbers a word"),
        (b"999999999999 2\nthe 12345678\n", "do not fit the file's"),
        (b"0 2\n", "do not fit"),
        (b"1 2\n" + b"a" * 5000 + b" 12345678", "longer than 4,096 bytes"),
        (b"1 2\n\xff\xfe 12345678\n", "not valid UTF-8"),
        (b"2 1\na 1234\nb 12", "ends within it"),
        (b"1 1\na 1234\nb 1234\n", "more follows"),
        (b"2 1\na 1234\na 1234\n", "has a vector already"),
        (b"1 1\na \x00\x00\xc0\x7f\n", "not finite"),
        (b"2 1\na 1234\n 1234\n", "word 2: 1 numbers without a word"),
    ],
)
def test_bad_bin(tmp_path, raw, message):
    (tmp_path / "v.bin").write_bytes(raw)
    with pytest.raises(DataError, match=message):
        read_all_vectors(tmp_path / "v.bin")


@pytest.mark.parametrize(("word", "name"), [("a b", "v.bin"), ("a\nb", "v.vec"), ("", "v.txt"), ("a", "v.csv")])
def test_what_cannot_be_written(tmp_path, word, name):
    with pytest.raises(UsageError):
        write_vectors_file(tmp_path / name, WordVectors([word], np.ones((1, 2), np.float32)))
    assert not list(tmp_path.iterdir())
