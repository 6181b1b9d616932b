"""Entities in tagged sentences: reading them from tags, scoring them, and which tags may follow which.

A tag is O or a mark and an entity type, B-PER. Three schemes: IOB1 (an entity begins with I; with B only right after one of its
type), IOB2 (every entity begins with B) and IOBES (E ends it, S is one of a single word). Ramshaw & Marcus, 1995; Tjong Kim Sang
& Veenstra, 1999. Scores are those of the CoNLL shared tasks' script (conlleval, 2004), which is lenient with ill-formed tags;
`strict` ones are seqeval's, for which only well-formed tags are an entity.
Departure: conlleval does not know S, and does not begin a new entity at a B right after an E of its type; here both do.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError, UsageError
from seqloom.text.tagged import continues_entity, split_tag

SCHEMES = {"iob1": "BIO", "iob2": "BIO", "iobes": "BIOES"}  # with the marks of each


class Entity(NamedTuple):
    kind: str
    start: int  # the first word
    stop: int  # the one after the last


def entities(tags: Sequence[str]) -> list[Entity]:
    """In order; all three schemes and ill-formed tags are read in one way."""
    found: list[Entity] = []
    for i, (tag, goes_on) in enumerate(zip(tags, continues_entity(tags), strict=True)):
        mark, kind = split_tag(tag)
        if goes_on:
            found[-1] = found[-1]._replace(stop=i + 1)
        elif mark != "O":
            found.append(Entity(kind, i, i + 1))
    return found


def strict_entities(tags: Sequence[str], scheme: str) -> list[Entity]:
    """Only those that begin, continue and end by the rules of the scheme."""
    _check_scheme(scheme)
    parts = [split_tag(tag) for tag in tags]
    for i, (mark, _) in enumerate(parts):
        if mark not in SCHEMES[scheme]:
            raise DataError(
                f"the tag {tags[i]!r} of word {i + 1} is not part of {scheme}, whose marks are {SCHEMES[scheme]}"
            )
    found, start = [], 0
    outside = ("O", "")
    while start < len(parts):
        stop = start + 1
        if not _begins(parts[start - 1] if start else outside, parts[start], scheme):
            start = stop
            continue
        while stop < len(parts) and _continues(parts[stop - 1], parts[stop]):
            stop += 1
        if _ends(parts[stop - 1], parts[stop] if stop < len(parts) else outside, scheme):
            found.append(Entity(parts[start][1], start, stop))
        start = stop
    return found


Tag = tuple[str, str]  # its mark and its entity type


def _begins(before: Tag, tag: Tag, scheme: str) -> bool:
    mark, kind = tag
    if scheme != "iob1":
        return mark in ("B", "S")
    if mark == "I":
        return before != ("I", kind)
    return mark == "B" and before[0] != "O" and before[1] == kind


def _continues(before: Tag, tag: Tag) -> bool:
    return before[0] in ("B", "I") and tag[0] in ("I", "E") and before[1] == tag[1]


def _ends(last: Tag, after: Tag, scheme: str) -> bool:
    if scheme == "iobes":
        return last[0] in ("E", "S")
    return scheme == "iob2" or not (last[0] == after[0] == "B" and last[1] != after[1])


def entity_scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    strict: bool = False,
    scheme: str | None = None,
) -> dict[str, Any]:
    """precision, recall and f1 over all entities and of each type (`per_kind`, with the `count` of gold ones and the number
    `found`), and the accuracy of the tags. An entity is correct if its type and both borders are. strict: needs the scheme."""
    if strict and scheme is None:
        raise UsageError(f"strict scores need the scheme of the tags: {', '.join(SCHEMES)}")
    if len(gold) != len(predicted):
        raise DataError(f"{len(predicted):,} tagged sentences for {len(gold):,}: give the tags of each")
    true, found, right = Counter[str](), Counter[str](), Counter[str]()
    tokens = same = 0
    for number, (tags, guessed) in enumerate(zip(gold, predicted, strict=True), 1):
        if len(tags) != len(guessed):
            raise DataError(f"sentence {number}: {len(guessed)} tags for {len(tags)} words")
        tokens += len(tags)
        same += sum(a == b for a, b in zip(tags, guessed, strict=True))
        a, b = (set(strict_entities(each, str(scheme)) if strict else entities(each)) for each in (tags, guessed))
        for counter, part in ((true, a), (found, b), (right, a & b)):
            counter.update(entity.kind for entity in part)
    if not tokens:
        raise DataError("no word to score: the files are empty")
    kinds = sorted(true.keys() | found.keys())
    return {
        **rates(right.total(), found.total(), true.total()),
        "accuracy": same / tokens,
        "count": true.total(),
        "found": found.total(),
        "correct": right.total(),
        "tokens": tokens,
        "per_kind": {
            kind: {**rates(right[kind], found[kind], true[kind]), "count": true[kind], "found": found[kind]}
            for kind in kinds
        },
    }


def rates(right: int, found: int, true: int) -> dict[str, float]:
    """Precision, recall and F1; a division by zero gives 0."""
    precision, recall = right / found if found else 0.0, right / true if true else 0.0
    return {"precision": precision, "recall": recall, "f1": 2 * right / (found + true) if right else 0.0}


def convert(tags: Sequence[str], to: str) -> list[str]:
    """The same entities in another scheme; ill-formed tags become well-formed."""
    _check_scheme(to)
    written, before = ["O"] * len(tags), Entity("", 0, 0)
    for entity in entities(tags):
        kind, start, stop = entity
        marks = ["I"] * (stop - start)
        if to == "iobes":
            marks = ["B", *marks[2:], "E"] if len(marks) > 1 else ["S"]
        elif to == "iob2" or (before.kind, before.stop) == (kind, start):
            marks[0] = "B"
        written[start:stop] = [f"{mark}-{kind}" if kind else mark for mark in marks]
        before = entity
    return written


def labels_of(kinds: Sequence[str], scheme: str) -> list[str]:
    """Every tag that entities of these types can have in a scheme."""
    _check_scheme(scheme)
    marks = [mark for mark in SCHEMES[scheme] if mark != "O"]
    return ["O", *(f"{mark}-{kind}" if kind else mark for kind in kinds for mark in marks)]


def may_follow(before: str, tag: str, scheme: str) -> bool:
    """Whether a tag may follow another. Before and after a sentence stands O."""
    (last, other), (mark, kind) = split_tag(before), split_tag(tag)
    goes_on = last in ("B", "I") and other == kind
    if scheme == "iob1":
        return mark != "B" or goes_on
    if scheme == "iob2":
        return mark != "I" or goes_on
    return goes_on if mark in ("I", "E") else last not in ("B", "I")


def legal_moves(labels: Sequence[str], scheme: str | None) -> np.ndarray:
    """(L+2, L+2) whether the label of a column may follow that of the row; row L is the start, column L+1 the end. Without a
    scheme (plain labels) all may."""
    n = len(labels)
    allowed = np.zeros((n + 2, n + 2), bool)
    allowed[: n + 1, :n] = allowed[: n + 1, n + 1] = True
    if scheme is not None:
        _check_scheme(scheme)
        edges = [*labels, "O"]
        moves = np.array([[may_follow(a, b, scheme) for b in edges] for a in edges])
        allowed[: n + 1, :n], allowed[: n + 1, n + 1] = moves[:, :n], moves[:, n]
    return allowed


def _place(sentence: int, word: int) -> str:
    return f"sentence {sentence + 1}, word {word + 1}"


def marks_of(sentences: Sequence[Sequence[str]], place: Callable[[int, int], str] = _place) -> set[str] | None:
    """The marks of the tags; None for plain labels, such as parts of speech. A mixture of both is an error with its place."""
    marks = set()
    marked = plain = None  # the first tag of each sort, with its place
    for i, tags in enumerate(sentences):
        for j, tag in enumerate(tags):
            mark, kind = split_tag(tag)
            if mark in ("B", "I", "E", "S", "O") and (kind or tag == mark):
                marks.add(mark)
                marked = marked or (kind and (tag, i, j))
            else:
                plain = plain or (tag, i, j)
    if plain and marked:
        there = f"{marked[0]!r} at {place(*marked[1:])}"
        raise DataError(f"{place(*plain[1:])}: the tag {plain[0]!r} is neither O nor of the form B-kind, as {there} is")
    return None if plain else marks


def scheme_of(sentences: Sequence[Sequence[str]], place: Callable[[int, int], str] = _place) -> str | None:
    """The scheme that all tags follow; None for plain labels. A transition that is illegal in the scheme that fits best is an
    error with its place: place(i, j) names word j of sentence i."""
    best = nearest_scheme(sentences, place)
    if best is not None:
        check_moves(sentences, best, place)
    return best


def nearest_scheme(sentences: Sequence[Sequence[str]], place: Callable[[int, int], str] = _place) -> str | None:
    """The scheme that fits the tags best, even if some transitions are illegal in it."""
    marks = marks_of(sentences, place)
    if marks is None:
        return None
    schemes = ["iobes"] if marks & {"E", "S"} else ["iob2", "iob1"]
    return min(schemes, key=lambda scheme: len(illegal_moves(sentences, scheme)))


def check_moves(sentences: Sequence[Sequence[str]], scheme: str, place: Callable[[int, int], str] = _place) -> None:
    """Raise DataError, with its place, for the first tag that cannot follow the one before."""
    for found in describe_illegal_moves(sentences, scheme, place)[:1]:
        raise DataError(f"{found} in {scheme}, which the other tags follow: correct it")


def remark_on_moves(
    sentences: Sequence[Sequence[str]], scheme: str, place: Callable[[int, int], str] = _place
) -> str | None:
    """A warning about tags that break their scheme. They are read as conlleval reads them: an entity begins with any tag that
    cannot continue the one before. Published files have such tags (two of them in CoNLL-2003's training file)."""
    found = describe_illegal_moves(sentences, scheme, place)
    if not found:
        return None
    count = f"{len(found):,} tags do" if len(found) > 1 else "1 tag does"
    return f"{count} not follow {scheme} (first: {found[0]}): read as conlleval reads them"


def describe_illegal_moves(
    sentences: Sequence[Sequence[str]], scheme: str, place: Callable[[int, int], str] = _place
) -> list[str]:
    """The illegal transitions in words, each place once."""
    described: dict[str, str] = {}
    for i, j in illegal_moves(sentences, scheme):
        tags = sentences[i]
        before, tag = ["O", *tags, "O"][j : j + 2]
        there = f"{tag!r} cannot follow {before!r}" if j < len(tags) else f"a sentence cannot end with {before!r}"
        described.setdefault(place(i, min(j, len(tags) - 1)), there)
    return [f"{where}: {there}" for where, there in described.items()]


def illegal_moves(sentences: Sequence[Sequence[str]], scheme: str) -> list[tuple[int, int]]:
    """Sentence and word of every tag that cannot follow the one before; the word after the last one is the end."""
    found = []
    for i, tags in enumerate(sentences):
        padded = ["O", *tags, "O"]
        found += [(i, j) for j in range(len(tags) + 1) if not may_follow(padded[j], padded[j + 1], scheme)]
    return found


def _check_scheme(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise UsageError(f"unknown tagging scheme {scheme!r}: choose {', '.join(SCHEMES)}")
