"""Minimal pairs: accuracies that are known beforehand, files as they are published, rows that are refused."""

import gzip
import json
import lzma
from pathlib import Path

import pytest

from seqloom.errors import DataError, UsageError
from seqloom.evaluate.suites import minimal
from seqloom.evaluate.suites.minimal import read_minimal, score_minimal_pairs
from tests.encoders import run_of, tokenizer_of

BLIMP = Path(__file__).parents[4] / "shared" / "data" / "blimp" / "blimp.jsonl.xz"
WORD = tokenizer_of("word")


def row(good: str, bad: str, uid: str, term: str = "agreement", field: str = "syntax") -> dict[str, str]:
    return {"sentence_good": good, "sentence_bad": bad, "UID": uid, "linguistics_term": term, "field": field}


ROWS = [
    row("3", "2", "one"),
    row("2", "3", "one"),
    row("5", "5.0", "one"),  # a tie
    row("4", "1", "one"),
    row("2", "1", "two"),
    row("1", "2", "three", "islands"),
    row("9", "1", "four", "islands", "semantics"),
]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    text = "\n".join(json.dumps(each) for each in rows) + "\n"
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


def numbers(texts, names):
    return [float(text) for text in texts]


def check(folder: Path) -> None:
    found = score_minimal_pairs(read_minimal(write(folder / "a.jsonl", ROWS)), numbers)
    assert found["by_set"] == {"four": 1.0, "one": 0.625, "three": 0.0, "two": 1.0}
    assert found["by_phenomenon"] == {"agreement": 0.8125, "islands": 0.5}
    assert found["by_field"] == {"semantics": 1.0, "syntax": pytest.approx(1.625 / 3)}
    assert found["accuracy"] == 4.5 / 7  # the mean of the pairs, not of the sets
    assert (found["pairs"], found["ties"], found["sets"]) == (7, 1, 4)


def test_known_accuracies(tmp_path):
    check(tmp_path)


def test_ties_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(minimal, "won", lambda good, bad: float(good > bad))
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_the_wrong_way_round(tmp_path, monkeypatch):
    right = minimal.won
    monkeypatch.setattr(minimal, "won", lambda good, bad: right(bad, good))
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_equal_but_for_rounding():
    assert minimal.won(-50.0, -50.0 - 1e-6) == 0.5
    assert (minimal.won(-50.0, -50.001), minimal.won(-50.001, -50.0)) == (1.0, 0.0)


def test_sentences_are_scored_once_and_short_ones_first(monkeypatch):
    monkeypatch.setattr(minimal, "AT_ONCE", 3)
    pairs = [
        minimal.MinimalPair(g, b, f"f:{i}", "s", None, None) for i, (g, b) in enumerate([("11", "2"), ("2", "333")])
    ]
    calls = []

    def score(texts, names):
        calls.append(list(zip(texts, names, strict=True)))
        return numbers(texts, names)

    found = score_minimal_pairs([*pairs, *pairs, pairs[0]._replace(good="4444")], score)
    assert calls == [[("2", "f:0"), ("11", "f:0"), ("333", "f:1")], [("4444", "f:0")]]
    assert found["by_phenomenon"] == found["by_field"] == {} and found["accuracy"] == 0.6


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "jsonl.xz"])
def test_files_as_published(tmp_path, ending):
    for name in ("b", "a"):
        write(tmp_path / f"{name}.{ending}", [{"good": f"{name} 1", "bad": "x", "term": "t"}])
    (tmp_path / "README.md").write_text("no data")
    found = read_minimal(tmp_path)
    assert [(pair.group, pair.good, pair.phenomenon, pair.field) for pair in found] == [
        ("a", "a 1", "t", None),
        ("b", "b 1", "t", None),
    ]
    assert found == [*read_minimal(tmp_path / f"a.{ending}"), *read_minimal(tmp_path / f"b.{ending}")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "no valid JSON"),
        ("[1]", 'no object with "sentence_good" and "sentence_bad"'),
        ('{"good": "a"}', 'no object with "sentence_good"'),
        ('{"good": "a", "bad": 5}', '"bad" is no sentence: 5'),
        ('{"good": " ", "bad": "a"}', '"good" is no sentence: " "'),
        ('{"sentence_good": "a", "sentence_bad": "\\ud800"}', "half of a character"),
        ('{"good": null, "bad": "a"}', '"good" is no sentence: null'),
        ("[" * 100_000, "no valid JSON"),
    ],
)
def test_bad_rows_are_named(tmp_path, line, words):
    (tmp_path / "a.jsonl").write_text('{"good": "a", "bad": "b"}\n\n' + line + "\n")
    with pytest.raises(DataError) as failure:
        read_minimal(tmp_path)
    assert f"{tmp_path / 'a.jsonl'}:3: " in str(failure.value) and words in str(failure.value)


def test_nothing_to_read(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_minimal(tmp_path / "none")
    with pytest.raises(DataError, match=r"no .jsonl file in this folder"):
        read_minimal(tmp_path)
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(DataError, match="no pair of sentences"):
        read_minimal(tmp_path)


@pytest.mark.parametrize(
    ("model", "objective"),
    [("bert", "masked"), ("electra", "replaced-token"), ("gpt2", "next-token"), ("lstm", "next-token")],
)
def test_a_run_is_scored_by_its_definition(model, objective, tmp_path):
    run = run_of(model, objective, WORD)
    texts = ["the cat sees", "cat the sees", "a small river", "small a river", "the the", "no"]
    write(tmp_path / "a.jsonl", [row(a, b, "s") for a in texts for b in texts if a != b])
    found = run.evaluate_suite("blimp", tmp_path, batch_tokens=20)
    scores = [sum(each.log_probs) for each in run.score(texts)]
    wins = [a > b for i, a in enumerate(scores) for j, b in enumerate(scores) if i != j]
    assert found["accuracy"] == sum(wins) / len(wins) == 0.5  # every pair both ways
    assert found["definition"] == run.definition() and found["suite"] == "blimp" and found["pairs"] == 30
    single = {}
    for i, a in enumerate(texts):
        for j, b in enumerate(texts):
            if i != j:
                write(tmp_path / "one.jsonl", [row(a, b, "s")])
                single[i, j] = run.evaluate_suite("blimp", tmp_path / "one.jsonl")["accuracy"]
    assert single == {(i, j): float(scores[i] > scores[j]) for i, j in single}


def test_what_a_run_refuses(tmp_path):
    run = run_of("bert", "masked", WORD)
    write(tmp_path / "a.jsonl", [row("the", "the cat", "s"), row("the " * 39, "the", "s")])
    with pytest.raises(DataError, match=r"a.jsonl:2 has 39 tokens"):
        run.evaluate_suite("blimp", tmp_path)
    with pytest.raises(UsageError, match="unknown suite 'glue'"):
        run.evaluate_suite("glue", tmp_path)
    with pytest.raises(UsageError, match="is for masked models"):
        run_of("lstm", "next-token", WORD).evaluate_suite("blimp", tmp_path, "plain")


@pytest.mark.long
def test_all_of_blimp(tmp_path):
    """The published pairs: untrained models guess, and the sets are those of the paper."""
    pairs = read_minimal(BLIMP)
    assert len(pairs) == 67_000 and len({pair.group for pair in pairs}) == 67
    words = tokenizer_of("bpe")
    found = run_of("lstm", "next-token", words).evaluate_suite("blimp", BLIMP)
    assert found["sets"] == 67 and len(found["by_phenomenon"]) == 13 and found["ties"] >= 7
    assert all(len(group) > 3 and 0 <= share <= 1 for group, share in found["by_set"].items())
    assert 0.3 < found["accuracy"] < 0.7
    few = write(tmp_path / "few.jsonl", [row(p.good, p.bad, p.group) for p in pairs[::500]])
    for model, objective in (("bert", "masked"), ("electra", "replaced-token")):
        small = run_of(model, objective, words, max_len=256).evaluate_suite("blimp", few)
        assert small["pairs"] == 134 and 0.2 < small["accuracy"] < 0.8
