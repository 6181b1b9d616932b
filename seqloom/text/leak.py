"""Does training text repeat held-out text? Found by whole documents of the same words, and by normalised 13-grams.

Text is lowered and reduced to its words (letters and digits). Documents of any length with the same words are copies
(`same_words`). Longer ones may repeat in part: 13 words in a row are a 13-gram. The 13-grams of the held-out
documents, the small side, are indexed; training documents are then streamed against the index. Tokenised or re-wrapped
copies are found, which a hash of the document misses.

A training document leaks when
- at least `share` (30%) of its own 13-grams are in held-out text: it is a part or a copy of it, or
- it holds at least `share` of the 13-grams of one held-out document, and at least 50 of them: it contains that document.
So a novel that quotes a verse stays, and so does a document that only shares a phrase. A 13-gram that occurs in more than
10 held-out documents is boilerplate (a licence, a by-line) and counts for neither side. The index holds at most 4 million
13-grams; when there are more, a fixed sample of them by hash (the same on both sides) represents all.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

N = 13
SHARE = 0.3
LEAST = 50
COMMON = 10
MAX_INDEX = 4_000_000
_MAX_WORDS = 500_000
_FILTER_BITS = 24

Hashes = npt.NDArray[np.uint64]

_WORD = re.compile(r"[^\W_]+")
_FACTORS = np.array([pow(0x9E3779B97F4A7C15, i, 1 << 64) for i in range(N)], np.uint64)


class _WordHashes(dict[str, int]):
    """A 64-bit number for each word, the same in every process."""

    def __missing__(self, word: str) -> int:
        if len(self) > _MAX_WORDS:
            self.clear()
        number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
        self[word] = number
        return number


_WORDS = _WordHashes()


def same_words(text: str) -> int:
    """A 64-bit number that two texts share if they have the same words in the same order, whatever their case and punctuation."""
    words = " ".join(_WORD.findall(text.lower())) or " ".join(text.split())
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")


def ngrams(text: str) -> Hashes:
    """The hashes of all 13-grams of a text, in order; none for a text of fewer words."""
    return ngrams_of([text])[0]


def ngrams_of(texts: Sequence[str]) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """The 13-grams of many texts at once, and which text each is from. One call for many short texts saves time."""
    words = [_WORD.findall(text.lower()) for text in texts]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    numbers = np.fromiter(map(_WORDS.__getitem__, chain.from_iterable(words)), np.uint64, int(lengths.sum()))
    count = max(numbers.size - N + 1, 0)
    total = np.zeros(count, np.uint64)
    for i in range(N):
        total += numbers[i : i + count] * _FACTORS[i]
    owner = np.repeat(np.arange(len(words)), lengths)[:count]
    inside = np.arange(N, count + N) <= np.cumsum(lengths)[owner]  # no 13-gram across the border of two texts
    total, owner = total[inside], owner[inside]
    # the low bits of a sum of products are weak; mix before they are used for sampling and filtering
    total ^= total >> np.uint64(32)
    total *= np.uint64(0xD6E8FEB86659FD93)
    total ^= total >> np.uint64(32)
    return total, owner


@dataclass(frozen=True)
class Leak:
    """How a training document repeats held-out text."""

    own_share: float  # of its 13-grams that are in held-out text
    held_share: float  # of the 13-grams of `held_out` that are in it
    held_out: int  # the held-out document that it shares most with


class LeakIndex:
    """The 13-grams of the held-out documents. `add` each of them, `close`, then `check` training documents."""

    def __init__(self, share: float = SHARE):
        self.share = share
        self.documents = 0
        self.every = 1  # one in this many 13-grams is kept
        self._hashes: list[Hashes] = []
        self._owners: list[npt.NDArray[np.int32]] = []
        self._size = 0
        self.closed = False

    def add(self, text: str) -> int:
        """Indexes a held-out document and returns its number."""
        hashes = np.unique(ngrams(text))
        hashes = hashes[hashes % np.uint64(self.every) == 0] if self.every > 1 else hashes
        self._hashes.append(hashes)
        self._owners.append(np.full(hashes.size, self.documents, np.int32))
        self.documents += 1
        self._size += hashes.size
        if self._size > MAX_INDEX:
            self._thin()
        return self.documents - 1

    def _thin(self) -> None:
        hashes, owners = np.concatenate(self._hashes), np.concatenate(self._owners)
        while hashes.size > MAX_INDEX // 2:
            self.every *= 2
            kept = hashes % np.uint64(self.every) == 0
            hashes, owners = hashes[kept], owners[kept]
        self._hashes, self._owners, self._size = [hashes], [owners], hashes.size

    def close(self) -> None:
        hashes = np.concatenate(self._hashes) if self._hashes else np.zeros(0, np.uint64)
        owners = np.concatenate(self._owners) if self._owners else np.zeros(0, np.int32)
        self._hashes, self._owners = [], []
        order = np.argsort(hashes, kind="stable")
        hashes, owners = hashes[order], owners[order]
        self._keys, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        self._first, self._count = first, counts
        self._all_owners = owners
        self._boilerplate = counts > COMMON
        rare = np.repeat(~self._boilerplate, counts)
        self._sizes = np.bincount(owners[rare], minlength=self.documents)
        self._covered = np.zeros(self._keys.size, np.bool_)
        self._shared = np.zeros(self._keys.size, np.bool_)
        self._filter = np.zeros(1 << _FILTER_BITS, np.bool_)
        self._filter[self._keys >> np.uint64(64 - _FILTER_BITS)] = True
        self.closed = True

    def check(self, text: str) -> Leak | None:
        """How this training document leaks, or None."""
        return self._check_hashes(ngrams(text))

    def check_many(self, texts: Sequence[str]) -> list[Leak | None]:
        """The same for many documents at once."""
        hashes, owner = ngrams_of(texts)
        found: list[Leak | None] = [None] * len(texts)
        if not self._keys.size:
            return found
        maybe = np.flatnonzero(self._filter[hashes >> np.uint64(64 - _FILTER_BITS)])
        place = np.minimum(np.searchsorted(self._keys, hashes[maybe]), self._keys.size - 1)
        sure = maybe[self._keys[place] == hashes[maybe]]
        for number in np.unique(owner[sure]).tolist():
            a, b = np.searchsorted(owner, [number, number + 1])
            found[number] = self._check_hashes(hashes[a:b])
        return found

    def _check_hashes(self, hashes: Hashes) -> Leak | None:
        if self.every > 1:
            hashes = hashes[hashes % np.uint64(self.every) == 0]
        total = hashes.size
        # nearly everything falls through this table of bits, which is much cheaper than the search
        hashes = hashes[self._filter[hashes >> np.uint64(64 - _FILTER_BITS)]]
        if not hashes.size or not self._keys.size:
            return None
        place = np.minimum(np.searchsorted(self._keys, hashes), self._keys.size - 1)
        place = place[self._keys[place] == hashes]
        total -= int(self._boilerplate[place].sum())
        place = place[~self._boilerplate[place]]
        if not place.size:
            return None
        unique = np.unique(place)
        self._shared[unique] = True
        counts = self._count[unique]
        ends = np.cumsum(counts)
        at = np.repeat(self._first[unique] - (ends - counts), counts) + np.arange(int(ends[-1]))
        shared = np.bincount(self._all_owners[at], minlength=self.documents)
        shares = shared / np.maximum(self._sizes, 1)
        enough = shared * self.every >= LEAST
        best = int(np.argmax(np.where(enough, shares, 0))) if enough.any() else int(np.argmax(shared))
        own = place.size / total
        if own < self.share and not (enough[best] and shares[best] >= self.share):
            return None
        self._covered[unique] = True
        return Leak(own, float(shares[best]), best)

    def coverage(self) -> npt.NDArray[np.float64]:
        """For each held-out document the share of its 13-grams that leaking training documents hold together."""
        return self._share_of(self._covered)

    def shared(self) -> npt.NDArray[np.float64]:
        """The same for all training documents, whether they leak or only share a phrase."""
        return self._share_of(self._shared)

    def _share_of(self, marked: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        hit = np.bincount(self._all_owners[np.repeat(marked, self._count)], minlength=self.documents)
        return hit / np.maximum(self._sizes, 1)
