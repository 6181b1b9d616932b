"""Which wording is preferred, and what garbled texts do: numbers equal the model's own, planted mistakes are noticed."""

import json

import pytest

from seqloom.analyse.garbled import LENGTH, WAYS, Garbled, answer_all, garble, length_ratio, overlap, repetition
from seqloom.analyse.preference import Choice, side_of
from seqloom.cli import run
from seqloom.errors import DataError, UsageError
from seqloom.evaluate import translation
from seqloom.runs.behaviour import cut_text
from seqloom.runs.load import load
from seqloom.runs.training import pretrain, train
from tests.training.material import pairs, prepared, write_pairs

SMALL = ["model.dim=16", "budget={steps=1}", "valid.limit=100"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("behaviour")
    write_pairs(path, 300, 0, "train")
    files = [path / "train.en", path / "train.xx"]
    train(
        "bahdanau-tiny",
        "translate",
        files,
        path / "translator",
        settings=["budget={steps=30}", "model.dim=32"],
        tokenizer="word",
    )
    pretrain("lstm-tiny", prepared(path / "data", 200), path / "lstm", settings=[*SMALL, "batches.streams=4"])
    (path / "pronouns.tsv").write_text(
        "text\tfirst\tsecond\tgroup\n"
        "the queen sees a bird .\tda regina un piep sees .\tda rex un piep sees .\tqueen\n"
        "the queen likes my friend .\tda regina mei amik likes .\tda rex mei amik likes .\tqueen\n"
        "the old king sees a bird .\tda alta regina un piep sees .\tda alta rex un piep sees .\tking\n",
        encoding="utf-8",
    )
    return path


def same_as_the_search(translator):
    """The score of what a beam has found is what the beam says of it."""
    sources = [source for source, _ in pairs(12, 5)]
    best = [each[0] for each in translator.translate(sources)]
    finished = [i for i, each in enumerate(best) if each.finished and each.text]
    assert finished
    scored = translator.target_log_probs([sources[i] for i in finished], [best[i].text for i in finished])
    assert scored == pytest.approx([best[i].log_prob for i in finished], abs=1e-4)


def test_targets_are_scored_as_the_beam_search_does(folder):
    same_as_the_search(load(folder / "translator"))


def test_scores_of_other_pairs_are_noticed(folder, monkeypatch):
    """The planted bug: scores in the order of lengths, not of the pairs."""
    plain = translation.target_log_probs
    monkeypatch.setattr("seqloom.runs.translator.target_log_probs", lambda *given: plain(*given)[::-1].copy())
    with pytest.raises(AssertionError):
        same_as_the_search(load(folder / "translator"))


def test_preference_of_a_translator(folder):
    translator = load(folder / "translator")
    found = translator.preference(folder / "pronouns.tsv")
    choices = [each.choice for each in found.chosen]
    sources = [each.text for each in choices]
    first = translator.target_log_probs(sources, [each.first for each in choices])
    second = translator.target_log_probs(sources, [each.second for each in choices])
    assert [each.odds for each in found.chosen] == pytest.approx(
        [a - b for a, b in zip(first, second, strict=True)], abs=1e-5
    )
    assert all(each.written is not None for each in found.chosen)
    assert set(found.groups()) == {"all", "queen", "king"}
    assert json.loads(json.dumps(found.record(), allow_nan=False))["groups"]["queen"]["rows"] == 2


def test_preference_of_a_language_model(folder, tmp_path):
    model = load(folder / "lstm")
    (tmp_path / "choices.csv").write_text("first,second\nthe cat sees,the sees cat\na bird,no bird\n", encoding="utf-8")
    found = model.preference(tmp_path / "choices.csv")
    scored = [sum(each.log_probs) + each.end for each in model.score(["the cat sees", "the sees cat"])]
    assert found.chosen[0].odds == pytest.approx(scored[0] - scored[1], abs=1e-5)
    assert found.chosen[0].written is None


@pytest.mark.parametrize(
    ("written", "side"), [("She is a nurse.", -1), ("He is a nurse .", 1), ("A nurse.", 0), ("he and she", 0)]
)
def test_sides(written, side):
    assert side_of(written, Choice("", "", "He is a nurse.", "She is a nurse.", "")) == side


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("first,second\na,\n", "both wordings"), ("first,second\na,a\n", "must differ"), ("first,second\n", "no rows"),
        ("first,other\na,b\n", "second"),
    ],
)  # fmt: skip
def test_bad_tables(folder, tmp_path, rows, words):
    (tmp_path / "bad.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        load(folder / "lstm").preference(tmp_path / "bad.csv")


def test_a_translator_needs_a_source(folder, tmp_path):
    (tmp_path / "bad.csv").write_text("first,second\na,b\n", encoding="utf-8")
    with pytest.raises(DataError, match="needs a source"):
        load(folder / "translator").preference(tmp_path / "bad.csv")


def test_garbling_is_the_same_every_time():
    text = "the old king remembers a small river near the sea"
    for way in WAYS:
        assert garble(text, way, 3) == garble(text, way, 3)
    assert sorted(garble(text, "words shuffled", 0).split()) == sorted(text.split())
    assert garble(text, "words shuffled", 0) != garble(text, "words shuffled", 1)
    assert garble(text, "last word ten times", 0).split()[-11:] == ["the", *["sea"] * 10]
    swapped = garble(text, "letters swapped in every word", 0)
    assert all(sorted(a) == sorted(b) for a, b in zip(swapped.split(), text.split(), strict=True)) and swapped != text


def test_figures_by_hand():
    assert repetition("a b c d") == 0 and repetition("a b") == 0
    assert repetition("a a a a a") == pytest.approx(2 / 3)  # three runs of three, one kind
    assert overlap("a b c", "a b d") == pytest.approx(2 / 3) and overlap("", "") == 1 and overlap("a", "") == 0
    assert overlap("a a", "a") == pytest.approx(2 / 3)  # each as often as it occurs
    assert length_ratio("a b", "x y z") == 1.5


def test_shares_stay_between_nothing_and_all():
    found = Garbled(
        "run", "texts", answer_all(["a b", "c d", "e f g"], lambda texts: [("x x x x x", True)] * len(texts))
    )
    figures = [each for way in WAYS for name, each in found.figures(way).items() if name != LENGTH]
    assert all(0 <= each.low <= each.value <= each.high <= 1 for each in figures)
    assert all(found.figures(way)[LENGTH].low >= 0 for way in WAYS) and not found.cut()
    silent = Garbled("run", "texts", answer_all(["a b"], lambda texts: [("", True)] * len(texts)))
    assert silent.figures("capitals")["nothing written"].value == 1


def test_texts_that_are_too_long_are_cut(folder, tmp_path):
    """A translator reads the beginning, a language model the end, and the page says how many were cut."""
    texts = [" ".join(source for source, _ in pairs(4, 5)), "the cat sees a bird ."]
    translator = load(folder / "translator")
    translator.learner.backbone.max_len = 30
    small = [*SMALL, "model.num_heads=2", "model.max_len=64", "model.num_layers=1", "batches.length=16"]
    pretrain("gpt2-tiny", folder / "data", tmp_path / "gpt2", settings=small)
    model = load(tmp_path / "gpt2")
    for each, limit in ((translator, 30), (model, model.learner.backbone.max_len)):
        read = [*texts, " ".join(texts * 4)]
        found = each.garbled(texts=read)
        tripled, given = found.answers["whole text three times"], " ".join([read[-1]] * 3)
        assert [answer.cut for answer in tripled][1:] == [False, True] and tripled[1].read == " ".join([texts[1]] * 3)
        assert given.startswith(tripled[2].read) if each is translator else given.endswith(tripled[2].read)
        assert limit / 4 < len(each.tokenizer.encode(tripled[2].read)) < limit
        assert "(whole text three times)" in found.lines()[-1] and "were cut" in found.html()


def test_a_cut_text_has_whole_words(folder):
    tokenizer, text = load(folder / "lstm").tokenizer, "the old king remembers a small river near the sea"
    for kept in range(1, len(tokenizer.encode(text))):
        for from_end in (True, False):
            part = cut_text(text, tokenizer, kept, kept, from_end)
            assert f" {part} " in f" {text} " or len(part.split()) == 1
            assert text.endswith(part) if from_end else text.startswith(part)
    assert cut_text(text, tokenizer, 1000, 5, True) is text


@pytest.mark.parametrize("name", ["translator", "lstm"])
def test_garbled(folder, name):
    found = load(folder / name).garbled(texts=[source for source, _ in pairs(3, 5)])
    assert list(found.answers) == list(WAYS) and all(len(some) == 3 for some in found.answers.values())
    clean = found.figures("as written")
    assert clean["overlap with what is written for the clean text"].value == 1
    json.dumps(found.record(), allow_nan=False)


def test_the_commands(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for show, text in (("preference", "pronouns.tsv"), ("garbled", "the cat sees a bird .")):
        out = tmp_path / f"{show}.html"
        assert run(["inspect", "translator", "--show", show, "--text", text, "--out", str(out)]) == 0
        assert "<svg" in out.read_text(encoding="utf-8")
    assert "first wording" in capsys.readouterr().out


def test_who_writes_nothing_says_so(tmp_path):
    pretrain("bert-tiny", prepared(tmp_path / "data", 100), tmp_path / "bert", settings=[*SMALL, "model.num_heads=2"])
    with pytest.raises(UsageError, match="writes no texts"):
        load(tmp_path / "bert").garbled("the cat")
