"""Saliency: sums are complete, occlusion is what it says, planted words are found, erasure tells sense from noise."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import seqloom
from seqloom.analyse.read import read_text
from seqloom.analyse.saliency import METHODS, Question, Saliency, erase, find_saliency, gated, value_at
from seqloom.batch import Pair, pack
from seqloom.cli import run
from seqloom.convert.huggingface import import_folder
from seqloom.errors import UsageError
from seqloom.evaluate.score import score
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.contract import pairs
from tests.convert.material import save
from tests.tasks.labelled import examples, write
from tests.training.material import prepared

TEXT = "The keys to the cabinet are on the table."


class Table(nn.Module):
    """Ten tokens with one number each."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(10.0, dtype=torch.float64)[:, None])

    def forward(self):
        return self.weight


def planted(answer, own=None):
    """A question whose answer is a function of ten numbers."""
    table = Table()
    mask = np.ones(10, bool) if own is None else own
    return Question([f"t{i}" for i in range(10)], mask, table, lambda: answer(table()[:, 0]), "planted")


def test_of_a_linear_answer_all_methods_are_the_terms():
    found = find_saliency(planted(lambda x: (x * torch.tensor([1.0, -1] * 5, dtype=torch.float64)).sum()))
    expected = np.arange(10) * np.array([1, -1] * 5)
    for name in METHODS:
        np.testing.assert_allclose(found.values[name], expected, atol=1e-9)
    assert found.gap < 1e-9 and found.empty == 0


def test_integrated_gradients_are_complete_where_gradients_vanish():
    """The answer saturates: the gradient at the end is nothing, and the sum is still the difference."""
    found = find_saliency(planted(lambda x: torch.sigmoid(20 * (x.sum() - 5))))
    assert found.gap < 1e-3 and abs(found.values["gradient"]).sum() < 1e-6
    assert found.values["integrated"].sum() == pytest.approx(found.value - found.empty, abs=1e-3)


def test_integrated_gradients_are_complete_where_nothing_is_nearly_everything():
    """A LayerNorm over what is gated alone, as XLNet has: all of the answer is there from a millionth of the text on."""
    found = find_saliency(planted(lambda x: torch.nn.functional.layer_norm(x, (10,), eps=1e-12)[9]))
    assert found.empty == 0 and found.value > 1 and found.gap < 1e-3 and found.steps <= 128


def test_even_steps_miss_what_happens_near_nothing(monkeypatch):
    """The planted bug: the points of the integral are spread evenly."""
    monkeypatch.setattr("seqloom.analyse.saliency.NEAR_ZERO", 1)
    with pytest.raises(AssertionError):
        test_integrated_gradients_are_complete_where_nothing_is_nearly_everything()


def test_an_answer_that_jumps_is_not_called_complete():
    found = find_saliency(planted(lambda x: (x.sum() > 20).double() + 0 * x.sum()))
    assert found.completeness.startswith("not complete, off by 1.0e+00")


def test_an_integral_with_too_few_steps_is_noticed(monkeypatch):
    """The planted bug: one step is taken for the whole way."""
    monkeypatch.setattr("seqloom.analyse.saliency.FIRST_STEPS", 1)
    monkeypatch.setattr("seqloom.analyse.saliency.MOST_STEPS", 1)
    with pytest.raises(AssertionError):
        test_integrated_gradients_are_complete_where_gradients_vanish()


def test_what_stands_around_a_text_is_never_blamed():
    own = np.array([False, *[True] * 8, False])
    found = find_saliency(planted(lambda x: x.sum(), own))
    assert len(found.words) == len(found.values["occlusion"]) == 8 and found.empty == 9.0


def test_the_erasure_test_tells_sense_from_noise():
    question = planted(lambda x: x[7] * x[8])
    found = find_saliency(question)
    good = erase(found)
    assert good.erased == 2 and good.falls["integrated"] == 56 > good.random.mean()
    noise = Saliency(question, found.value, found.empty, dict.fromkeys(METHODS, -found.values["integrated"]), 1)
    assert erase(noise).falls["integrated"] == 0 < good.random.mean()


def test_no_hook_is_left_behind():
    def broken(_x):
        raise ValueError

    question = planted(broken)
    with pytest.raises(ValueError):  # noqa: PT011
        gated(question, torch.ones(10))
    assert not question.embedding._forward_hooks


# ---- trained models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("salient")
    for kind in ("bert", "gpt2", "marian"):
        save(kind, place / f"{kind}-theirs")
        import_folder(place / f"{kind}-theirs", place / kind)
    for task in ("classify", "tag"):
        files = [place / f"{task}-{split}.{'conll' if task == 'tag' else 'jsonl'}" for split in ("train", "valid")]
        for seed, file in enumerate(files):
            write(file, task, examples(task, 40, seed))
        small = ["model.dim=16", "budget.epochs=4"]
        seqloom.train("lstm-tiny", task, files[:1], place / task, valid=files[1:], tokenizer="word", settings=small)
    return place


def question_of(place, kind):
    found = load(place / kind)
    text = {"bert": "The keys to the [MASK] are on the table."}.get(kind, TEXT)
    return found._question(text, None, None, "The table." if kind == "marian" else None)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "marian", "classify", "tag"])
def test_answers_of_every_kind_are_complete(kind, folder):
    question = question_of(folder, kind)
    found = find_saliency(question)
    assert found.gap <= 1e-3 * max(1.0, abs(found.value - found.empty))
    assert value_at(question, np.ones(len(question.own))) == pytest.approx(float(question.answer().detach()), abs=1e-6)
    assert np.abs(found.values["gradient"]).max() > 0 and len(found.words) == question.own.sum()


def about_source(model):
    """An answer of an encoder–decoder about a source of five tokens."""
    source, target = pack([[5, 1, 7, 3, 9]]), pack([[2, 4, 6]])
    return Question(
        list("abcde"),
        np.ones(5, bool),
        model.encoder.embedding,
        lambda: model(Pair(source, target, target.ids)).hidden[-1].sum().tanh(),
        "",
    )


@pytest.mark.parametrize(
    "name", ["seq2seq", "bahdanau", "luong", "gnmt", "transformer", "bytenet-mt", "convs2s", "bart"]
)
def test_every_encoder_decoder_is_followed_back_to_its_source(name):
    found = find_saliency(about_source(pairs.build(name)))
    assert found.gap <= 1e-3 * max(1.0, abs(found.value - found.empty)) and found.steps <= 256


def test_planted_gradients_that_are_scaled_as_in_training_are_noticed(monkeypatch):
    monkeypatch.setattr("seqloom.analyse.saliency.MOST_STEPS", 64)
    model = pairs.build("convs2s")
    model.encoder.training, model.encoder.looks = True, 2
    assert "not complete" in find_saliency(about_source(model)).completeness


def test_answers_are_those_that_the_run_gives(folder):
    gpt2 = load(folder / "gpt2")
    scored = gpt2.score(TEXT)[0].log_probs
    assert find_value(gpt2, "3") == pytest.approx(scored[2], abs=1e-5)
    bert = load(folder / "bert")
    best = bert.fill("The keys to the [MASK] are here.", top=1)[0][0]
    question = bert._question("The keys to the [MASK] are here.", None, None, None)
    assert float(question.answer().detach()) == pytest.approx(np.log(best.probability), abs=1e-5)
    classes = load(folder / "classify")
    text = examples("classify", 1, 3)[0].texts[0]
    predicted = classes.predict(text)[0]
    asked = classes._question(text, predicted["label"], None, None)
    assert float(asked.answer().detach()) == pytest.approx(
        np.log(predicted["probabilities"][predicted["label"]]), abs=1e-5
    )


def ahead_of(loaded, text):
    """The log-probability of each token after all before it, by the code that scores texts."""
    if loaded.learner.has_next_word:
        return loaded.score(text)[0].log_probs
    texts = [loaded.tokenizer.encode(text)]
    learner = loaded.learner.direction(False)
    found = score(learner, texts, loaded.tokenizer.end_id, loaded.device, spell=lambda flat: loaded.spell(flat, []))
    return found[0].log_probs


SIZES = {"xlnet": ["model.dim=20"], "elmo": ["model.dim=16", "model.proj_dim=8"]}


@pytest.mark.parametrize("name", [pytest.param("xlnet", marks=pytest.mark.long), "elmo"])
def test_the_next_token_is_that_of_the_half_that_predicts_it(name, tmp_path):
    """Models that read both ways predict a next token by the part of them that has not read it."""
    few = ["budget={steps=2}", "valid.limit=100", "train.optim.lr=0.05", "batches.streams=2"]
    pretrain(f"{name}-tiny", prepared(tmp_path / "data", 200), tmp_path / name, settings=[*SIZES[name], *few])
    loaded, text = load(tmp_path / name), "the old king sees a bird near the sea ."
    expected = ahead_of(loaded, text)
    for token in (3, 10):
        question = loaded._question(text, None, str(token), None)
        assert float(question.answer().detach()) == pytest.approx(expected[token - 1], abs=1e-5)
    found = find_saliency(question)
    assert found.gap <= 1e-3 * max(1.0, abs(found.value - found.empty)) and len(found.words) == 9
    if name == "xlnet":  # the planted mistake: what has read all tokens before it, but not as their order was learnt
        read = read_text(loaded.reading, text)
        with torch.no_grad():
            hidden = loaded.learner.backbone(read.batch).hidden[8:9]
            wrong = -loaded.learner.softmax(hidden, read.batch.ids[9:10], each=True)[0]
        assert abs(float(wrong) - expected[9]) > 1e-3


def find_value(loaded, token):
    return float(loaded._question(TEXT, None, token, None).answer().detach())


def test_the_command(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    rows = [each.texts[0] for each in examples("classify", 4, 5)]
    (folder / "texts.txt").write_text("\n".join(rows) + "\n")
    assert run(["inspect", "classify", "--text", "texts.txt", "--show", "saliency", "--out", "s.html"]) == 0
    assert run(["inspect", "classify", "--text", "texts.txt", "--show", "saliency", "--out", "s.json"]) == 0
    record = json.loads((folder / "s.json").read_text())
    assert record["texts"] == 4 and set(record["erasure"]) == {*METHODS, "random"}
    assert "Does it mean anything?" in (folder / "s.html").read_text()
    assert "complete to" in capsys.readouterr().out


BAD = {
    "a label that is not there": ("classify", ["--text", TEXT, "--label", "purple"], 2, "choose one"),
    "no gap": ("bert", ["--text", TEXT], 3, "no gap"),
    "a word of several tokens": ("bert", ["--text", "the [MASK]", "--label", "unpronounceable"], 2, "no single token"),
    "a token of a gap": ("bert", ["--text", "the [MASK]", "--token", "the"], 2, "--label"),
    "the first token": ("gpt2", ["--text", TEXT, "--token", "1"], 3, "no word stands before"),
    "a class of a language model": ("gpt2", ["--text", TEXT, "--label", "x"], 2, "--label is for"),
    "a tag where there is none": ("classify", ["--text", TEXT, "--token", "keys"], 2, "predicts no tags"),
    "a target of a reader": ("gpt2", ["--text", TEXT, "--target", "x"], 2, "writes no target"),
    "too long": ("gpt2", ["--text", "table " * 90], 3, "tokens"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, folder, monkeypatch, capsys):
    kind, options, code, words = BAD[case]
    monkeypatch.chdir(folder)
    assert run(["inspect", kind, *options, "--show", "saliency", "--out", "bad.html"]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("seqloom: error:") == 1 and "bug" not in said
    assert not (folder / "bad.html").exists()


def test_a_word_that_is_not_in_the_text_has_no_tag(folder):
    with pytest.raises(UsageError):
        load(folder / "tag")._question(TEXT, None, "zebra", None)
