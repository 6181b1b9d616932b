"""What a model writes for garbled input: repeated, shuffled and misspelt texts.

Translators and language models answer anything, also what nobody would write: they repeat themselves, do not end, or invent a
fluent text. Each text is given as it is and garbled in several ways, always in the same way for the same seed.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.finding import Finding, as_record
from seqloom.analyse.preference import words_of
from seqloom.charts import Estimate, Section, TableCell, escaped, figure, intervals, table
from seqloom.errors import DataError
from seqloom.metrics.intervals import Interval, Sample, nested

AS_WRITTEN = "as written"
GRAM = 3  # words
OVERLAP = "overlap with what is written for the clean text"
LENGTH = "words written for each word read"


def swap_letters(word: str, rng: random.Random) -> str:
    """Two neighbouring letters inside a word exchanged."""
    if len(word) < 4:
        return word
    i = rng.randrange(1, len(word) - 2)
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def shuffle_words(text: str, rng: random.Random) -> str:
    words = text.split()
    rng.shuffle(words)
    return " ".join(words)


def random_letters(text: str, rng: random.Random) -> str:
    letters = sorted({c for c in text if c.isalpha()}) or ["a"]
    return "".join(rng.choice(letters) if c.isalpha() else c for c in text)


def repeat_last_word(text: str, rng: random.Random) -> str:
    words = text.split()
    return " ".join([*words, *words[-1:] * 9])


# ways of garbling; the name is what the page says
WAYS: dict[str, Callable[[str, random.Random], str]] = {
    AS_WRITTEN: lambda text, rng: text,
    "last word ten times": repeat_last_word,
    "whole text three times": lambda text, rng: " ".join([text] * 3),
    "words shuffled": shuffle_words,
    "letters swapped in every word": lambda text, rng: " ".join(swap_letters(word, rng) for word in text.split()),
    "random letters": random_letters,
    "capitals": lambda text, rng: text.upper(),
}


def garble(text: str, way: str, number: int, seed: int = 0) -> str:
    """A text garbled in one way. number: of the text, which decides with the seed what is drawn."""
    return WAYS[way](text, random.Random(f"{seed} {number} {way}"))


class Answer(NamedTuple):
    read: str
    written: str
    finished: bool  # False: cut off at the greatest length
    cut: bool = False  # the garbled text was longer than the model reads: `read` is a part of it


def repetition(text: str) -> float:
    """Share of the runs of three words that have occurred before in the text."""
    words = words_of(text)
    grams = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def overlap(one: str, other: str) -> float:
    """F1 of the words of two texts, each as often as it occurs."""
    first, second = words_of(one), words_of(other)
    if not first or not second:
        return float(first == second)
    common = sum(min(first.count(word), second.count(word)) for word in set(first))
    return 2 * common / (len(first) + len(second))


def length_ratio(read: str, written: str) -> float:
    """Words written for each word read."""
    return len(words_of(written)) / max(len(words_of(read)), 1)


class Garbled(Finding):
    """What a run writes for garbled texts."""

    title = "Garbled input"

    def __init__(self, run: str, source: str, answers: dict[str, list[Answer]]):
        """answers: by way of garbling, in the order of the texts."""
        self.run, self.source, self.answers = run, source, answers

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def figures(self, way: str) -> dict[str, Interval]:
        """Means over texts, with intervals for other texts."""
        clean, found = self.answers[AS_WRITTEN], self.answers[way]
        shares = {
            "repetition": [repetition(each.written) for each in found],
            "nothing written": [float(not words_of(each.written)) for each in found],
            "unfinished": [float(not each.finished) for each in found],
            OVERLAP: [overlap(each.written, other.written) for each, other in zip(found, clean, strict=True)],
        }
        figures = {
            name: nested(Sample(np.array([each]), deterministic=True, outcomes=True)) for name, each in shares.items()
        }
        ratios = np.array([[length_ratio(each.read, each.written) for each in found]])
        length = nested(Sample(ratios, deterministic=True))
        if length.is_bounded:
            length = length._replace(low=max(length.low, 0.0))
        return {LENGTH: length} | figures

    def cut(self) -> str:
        """How many texts were longer than the model reads, in words."""
        counts = {way: sum(each.cut for each in some) for way, some in self.answers.items()}
        found = [f"{count:,} of {len(self.answers[way]):,} ({way})" for way, count in counts.items() if count]
        return f"Texts longer than the model reads were cut: {', '.join(found)}." if found else ""

    def lines(self) -> list[str]:
        found = []
        for way in self.answers:
            figures = ", ".join(f"{name} {each.value:.3f}" for name, each in self.figures(way).items())
            found.append(f"{self.run}, {way}: {figures}")
        return [*found, *filter(None, [self.cut()])]

    def rows(self) -> list[list[object]]:
        header: list[object] = ["way", "text", "read", "written", "finished", "repetition"]
        return [
            header,
            *(
                [way, i, each.read, each.written, each.finished, repetition(each.written)]
                for way, some in self.answers.items()
                for i, each in enumerate(some, 1)
            ),
        ]

    def record(self) -> dict[str, Any]:
        ways = {way: {name: as_record(each) for name, each in self.figures(way).items()} for way in self.answers}
        answers = {way: [each._asdict() for each in some] for way, some in self.answers.items()}
        return {"run": self.run, "text": self.source, "ways": ways, "answers": answers}

    def pictures(self) -> dict[str, str]:
        drawn = {}
        for name in self.figures(AS_WRITTEN):
            ways = [way for way in self.answers if name != OVERLAP or way != AS_WRITTEN]  # all of itself
            found = {way: self.figures(way)[name] for way in ways}
            drawn[name] = intervals(
                [Estimate(way, each.value, each.low, each.high) for way, each in found.items()], name
            )
        return drawn

    def parts(self) -> list[str | Section]:
        head = (
            f'<p class="note">What {escaped(self.run)} writes for {escaped(self.source)}, as they are and garbled. '
            "Repetition: share of the runs of three words that have occurred before in the same output. "
            "Nothing written: the model ends at once, as models do that have learnt to end after a full stop. "
            f"Unfinished: cut off at the greatest length. Intervals are for other texts. {escaped(self.cut())}</p>"
        )
        examples: list[list[TableCell]] = [[way, some[0].read, some[0].written] for way, some in self.answers.items()]
        return [
            head,
            *(Section(name.capitalize(), figure(drawn, name)) for name, drawn in self.pictures().items()),
            Section("The first text", table(["way", "read", "written"], examples, file="examples.csv")),
        ]


def answer_all(
    texts: Sequence[str],
    write: Callable[[list[str]], list[tuple[str, bool]]],
    fit: Callable[[str], str] = str,
    seed: int = 0,
) -> dict[str, list[Answer]]:
    """write: gives for texts what is written and whether it ends by itself. fit: what the model can read of a text."""
    found = {}
    for way in WAYS:
        given = [garble(text, way, number, seed) for number, text in enumerate(texts)]
        read = [fit(text) for text in given]
        try:
            written = write(read)
        except DataError as error:
            raise DataError(f"{way}: {error}") from error
        found[way] = [
            Answer(text, *each, text != whole) for whole, text, each in zip(given, read, written, strict=True)
        ]
    return found
