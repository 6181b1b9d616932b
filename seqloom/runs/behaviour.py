"""What a run does with choices and with garbled texts, whatever kind of run it is."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seqloom.analyse.garbled import Garbled, answer_all
from seqloom.analyse.preference import Choice, Chosen, Preference, read_choices, side_of
from seqloom.errors import DataError, UsageError
from seqloom.tokens.tokenizer import Tokenizer

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
    write = writer_of(run)
    return Garbled(run.folder.name, source, answer_all(some, write, fit_of(run)))


def fit_of(run: Any) -> Callable[[str], str]:
    """What a run can read of a text: a translator its beginning, a language model its end, as when it goes on from a prompt."""
    limit = run.learner.backbone.max_len
    if limit is None:
        return str
    if hasattr(run, "translate"):
        room = limit - len(run.frame.source_before) - 1
        return lambda text: cut_text(text, run.source_tokenizer, room, room, from_end=False)
    return lambda text: cut_text(text, run.tokenizer, limit - 2, max(limit // 2, 1), from_end=True)


def cut_text(text: str, tokenizer: Tokenizer, room: int, kept: int, from_end: bool) -> str:
    """A text of more tokens than there is room for, cut to whole words of at most `kept` tokens."""
    ids, spans = tokenizer.encode_with_offsets(text)
    if len(ids) <= room:
        return text
    place = spans[-kept][0] if from_end else spans[kept - 1][1]
    part = text[place:] if from_end else text[:place]
    is_inside = 0 < place < len(text) and not text[place - 1].isspace() and not text[place].isspace()
    words = part.split()
    if is_inside and len(words) > 1:
        words = words[1:] if from_end else words[:-1]
    while len(words) > 1 and len(tokenizer.encode(" ".join(words))) > kept:
        words = words[1:] if from_end else words[:-1]
    return " ".join(words)


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
