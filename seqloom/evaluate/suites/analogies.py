"""A is to B as C is to which word? Analogies of words: Mikolov et al., 2013 (arXiv 1301.3781), questions-words.txt.

A file has sections, ": NAME", of lines with four words. The answer is the best word of the vocabulary, A, B and C apart, by

    3CosAdd   cos(x, b − a + c)                                              vectors have length 1
    3CosMul   cos(x, b) · cos(x, c) / (cos(x, a) + 0.001), each moved to 0…1   Levy & Goldberg, 2014

accuracy         right answers among all questions, by 3CosAdd: a question with a word that the model does not know is wrong, so
                 that no model is ahead by knowing fewer words
accuracy_known   among those whose words are all known: what papers report
Sections whose name begins with "gram" are syntactic, the others semantic.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.evaluate.suites.minimal import mean
from seqloom.evaluate.words import WordTable
from seqloom.progress import Progress
from seqloom.text.pairs import lines

AT_ONCE = 256  # questions
EPSILON = 1e-3
NEVER = -np.inf  # the score of a word of the question


class Analogy(NamedTuple):
    words: tuple[str, str, str, str]
    section: str


class AskedWords(NamedTuple):
    """What a model says about words: the vector of each, None where it does not know it, and the words it may answer with."""

    vectors: dict[str, np.ndarray | None]
    keys: dict[str, str]  # the form in which each word stands in the vocabulary
    table: WordTable | None


Ask = Callable[[Sequence[str], bool], AskedWords]  # words, and whether the whole vocabulary is needed


def read_analogies(path: Path) -> list[Analogy]:
    if path.is_dir():
        raise DataError(f"{path} is a folder: name one file, such as questions-words.txt")
    found, section = [], ""
    for number, line in enumerate(lines(path), 1):
        if line.startswith(":"):
            section = line[1:].strip()
        elif line.strip():
            words = line.split()
            if len(words) != 4:
                raise DataError(f"{path}:{number}: {len(words)} words, but an analogy has four: {line.strip()[:60]!r}")
            found.append(Analogy((words[0], words[1], words[2], words[3]), section))
    if not found:
        raise DataError(f"{path}: no analogy in it")
    return found


def score_analogies(questions: Sequence[Analogy], ask: Ask) -> dict[str, Any]:
    asked = ask(sorted({word for each in questions for word in each.words}), True)
    table = asked.table
    assert table is not None
    places = {word: table.places.get(key) for word, key in asked.keys.items()}
    rows = [[places[word] for word in each.words] for each in questions]
    known = [i for i, row in enumerate(rows) if None not in row]
    added, multiplied = np.zeros(len(questions)), np.zeros(len(questions))
    with Progress("analogies", total=float(len(known)), unit="questions") as bar:
        for first in range(0, len(known), AT_ONCE):
            some = known[first : first + AT_ONCE]
            a, b, c, d = np.array([rows[i] for i in some]).T
            near = [table.unit[each] @ table.unit.T for each in (a, b, c)]
            given = np.arange(len(some))
            total = near[1] - near[0] + near[2]
            moved = [(each + 1) / 2 for each in near]
            product = moved[1] * moved[2] / (moved[0] + EPSILON)
            for scores, right in ((total, added), (product, multiplied)):
                for taken in (a, b, c):
                    scores[given, taken] = NEVER
                right[some] = scores.argmax(1) == d
            bar.advance(len(some))
    return summarise(questions, known, added, multiplied, len(table.words))


def summarise(
    questions: Sequence[Analogy], known: Sequence[int], added: np.ndarray, multiplied: np.ndarray, candidates: int
) -> dict[str, Any]:
    is_known = set(known)
    groups: dict[str, list[int]] = {}
    kinds: dict[str, list[int]] = {}
    for i, each in enumerate(questions):
        groups.setdefault(each.section, []).append(i)
        kinds.setdefault("syntactic" if each.section.startswith("gram") else "semantic", []).append(i)

    def among_known(places: Sequence[int], right: np.ndarray) -> float | None:
        there = [i for i in places if i in is_known]
        return mean(right[there].tolist()) if there else None

    every = range(len(questions))
    found: dict[str, Any] = {"accuracy": mean(added.tolist()), "accuracy_mul": mean(multiplied.tolist())}
    if known:
        found |= {"accuracy_known": among_known(every, added), "accuracy_mul_known": among_known(every, multiplied)}
    found |= {"questions": len(questions), "unknown": len(questions) - len(known), "candidates": candidates}
    for name, members in (("by_kind", kinds), ("by_section", groups)):
        scores = {key: among_known(places, added) for key, places in members.items()}
        found[name] = {key: score for key, score in scores.items() if score is not None}
    return found | {"items": added.tolist()}
