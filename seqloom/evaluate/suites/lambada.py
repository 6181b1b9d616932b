"""The last word of a passage that only the whole passage tells: LAMBADA (Paperno et al., 2016, arXiv 1606.06031).

Published as lines of lower-case words with blanks around punctuation, and (for GPT-2) as {"text"} with the text as it was
printed; either is read as it is. The target is the last word that stands between blanks. Published passages end with it, no
punctuation behind; of a copy that has some it would be part of the target. The blank before a word belongs to it, so models
that read words, pieces or bytes are asked the same.

accuracy     the share of passages in which each token of the target is the most likely one: greedy decoding gives the whole
             word. A target that the vocabulary does not have is wrong, whatever is thought of the unknown token.
perplexity   exp(−mean log p(target)), over words, not tokens. There is none where a vocabulary lacks targets: the unknown
             token is likelier than any of the words behind it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.evaluate.continuations import ContinuationScore
from seqloom.evaluate.suites.minimal import mean
from seqloom.text.labelled import text_of
from seqloom.text.pairs import lines
from seqloom.text.read import file_format
from seqloom.text.tables import fields_of, read_objects


class Passage(NamedTuple):
    context: str
    target: str  # with the blank before it
    place: str  # file:line


def read_lambada(path: Path) -> list[Passage]:
    if path.is_dir():
        raise DataError(f"{path} is a folder: name one file of LAMBADA, .txt or .jsonl, packed or not")
    found = [_passage(text, place) for place, text in _texts(path)]
    if not found:
        raise DataError(f"{path}: no passage in it")
    return found


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if file_format(path) != "jsonl":
        yield from ((f"{path}:{i}", line) for i, line in enumerate(lines(path), 1) if line.strip())
        return
    for place, row in read_objects(path):
        try:
            yield place, text_of(fields_of(row), "text")
        except ValueError as wrong:
            raise DataError(f"{place}: {wrong}") from None


def _passage(text: str, place: str) -> Passage:
    text = text.rstrip()
    before, *last = text.rsplit(None, 1)  # no pattern: one with blanks at both ends takes the square of a line's length
    if not last or not before.strip():
        raise DataError(f"{place}: {text.strip()[:40]!r} is one word: a passage has a last one and some before it")
    context = before.rstrip()
    return Passage(context, text[len(context) :], place)


Continue = Callable[[Sequence[str], Sequence[str]], list[ContinuationScore]]  # contexts, and how they go on


def score_lambada(passages: Sequence[Passage], go_on: Continue) -> dict[str, Any]:
    found = go_on([each.context for each in passages], [each.target for each in passages])
    points = [float(each.greedy and not each.unknown) for each in found]
    unknown = sum(each.unknown for each in found)
    result: dict[str, Any] = {"accuracy": mean(points), "passages": len(passages), "unknown": unknown}
    if unknown:
        result["no_perplexity"] = f"the vocabulary lacks the target of {unknown:,} passages"
    else:
        result["perplexity"] = math.exp(min(-mean([each.log_prob for each in found]), 700.0))
    return result | {"items": points}
