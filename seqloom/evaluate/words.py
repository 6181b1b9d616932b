"""Vectors of single words: which words are near, and what A − B + C gives."""

from typing import NamedTuple

import numpy as np

from seqloom.errors import UsageError
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.words import WORD_START, continues, texts_of

# how words become vectors
VECTORS = {
    "in": "rows of the input table; the mean of them where a word has several tokens",
    "out": "rows of the output table; the mean of them where a word has several tokens",
    "mean": "the mean of the input and the output table; the mean of rows where a word has several tokens",
    "alone": "the last layer of the model that reads each word alone in its frame, the mean over its tokens",
    "contexts": "the last layer of the model that reads each word in contexts, the mean over its tokens and then over contexts",
}


class Neighbour(NamedTuple):
    word: str
    similarity: float  # the cosine


class WordTable:
    """Words with vectors of length 1, by which they are compared. A word that has no vector (zeros) is left out."""

    def __init__(self, words: list[str], vectors: np.ndarray):
        sizes = np.linalg.norm(vectors, axis=1)
        there = np.flatnonzero(sizes > 0)
        self.words = [words[i] for i in there.tolist()]
        self.unit = (vectors[there] / sizes[there, None]).astype(np.float32)
        self.places: dict[str, int] = {}
        for place, word in enumerate(self.words):
            self.places.setdefault(word, place)

    def nearest(self, query: np.ndarray, top: int, without: set[str]) -> list[Neighbour]:
        """The words with the largest cosines to a vector, but for some."""
        similar = self.unit @ (query / max(float(np.linalg.norm(query)), 1e-30)).astype(np.float32)
        taken = [self.places[word] for word in without if word in self.places]
        similar[taken] = -np.inf
        top = min(top, len(self.words) - len(taken))
        best = np.argpartition(-similar, max(top - 1, 0))[:top]
        order = best[np.argsort(-similar[best], kind="stable")]
        return [Neighbour(self.words[i], float(similar[i])) for i in order.tolist()]


def parse_expression(parts: list[str]) -> list[tuple[float, str]]:
    """ "king", "-", "man", "+", "woman" as signs and words."""
    found: list[tuple[float, str]] = []
    sign: float | None = 1.0
    for part in parts:
        if part in ("-", "−", "+") and found and sign is None:
            sign = 1.0 if part == "+" else -1.0
        elif part in ("-", "−", "+") or sign is None:
            raise UsageError(f"{' '.join(parts)!r}: write words with + or − between them, as in: king - man + woman")
        else:
            found.append((sign, part))
            sign = None
    if not found or sign is not None:
        raise UsageError(f"{' '.join(parts)!r}: a word is missing at the end, as in: king - man + woman")
    return found


class Vocabulary:
    """The whole words of a tokenizer, and the tokens of any word."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        parts = continues(tokenizer)
        self.ids: dict[str, int] = {}
        for number, text in enumerate(texts_of(tokenizer)):
            word = text.replace(WORD_START, " ").strip()
            if word and not parts[number] and number != tokenizer.unk_id:
                self.ids.setdefault(word, number)

    def form(self, word: str) -> str:
        """A word as it would stand in the vocabulary: in lower case, where all of that is, or it has no other form of it."""
        lowered = self.tokenizer.lowered(word)
        forms = (word, lowered, word.lower()) if self.tokenizer.kind == "word" else (word,)
        return next((form for form in forms if form in self.ids), lowered)

    def tokens(self, form: str) -> list[int] | None:
        """Of a word in its form: one, or its pieces; None where it is unknown."""
        if form in self.ids:
            return [self.ids[form]]
        # in a text a space stands before a word, and byte-level vocabularies have it in their entries
        found = self.tokenizer.encode(f" {form}" if self.tokenizer.kind in ("bpe", "unigram") else form)
        return found if found and self.tokenizer.unk_id not in found else None
