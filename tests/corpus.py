"""A corpus in memory, where a test needs the tokens and not the files."""

from types import SimpleNamespace

import numpy as np

from seqloom.batches.passages import Marks

END = 0
# for texts that tests make up
WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "walked", "walking", "over", "under", "again", "house", "tree"]
WORDS += ["river", "stone", "light", "dark"]


class MemorySplit:
    """What plans and evaluation ask of a Split."""

    name = "train"

    def __init__(self, documents: list[list[int]]):
        self.documents = [[*document, END] for document in documents]
        self.flat = np.array([token for document in self.documents for token in document], np.int64)
        self.offsets = np.concatenate(([0], np.cumsum([len(document) for document in self.documents]))).astype(np.int64)
        self.num_documents, self.num_tokens = len(documents), len(self.flat)
        self.words = self.characters = self.bytes = self.num_tokens - self.num_documents
        self.entry = SimpleNamespace(
            documents=self.num_documents,
            words=self.words,
            characters=self.characters,
            bytes=self.bytes,
            unknown_bits=0.0,
            surface_bits=0.0,
        )

    def characters_of(self, starts, lengths, ids):
        return None

    def read(self, start, stop):
        return self.read_many([start], [stop - start])

    def read_many(self, starts, lengths):
        padded = np.concatenate(([END], self.flat))
        parts = [padded[s + 1 : s + 1 + n] for s, n in zip(starts, lengths, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def marks_by(first, separator, ends):
    """Of a vocabulary of numbers, which all look alike."""
    return Marks(first, separator, sentences_by(ends), np.zeros(len(ends), np.int64))


def sentences_by(ends):
    """Sentences that end with certain tokens: those of this table."""

    def find(ids):
        stops = np.flatnonzero(ends[ids]) + 1
        return np.stack((np.concatenate(([0], stops))[: len(stops)], stops), 1)

    return find


def random_corpus(seed: int, documents: int, longest: int, vocab: int = 50) -> MemorySplit:
    rng = np.random.default_rng(seed)
    return MemorySplit([rng.integers(1, vocab, rng.integers(0, longest + 1)).tolist() for _ in range(documents)])


def numbered_corpus(seed: int, documents: int, longest: int) -> MemorySplit:
    """Every token is different (but the ends), so that where it comes from can be told."""
    rng = np.random.default_rng(seed)
    sizes, n = rng.integers(0, longest + 1, documents), 1
    texts = []
    for size in sizes.tolist():
        texts.append(list(range(n, n + size)))
        n += size
    return MemorySplit(texts)
