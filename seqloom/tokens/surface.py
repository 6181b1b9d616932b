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
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from seqloom.tokens.chunks import chunks
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.unknown import ByteNgram

_REMEMBERED = 300_000
_START, _FINISH, _UNKNOWN = "^", "$", "?"
_SAME, _CAPITAL, _UPPER, _SPELLED = "=", "C", "U", "*"


class Unit(NamedTuple):
    gap: str  # what stands before it and is not in the ids
    form: str  # as the text has it
    word: str | None  # as the ids have it; None: unknown


class Choice:
    """P(string | contexts from general to special), interpolated, over every string there is."""

    def __init__(self, counts: Iterable[tuple[str, str, int]] = ()):
        self.counts: dict[str, Counter[str]] = {}
        for context, symbol, count in counts:
            self.counts.setdefault(context, Counter())[symbol] += count
        self._totals: dict[str, int] = {}
        self._base = ByteNgram(self.counts.get("", {}))

    def learn(self, symbol: str, *contexts: str) -> None:
        for context in ("", *contexts):
            self.counts.setdefault(context, Counter())[symbol] += 1

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
        self._units: dict[str, tuple[list[Unit], str]] = {}
        self._known_gaps: dict[tuple[str, str, str], float] = {}
        self._known_forms: dict[tuple[str, str, str], float] = {}

    # ---- a text as units

    def units(self, text: str) -> Iterator[Unit]:
        """The units of a text and a last empty one; the gaps and forms, joined, are the text (but for blanks in the ids)."""
        waiting = ""
        for chunk in chunks(text):
            found = self._units.get(chunk)
            if found is None:
                if len(self._units) > _REMEMBERED:
                    self._clear()
                found = self._units[chunk] = self._split(chunk)
            for gap, form, word in found[0]:
                yield Unit(waiting + gap, form, word)
                waiting = ""
            waiting += found[1]
        yield Unit(waiting, "", "")

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
        for text in texts:
            left = _START
            for gap, form, word in self.units(text):
                right = _kind(word) if form else _FINISH
                if self.forgets_gaps:
                    self.gaps.learn(gap, "\t" + right, left + "\t" + right)
                if form and word is not None:
                    pattern = _pattern(form, word)
                    self.forms.learn(pattern, left, left + "\t" + word)
                    if pattern == _SPELLED:
                        spelled[form] += 1
                left = right
        self.spelled = ByteNgram(spelled)
        self.gaps.close()
        self.forms.close()
        return self

    def bits(self, text: str) -> float:
        total, left = 0.0, _START
        for gap, form, word in self.units(text):
            right = _kind(word) if form else _FINISH
            if self.forgets_gaps:
                cost = self._known_gaps.get((left, gap, right))
                if cost is None:
                    cost = self._known_gaps[left, gap, right] = self.gaps.bits(gap, "\t" + right, left + "\t" + right)
                total += cost
            if form and word is not None:
                cost = self._known_forms.get((left, form, word))
                if cost is None:
                    cost = self._known_forms[left, form, word] = self._form_bits(left, form, word)
                total += cost
            left = right
        return total

    def _form_bits(self, left: str, form: str, word: str) -> float:
        pattern = _pattern(form, word)
        cost = self.forms.bits(pattern, left, left + "\t" + word)
        return cost + (self.spelled.bits(form) if pattern == _SPELLED else 0.0)


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
