"""What an unknown word costs: its bytes under a byte 5-gram learnt from the words that became unknown in training.

A vocabulary with `<unk>` hides the text of unknown words; bits per byte is only comparable if that text is counted. The model is
interpolated with Witten–Bell weights down to a uniform distribution over 256 bytes and the end, so every string has a cost and
the costs are those of a distribution over strings. After the first LONGEST bytes of a word all bytes and its end are equally
likely, so that the work is bounded. Such words are not learnt from.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

ORDER = 5
LONGEST = 1000  # bytes of a word that the model looks at
_END = 256
_UNIFORM = 1 / 257
_REMEMBERED = 200_000


class ByteNgram:
    """Interpolated byte 5-gram over words."""

    def __init__(self, words: Mapping[str, int] | Iterable[str] = ()):
        self.words = {word: count for word, count in Counter(words).items() if len(word) <= LONGEST}
        self._next: dict[tuple[int, ...], Counter[int]] = {}
        for word, count in self.words.items():
            symbols = (*word.encode(), _END)
            for i, symbol in enumerate(symbols):
                for length in range(ORDER):
                    if length <= i:
                        self._next.setdefault(symbols[i - length : i], Counter())[symbol] += count
        self._totals = {context: sum(counts.values()) for context, counts in self._next.items()}
        self._known: dict[str, float] = {}

    def probability(self, symbol: int, context: tuple[int, ...]) -> float:
        """Of one byte (or 256, the end) after the bytes before it."""
        chance = _UNIFORM
        for length in range(min(ORDER - 1, len(context)) + 1):
            before = context[len(context) - length :]
            counts = self._next.get(before)
            if counts is None:
                break
            kinds, total = len(counts), self._totals[before]
            chance = (counts[symbol] + kinds * chance) / (total + kinds)
        return chance

    def bits(self, word: str) -> float:
        """−log2 of the probability of the word's bytes and its end."""
        found = self._known.get(word)
        if found is None:
            whole = word.encode()
            symbols = (*whole, _END) if len(whole) < LONGEST else (*whole[:LONGEST],)
            found = -sum(math.log2(self.probability(s, symbols[max(0, i - 4) : i])) for i, s in enumerate(symbols))
            if len(whole) >= LONGEST:
                return found - (len(whole) + 1 - LONGEST) * math.log2(_UNIFORM)
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[word] = found
        return found
