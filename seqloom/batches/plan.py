"""Which tokens are in which batch. An epoch's plan is a function of (corpus, seed, epoch) and nothing else.

So batch i is known without replaying the ones before it: resuming is instant, and no worker, rank or interruption can
change what is read. Two ways to cut a corpus into batches:

    Packed    documents in random order, laid end to end into batches of exactly `budget` tokens; no sequence is longer
              than max_len. Batches are filled to the last token: the document at the border is cut and continues in the
              next one. Sequences of exactly max_len are put together, so that their batches are full grids.
    Streams   documents in random order, laid end to end and cut into N parallel streams; each batch continues all of
              them by L tokens, so that a recurrent state can be carried (truncated back-propagation through time).
              L may vary from batch to batch, so that no place in the text is always far from a border. With `reset` a
              document in a stream is a sequence of its own, which begins with no state: so models are measured.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

from seqloom.batch import IGNORE, Excerpt, Joints, Labelled, Pair, Passage, Ragged
from seqloom.batches.store import Split
from seqloom.errors import UsageError

if TYPE_CHECKING:
    from seqloom.batches.cells import Cells


class Pieces(NamedTuple):
    """Runs of tokens of the corpus: where each one starts, how long it is, and its first token's position."""

    starts: np.ndarray
    lengths: np.ndarray
    positions: np.ndarray


class Corpus(Protocol):
    """What is needed to cut pieces out of a text: a Split, or some lines in memory."""

    @property
    def offsets(self) -> np.ndarray: ...
    def read_many(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray: ...
    def characters_of(self, starts: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> np.ndarray | None: ...


def portions(sizes: Sequence[np.ndarray], most: Sequence[int], rows: int | None = None) -> Iterator[slice]:
    """Divide consecutive sequences into portions as large as possible: at most `most` tokens by each of the sizes, at most `rows`
    sequences, at least one sequence."""
    ends = [np.concatenate(([0], np.cumsum(size))) for size in sizes]
    begin, count = 0, len(sizes[0])
    while begin < count:
        room = [
            int(np.searchsorted(end, end[begin] + limit, side="right")) - 1
            for end, limit in zip(ends, most, strict=True)
        ]
        stop = max(min(*room, count if rows is None else begin + rows, count), begin + 1)
        yield slice(begin, stop)
        begin = stop


class Plan(Protocol):
    """One epoch."""

    def __len__(self) -> int: ...
    def batch(self, i: int) -> "Excerpt | Pair | Passage | Labelled | Cells": ...


class Batches(Protocol):
    rows: int  # sequences that continue from batch to batch, each with a state; 0: batches are independent
    usual: int  # where the length varies from batch to batch, the usual one; 0: it does not vary

    def plan(self, seed: int, epoch: int) -> Plan: ...


def generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))


class Selection(NamedTuple):
    """The documents that are counted: where they start in the split, and how many of their tokens are taken."""

    starts: np.ndarray
    lengths: np.ndarray


def select_documents(split: Split, tokens: float, seed: int) -> Selection:
    """All of them; or the first in random order, as training would read them, with the last one cut at the budget."""
    starts, lengths = split.offsets[:-1], np.diff(split.offsets)
    if tokens >= split.num_tokens:
        return Selection(starts, lengths)
    order = generator(seed, 0).permutation(split.num_documents)
    starts, lengths = starts[order], lengths[order]
    taken = np.clip(max(int(tokens), 1) - (np.cumsum(lengths) - lengths), 0, lengths)
    return Selection(starts[taken > 0], taken[taken > 0])


def excerpt(split: Corpus, pieces: Pieces, max_len: int, num_sequences: int = 0, num_tokens: int = 0) -> Excerpt:
    """Reads the pieces. Each token is predicted from the one before it in the corpus, a document's first from the end
    token before it. Shapes are filled up to num_sequences and num_tokens; filler is never predicted."""
    lengths, positions = pieces.lengths, pieces.positions
    filler = max(num_tokens - int(lengths.sum()), 0)
    both = split.read_many(
        pieces.starts - 1, lengths + 1
    )  # one token more: the input of the first, the target of the last
    first = np.concatenate(([0], np.cumsum(lengths + 1)))
    inputs, targets = np.ones(len(both), bool), np.ones(len(both), bool)
    inputs[first[1:] - 1] = False
    targets[first[:-1]] = False
    ids, following = both[inputs], both[targets]
    characters = split.characters_of(pieces.starts - 1, lengths + 1, both)
    chars = None if characters is None else torch.from_numpy(np.pad(characters[inputs], ((0, filler), (0, 0))))
    if filler:
        cuts = np.full(-(-filler // max_len), max_len)
        cuts[-1] = filler - max_len * (len(cuts) - 1)
        lengths = np.concatenate((lengths, cuts))
        positions = np.concatenate((positions, np.zeros(len(cuts), np.int64)))
        ids = np.concatenate((ids, np.zeros(filler, np.int64)))
        following = np.concatenate((following, np.full(filler, IGNORE, np.int64)))
    empty = max(num_sequences - len(lengths), 0)
    offsets = np.concatenate(([0], np.cumsum(lengths), np.full(empty, len(ids)))).astype(np.int32)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(ids)) - offsets[owner] + positions[owner]
    row, places, owners, borders = (torch.from_numpy(array) for array in (ids, place, owner, offsets))
    last = None
    if characters is not None:
        last = torch.from_numpy(np.pad(characters[first[1:] - 1], ((0, len(offsets) - len(first)), (0, 0))))
    batch = Ragged(row, places, owners, borders, max_len, chars=chars)
    return Excerpt(batch, torch.from_numpy(following), last_chars=last)


def cut_documents(offsets: np.ndarray, max_len: int, first: np.ndarray | None = None) -> Pieces:
    """Documents in pieces of max_len; the first piece of a longer one has first[d] tokens, if given."""
    sizes = np.diff(offsets)
    head = np.minimum(sizes, max_len) if first is None else np.where(sizes > max_len, first, sizes)
    counts = 1 + -(-(sizes - head) // max_len)
    document = np.repeat(np.arange(len(sizes)), counts)
    index = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.where(index == 0, 0, head[document] + (index - 1) * max_len)
    end = np.minimum(np.where(index == 0, head[document], begin + max_len), sizes[document])
    return Pieces(offsets[:-1][document] + begin, end - begin, np.zeros(len(document), np.int64))


class PackedPlan:
    def __init__(self, split: Split, budget: int, max_len: int, seed: int, epoch: int):
        rng = generator(seed, epoch)
        self.split, self.budget, self.max_len = split, budget, max_len
        # long documents are cut at other places in every epoch
        first = rng.integers(1, max_len + 1, split.num_documents)
        pieces = cut_documents(split.offsets, max_len, first)
        order = rng.permutation(len(pieces.starts))
        starts, lengths = pieces.starts[order], pieces.lengths[order]
        per_batch = budget // max_len
        whole = np.flatnonzero(lengths == max_len)
        whole = whole[: len(whole) // per_batch * per_batch] if budget % max_len == 0 else whole[:0]
        self.whole = starts[whole].reshape(-1, per_batch)
        rest = np.ones(len(starts), bool)
        rest[whole] = False
        self.starts, self.lengths = starts[rest], lengths[rest]
        self.ends = np.cumsum(self.lengths)
        self.num_rest = -(-int(self.ends[-1]) // budget) if len(self.ends) else 0
        borders = np.searchsorted(self.ends, np.arange(self.num_rest + 1) * budget, side="left")
        most = int(np.diff(borders).max(initial=0)) + 1 + -(-budget // max_len)  # and as many pieces of filler
        self.num_sequences = (
            1 << (most - 1).bit_length()
        )  # a power of two: the same shape in every epoch, nearly always
        self.order = rng.permutation(len(self.whole) + self.num_rest)

    def __len__(self) -> int:
        return len(self.order)

    def batch(self, i: int) -> Excerpt:
        j = int(self.order[i])
        if j < len(self.whole):
            starts = self.whole[j]
            zeros = np.zeros(len(starts), np.int64)
            return excerpt(self.split, Pieces(starts, zeros + self.max_len, zeros), self.max_len)
        begin = (j - len(self.whole)) * self.budget
        end = min(begin + self.budget, int(self.ends[-1]))
        a, b = np.searchsorted(self.ends, begin, side="right"), np.searchsorted(self.ends, end, side="left")
        starts, lengths = self.starts[a : b + 1].copy(), self.lengths[a : b + 1].copy()
        skip = begin - (self.ends[a] - self.lengths[a])  # what the batch before has taken of the first piece
        starts[0] += skip
        lengths[0] -= skip
        lengths[-1] -= self.ends[b] - end
        pieces = Pieces(starts, lengths, np.zeros(len(starts), np.int64))
        return excerpt(self.split, pieces, self.max_len, self.num_sequences, self.budget)


class Packed:
    rows = usual = 0

    def __init__(self, split: Split, budget: int, max_len: int):
        if budget < max_len:
            raise UsageError(f"batches.budget {budget} is smaller than one sequence of max_len {max_len}: raise it")
        self.split, self.budget, self.max_len = split, budget, max_len

    def plan(self, seed: int, epoch: int) -> Plan:
        return PackedPlan(self.split, self.budget, self.max_len, seed, epoch)


SHORTEST = 5  # of the varying lengths
SPREAD = 5.0  # their standard deviation
HALVED = 0.05  # the share of batches that have half the length
SHAPES = 4  # steps to which the shapes of streams are rounded up where documents are sequences of their own


def draw_borders(rng: np.random.Generator, length: int, total: int) -> np.ndarray:
    """Where the batches of an epoch end in streams of `total` tokens, 0 before them: lengths around `length`, rarely
    around half of it (Merity et al., 2017, arXiv 1708.02182). The last one is cut, or left out if hardly any is left."""
    count = total // SHORTEST + 1
    middle = np.where(rng.random(count) < HALVED, length / 2, length)
    lengths = np.maximum(rng.normal(middle, SPREAD).astype(np.int64), SHORTEST)
    ends = np.minimum(np.concatenate(([0], np.cumsum(lengths))), total)
    ends = ends[: np.searchsorted(ends, total) + 1]
    return ends if ends[-1] - ends[-2] >= SHORTEST else ends[:-1]


class StreamPlan:
    def __init__(self, split: Split, streams: int, length: int, vary: bool, reset: bool, seed: int, epoch: int):
        rng = generator(seed, epoch)
        self.split, self.streams, self.reset = split, streams, reset
        order = rng.permutation(split.num_documents)
        sizes = np.diff(split.offsets)[order]
        self.sources, self.ends = split.offsets[:-1][order], np.cumsum(sizes)
        # every epoch starts at another place, so that the borders of the batches move
        spare = split.num_tokens - streams * length
        self.phase = int(rng.integers(0, min(length, spare + 1)))
        self.stride = (split.num_tokens - self.phase) // streams  # tokens of one stream
        # where batches begin and end in their streams
        self.borders = draw_borders(rng, length, self.stride) if vary else np.arange(0, self.stride + 1, length)

    def __len__(self) -> int:
        return len(self.borders) - 1

    def batch(self, i: int) -> Excerpt:
        return self.rows(i, range(self.streams))

    def rows(self, i: int, rows: range) -> Excerpt:
        """Some of the streams of a batch."""
        begin, end = self.borders[i : i + 2].tolist()
        n, length = len(rows), end - begin
        begins = self.phase + np.array(rows, np.int64) * self.stride + begin
        runs = [self._run(first, first + length) for first in begins.tolist()]
        pieces = Pieces(*(np.concatenate(part) for part in zip(*runs, strict=True)))
        if self.reset:
            return self._by_document(pieces, np.array([len(run.starts) for run in runs]), length)
        # a run over a document's end has several sources, but one stream has one row: read them, then lay the rows again
        read = excerpt(self.split, pieces, length)
        batch = Ragged(
            ids=read.batch.ids,
            positions=torch.arange(begin, end).repeat(n),
            owner=torch.arange(n).repeat_interleave(length),
            offsets=torch.arange(0, n * length + 1, length, dtype=torch.int32),
            max_len=length,
            chars=read.batch.chars,
        )
        return Excerpt(batch, read.targets)

    def _by_document(self, pieces: Pieces, counts: np.ndarray, length: int) -> Excerpt:
        """Each document a sequence; counts: how many there are in each stream. Shapes are rounded up to quarters of the
        streams and of their length, so that few shapes occur."""
        streams = len(counts)
        quarter, rows = -(-length // SHAPES), -(-streams // SHAPES)
        longest = min(-(-int(pieces.lengths.max()) // quarter) * quarter, length)
        more = -(-(int(counts.sum()) - streams) // rows) * rows
        read = excerpt(self.split, pieces, longest, streams + more)
        last = np.cumsum(counts) - 1
        first = last - counts + 1
        joints = (first, last, pieces.positions[first] > 0)
        return read._replace(joints=Joints(*map(torch.from_numpy, joints)))

    def _run(self, begin: int, end: int) -> Pieces:
        """The part [begin, end) of the shuffled corpus, as runs of the stored one; positions are those in the document."""
        a, b = np.searchsorted(self.ends, begin, side="right"), np.searchsorted(self.ends, end, side="left")
        stop = self.ends[a : b + 1]
        start = np.concatenate((self.ends[a - 1 : a] if a else [0], stop[:-1]))
        low, high = np.maximum(start, begin), np.minimum(stop, end)
        return Pieces(self.sources[a : b + 1] + low - start, high - low, low - start)


class Streams:
    def __init__(self, split: Split, streams: int, length: int, vary: bool = False, reset: bool = False):
        if vary and length < 2 * SHORTEST:
            raise UsageError(f"batches.vary needs batches.length of at least {2 * SHORTEST}, not {length}: raise it")
        if split.num_tokens < streams * length:
            raise UsageError(
                f"one batch of batches.streams {streams} × batches.length {length} tokens is more than the "
                f"{split.num_tokens} tokens of the training text: lower one of them, for example "
                f"--set batches.streams={max(1, split.num_tokens // length // 4)}, or give more text"
            )
        self.split, self.streams, self.length, self.vary, self.reset = split, streams, length, vary, reset
        self.rows, self.usual = streams, length if vary else 0

    def plan(self, seed: int, epoch: int) -> Plan:
        return StreamPlan(self.split, self.streams, self.length, self.vary, self.reset, seed, epoch)
