"""The cost of spaces and case: nothing of the text is free, and the model is a distribution."""

import json
import math
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.tokens import chunks as chunking
from seqloom.tokens import whitespace_and_case as whitespace_and_case
from seqloom.tokens.whitespace_and_case import InterpolatedModel, Unit, WhitespaceAndCase
from tests.tokens.test_tokenizer import TEXTS, some_text, tokenizer

LOSSY = [("word", False), ("word", True), ("wordpiece", False), ("wordpiece", True), ("bpe", True), ("char", True)]


def lost_text(kind: str, lowercase: bool) -> WhitespaceAndCase:
    return WhitespaceAndCase(tokenizer(kind, lowercase)).learn(some_text())


_MODELS: dict[tuple[str, bool], WhitespaceAndCase] = {}


def surface_of(kind: str, lowercase: bool) -> WhitespaceAndCase:
    if (kind, lowercase) not in _MODELS:
        _MODELS[kind, lowercase] = lost_text(kind, lowercase)
    return _MODELS[kind, lowercase]


def bits(model: WhitespaceAndCase, text: str) -> float:
    return float(model.bits([text])[0])


def everything_is_paid(model: WhitespaceAndCase, text: str) -> None:
    """Gaps and forms give the text back, and the words are those that decode gives."""
    units = list(model.units(text))
    rebuilt = "".join(unit.gap + unit.form for unit in units)
    if model.forgets_gaps:
        assert rebuilt == text
        unknown = model.tokenizer.token(model.tokenizer.unk_id or 0)
        words = [unknown if unit.word is None else unit.word for unit in units[:-1]]
        assert " ".join(words) == model.tokenizer.decode(model.tokenizer.encode(text))
    else:
        assert re.sub(r"[ \t\n\r]", "", rebuilt) == re.sub(r"[ \t\n\r]", "", text)
    assert math.isfinite(bits(model, text)) and bits(model, text) >= 0


@pytest.mark.parametrize(("kind", "lowercase"), LOSSY)
@given(text=TEXTS)
@settings(max_examples=60)
def test_everything_is_paid(kind: str, lowercase: bool, text: str) -> None:
    everything_is_paid(surface_of(kind, lowercase), text)


def test_planted_bug_a_lost_gap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lost_text("word", False)
    right = WhitespaceAndCase.units
    monkeypatch.setattr(
        WhitespaceAndCase, "units", lambda self, text: (Unit(u.gap[:1], u.form, u.word) for u in right(self, text))
    )
    with pytest.raises(AssertionError):
        everything_is_paid(model, "the  cat")


def test_the_usual_is_cheap_and_the_odd_is_dear() -> None:
    model = lost_text("word", True)
    assert bits(model, "the cat sat") < 3
    assert bits(model, "the  cat sat") > bits(model, "the cat sat") + 3
    assert bits(model, "the cAt sat") > bits(model, "the Cat sat") > bits(model, "the cat sat")


@pytest.mark.parametrize(("kind", "lowercase"), LOSSY)
@given(texts=st.lists(TEXTS, max_size=6))
@settings(max_examples=40)
def test_texts_together_cost_what_each_costs(kind: str, lowercase: bool, texts: list[str]) -> None:
    together_as_alone(surface_of(kind, lowercase), texts)


def together_as_alone(model: WhitespaceAndCase, texts: list[str]) -> None:
    """And each costs the sum over its units, however they were remembered."""
    assert model.bits(texts).tolist() == [bits(model, text) for text in texts]
    for text in texts:
        left, total = "^", 0.0
        *units, last = model.units(text)
        for unit in units:
            right = whitespace_and_case._kind(unit.word)
            total += model._unit_bits(left, unit, right)
            left = right
        assert bits(model, text) == pytest.approx(total + model._unit_bits(left, last, "$"))


def test_planted_bug_a_text_that_begins_where_the_last_ended_is_noticed() -> None:
    model = lost_text("word", False)
    together_as_alone(model, ["cat, ", "the cat"])
    model._after[0] = model._state("a", " ")
    with pytest.raises(AssertionError):
        together_as_alone(model, ["cat, ", "the cat"])


def test_a_choice_is_a_distribution() -> None:
    choice = InterpolatedModel()
    for gap in [" "] * 5 + ["", "", "\n"]:
        choice.learn(gap, 1, "a", "ab")
    choice.close()
    strings = ["", *map(chr, range(128))]
    total = sum(2 ** -choice.bits(s, "a", "ab") for s in strings)
    assert 0.9 < total <= 1
    assert math.isfinite(choice.bits(" " * 5000, "a", "zz"))


def test_saved_and_loaded_it_costs_the_same() -> None:
    model = lost_text("wordpiece", True)
    again = WhitespaceAndCase(model.tokenizer, json.loads(json.dumps(model.as_json())))
    text = "The cat,  WALKED over\n\nNaïve Zebra."
    assert bits(again, text) == bits(model, text)
    assert bits(pickle.loads(pickle.dumps(model)), text) == bits(model, text)  # as it is sent to workers


def test_long_gaps_are_paid_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of blanks is one gap, which grows from chunk to chunk: all of its beginnings together would fill the memory."""
    monkeypatch.setattr(chunking, "LONGEST", 5000)
    text = "the" + " " * 200_000 + "cat"
    model = WhitespaceAndCase(tokenizer("word", False)).learn([*some_text(), text])
    everything_is_paid(model, text)
    held = [chunk or "" for chunk in model._numbers] + [waiting for _, waiting in model._states]
    assert sum(map(len, held)) <= model._characters + 10 < 3 * len(text)


def test_planted_memory_of_every_growing_gap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = WhitespaceAndCase._places

    def remembering(self: WhitespaceAndCase, texts: list[str]) -> object:
        for text in texts:
            waiting = ""
            for chunk in self._chunks_of(text):
                waiting = waiting + chunk if chunk.isspace() else ""
                self._state("a", waiting)
        return right(self, texts)

    monkeypatch.setattr(WhitespaceAndCase, "_places", remembering)
    with pytest.raises(AssertionError):
        test_long_gaps_are_paid_and_not_remembered(monkeypatch)


@pytest.mark.parametrize("limit", ["_CHUNKS", "_PLACES", "_CHARACTERS"])
def test_what_is_forgotten_costs_the_same(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lost_text("wordpiece", True)
    expected = whole.bits(some_text(7))
    monkeypatch.setattr(whitespace_and_case, limit, 5)
    monkeypatch.setattr(whitespace_and_case, "_AT_ONCE", 200)
    forgetful = lost_text("wordpiece", True)
    for part in ("gaps", "forms"):
        assert sorted(forgetful.as_json()[part]) == sorted(whole.as_json()[part])
    assert [bits(forgetful, text) for text in some_text(7)] == expected.tolist()
    assert len(forgetful._chunks) == 1
