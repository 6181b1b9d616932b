"""fastText: a word is the mean of its own vector and those of its character n-grams. Bojanowski et al., 2017 (arXiv 1607.04606).

    where   n-grams of 3 to 6 characters of "<where>": "<wh", "whe", …, "<where", "where>", as the program finds them
    rows    of one table: the V words first, then `buckets` rows that n-grams share by their hash, FNV-1a of 32 bits. Bytes from
            128 on are extended with their sign before they enter it, as in the program
    others  a word that is not in the vocabulary is the mean of its n-grams

Learnt by skip-gram or CBOW (objectives/windows.py).

Departures: of a word with more than `max_ngrams` n-grams the first are taken. CBOW takes the mean of the words around, each the
mean of its rows; the program the mean of all rows of all of them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Lineage, Vocabulary
from seqloom.models.word2vec import Word2vec

BEGIN, END = "<", ">"


def hash_of(text: str) -> int:
    """FNV-1a of 32 bits, with the signs of its bytes."""
    found = 2166136261
    for byte in text.encode("utf-8", "surrogatepass"):
        signed = byte if byte < 128 else byte | 0xFFFFFF00
        found = (found ^ signed) * 16777619 & 0xFFFFFFFF
    return found


def ngrams_of(word: str, shortest: int, longest: int) -> list[str]:
    """In the order of the program: by where they begin. A border alone is none."""
    text = f"{BEGIN}{word}{END}"
    return [
        text[i : i + n]
        for i in range(len(text))
        for n in range(shortest, min(longest, len(text) - i) + 1)
        if not (n == 1 and (i == 0 or i == len(text) - 1))
    ]


class FastText(Word2vec):
    """A table of words and n-grams."""

    lineage = Lineage("Bojanowski et al., Enriching word vectors with subword information", 2017, "static", "word2vec")
    static = False  # how many different words and n-grams there are is asked of the device
    ngrams: Tensor  # (V, max_ngrams) the bucket of each n-gram of each word; −1 behind the last

    class Config(Word2vec.Config):
        buckets: int = Field(200_000, ge=1, le=1 << 24, description="Rows that n-grams share by their hash.")
        shortest: int = Field(3, ge=1, le=100, description="Characters of the shortest n-grams.")
        longest: int = Field(6, ge=0, le=100, description="Characters of the longest n-grams; 0: there are none.")
        max_ngrams: int = Field(100, ge=1, le=10_000, description="The most n-grams of a word.")

    presets = {  # noqa: RUF012
        "tiny": {"dim": 50, "buckets": 3000},
        "small": {"dim": 100},
        "wiki": {"dim": 300, "vocab_size": 2_500_000, "buckets": 2_000_000},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """As word2vec; `small` steps by 1,024 tokens and clips no row: a row is part of many words, and a batch has it often."""
        found = Word2vec.recipe(preset)
        if preset != "tiny":
            found["batches"]["budget"] = 1024
            found["train"]["eval_every"] = 1000
            found["train"]["optim"] |= {"lr": 0.05, "row_clip": 0.0}
        return found

    def __init__(self, config: Config):
        super().__init__(config)
        self.config = config
        self.token = nn.Embedding(config.vocab_size + config.buckets, config.dim)
        self.register_buffer("ngrams", torch.full((config.vocab_size, config.max_ngrams), -1, dtype=torch.int32))
        self.init_weights()

    @property
    def spread(self) -> float:
        return 1 / self.dim

    @property
    def table(self) -> nn.Embedding | None:
        """None: a row is part of many words."""
        return None

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        super().set_vocabulary(vocabulary)
        special = set(vocabulary.specials())
        self.ngrams.fill_(-1)
        for number, word in enumerate(vocabulary.words()):
            if word and number not in special:
                own = self.buckets_of(word)
                self.ngrams[number, : len(own)] = torch.tensor(own, dtype=torch.int32)

    def validate_loaded(self) -> None:
        if bool(((self.ngrams < -1) | (self.ngrams >= self.config.buckets)).any()):
            raise ValueError("an n-gram is in no bucket")

    def buckets_of(self, word: str) -> list[int]:
        config = self.config
        found = ngrams_of(word, config.shortest, config.longest)[: config.max_ngrams]
        return [hash_of(each) % config.buckets for each in found]

    def embed(self, ids: Tensor) -> Tensor:
        words, place = ids.unique(return_inverse=True)
        return F.embedding(place, self.compose(words))

    def compose(self, words: Tensor) -> Tensor:
        """(N, D) the mean of the rows of each word."""
        buckets = self.ngrams[words].long()
        rows = torch.cat((words[:, None], buckets + self.vocab_size), 1)
        there = F.pad(buckets >= 0, (1, 0), value=True)
        many = there.sum(1)
        sparse = self.token.sparse and torch.is_grad_enabled()
        return F.embedding_bag(rows[there], self.token.weight, many.cumsum(0) - many, mode="mean", sparse=sparse)

    def word_vectors(self) -> Tensor:
        return self.compose(torch.arange(self.vocab_size, device=self.ngrams.device))

    def vector_of(self, word: str) -> Tensor | None:
        rows = torch.tensor(self.buckets_of(word), dtype=torch.long, device=self.ngrams.device)
        return self.token.weight[rows + self.vocab_size].mean(0) if len(rows) else None
