"""Minimal pairs out of any text: a sentence that was held out, and the same with one thing wrong in it.

    order        two neighbouring words have changed places
    agreement    a verb has the other number: is and are, was and were, has and have
    word         a word has given way to another one that the text has about as often

They stand in the form of BLiMP, and are scored as that is. Real sentences are no linguist's: some of the wrong ones are right
by chance, so that nobody reaches 100%. A guess reaches 50%.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from seqloom.batches.store import Store
from seqloom.errors import DataError
from seqloom.files import write_bytes

BORDER = re.compile(r"(?<=[.!?])\s+|\n\s*\n")  # between sentences, or paragraphs
ENDS = (".", "!", "?")
SHORTEST, LONGEST = 6, 24  # words
OTHER_NUMBER = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has"}
AS_FREQUENT = 20  # words up or down in the order of frequencies

Words = list[str]


def plain(word: str) -> bool:
    return word.isalpha() and word.islower()


def held_out_sentences(store: Store) -> Iterator[Words]:
    """Each once, of words that are mostly plain ones."""
    name = "test" if "test" in store.splits else "valid"
    split, seen = store.split(name), set()
    for start, stop in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True):
        text = store.tokenizer.decode(split.read(start, stop - 1).tolist())
        for words in map(str.split, BORDER.split(text)):
            if not SHORTEST <= len(words) <= LONGEST or not words[-1].endswith(ENDS) or tuple(words) in seen:
                continue
            if sum(map(plain, words)) >= 0.7 * len(words):
                seen.add(tuple(words))
                yield words


def swapped(words: Words, random: np.random.Generator) -> Words | None:
    spots = [
        i for i in range(1, len(words) - 2) if plain(words[i]) and plain(words[i + 1]) and words[i] != words[i + 1]
    ]
    if not spots:
        return None
    i = int(random.choice(spots))
    return [*words[:i], words[i + 1], words[i], *words[i + 2 :]]


def disagreeing(words: Words, random: np.random.Generator) -> Words | None:
    spots = [i for i in range(1, len(words)) if words[i] in OTHER_NUMBER]
    if not spots:
        return None
    i = int(random.choice(spots))
    return [*words[:i], OTHER_NUMBER[words[i]], *words[i + 1 :]]


def replacing(sentences: Sequence[Words]) -> Callable[[Words, np.random.Generator], Words | None]:
    counts = Counter(word for words in sentences for word in words if plain(word))
    order = sorted(counts, key=lambda word: (-counts[word], word))
    rank = {word: i for i, word in enumerate(order)}

    def replaced(words: Words, random: np.random.Generator) -> Words | None:
        spots = [i for i in range(1, len(words)) if words[i] in rank]
        if not spots or len(order) <= AS_FREQUENT:
            return None
        i = int(random.choice(spots))
        here = rank[words[i]]
        near = [word for word in order[max(here - AS_FREQUENT, 0) : here + AS_FREQUENT + 1] if word != words[i]]
        return [*words[:i], str(random.choice(near)), *words[i + 1 :]]

    return replaced


def write_pairs(data: Path, path: Path, many: int) -> int:
    """At most so many of each kind into a .jsonl file; returns how many there are in all."""
    sentences = list(held_out_sentences(Store.open(data)))
    random = np.random.default_rng(0)
    kinds = {"order": swapped, "agreement": disagreeing, "word": replacing(sentences)}
    rows = []
    for kind, wrong in kinds.items():
        found = 0
        for i in random.permutation(len(sentences)).tolist():
            bad = wrong(sentences[i], random)
            if bad is None or found == many:
                continue
            found += 1
            good = " ".join(sentences[i])
            rows.append({"sentence_good": good, "sentence_bad": " ".join(bad), "UID": kind, "linguistics_term": kind})
    if not rows:
        raise DataError(
            f"{data}: no sentence of {SHORTEST} to {LONGEST} words in its held-out text to make minimal pairs of: leave out "
            f"'pairs', or prepare more text"
        )
    write_bytes(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    return len(rows)
