"""Minimal pairs from any text: a held-out sentence, and the same sentence with one error.

    order        two neighbouring words are swapped
    agreement    a verb has the other number: is and are, was and were, has and have
    word         a word is replaced by another one that is about as frequent in the text

They have the format of BLiMP, and are scored in the same way. The sentences are not written by linguists: some of the changed
ones are right by chance, so that no model reaches 100%. Guessing reaches 50%.

They are made from the text itself, whatever rows a plan has. Where only prepared text is available, its tokens are decoded, and
sentences with unknown words are left out.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from seqloom.batches.store import Store
from seqloom.errors import DataError
from seqloom.files import write_bytes
from seqloom.text.survey import SPLITS, Corpus, Request, survey

BORDER = re.compile(r"(?<=[.!?])\s+|\n\s*\n")  # between sentences, or paragraphs
ENDS = (".", "!", "?")
SHORTEST, LONGEST = 6, 24  # words
OTHER_NUMBER = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has"}
AS_FREQUENT = 20  # ranks up or down in the order of frequencies

Words = list[str]


def is_plain(word: str) -> bool:
    return word.isalpha() and word.islower()


def held_out_texts(request: Request) -> Iterator[str]:
    """Documents that are held out when these files are prepared, as they are in the files: the test split, or the valid split
    where there is none."""
    corpus = Corpus(request)
    plan = survey(corpus).plan
    parts: dict[int, list[str]] = {}
    place = 0
    for number, (document, fixed) in enumerate(corpus.documents("reading held-out text")):
        for split, text in plan.route(number, document.text, place):
            if SPLITS[split] != "train":
                parts.setdefault(split, []).append(text)
        if fixed is None:
            place += len(document.text)
    yield from parts[max(parts)] if parts else ()


def prepared_texts(store: Store) -> Iterator[str]:
    """The held-out documents of prepared text, as its tokenizer decodes them."""
    split, tokenizer = store.split("test" if "test" in store.splits else "valid"), store.tokenizer
    for start, stop in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True):
        ids = split.read(start, stop - 1).tolist()
        yield tokenizer.decode(ids[::-1] if store.backward else ids)


def held_out_sentences(texts: Iterable[str], unknown: str | None = None) -> Iterator[Words]:
    """Sentences of mostly plain words, each once. unknown: the token for unknown words."""
    seen = set()
    for text in texts:
        for words in map(str.split, BORDER.split(text)):
            if unknown and any(unknown in word for word in words):
                continue
            if not SHORTEST <= len(words) <= LONGEST or not words[-1].endswith(ENDS) or tuple(words) in seen:
                continue
            if sum(map(is_plain, words)) >= 0.7 * len(words):
                seen.add(tuple(words))
                yield words


def swap_neighbours(words: Words, random: np.random.Generator) -> Words | None:
    spots = [
        i
        for i in range(1, len(words) - 2)
        if is_plain(words[i]) and is_plain(words[i + 1]) and words[i] != words[i + 1]
    ]
    if not spots:
        return None
    i = int(random.choice(spots))
    return [*words[:i], words[i + 1], words[i], *words[i + 2 :]]


def break_agreement(words: Words, random: np.random.Generator) -> Words | None:
    spots = [i for i in range(1, len(words)) if words[i] in OTHER_NUMBER]
    if not spots:
        return None
    i = int(random.choice(spots))
    return [*words[:i], OTHER_NUMBER[words[i]], *words[i + 1 :]]


def make_replacer(sentences: Sequence[Words]) -> Callable[[Words, np.random.Generator], Words | None]:
    counts = Counter(word for words in sentences for word in words if is_plain(word))
    order = sorted(counts, key=lambda word: (-counts[word], word))
    rank = {word: i for i, word in enumerate(order)}

    def replace_word(words: Words, random: np.random.Generator) -> Words | None:
        spots = [i for i in range(1, len(words)) if words[i] in rank]
        if not spots or len(order) <= AS_FREQUENT:
            return None
        i = int(random.choice(spots))
        here = rank[words[i]]
        near = [word for word in order[max(here - AS_FREQUENT, 0) : here + AS_FREQUENT + 1] if word != words[i]]
        return [*words[:i], str(random.choice(near)), *words[i + 1 :]]

    return replace_word


def read_sentences(source: Request | Path) -> list[Words]:
    """source: text files with their splits, or a prepared folder."""
    if isinstance(source, Request):
        return list(held_out_sentences(held_out_texts(source)))
    store = Store.open(source)
    unk_id = store.tokenizer.unk_id
    return list(held_out_sentences(prepared_texts(store), None if unk_id is None else store.tokenizer.token(unk_id)))


def write_pairs(source: Request | Path, path: Path, many: int) -> int:
    """Write at most so many pairs of each kind into a .jsonl file; returns the number of pairs."""
    sentences = read_sentences(source)
    random = np.random.default_rng(0)
    kinds = {"order": swap_neighbours, "agreement": break_agreement, "word": make_replacer(sentences)}
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
        where = source.train[0] if isinstance(source, Request) else source
        raise DataError(
            f"{where}: its held-out text has no sentence of {SHORTEST} to {LONGEST} words to make minimal pairs from: leave out "
            f"'pairs', or give more text"
        )
    write_bytes(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    return len(rows)
