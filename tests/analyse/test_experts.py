"""Use of experts: planted preferences are found, by tag and by what words look like; models without experts are refused."""

import json

import numpy as np
import pytest
import torch

from seqloom.analyse import experts as analysed
from seqloom.analyse.experts import ExpertUse, expert_use, information, plain_sentences
from seqloom.analyse.experts_page import ExpertsFinding
from seqloom.batches.prepare import prepare
from seqloom.blocks.experts import Experts
from seqloom.cli import run
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.text.tagged import Sentence
from tests.training.material import write_text


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experts")
    text = write_text(folder / "a.txt", 60)
    prepare([text], folder / "data", tokenizer="char", valid=0.1, keep_leaks=True, keep_duplicates=True)
    settings = ["model.dim=10", "budget={steps=2}", "valid.limit=100", "model.experts=3", "model.experts_k=1"]
    for recipe, name in (("gpt2-tiny", "gpt2"), ("lstm-tiny", "lstm")):
        pretrain(recipe, folder / "data", folder / name, settings=settings)
    pretrain("gpt2-tiny", folder / "data", folder / "plain", settings=settings[:3])
    return folder


def test_information_of_what_is_known():
    assert information(np.eye(4)) == pytest.approx(2.0)
    assert information(np.ones((3, 5))) == pytest.approx(0.0)


def test_every_token_counts_once_in_every_layer(trained):
    reading = load(trained / "gpt2", "cpu").reading
    sentences = [Sentence(["the", "cat"], ["DET", "NOUN"], "1"), Sentence(["a", "dog"], ["DET", "NOUN"], "2")]
    found = expert_use(reading, sentences)
    assert dict(zip(found.tags, found.counts.tolist(), strict=True)) == {"DET": 4, "NOUN": 8}, "blanks go with words"
    assert len(found.use) == 3 and found.names == ["layer 1", "layer 2", "layer 3"]
    for use in found.use:
        np.testing.assert_allclose(use.sum(1), found.counts, rtol=1e-5)


def test_a_planted_preference_is_found(trained, monkeypatch):
    """An expert for one kind of word tells a bit; words are put to it by a gate of our own."""
    reading = load(trained / "gpt2", "cpu").reading
    sentences = [Sentence(["aaa", "bbb"] * 6, ["A", "B"] * 6, "1")]
    kinds = {}
    for letter in "ab":
        kinds[letter] = reading.tokenizer.encode(letter)[0]
    seen = []
    right = analysed.read_text

    def noted(*arguments, **options):
        found = right(*arguments, **options)
        seen.append(found.batch.ids)
        return found

    def shares(self, x):
        return torch.nn.functional.one_hot((seen[-1] == kinds["b"]).long(), self.count).float()

    monkeypatch.setattr(analysed, "read_text", noted)
    monkeypatch.setattr(Experts, "shares", shares)
    found = expert_use(reading, sentences)
    # the blank before a word is the first expert's, whichever word follows
    expected = [[sum(1 for _ in "aaa") * 6 + 5, 0, 0], [6, 18, 0]]
    assert found.use[0][[found.tags.index("A"), found.tags.index("B")]].tolist() == expected
    assert information(found.use[0]) > 0.4


def test_words_without_tags_are_known_by_their_looks():
    (one,) = plain_sentences(["Anna ate 3 big apples.", "  "])
    assert one.tags == ["capitalised", "lower case", "with digits", "lower case", "lower case", "punctuation"]


def test_the_page_says_all():
    use = ExpertUse(["<b>", "NN"], np.array([30, 10]), [np.array([[20.0, 10.0], [0.0, 10.0]])], ["layer 1"])
    found = ExpertsFinding("run", "file", use)
    assert "the busiest has 50.0%" in found.lines()[0] and "<b>" not in found.html().split("</style>")[-1]
    assert found.rows()[1] == ["layer 1", "<b>", 30, 1, 20 / 30] and len(found.rows()) == 5
    assert list(found.pictures()) == ["layer 1"]


def test_the_command(trained, monkeypatch, capsys):
    monkeypatch.chdir(trained)
    (trained / "t.conll").write_text("the\tDET\ncat\tNOUN\n\na\tDET\ndog\tNOUN\n")
    for name, out in (("gpt2", "g.json"), ("lstm", "l.json")):
        assert run(["inspect", name, "--text", "t.conll", "--show", "experts", "--out", out]) == 0
        record = json.loads((trained / out).read_text())
        assert set(record["tags"]) == {"DET", "NOUN"} and len(record["layers"][0]["use"][0]) == 3
    assert run(["inspect", "lstm", "--text", "Anna ate 3 apples.", "--show", "experts", "--out", "p.csv"]) == 0
    assert "punctuation" in (trained / "p.csv").read_text()
    capsys.readouterr()
    assert run(["inspect", "plain", "--text", "t.conll", "--show", "experts", "--out", "bad.html"]) == 2
    assert "has none" in capsys.readouterr().err and not (trained / "bad.html").exists()
