"""Tagged sentences as token ids, and which tokens continue the entity of the token before."""

import hashlib
from collections.abc import Iterable

import numpy as np
import torch

from seqloom.batch import Passage
from seqloom.batches.passages import Passages
from seqloom.batches.plan import Plan
from seqloom.errors import DataError
from seqloom.progress import Progress, say
from seqloom.text.tagged import Sentence, continues_entity
from seqloom.tokens.learn import storage_type
from seqloom.tokens.tokenizer import Tokenizer


class TaggedText:
    """Sentences in memory with the interface of a Split; a document is a sentence. joined: (T,) continues an entity."""

    name = "train"

    def __init__(self, ids: np.ndarray, joined: np.ndarray, offsets: np.ndarray, words: int, size: int):
        self.ids, self.joined, self.offsets, self.words, self.bytes = ids, joined, offsets, words, size

    @property
    def num_documents(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_tokens(self) -> int:
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return self.num_documents

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.ids[start:stop].astype(np.int64)

    def read_many(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        first = np.repeat(np.asarray(starts) - (np.cumsum(lengths) - lengths), lengths)
        return self.ids[first + np.arange(int(np.sum(lengths)))].astype(np.int64)

    @property
    def fingerprint(self) -> str:
        found = hashlib.sha256()
        for array in (self.ids, self.joined, self.offsets):
            found.update(np.ascontiguousarray(array.astype(np.int64)).tobytes())
        return found.hexdigest()


def encode_tagged(sentences: Iterable[Sentence], tokenizer: Tokenizer, name: str) -> TaggedText:
    ids: list[np.ndarray] = []
    joined: list[np.ndarray] = []
    words = size = 0
    with Progress(f"encode {name}", total=None, unit="sentences") as bar:
        for sentence in sentences:
            tokens, same = with_entities(sentence, tokenizer)
            ids.append(np.array([*tokens, tokenizer.end_id], storage_type(tokenizer.vocab_size)))
            joined.append(np.array([*same, False]))
            words, size = words + len(sentence.words), size + len(sentence.text.encode())
            bar.advance(1)
    if not ids:
        raise DataError(f"{name}: no sentences: check the files")
    if not any(part.any() for part in joined):
        say(f"warning: {name} has no entity of more than one token: it is masked token by token")
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in ids])))
    return TaggedText(np.concatenate(ids), np.concatenate(joined), offsets, words, size)


def with_entities(sentence: Sentence, tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """The tokens of a sentence, and which of them continue the entity, or the word inside it, of the token before."""
    tokens, spots = tokenizer.encode_with_offsets(sentence.text)
    continues = continues_entity(sentence.tags)
    spaces = [len(space) for space in sentence.spaces]
    # a space belongs to the word after it, as the tokens of byte-level vocabularies have it
    ends = np.cumsum([len(word) for word in sentence.words]) + np.cumsum([0, *spaces[:-1]])
    owner = np.searchsorted(ends, [begin for begin, _ in spots], side="right").tolist()  # the word of each token
    inside = [tag != "O" for tag in sentence.tags]
    same = []
    for i, word in enumerate(owner):
        before = owner[i - 1] if i else -1
        same.append(word == before and inside[word] if word == before else word == before + 1 and continues[word])
    return tokens, same


class TaggedPassages(Passages):
    """Passages of sentences that say which tokens belong together."""

    def plan(self, seed: int, epoch: int) -> Plan:
        return EntityPlan(super().plan(seed, epoch), self.split.joined)  # type: ignore[attr-defined]


class EntityPlan:
    def __init__(self, plan: Plan, joined: np.ndarray):
        self.under, self.joined = plan, np.append(joined, False)  # place −1: a special token

    def __len__(self) -> int:
        return len(self.under)

    def batch(self, i: int) -> Passage:
        passage = self.under.batch(i)
        assert isinstance(passage, Passage)
        return passage._replace(joined=torch.from_numpy(self.joined[passage.places.numpy()]))
