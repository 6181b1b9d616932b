"""What a tokenizer does not keep, spaces and case, in bits: the other half of an honest bits-per-byte figure.

A word or wordpiece tokenizer forgets what stood between two words, and with --lowercase every tokenizer forgets capitals. A
reader who knows the words still needs (gap, form) for each to have the text back. A small model learnt on the training text says
how many bits that is:
- the gap before a word, given what kinds of word stand left and right of it;
- the form of a word: as the vocabulary has it, Capitalised, UPPER, or anything else, spelled out; given the word and the kind
  of word before it.
Both are interpolated (Witten–Bell) down to a byte model over all strings, so they are distributions, and nothing is free.
Unknown words are spelled by `ByteNgram` and have no form to pay for.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from seqloom.tokens.chunks import chunks
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.unknown import ByteNgram

_REMEMBERED = 300_000  # places
_LONGEST = 1000  # characters of a place that is remembered
_START, _FINISH, _UNKNOWN = "^", "$", "?"
_SAME, _CAPITAL, _UPPER, _SPELLED = "=", "C", "U", "*"


class Unit(NamedTuple):
    gap: str  # what stands before it and is not in the ids
    form: str  # as the text has it
    word: str | None  # as the ids have it; None: unknown


Place = tuple[str, str, str | None]  # the kind of word to the left, the gap not yet paid for, a chunk; None: the end


class Step(NamedTuple):
    """What a chunk is at its place, and what it leaves to the next one."""

    units: list[tuple[str, Unit, str]]  # between the kinds of word left and right of it
    left: str
    waiting: str


class Choice:
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


class Surface:
    """The cost of what one tokenizer loses. `learn` from training texts, then `bits` of any text."""

    def __init__(self, tokenizer: Tokenizer, saved: dict[str, Any] | None = None):
        self.tokenizer = tokenizer
        self.forgets_gaps = tokenizer.kind in ("word", "wordpiece")
        saved = saved or {"gaps": (), "forms": (), "spelled": {}}
        self.gaps, self.forms = Choice(saved["gaps"]), Choice(saved["forms"])
        self.spelled = ByteNgram(saved["spelled"])
        self.gaps.close()
        self.forms.close()
        self._clear()

    @staticmethod
    def needed(tokenizer: Tokenizer) -> bool:
        return not (tokenizer.byte_exact or (tokenizer.kind == "char" and not tokenizer.lowercase))

    @staticmethod
    def possible(tokenizer: Tokenizer) -> bool:
        return tokenizer.cuts_at_blanks or tokenizer.kind in ("char", "byte")

    def as_json(self) -> dict[str, Any]:
        return {"gaps": self.gaps.as_json(), "forms": self.forms.as_json(), "spelled": self.spelled.words}

    def _clear(self) -> None:
        self._steps: dict[Place, Step] = {}
        self._costs: dict[Place, float] = {}

    # ---- a text as units

    def units(self, text: str) -> Iterator[Unit]:
        """The units of a text and a last empty one; the gaps and forms, joined, are the text (but for blanks in the ids)."""
        for place in self.places(text):
            yield from (unit for _, unit, _ in self._step(place).units)

    def places(self, text: str) -> Iterator[Place]:
        """The chunks of a text, with all that what they cost depends on: few kinds, each met often."""
        left, waiting = _START, ""
        # words stay whole either way; where they are forms of their own, what stands beside them belongs to them
        for chunk in self.tokenizer.cut(text) if self.forgets_gaps else chunks(text):
            place = (left, waiting, chunk)
            yield place
            _, left, waiting = self._steps.get(place) or self._step(place)
        yield left, waiting, None

    def _step(self, place: Place) -> Step:
        found = self._steps.get(place)
        if found is None:
            if len(self._steps) > _REMEMBERED:
                self._clear()
            found = self._read(*place)
            if _is_short(place):
                self._steps[place] = found
        return found

    def _read(self, left: str, waiting: str, chunk: str | None) -> Step:
        if chunk is None:
            return Step([(left, Unit(waiting, "", ""), _FINISH)], _FINISH, "")
        units, rest = self._split(chunk)
        found = []
        for gap, form, word in units:
            right = _kind(word)
            found.append((left, Unit(waiting + gap, form, word), right))
            left, waiting = right, ""
        return Step(found, left, waiting + rest)

    def _split(self, chunk: str) -> tuple[list[Unit], str]:
        if not self.forgets_gaps:
            form = chunk.lstrip(" \t\n\r")
            return ([Unit("", form, self.tokenizer.lowered(form))] if form else []), ""
        units, place = [], 0
        for start, stop, word in self.tokenizer.words_with_offsets(chunk):
            units.append(Unit(chunk[place:start], chunk[start:stop], word))
            place = stop
        return units, chunk[place:]

    # ---- learn and charge

    def learn(self, texts: Iterable[str]) -> "Surface":
        spelled: Counter[str] = Counter()
        seen: Counter[Place] = Counter()
        for text in texts:
            seen.update(self._short(text, spelled))
            if len(seen) > _REMEMBERED:
                self._count(seen, spelled)
                seen.clear()
        self._count(seen, spelled)
        self.spelled = ByteNgram(spelled)
        self.gaps.close()
        self.forms.close()
        self._clear()  # what it remembers is large, and would be sent to every worker
        return self

    def _short(self, text: str, spelled: Counter[str]) -> Iterator[Place]:
        """Long places, which hardly come again, are counted at once."""
        for place in self.places(text):
            if _is_short(place):
                yield place
            else:
                self._count({place: 1}, spelled)

    def _count(self, seen: Mapping[Place, int], spelled: Counter[str]) -> None:
        for place, times in seen.items():
            for left, (gap, form, word), right in self._step(place).units:
                if self.forgets_gaps:
                    self.gaps.learn(gap, times, "\t" + right, left + "\t" + right)
                if form and word is not None:
                    pattern = _pattern(form, word)
                    self.forms.learn(pattern, times, left, left + "\t" + word)
                    if pattern == _SPELLED:
                        spelled[form] += times

    def bits(self, text: str) -> float:
        total = 0.0
        for place in self.places(text):
            cost = self._costs.get(place)
            if cost is None:
                cost = sum(self._unit_bits(*each) for each in self._step(place).units)
                if _is_short(place):
                    self._costs[place] = cost
            total += cost
        return total

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


def _is_short(place: Place) -> bool:
    return len(place[1]) + len(place[2] or "") <= _LONGEST


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
