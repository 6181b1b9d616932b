"""Aligned texts as token ids, and the batches of an epoch.

Pairs of about equal length are in the same batch, so that a grid of them has few empty cells; a batch has at most `budget` tokens
on either side. Which pairs are in which batch is a function of (pairs, seed, epoch) and nothing else.

Numbers are held in memory, two or four bytes a token: a million pairs of fifty tokens a side take 200 to 400 MB.
"""

import hashlib
from collections.abc import Iterable
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import torch

from seqloom.batch import IGNORE, EncoderDecoder, Pair, Ragged
from seqloom.batches.plan import Plan, generator, portions
from seqloom.errors import DataError, UsageError
from seqloom.progress import Progress, say
from seqloom.text.pairs import TextPair
from seqloom.tokens.learn import storage_type
from seqloom.tokens.tokenizer import Tokenizer

AT_ONCE = 4096  # pairs that are encoded together


class Side(NamedTuple):
    ids: np.ndarray
    offsets: np.ndarray  # (N+1,)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


class PairFrame(NamedTuple):
    """The special tokens around sources and targets."""

    before: tuple[int, ...]  # what a target begins with
    end: int  # what it ends with
    start: int  # what it is written from
    source_before: tuple[int, ...]  # what a source begins with: the same tokens, by the numbers of its vocabulary
    source_end: int

    @classmethod
    def of(
        cls,
        model: EncoderDecoder | type[EncoderDecoder],
        tokenizer: Tokenizer,
        start_id: int | None = None,
        source_tokenizer: Tokenizer | None = None,
    ) -> "PairFrame":
        """As the model has them. start_id: what its targets are written from, if it is another token; source_tokenizer: of the
        sources, if they have a vocabulary of their own."""
        before, end = frame_of(model, tokenizer)
        source = frame_of(model, source_tokenizer or tokenizer)
        return cls(before, end, end if start_id is None else start_id, *source)


def frame_of(model: EncoderDecoder | type[EncoderDecoder], tokenizer: Tokenizer) -> tuple[tuple[int, ...], int]:
    """What a text begins and ends with."""
    before, _, (*_, end) = model.surround(tokenizer.first_id, tokenizer.separator_id, tokenizer.end_id)
    return before, end


def plain_frame(end_id: int, source_end_id: int | None = None) -> PairFrame:
    """The end of a document behind both, and before a target."""
    return PairFrame((), end_id, end_id, (), end_id if source_end_id is None else source_end_id)


class EncodedPairs:
    """N sources and targets without special tokens; batches add them: the end behind a source, around a target, unless that
    begins with another one; and what both begin with."""

    def __init__(
        self,
        source: Side,
        target: Side,
        words: int,
        size: int,
        frame: PairFrame,
    ):
        self.source, self.target, self.frame = source, target, frame
        self.words, self.bytes = words, size  # of the targets

    @property
    def added(self) -> tuple[int, int]:
        """The special tokens of a source, and of a target."""
        return len(self.frame.source_before) + 1, len(self.frame.before) + 1

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    @property
    def num_tokens(self) -> int:
        """That are predicted in an epoch: the targets, and the special tokens of each."""
        return len(self.target.ids) + self.added[1] * len(self)

    @property
    def widths(self) -> np.ndarray:
        """(N,) the tokens of the longer side, special ones included."""
        return np.maximum(self.source.lengths, self.target.lengths) + max(self.added)

    def by_length(self) -> np.ndarray:
        """The numbers of the pairs, those of similar lengths together."""
        return np.lexsort((self.source.lengths, self.target.lengths))

    def batch(self, index: np.ndarray) -> Pair:
        return pair_batch(self, index)

    @property
    def fingerprint(self) -> str:
        found = hashlib.sha256()
        for array in (*self.source, *self.target):
            found.update(np.ascontiguousarray(array.astype(np.int64)).tobytes())
        return found.hexdigest()


def encode_pairs(
    pairs: Iterable[TextPair],
    tokenizer: Tokenizer,
    longest: int | None,
    name: str,
    frame: PairFrame | None = None,
    source_tokenizer: Tokenizer | None = None,
    translates: bool = False,
) -> EncodedPairs:
    """Tokenize pairs. Those with an empty side, or longer than `longest` tokens, are left out and reported. frame: the special
    tokens around them, else the end of a document; source_tokenizer: of the sources, if they have a vocabulary of their own;
    translates: all sources are translated, too, so that one that is too long is a DataError."""
    tokenizers = (source_tokenizer or tokenizer, tokenizer)
    frame = frame or plain_frame(tokenizer.end_id, tokenizers[0].end_id)
    around = max(len(frame.source_before), len(frame.before))
    dtypes = [storage_type(each.vocab_size) for each in tokenizers]
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    words = size = 0
    left_out: dict[str, list[str]] = {}
    unreadable: list[str] = []
    rows = iter(pairs)
    with Progress(f"encode {name}", total=None, unit="pairs") as bar:
        while some := list(islice(rows, AT_ONCE)):
            encoded = [each.encode_batch([pair[i] for pair in some]) for i, each in enumerate(tokenizers)]
            for pair, source, target in zip(some, *encoded, strict=True):
                if longest is not None and len(source) + len(frame.source_before) >= longest:
                    unreadable.append(f"{pair.place}, {len(source):,} tokens")
                if why := why_left_out(len(source), len(target), around, longest):
                    left_out.setdefault(why, []).append(pair.place)
                    continue
                parts[0].append(source.astype(dtypes[0]))
                parts[1].append(target.astype(dtypes[1]))
                words += len(pair.target.split())
                size += len(pair.target.encode())
            bar.advance(len(some))
    if translates and unreadable:
        assert longest is not None
        many = "1 source is" if len(unreadable) == 1 else f"{len(unreadable):,} sources are"
        raise DataError(
            f"{name}: {many} longer than the {longest - 1 - len(frame.source_before):,} tokens that the "
            f"model reads: split them into sentences (first: {'; '.join(unreadable[:3])})"
        )
    for why, places in left_out.items():
        say(f"{name}: {len(places):,} pairs with {why} left out (first: {', '.join(places[:3])})")
    if not parts[0]:
        raise DataError(f"{name}: no pairs are left: check the files, or raise batches.length")
    sides = [Side(np.concatenate(part), np.concatenate(([0], np.cumsum([len(row) for row in part])))) for part in parts]
    return EncodedPairs(sides[0], sides[1], words, size, frame)


def why_left_out(source: int, target: int, around: int, longest: int | None) -> str:
    """Empty for a pair of sides of so many tokens that is kept. around: special tokens that are added."""
    if not source or not target:
        return "an empty side"
    return f"{longest} tokens or more" if longest is not None and max(source, target) + around >= longest else ""


def take_rows(side: Side, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows `index`, concatenated, and their lengths."""
    lengths = side.lengths[index]
    starts = np.repeat(side.offsets[:-1][index] - np.concatenate(([0], np.cumsum(lengths[:-1]))), lengths)
    return side.ids[starts + np.arange(lengths.sum())].astype(np.int64), lengths


def with_end(row: np.ndarray, lengths: np.ndarray, end_id: int, before: bool) -> np.ndarray:
    """Each sequence with the end token before or behind it."""
    borders = np.concatenate(([0], np.cumsum(lengths)))
    return np.insert(row, borders[:-1] if before else borders[1:], end_id)


def to_ragged(row: np.ndarray, lengths: np.ndarray, max_len: int) -> Ragged:
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(row)) - offsets[owner]
    ids, places, owners = (torch.from_numpy(array) for array in (row, place, owner))
    return Ragged(ids, places, owners, torch.from_numpy(offsets.astype(np.int32)), max_len)


def round_up(length: int) -> int:
    """Round up to a multiple of 8, so that the same shapes occur again."""
    return -(-length // 8) * 8


class Fixed(NamedTuple):
    """One shape for many batches, filled up: what a compiler and a recorded step want. Filler is cut into sequences of at
    most max_len, and none of its targets is without a source."""

    source: int  # tokens
    target: int
    sequences: int
    max_len: int

    def cuts(self, pairs: int, source: int, target: int) -> list[np.ndarray] | None:
        """The lengths of the filler of either side, empty sequences behind it; None: so much does not fit."""
        fill = (self.source - source, self.target - target)
        pieces = max(-(-size // self.max_len) for size in fill)
        rest = self.sequences - pairs - pieces
        if min(fill) < pieces or rest < 0:
            return None
        parts = [
            np.diff(np.linspace(0, size, pieces + 1).astype(np.int64)) if pieces else np.zeros(0, np.int64)
            for size in fill
        ]
        return [np.concatenate((part, np.zeros(rest, np.int64))) for part in parts]


def pair_batch(pairs: EncodedPairs, index: np.ndarray, fixed: Fixed | None = None) -> Pair:
    """Sources end with their end token; targets are read from it on and predicted up to it."""
    source, source_lengths = take_rows(pairs.source, index)
    target, target_lengths = take_rows(pairs.target, index)
    frame = pairs.frame
    for token in reversed(frame.source_before):
        source, source_lengths = with_end(source, source_lengths, token, before=True), source_lengths + 1
    for token in reversed(frame.before):
        target, target_lengths = with_end(target, target_lengths, token, before=True), target_lengths + 1
    source = with_end(source, source_lengths, frame.source_end, before=False)
    read = with_end(target, target_lengths, frame.start, before=True)
    following = with_end(target, target_lengths, frame.end, before=False)
    return lay_pair(source, source_lengths + 1, read, following, target_lengths + 1, fixed)


def lay_pair(
    source: np.ndarray,
    source_lengths: np.ndarray,
    read: np.ndarray,
    following: np.ndarray,
    target_lengths: np.ndarray,
    fixed: Fixed | None,
) -> Pair:
    """Sources and targets, filled up to a shape where they fit into it. read, following: of the targets, every token and the one
    that comes after it."""
    cuts = None if fixed is None else fixed.cuts(len(source_lengths), len(source), len(read))
    if fixed is None or cuts is None:
        longest = [round_up(int(lengths.max())) for lengths in (source_lengths, target_lengths)]
    else:
        longest = [fixed.max_len] * 2
        source, read = (np.pad(row, (0, int(cut.sum()))) for row, cut in zip((source, read), cuts, strict=True))
        following = np.pad(following, (0, int(cuts[1].sum())), constant_values=IGNORE)
        source_lengths, target_lengths = (
            np.concatenate(part) for part in zip((source_lengths, target_lengths), cuts, strict=True)
        )
    return Pair(
        to_ragged(source, source_lengths, longest[0]),
        to_ragged(read, target_lengths, longest[1]),
        torch.from_numpy(following),
    )


def cut(order: np.ndarray, sizes: list[np.ndarray], most: list[int], rows: int) -> list[np.ndarray]:
    """Pairs in their order in batches of at most `most` tokens on each side and `rows` pairs."""
    return [order[part] for part in portions([size[order] for size in sizes], most, rows)]


class PairPlan:
    """Batches and their shapes, in random order."""

    def __init__(self, pairs: EncodedPairs, rows: list[tuple[np.ndarray, Fixed | None]], rng: np.random.Generator):
        self.pairs, self.rows, self.order = pairs, rows, rng.permutation(len(rows))

    def __len__(self) -> int:
        return len(self.order)

    def batch(self, i: int) -> Pair:
        return pair_batch(self.pairs, *self.rows[self.order[i]])


LENGTHS = (8, 16, 24, 32, 48, 64, 96)  # of grids; longer ones by doubling


class PairBatches:
    """shapes "free": batches as they come, pairs of about one length together; "row": the same, filled up to one number of
    tokens and sequences, for kernels that see no grid; "grid": a few grids, each for pairs of some length, filled up."""

    rows = usual = 0

    def __init__(self, pairs: EncodedPairs, budget: int, max_len: int, shapes: str):
        if budget < 2 * max_len:
            raise UsageError(
                f"batches.budget {budget} is smaller than two sequences of batches.length {max_len}: raise it or shorten them"
            )
        self.pairs, self.budget, self.max_len, self.shapes = pairs, budget, max_len, shapes
        self.sizes = [
            side.lengths + added for side, added in zip((pairs.source, pairs.target), pairs.added, strict=True)
        ]

    def plan(self, seed: int, epoch: int) -> Plan:
        rng = generator(seed, epoch)
        order = rng.permutation(len(self.pairs))
        rows = self.grids(order) if self.shapes == "grid" else self.by_length(order)
        return PairPlan(self.pairs, rows, rng)

    def by_length(self, order: np.ndarray) -> list[tuple[np.ndarray, Fixed | None]]:
        order = order[np.lexsort((self.sizes[0][order], self.sizes[1][order]))]
        spare = (
            -(-self.budget // self.max_len) if self.shapes == "row" else 0
        )  # every piece of filler has a token on either side
        rows = cut(order, self.sizes, [self.budget - spare] * 2, self.budget)
        if self.shapes == "free":
            return [(row, None) for row in rows]
        most = max(len(row) for row in rows) + spare
        fixed = Fixed(self.budget, self.budget, 1 << (most - 1).bit_length(), self.max_len)
        return [(row, fixed) for row in rows]

    def grids(self, order: np.ndarray) -> list[tuple[np.ndarray, Fixed | None]]:
        """Shapes follow from all pairs, not from an epoch's batches: they must be the same in the next one. A batch that
        does not fit, the last of its length as a rule, has a shape of its own."""
        longest = np.maximum(*self.sizes)
        limits = [length for length in LENGTHS if length < self.max_len] + [self.max_len]
        found: list[tuple[np.ndarray, Fixed | None]] = []
        for low, high in pairwise([0, *limits]):
            members = order[(longest[order] > low) & (longest[order] <= high)]
            if not len(members):
                continue
            rows = max(self.budget // high, 1)
            likely = [float(size[members].mean()) * rows for size in self.sizes]
            spread = [4.0 * float(size[members].std()) * rows**0.5 for size in self.sizes]
            filler = 2 + int(max(2 * each for each in spread) // high)  # sequences
            most = [min(int(mean + wide), rows * high) for mean, wide in zip(likely, spread, strict=True)]
            fixed = Fixed(most[0] + filler, most[1] + filler, rows + filler, high)
            found += [(row, fixed) for row in cut(members, self.sizes, most, rows)]
        return found
