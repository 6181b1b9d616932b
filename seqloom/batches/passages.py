"""Text for models that read in both directions: sequences with their special tokens, alone or as pairs of parts.

    single    [CLS] x [SEP]            a piece of one document (RoBERTa's DOC-SENTENCES)
    next      [CLS] a [SEP] b [SEP]    half of the time b follows a in its document, else it is the end of another passage, of
                                       another document (BERT)
    order     [CLS] a [SEP] b [SEP]    b follows a, or half of the time a and b have changed places (ALBERT)

Pairs are cut where sentences end, told by their last token; a document of one sentence has none and is read by the first form
alone. Strange second parts are as long as those they stand for, as far as there are such: else a pair would be told by how full
it is, or by a sentence that breaks off. An epoch's plan is a function of (corpus, seed, epoch) and nothing else, and no token is
read twice in it. For the first `short` part of the run passages are shorter, as in BERT's own training; the share of the run at
which an epoch begins and ends is known from the budget.
"""

from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch

from seqloom.batch import IGNORE, Passage, Ragged
from seqloom.batches.plan import Plan, cut_documents, generator, portions
from seqloom.errors import DataError, UsageError
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.words import ends_sentence

Form = Literal["single", "next", "order"]
AT_ONCE = 1 << 24  # tokens that are looked through for the ends of sentences
SHORTER = 0.1  # the share of passages that are cut at a random shorter length, so that short texts are known, too
FOLLOWS, OTHER = 0, 1  # labels of pairs
ALIKE = 16  # passages, neighbours by the length of their second parts, that exchange these


class Source(Protocol):
    """What a plan asks of a text: a Split, or sentences in memory."""

    @property
    def offsets(self) -> np.ndarray: ...
    @property
    def num_documents(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    def read(self, start: int, stop: int) -> np.ndarray: ...
    def read_many(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray: ...


class Marks(NamedTuple):
    """What a plan must know of the tokenizer."""

    first: int  # [CLS]
    separator: int  # [SEP]
    ends: np.ndarray  # (V,) which tokens end a sentence

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Marks":
        return cls(tokenizer.first_id, tokenizer.separator_id, ends_sentence(tokenizer))


class Rows(NamedTuple):
    """One passage each: where its parts begin, how long they are (the second may be 0), and the label."""

    starts: np.ndarray  # (R, 2)
    lengths: np.ndarray  # (R, 2)
    labels: np.ndarray  # (R,)

    def take(self, index: np.ndarray) -> "Rows":
        return Rows(*(part[index] for part in self))

    @property
    def sizes(self) -> np.ndarray:
        """With special tokens."""
        return self.lengths.sum(1) + 2 + (self.lengths[:, 1] > 0)


def passage(
    split: Source, rows: Rows, marks: Marks, max_len: int, num_sequences: int = 0, num_tokens: int = 0
) -> Passage:
    """Reads the rows and puts the special tokens in. Shapes are filled up to num_sequences and num_tokens."""
    sizes = rows.sizes
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    total = int(offsets[-1])
    filler = max(num_tokens - total, 0)
    starts, lengths = rows.starts.ravel(), rows.lengths.ravel()
    ids = np.full(total + filler, marks.separator, np.int64)
    ids[offsets[:-1]] = marks.first
    # a part stands behind the special token before it
    begin = np.stack((offsets[:-1] + 1, offsets[:-1] + 2 + rows.lengths[:, 0]), axis=1).ravel()
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    spots = np.repeat(begin, lengths) + within
    ids[spots] = split.read_many(starts, lengths)
    places = np.full(total + filler, -1, np.int64)
    places[spots] = np.repeat(starts, lengths) + within
    labels = rows.labels
    if filler:
        ids[total:] = 0
        cuts = np.full(-(-filler // max_len), max_len)
        cuts[-1] = filler - max_len * (len(cuts) - 1)
        sizes = np.concatenate((sizes, cuts))
    empty = max(num_sequences - len(sizes), 0)
    borders = np.concatenate(([0], np.cumsum(sizes), np.full(empty, total + filler))).astype(np.int32)
    labels = np.concatenate((labels, np.full(len(borders) - 1 - len(labels), IGNORE)))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    column = np.arange(total + filler) - borders[owner]
    segments = None
    if (rows.lengths[:, 1] > 0).any():
        first = np.concatenate((rows.lengths[:, 0] + 2, np.full(len(sizes) - len(rows.labels), max_len)))
        segments = torch.from_numpy((column >= first[owner]).astype(np.int64))
    row, spot, owners, edges, where, label = (
        torch.from_numpy(array) for array in (ids, column, owner, borders, places, labels)
    )
    return Passage(Ragged(row, spot, owners, edges, max_len, segments=segments), where, label)


class PassagePlan:
    """Rows in batches of at most `budget` tokens; rows of exactly max_len are put together, so that they are full grids."""

    def __init__(
        self, split: Source, marks: Marks, parts: list[tuple[Rows, int]], budget: int, rng: np.random.Generator
    ):
        self.split, self.marks, self.budget = split, marks, budget
        self.batches: list[tuple[Rows, int, int]] = []  # rows, their max_len, sequences to fill up to (0: a full grid)
        for rows, max_len in parts:
            before = len(self.batches)
            sizes, per_batch = rows.sizes, budget // max_len
            whole = np.flatnonzero(sizes == max_len)
            whole = whole[: len(whole) // per_batch * per_batch] if budget % max_len == 0 else whole[:0]
            for index in whole.reshape(-1, per_batch):
                self.batches.append((rows.take(index), max_len, 0))
            rest = np.ones(len(sizes), bool)
            rest[whole] = False
            left = np.flatnonzero(rest)
            parts_left = [left[part] for part in portions([sizes[left]], [budget])]
            most = max(map(len, parts_left), default=0) + -(-budget // max_len)
            room = 1 << max(most - 1, 0).bit_length()
            self.batches += [(rows.take(index), max_len, room) for index in parts_left]
            mixed = rng.permutation(len(self.batches) - before)
            self.batches[before:] = [self.batches[before + i] for i in mixed]

    def __len__(self) -> int:
        return len(self.batches)

    def batch(self, i: int) -> Passage:
        rows, max_len, room = self.batches[i]
        return passage(self.split, rows, self.marks, max_len, room, self.budget if room else 0)


class Passages:
    """short: (length, share of the run that has it); epochs: how many the run will have."""

    rows = usual = 0

    def __init__(
        self,
        split: Source,
        marks: Marks,
        form: Form,
        budget: int,
        max_len: int,
        short: tuple[int, float],
        epochs: float,
    ):
        if budget < max_len:
            raise UsageError(
                f"batches.budget {budget} is smaller than one sequence of batches.length {max_len}: raise it"
            )
        self.split, self.marks, self.form, self.budget = split, marks, form, budget
        self.max_len, self.short, self.epochs = max_len, short, epochs
        self.least = 3 if form == "single" else 5  # special tokens, and a token a part
        if max_len < self.least:
            raise UsageError(f"batches.length {max_len}: passages have special tokens and text: at least {self.least}")
        self.sentences = np.zeros(0, np.int64) if form == "single" else self.find_sentences()

    def find_sentences(self) -> np.ndarray:
        """Where sentences end in the corpus, documents' ends included; refuses a corpus that has no pairs."""
        split, found = self.split, []
        for start in range(0, split.num_tokens, AT_ONCE):
            ids = split.read(start, min(start + AT_ONCE, split.num_tokens))
            found.append(np.flatnonzero(self.marks.ends[ids]) + start + 1)
        ends = np.union1d(np.concatenate(found), split.offsets[1:] - 1)  # the end token belongs to no sentence
        many = np.diff(np.searchsorted(ends, split.offsets - 1, side="right"))
        kind = "next sentence" if self.form == "next" else "sentence order"
        if not (many >= 2).any():
            raise DataError(
                f"no document has two sentences, which {kind} prediction needs: a document is a whole text, several "
                f"sentences in a line or between blank lines (prepare --documents), or use the objective masked"
            )
        if self.form == "next" and split.num_documents < 2:
            raise DataError(
                "next sentence prediction takes half of its second sentences from other documents, and there is one document "
                "only: tell documents apart (prepare --documents line or blank), or use the objective masked"
            )
        return ends

    def plan(self, seed: int, epoch: int) -> Plan:
        rng = generator(seed, epoch)
        order = rng.permutation(self.split.num_documents)
        length, share = self.short
        if not length:
            return PassagePlan(
                self.split, self.marks, [(self.cut(order, self.max_len, rng), self.max_len)], self.budget, rng
            )
        # documents up to the place where the run goes over to long passages
        border = round(len(order) * min(max(share * self.epochs - epoch, 0.0), 1.0))
        parts = [
            (self.cut(some, size, rng), size)
            for some, size in ((order[:border], length), (order[border:], self.max_len))
            if len(some)
        ]
        return PassagePlan(self.split, self.marks, parts, self.budget, rng)

    def cut(self, documents: np.ndarray, max_len: int, rng: np.random.Generator) -> Rows:
        rows = self.singles(documents, max_len, rng) if self.form == "single" else self.pairs(documents, max_len, rng)
        return rows.take(rng.permutation(len(rows.labels)))

    def singles(self, documents: np.ndarray, max_len: int, rng: np.random.Generator) -> Rows:
        offsets = self.split.offsets
        sizes = offsets[documents + 1] - offsets[documents] - 1  # without the end token, which the separator stands for
        room = max_len - 2
        borders = np.concatenate(([0], np.cumsum(sizes)))
        pieces = cut_documents(borders, room, rng.integers(1, room + 1, len(documents)))
        keep = pieces.lengths > 0  # an empty document has no passage
        begin, lengths = pieces.starts[keep], pieces.lengths[keep]
        owner = np.searchsorted(borders, begin, side="right") - 1
        starts = begin - borders[owner] + offsets[documents][owner]
        zeros = np.zeros(len(starts), np.int64)
        return Rows(np.stack((starts, zeros), 1), np.stack((lengths, zeros), 1), np.full(len(starts), IGNORE))

    def spans(self, document: int, room: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
        """(start, split, end) of passages of at most `room` tokens, cut where sentences end."""
        start, stop = int(self.split.offsets[document]), int(self.split.offsets[document + 1]) - 1
        low, high = np.searchsorted(self.sentences, (start, stop), side="right")
        ends = self.sentences[low:high].tolist()  # the last is the end of the document
        if len(ends) < 2:
            return []
        found, i = [], 0
        while i < len(ends):
            limit = room if rng.random() >= SHORTER else int(rng.integers(2, room + 1))
            last = i
            while last + 1 < len(ends) and ends[last + 1] - start <= limit:
                last += 1
            end = min(ends[last], start + limit)  # a sentence longer than the room is cut
            if last > i:
                found.append((start, ends[int(rng.integers(i, last))], end))
            elif end - start >= 2:  # one sentence: it has no border inside
                found.append((start, int(rng.integers(start + 1, end)), end))
            start, i = end, last + (end == ends[last])
        return found

    def pairs(self, documents: np.ndarray, max_len: int, rng: np.random.Generator) -> Rows:
        room = max_len - 3
        found = [(d, *span) for d in documents.tolist() for span in self.spans(d, room, rng)]
        if not found:
            return Rows(np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
        document, start, middle, end = np.array(found, np.int64).T
        starts, lengths = np.stack((start, middle), 1), np.stack((middle - start, end - middle), 1)
        other = rng.random(len(start)) < 0.5
        if self.form == "order":
            starts[other], lengths[other] = starts[other][:, ::-1], lengths[other][:, ::-1]
        else:
            index = np.flatnonzero(other)
            given = strangers(document[index], (end - middle)[index], rng)
            index, given = index[given >= 0], index[given[given >= 0]]
            other = np.zeros(len(start), bool)
            other[index] = True
            starts[index, 1] = middle[given]
            lengths[index, 1] = np.minimum((end - middle)[given], room - lengths[index, 0])
        return Rows(starts, lengths, np.where(other, OTHER, FOLLOWS))


def strangers(documents: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each passage another one of another document, with a second part about as long. Who gets one gives one: each comes
    once. −1 where a document has more passages than all others."""
    given = np.full(len(documents), -1, np.int64)
    order = rng.permutation(len(documents))
    order = order[np.argsort(sizes[order], kind="stable")]
    for some in np.array_split(order, max(len(order) // ALIKE, 1)):
        exchange(given, some, documents)
    exchange(given, order[given[order] < 0], documents)  # those that found none of their length
    return given


def exchange(given: np.ndarray, some: np.ndarray, documents: np.ndarray) -> None:
    """Some of the passages among themselves; what one document has more than all others is left out."""
    _, document, counts = np.unique(documents[some], return_inverse=True, return_counts=True)
    surplus = max(2 * int(counts.max(initial=0)) - len(some), 0)
    if surplus:
        left_out = np.flatnonzero(document == counts.argmax())[:surplus]
        some, document = np.delete(some, left_out), np.delete(document, left_out)
    # in order of their documents, moved on by the largest one's share: no one meets its own
    by_document = some[np.argsort(document, kind="stable")]
    given[by_document] = np.roll(by_document, -int(np.bincount(document).max(initial=0)))
