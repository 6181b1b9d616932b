"""What a run does with choices and with garbled texts, whatever kind of run it is."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqloom.analyse.garbled import Garbled, answer_all
from seqloom.analyse.preference import Choice, Chosen, Preference, read_choices, side_of
from seqloom.errors import DataError, UsageError

CONTINUED = 64  # tokens that a language model writes
MOST_GARBLED = 200  # texts


def preference(run: Any, file: Path) -> Preference:
    choices = read_choices(file)
    translates = hasattr(run, "translate") and run.learner.reads == "pairs"
    if translates:
        return Preference(run.folder.name, file.name, "log p(target | source)", choose_target(run, choices))
    if not hasattr(run, "score"):
        raise UsageError(f"{run.folder} gives no probabilities of texts: choose a language model or a translator")
    texts = [[f"{each.text} {wording}".strip() for wording in (each.first, each.second)] for each in choices]
    scored = run.score(
        [text for both in texts for text in both], names=[each.place for each in choices for _ in range(2)]
    )
    scores = [sum(each.log_probs) + (each.end or 0.0) for each in scored]
    odds = [a - b for a, b in zip(scores[::2], scores[1::2], strict=True)]
    chosen = [Chosen(each, value, None, 0) for each, value in zip(choices, odds, strict=True)]
    return Preference(run.folder.name, file.name, run.definition(), chosen)


def choose_target(run: Any, choices: Sequence[Choice]) -> list[Chosen]:
    for each in choices:
        if not each.text:
            raise DataError(f"{each.place}: a translator needs a source, in the column text")
    sources = [each.text for each in choices]
    scores = [
        run.target_log_probs(sources, targets) for targets in zip(*((c.first, c.second) for c in choices), strict=True)
    ]
    written = [best[0].text for best in run.translate(sources)]
    return [
        Chosen(choice, first - second, own, side_of(own, choice))
        for choice, first, second, own in zip(choices, *scores, written, strict=True)
    ]


def garbled(run: Any, texts: Sequence[str], source: str) -> Garbled:
    some = [text for text in texts if text.strip()][:MOST_GARBLED]
    if not some:
        raise DataError("the texts are empty: give at least one word")
    return Garbled(run.folder.name, source, answer_all(some, writer_of(run)))


def writer_of(run: Any) -> Callable[[list[str]], list[tuple[str, bool]]]:
    """How a run writes: a translation by its beam search, or the likeliest continuation."""
    if hasattr(run, "translate"):
        return lambda texts: [(best[0].text, best[0].finished) for best in run.translate(texts)]
    if not hasattr(run, "generate") or not run.learner.has_next_word:
        raise UsageError(f"{run.folder} writes no texts: choose a translator or a model that reads from left to right")

    def write(texts: list[str]) -> list[tuple[str, bool]]:
        found = []
        for text in texts:
            (made,) = run.generate(text, temperature=0.0, max_new=CONTINUED)
            found.append((made.text.removeprefix(text).strip(), len(made.tokens) < CONTINUED))
        return found

    return write
