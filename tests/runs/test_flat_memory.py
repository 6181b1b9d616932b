"""Predicting a csv of any length in the memory of a short one."""

import csv
import subprocess
import sys

import pytest

from seqloom.cli import run
from seqloom.evaluate.examples import shorten
from seqloom.text.ids import SeenIds
from seqloom.text.labelled import Example

PEAK = """
import resource, sys
from seqloom.cli import run
from seqloom.evaluate.examples import shorten
code = run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(code)
"""


def write_rows(path, count):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "review", "label"])
        for i in range(count):
            words = ["good" if i % 2 else "bad", *(f"w{i * k % 97}" for k in range(1, 10 + i % 40))]
            writer.writerow([i, " ".join(words), words[0]])
    return str(path)


@pytest.mark.long
def test_memory_does_not_grow_with_rows(tmp_path):
    files = {count: write_rows(tmp_path / f"{count}.csv", count) for count in (200, 8_000, 160_000)}
    made = ["train", "text-cnn-tiny", "--task", "classify", "--train", files[200], "--out", str(tmp_path / "run")]
    assert run([*made, "--tokenizer", "word", "--epochs", "1", "--text-column", "review", "--device", "cpu"]) == 0
    peaks = []
    for count in (8_000, 160_000):
        out = tmp_path / f"{count}-out.csv"
        given = ["predict", str(tmp_path / "run"), files[count], "--id-column", "number", "--out", str(out)]
        done = subprocess.run([sys.executable, "-c", PEAK, *given], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
        with open(out) as lines:
            assert sum(1 for _ in lines) == count + 1
    assert peaks[1] < peaks[0] + 60, peaks  # MB; the ids of 160,000 rows are 8 of them


def test_an_id_takes_few_bytes():
    seen = SeenIds()
    for i in range(20_000):
        assert seen.find_or_add(f"id {i}", f"a:b.csv:{i + 2}") is None
    assert seen.find_or_add("id 77", "c.csv:5") == "a:b.csv:79" and seen.find_or_add(8, "c.csv:6") is None
    assert seen.find_or_add("8", "d.csv:9") == "c.csv:6", "1 and '1' are equal"
    size = sum(each.itemsize * len(each) for each in (seen.keys, seen.places))
    assert size <= 48 * 20_000 and seen.repeated == 2 and seen.first_repeated == "c.csv:5"


def test_repeats_and_unchecked_ids_are_counted(capsys):
    seen = SeenIds(limit=2)
    for line, id in enumerate([1, 2, 3, 3, 1], 2):
        seen.find_or_add(id, f"a.csv:{line}")
    seen.say()
    told = capsys.readouterr().err
    assert "1 rows have the id of an earlier row (first: a.csv:6)" in told
    assert "2 rows come after 2 different ids" in told


@pytest.mark.long
def test_check_does_not_keep_texts(tmp_path):
    """60 MB of texts more must not be in memory."""
    peaks = []
    for count in (500, 4_000):
        with open(tmp_path / "long.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows(
                [f"{i} " + "some words of a text " * 800, "good" if i % 2 else "bad"] for i in range(count)
            )
        given = ["check", str(tmp_path / "long.csv"), "--task", "classify", "--json"]
        done = subprocess.run([sys.executable, "-c", PEAK, *given], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] < peaks[0] + 20, peaks  # MB


def test_rows_of_a_check_have_fingerprints_for_texts():
    first, again, other = (
        shorten(Example(texts, "a", None, "f:1")) for texts in (("ab", "c"), ("ab", "c"), ("a", "bc"))
    )
    assert first.texts == again.texts != other.texts and len(first.texts[0]) == 32
