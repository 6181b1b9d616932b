"""The cost of spaces and case: nothing of the text is free, and the model is a distribution."""

import json
import math
import re

import pytest
from hypothesis import given, settings

from seqloom.tokens import chunks as chunking
from seqloom.tokens import surface as surfaces
from seqloom.tokens.surface import Choice, Surface, Unit
from tests.tokens.test_tokenizer import TEXTS, some_text, tokenizer

LOSSY = [("word", False), ("word", True), ("wordpiece", False), ("wordpiece", True), ("bpe", True), ("char", True)]


def surface(kind: str, lowercase: bool) -> Surface:
    return Surface(tokenizer(kind, lowercase)).learn(some_text())


_MODELS: dict[tuple[str, bool], Surface] = {}


def surface_of(kind: str, lowercase: bool) -> Surface:
    if (kind, lowercase) not in _MODELS:
        _MODELS[kind, lowercase] = surface(kind, lowercase)
    return _MODELS[kind, lowercase]


def everything_is_paid(model: Surface, text: str) -> None:
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
    assert math.isfinite(model.bits(text)) and model.bits(text) >= 0


@pytest.mark.parametrize(("kind", "lowercase"), LOSSY)
@given(text=TEXTS)
@settings(max_examples=60)
def test_everything_is_paid(kind: str, lowercase: bool, text: str) -> None:
    everything_is_paid(surface_of(kind, lowercase), text)


def test_planted_bug_a_lost_gap_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = surface("word", False)
    right = Surface.units
    monkeypatch.setattr(
        Surface, "units", lambda self, text: (Unit(u.gap[:1], u.form, u.word) for u in right(self, text))
    )
    with pytest.raises(AssertionError):
        everything_is_paid(model, "the  cat")


def test_the_usual_is_cheap_and_the_odd_is_dear() -> None:
    model = surface("word", True)
    assert model.bits("the cat sat") < 3
    assert model.bits("the  cat sat") > model.bits("the cat sat") + 3
    assert model.bits("the cAt sat") > model.bits("the Cat sat") > model.bits("the cat sat")


def test_a_choice_is_a_distribution() -> None:
    choice = Choice()
    for gap in [" "] * 5 + ["", "", "\n"]:
        choice.learn(gap, 1, "a", "ab")
    choice.close()
    strings = ["", *map(chr, range(128))]
    total = sum(2 ** -choice.bits(s, "a", "ab") for s in strings)
    assert 0.9 < total <= 1
    assert math.isfinite(choice.bits(" " * 5000, "a", "zz"))


def test_saved_and_loaded_it_costs_the_same() -> None:
    model = surface("wordpiece", True)
    again = Surface(model.tokenizer, json.loads(json.dumps(model.as_json())))
    text = "The cat,  WALKED over\n\nNaïve Zebra."
    assert again.bits(text) == model.bits(text)


def test_long_gaps_are_paid_and_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of blanks is one gap, which grows from chunk to chunk: all of its beginnings together would fill the memory."""
    monkeypatch.setattr(chunking, "LONGEST", 5000)
    text = "the" + " " * 200_000 + "cat"
    model = Surface(tokenizer("word", False)).learn([*some_text(), text])
    everything_is_paid(model, text)
    held = [*model._steps, *model._costs]
    assert held and max(len(gap) + len(chunk or "") for _, gap, chunk in held) <= 1000


def test_planted_memory_of_everything_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surfaces, "_is_short", lambda place: True)
    with pytest.raises(AssertionError):
        test_long_gaps_are_paid_and_not_remembered(monkeypatch)
