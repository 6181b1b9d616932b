"""Hand-made features: what they say of a word, that they are learnt from, and what is refused."""

import json

import pytest

from seqloom.cli import run as call
from seqloom.cli import transfer  # noqa: F401  # commands register themselves
from seqloom.errors import UsageError
from seqloom.evaluate.baseline import Words, baseline, histories, is_punctuation, shape
from seqloom.metrics.entities import entity_scores
from seqloom.text.tagged import Sentence, read_tagged
from tests.tasks.labelled import examples, write


def tagged(count: int, seed: int) -> str:
    """A part of an argument begins behind "because" and ends before a full stop."""
    import random

    rng, lines = random.Random(seed), []
    for _ in range(count):
        before = [rng.choice(["we", "they", "it", "run", "walk"]) for _ in range(rng.randint(1, 5))]
        inside = [rng.choice(["it", "we", "good", "cheap", "run"]) for _ in range(rng.randint(2, 4))]
        lines += [f"{word} O" for word in [*before, "because"]]
        lines += [f"{word} {'I' if i else 'B'}-PRO" for i, word in enumerate(inside)] + [". O", ""]
    return "\n".join(lines) + "\n"


@pytest.fixture
def files(tmp_path):
    for seed, (split, count) in enumerate({"train": 150, "valid": 30, "test": 30}.items()):
        (tmp_path / f"{split}.conll").write_text(tagged(count, seed))
        write(tmp_path / f"{split}.jsonl", "classify", examples("classify", 3 * count, seed))
    return tmp_path


def given(files, ending):
    return ([files / f"{split}.{ending}"] for split in ("train", "valid", "test"))


def test_words_are_learnt(files):
    result, answers = baseline("tag", *given(files, "conll"))
    gold = [sentence.tags for sentence in read_tagged([files / "test.conll"])]
    again = entity_scores(gold, [answer["tags"] for answer in answers["test"]])
    assert result["test_scores"]["f1"] == again["f1"] > 0.6
    alone, _ = baseline("tag", *given(files, "conll"), groups=["structural"])
    assert alone["test_scores"]["f1"] < result["test_scores"]["f1"] - 0.1


def in_brackets(count: int, seed: int) -> str:
    """Words between two brackets, which stand too far away for the features of a word: only the tags before tell."""
    import random

    rng, lines = random.Random(seed), []
    for _ in range(count):
        sizes = [rng.randint(1, 9) for _ in range(3)]
        before, inside, behind = ([rng.choice("abcd") for _ in range(size)] for size in sizes)
        lines += [f"{word} O" for word in before] + ["( B-P"] + [f"{word} I-P" for word in inside] + [") I-P"]
        lines += [f"{word} O" for word in behind] + [""]
    return "\n".join(lines) + "\n"


@pytest.fixture
def brackets(tmp_path):
    for seed, (split, count) in enumerate({"train": 120, "valid": 20, "test": 30}.items()):
        (tmp_path / f"{split}.conll").write_text(in_brackets(count, seed))
    return tmp_path


def field_is_right(files):
    result, answers = baseline("tag", *given(files, "conll"), groups=["lexical"], model="crf")
    assert result["test_scores"]["f1"] > 0.95 and 1 <= result["passes"] <= 12
    gold = [sentence.tags for sentence in read_tagged([files / "test.conll"])]
    assert result["test_scores"]["f1"] == entity_scores(gold, [answer["tags"] for answer in answers["test"]])["f1"]
    return result


def test_a_field_over_whole_sentences(brackets):
    result = field_is_right(brackets)
    alone, _ = baseline("tag", *given(brackets, "conll"), groups=["lexical"])
    assert alone["test_scores"]["f1"] < 0.8
    assert field_is_right(brackets) == result, "the same seed gives the same figures"


def test_planted_field_without_moves_is_noticed(brackets, monkeypatch):
    monkeypatch.setattr("seqloom.blocks.crf.Crf._tables", without_moves)
    with pytest.raises(AssertionError):
        field_is_right(brackets)


def without_moves(self, grid):
    return grid.new_zeros(self.labels, self.labels), grid.new_zeros(self.labels), grid.new_zeros(self.labels)


def test_a_field_is_of_tags(files):
    with pytest.raises(UsageError, match="sequences of tags"):
        baseline("classify", *given(files, "jsonl"), model="crf")
    with pytest.raises(UsageError, match="choose one of regression, crf"):
        baseline("tag", *given(files, "conll"), model="hmm")


def test_texts_are_learnt(files):
    result, _ = baseline("classify", *given(files, "jsonl"))
    assert result["test_scores"]["accuracy"] > 0.95 and result["test_scores"]["majority"] < 0.7
    again, _ = baseline("classify", *given(files, "jsonl"))
    assert again == result


@pytest.mark.parametrize("split", ["valid", "test"])
def test_labels_that_are_not_in_the_training_files_are_refused(files, split, capsys):
    (files / f"{split}.jsonl").write_text('{"text": "a", "label": "strange"}\n')
    (files / f"{split}.conll").write_text("a O\nb B-CON\n")
    for task, ending, what in (("classify", "jsonl:1", "label 'strange'"), ("tag", "conll:2", "tag 'B-CON'")):
        options = [f"--{name}={files / name}.{ending.split(':')[0]}" for name in ("train", "valid", "test")]
        assert call(["baseline", "--task", task, *options]) == 3
        assert f"{files / split}.{ending}: the {what} is not in the training files" in capsys.readouterr().err


def test_the_probability_of_a_beginning_is_counted():
    sentences = [Sentence(["so", "because", "it", "is"], ["O", "O", "B-PRO", "I-PRO"], "a:1") for _ in range(4)]
    sentences.append(Sentence(["so", "because", "it", "is"], ["O"] * 4, "a:9"))
    words = Words(sentences, {"scheme": "iob2"}, ["probability"])
    assert words.begins["because",] == (4, 5) and words.begins["so", "because"] == (4, 5)
    rows = list(words.features(sentences[0]))
    assert "begin 1 8" in rows[2] and "begin 1 0" in rows[1]


def test_what_is_seen_of_a_word():
    assert histories(["a", "b"], 1) == [("a",), ("-", "a"), ("-", "-", "a")]
    assert (shape("McDonald's-2024"), shape("ÄÖ9")) == ("AaAa'a-0", "A0")
    assert is_punctuation("...") and is_punctuation("€") and not is_punctuation("a.") and not is_punctuation("")


def test_by_the_command_line(files, capsys):
    options = [
        "--task",
        "classify",
        "--train",
        files / "train.jsonl",
        "--valid",
        files / "valid.jsonl",
        "--out",
        files / "out",
    ]
    assert call(["baseline", *map(str, options), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((files / "out/baseline.json").read_text())
    assert len((files / "out/valid.jsonl").read_text().splitlines()) == 90
    assert call(["baseline", *map(str, options)]) == 2  # the folder is there


def test_wrong_calls(files):
    for options in ({"task": "span"}, {"groups": ["lexikal"]}, {"groups": []}, {"groups": ["probability"]}):
        with pytest.raises(UsageError):
            baseline(
                **({"task": "classify", "train": [files / "train.jsonl"], "valid": [files / "valid.jsonl"]} | options)
            )
