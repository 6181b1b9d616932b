"""The cost in bits of whitespace and case, which some tokenizers lose: bits per byte has to include it.

A word or wordpiece tokenizer loses what is between two words, and with --lowercase every tokenizer loses capitals. To restore the
text from the words, one needs (gap, form) for each. A small model learnt on the training text says how many bits that takes:
- the gap before a word, given the kinds of the words to its left and right;
- the form of a word: as the vocabulary has it, Capitalised, UPPER, or anything else, spelled out; given the word and the kind
  of word before it.
Both are interpolated (Witten–Bell) down to a byte model over all strings, so they are distributions, and every text has a cost.
Unknown words are spelled by `ByteNgram` and have no form to pay for.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqloom.text.music import is_music
from seqloom.tokens.chunks import chunks, grow
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.unknown import ByteNgram

_CHUNKS, _PLACES, _CHARACTERS = 300_000, 1_000_000, 16 << 20  # remembered at most
_NUMBER = 0xFFFFFFFF  # of a place, the part that is its chunk's
_AT_ONCE = 1 << 20  # characters learnt from at once
_PASSED_ON = -1  # the state behind a chunk without a word
_START, _FINISH, _UNKNOWN = "^", "$", "?"
_SAME, _CAPITAL, _UPPER, _SPELLED = "=", "C", "U", "*"


class Unit(NamedTuple):
    gap: str  # the text before it that is not in the ids
    form: str  # as in the text
    word: str | None  # as in the vocabulary; None: unknown


class Chunk(NamedTuple):
    """A piece of text between two places where it may be cut."""

    units: list[Unit]
    rest: str  # blanks that it leaves to the gap of the next unit


State = tuple[str, str]  # between two chunks: the kind of word to the left, the gap not yet paid for


class InterpolatedModel:
    """P(string | contexts from general to special), interpolated, over every string there is."""

    def __init__(self, counts: Iterable[tuple[str, str, int]] = ()):
        self.counts: dict[str, Counter[str]] = {}
        for context, symbol, count in counts:
            self.counts.setdefault(context, Counter())[symbol] += count
        self._totals: dict[str, int] = {}
        self._base = ByteNgram(self.counts.get("", {}))

    def learn(self, symbol: str, times: int, *contexts: str) -> None:
        for context in ("", *contexts):
            self.counts.setdefault(context, Counter())[symbol] += times

    def close(self) -> None:
        self._totals = {context: sum(counts.values()) for context, counts in self.counts.items()}
        self._base = ByteNgram(self.counts.get("", {}))

    def bits(self, symbol: str, *contexts: str) -> float:
        chance = 2.0 ** -self._base.bits(symbol) if len(symbol) < 100 else 0.0
        for context in ("", *contexts):
            counts = self.counts.get(context)
            if counts is not None:
                chance = (counts[symbol] + len(counts) * chance) / (self._totals[context] + len(counts))
        if chance > 0:
            return -math.log2(chance)
        # too small for a float: all the escapes, then the byte model
        escapes = [context for context in ("", *contexts) if context in self.counts]
        shares = (len(self.counts[c]) / (self._totals[c] + len(self.counts[c])) for c in escapes)
        return self._base.bits(symbol) - sum(map(math.log2, shares))

    def as_json(self) -> list[tuple[str, str, int]]:
        return [(context, symbol, n) for context, counts in self.counts.items() for symbol, n in counts.items()]


class WhitespaceAndCase:
    """The cost of the whitespace and case that one tokenizer loses. `learn` from training texts, then `bits` of any text."""

    def __init__(self, tokenizer: Tokenizer, saved: dict[str, Any] | None = None):
        self.tokenizer = tokenizer
        self.forgets_gaps = tokenizer.kind in ("word", "wordpiece")
        saved = saved or {"gaps": (), "forms": (), "spelled": {}}
        self.gaps, self.forms = InterpolatedModel(saved["gaps"]), InterpolatedModel(saved["forms"])
        self.spelled = ByteNgram(saved["spelled"])
        self.gaps.close()
        self.forms.close()
        self._clear()

    @staticmethod
    def needed(tokenizer: Tokenizer) -> bool:
        return not (tokenizer.byte_exact or (tokenizer.kind == "char" and not tokenizer.lowercase))

    @staticmethod
    def possible(tokenizer: Tokenizer) -> bool:
        return (not is_music(tokenizer.kind) and tokenizer.cuts_at_blanks) or tokenizer.kind in ("char", "byte")

    def as_json(self) -> dict[str, Any]:
        return {"gaps": self.gaps.as_json(), "forms": self.forms.as_json(), "spelled": self.spelled.words}

    def _clear(self) -> None:
        """Forget all chunks and states. They are numbered, so that texts are arrays."""
        self._chunks = [Chunk([], "")]  # the first is the end of a text
        self._numbers: dict[str | None, int] = {None: 0}
        self._after = np.zeros(1 << 10, np.int64)  # the state that a chunk leaves
        self._states: list[State] = []
        self._state_numbers: dict[State, int] = {}
        self._characters = 0
        self._costs: dict[int, float] = {}
        self._after[0] = self._state(_START, "")  # behind the end of a text the next one begins

    def _chunks_of(self, text: str) -> list[str]:
        # words stay whole either way; where a chunk is one form, punctuation beside a word belongs to it
        return self.tokenizer.cut(text) if self.forgets_gaps else chunks(text)

    # ---- texts as places: a chunk and the state before it, of which there are few kinds, each met often

    def _places(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Of all texts, one after the other, each with its end."""
        parts: list[str | None] = []
        for text in texts:
            parts += self._chunks_of(text)
            parts.append(None)
        self._add([part for part in set(parts).difference(self._numbers) if part is not None])
        numbers = np.fromiter(map(self._numbers.__getitem__, parts), np.int64, len(parts))
        after = self._after[numbers]
        idle = np.flatnonzero(after == _PASSED_ON).tolist()
        left, waiting = _START, ""
        for here, following in pairwise([*idle, -1]):
            if here == 0 or after[here - 1] != _PASSED_ON:
                left, waiting = self._states[after[here - 1] if here else 0]
            waiting += self._chunks[numbers[here]].rest
            if following != here + 1:  # gaps that still grow are no states: together they would fill the memory
                after[here] = self._state(left, waiting)
        before = np.concatenate([[0], after])[:-1]
        return (before + 1) << 32 | numbers

    def _add(self, texts: list[str]) -> None:
        first = len(self._chunks)
        if first + len(texts) > self._after.size:
            self._after = grow(self._after, first + len(texts))
        for number, chunk in enumerate(self._split(texts), first):
            self._chunks.append(chunk)
            self._after[number] = self._state(_kind(chunk.units[-1].word), chunk.rest) if chunk.units else _PASSED_ON
        self._numbers.update(zip(texts, range(first, first + len(texts)), strict=True))
        self._characters += sum(map(len, texts))

    def _state(self, left: str, waiting: str) -> int:
        number = self._state_numbers.setdefault((left, waiting), len(self._states))
        if number == len(self._states):
            self._states.append((left, waiting))
            self._characters += len(waiting)
        return number

    def _split(self, texts: list[str]) -> Iterator[Chunk]:
        if not self.forgets_gaps:
            for text in texts:
                form = text.lstrip(" \t\n\r")
                yield Chunk([Unit("", form, self.tokenizer.lowered(form))] if form else [], "")
            return
        for text, words in zip(texts, self.tokenizer.words_with_offsets(texts), strict=True):
            units, place = [], 0
            for start, stop, word in words:
                units.append(Unit(text[place:start], text[start:stop], word))
                place = stop
            yield Chunk(units, text[place:])

    def _units(self, place: int) -> Iterator[tuple[str, Unit, str]]:
        """Those of a place, between the kinds of word left and right of each."""
        number = place & _NUMBER
        units = self._chunks[number].units
        if number and not units:
            return
        left, waiting = self._states[(place >> 32) - 1]
        if not number:
            yield left, Unit(waiting, "", ""), _FINISH
        for gap, form, word in units:
            right = _kind(word)
            yield left, Unit(waiting + gap, form, word), right
            left, waiting = right, ""

    def _is_full(self, places: int) -> bool:
        return len(self._chunks) > _CHUNKS or places > _PLACES or self._characters > _CHARACTERS

    def units(self, text: str) -> Iterator[Unit]:
        """The units of a text and a last empty one; the gaps and forms, joined, are the text (but for blanks in the ids)."""
        for place in self._places([text]).tolist():
            yield from (unit for _, unit, _ in self._units(place))

    # ---- learn and charge

    def learn(self, texts: Iterable[str]) -> "WhitespaceAndCase":
        spelled: Counter[str] = Counter()
        seen: Counter[int] = Counter()

        def count() -> None:
            for place, times in seen.items():
                self._count(place, times, spelled)
            seen.clear()

        for some in _in_groups(texts):
            kinds, times = np.unique(self._places(some), return_counts=True)
            for place, number in zip(kinds.tolist(), times.tolist(), strict=True):
                seen[place] += number
            if self._is_full(len(seen)):
                count()
                self._clear()
        count()
        self.spelled = ByteNgram(spelled)
        self.gaps.close()
        self.forms.close()
        self._clear()  # what it remembers is large, and would be sent to every worker
        return self

    def _count(self, place: int, times: int, spelled: Counter[str]) -> None:
        for left, (gap, form, word), right in self._units(place):
            if self.forgets_gaps:
                self.gaps.learn(gap, times, "\t" + right, left + "\t" + right)
            if form and word is not None:
                pattern = _pattern(form, word)
                self.forms.learn(pattern, times, left, left + "\t" + word)
                if pattern == _SPELLED:
                    spelled[form] += times

    def bits(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Of each text."""
        places = self._places(texts)
        kinds, kind = np.unique(places, return_inverse=True)
        costs = np.array([self._cost(place) for place in kinds.tolist()])
        ends = places & _NUMBER == 0
        owner = np.cumsum(ends) - ends
        found: npt.NDArray[np.float64] = np.bincount(owner, costs[kind], len(texts)).astype(np.float64)
        if self._is_full(len(self._costs)):
            self._clear()
        return found

    def _cost(self, place: int) -> float:
        cost = self._costs.get(place)
        if cost is None:
            cost = self._costs[place] = sum(self._unit_bits(*each) for each in self._units(place))
        return cost

    def _unit_bits(self, left: str, unit: Unit, right: str) -> float:
        cost = 0.0
        if self.forgets_gaps:
            cost += self.gaps.bits(unit.gap, "\t" + right, left + "\t" + right)
        if unit.form and unit.word is not None:
            cost += self._form_bits(left, unit.form, unit.word)
        return cost

    def _form_bits(self, left: str, form: str, word: str) -> float:
        pattern = _pattern(form, word)
        cost = self.forms.bits(pattern, left, left + "\t" + word)
        return cost + (self.spelled.bits(form) if pattern == _SPELLED else 0.0)


def _in_groups(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size >= _AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _kind(word: str | None) -> str:
    if word is None:
        return _UNKNOWN
    if any(map(str.isalnum, word)):
        return "0" if word[0].isdigit() else "a"
    return word[:3]


def _pattern(form: str, word: str) -> str:
    if form == word:
        return _SAME
    if form == word[:1].upper() + word[1:]:
        return _CAPITAL
    return _UPPER if form == word.upper() else _SPELLED
