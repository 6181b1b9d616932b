"""The copy task: texts as they are written, figures that are known beforehand, wrong files."""

import numpy as np
import pytest

from seqloom.cli import run
from seqloom.errors import DataError
from seqloom.evaluate.continuations import ContinuationScore
from seqloom.evaluate.suites.copy import read_copy, score_copy
from seqloom.text.synthetic import copy_texts, write_copy_texts
from tests.encoders import run_of, tokenizer_of


def test_texts_are_two_equal_halves():
    rows = copy_texts(50, 7, 5, seed=3)
    assert rows.shape == (50, 16)
    assert (rows[:, 0] == 0).all() and np.array_equal(rows[:, :8], rows[:, 8:])
    assert set(rows[:, 1:8].flatten().tolist()) == {1, 2, 3, 4, 5}
    assert np.array_equal(rows, copy_texts(50, 7, 5, seed=3)) and not np.array_equal(rows, copy_texts(50, 7, 5, seed=4))


def test_what_is_written_is_read(tmp_path):
    assert write_copy_texts(tmp_path / "a.txt", 3, 2, 9, seed=0) == 3
    rows = copy_texts(3, 2, 9, seed=0)
    read = read_copy(tmp_path / "a.txt")
    assert [each.context + each.target for each in read] == [" ".join(map(str, row)) for row in rows.tolist()]
    assert all(len(each.context.split()) == 4 and len(each.target.split()) == 2 for each in read)


def test_known_figures(tmp_path):
    write_copy_texts(tmp_path / "a.txt", 2, 4, 9, seed=0)
    given = [ContinuationScore(-1.0, True, False, 1.0), ContinuationScore(-9.0, False, False, 0.25)]
    found = score_copy(read_copy(tmp_path / "a.txt"), lambda contexts, more: given)
    assert found == {"accuracy": 0.625, "whole": 0.5, "texts": 2, "items": [1.0, 0.25]}


def test_symbols_that_the_vocabulary_lacks_are_not_right(tmp_path):
    """All of them are the unknown token, which is easily copied."""
    write_copy_texts(tmp_path / "a.txt", 2, 4, 9, seed=0)
    given = [ContinuationScore(-1.0, True, True, 1.0), ContinuationScore(-9.0, False, False, 0.5)]
    found = score_copy(read_copy(tmp_path / "a.txt"), lambda contexts, more: given)
    assert found == {"accuracy": 0.25, "whole": 0.0, "texts": 2, "unknown": 1, "items": [0.0, 0.5]}


def test_of_a_model(tmp_path):
    write_copy_texts(tmp_path / "a.txt", 4, 6, 9, seed=0)
    run = run_of("lstm", "next-token", tokenizer_of("byte"))
    found = run.evaluate_suite("copy", tmp_path / "a.txt", items=True)
    assert len(found["items"]) == 4 and all(0 <= item <= 1 for item in found["items"])


def test_texts_that_do_not_fit_are_counted(tmp_path):
    """A model that does not see the first word cannot copy it, and is not to be blamed for that without a word."""
    write_copy_texts(tmp_path / "a.txt", 2, 300, 9, seed=0)
    write_copy_texts(tmp_path / "b.txt", 2, 6, 9, seed=0)
    run = run_of("gpt2", "next-token", tokenizer_of("byte"))
    assert run.evaluate_suite("copy", tmp_path / "a.txt")["cut"] == 2
    assert "cut" not in run.evaluate_suite("copy", tmp_path / "b.txt")


@pytest.mark.parametrize("text", ["", "0 1 2 0 1 3", "1 2 1 2", "0 0", "word", "0 1 0"])
def test_wrong_files(text, tmp_path):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(DataError, match=r"a\.txt"):
        read_copy(tmp_path / "a.txt")


def test_no_text_is_overwritten(tmp_path, capsys):
    call = ["synthetic", "copy", "--count", "2", "--out", str(tmp_path / "copy.txt")]
    assert run(call) == 0
    before = (tmp_path / "copy.txt").read_bytes()
    assert run([*call, "--seed", "1"]) == 2 and "exists already" in capsys.readouterr().err
    assert (tmp_path / "copy.txt").read_bytes() == before
