"""Text for bidirectional models: sequences with their special tokens, single or as pairs of segments.

    single    [CLS] x [SEP]            a piece of one document (RoBERTa's DOC-SENTENCES)
    next      [CLS] a [SEP] b [SEP]    half of the time b follows a in its document, else it is the end of another passage, of
                                       another document (BERT)
    order     [CLS] a [SEP] b [SEP]    b follows a, or half of the time a and b have changed places (ALBERT)

Both parts of a pair are whole sentences; what is none (the rest of a text that breaks off, a sentence longer than the room,
one that has no other beside it) is read by the first form. Only the words should show how a pair was made. So random
next sentences are exchanged between two passages whose second parts are about as long and begin and end with the same kinds of
tokens, both or neither of the two, and cut never; and passages are filled from the start of a document or from its end, by
chance: a sentence that did not fit into a passage begins the next one and is longer than others. Of pairs whose order is
asked for, as many have the longer part first as have it second, and so of kinds of tokens. A passage that would tip this, or
without a partner, is read as one part. An epoch's plan is a function of (corpus, seed, epoch) and nothing else, and no token
is read twice in it. For the first `short` part of the run passages are shorter, as in BERT's own training; the share of the
run at which an epoch begins and ends is known from the budget.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch

from seqloom.batch import IGNORE, Passage, Ragged
from seqloom.batches.plan import Plan, cut_documents, generator, portions
from seqloom.batches.sentences import Borders, Find, find_borders
from seqloom.errors import DataError, UsageError
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.words import KINDS, Sentences, kinds

Form = Literal["single", "next", "order"]
SHORTER = 0.1  # the share of passages that are cut at a random shorter length, so that short texts are known, too
FOLLOWS, OTHER = 0, 1  # labels of pairs
CELLS = 8  # of a passage's length: parts within one are about as long
WIDTHS = (1, 1, 1, 2, 2, 3, 3, 4, 4)  # differences in length, round by round, within which passages look for a partner


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
    sentences: Find
    kinds: np.ndarray  # (V,) what an entry looks like: a capital, a digit, a stop, …

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Marks":
        return cls(tokenizer.first_id, tokenizer.separator_id, Sentences(tokenizer), kinds(tokenizer))


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
    # a part comes after its special token
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
    """short: (length, share of the run that has it); epochs: how many the run will have; borders: finds the sentences."""

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
        borders: Callable[[Any, Find], Borders] = find_borders,
    ):
        if budget < max_len:
            raise UsageError(
                f"batches.budget {budget} is smaller than one sequence of batches.length {max_len}: raise it"
            )
        self.split, self.marks, self.form, self.budget = split, marks, form, budget
        self.max_len, self.short, self.epochs = max_len, short, epochs
        self.least = 3 if form == "single" else 5  # special tokens, and a token a part
        if max_len < self.least:
            raise UsageError(
                f"batches.length {max_len}: a passage has special tokens and text, so it needs at least {self.least}"
            )
        if form != "single":
            self.take_sentences(*borders(split, marks.sentences))

    def take_sentences(self, spans: np.ndarray, counts: np.ndarray) -> None:
        """Refuses a corpus that has no pairs. spans: (S, 2) where whole sentences begin and end; counts: of each document."""
        split, kind = self.split, "next sentence" if self.form == "next" else "sentence order"
        self.sentences = spans
        self.first = np.concatenate(([0], np.cumsum(counts)))  # of each document
        if not (counts >= 2).any():
            raise DataError(
                f"no document has two sentences, which {kind} prediction needs: prepare whole texts as documents, "
                f"with several sentences on a line or between blank lines (prepare --documents), or use the objective masked"
            )
        if self.form == "next" and split.num_documents < 2:
            raise DataError(
                "next sentence prediction takes half of its second sentences from other documents, but there is only one "
                "document: hold out more of the text, split it (prepare --documents line or blank), or use the objective "
                "masked (objective.name=masked)"
            )

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
        offsets = self.split.offsets  # without the end token, which the separator replaces
        return one_part(offsets[documents], offsets[documents + 1] - 1, max_len, rng)

    def spans(self, document: int, room: int, rng: np.random.Generator) -> list[tuple[int, int, int, int]]:
        """(start, end) of both parts of every passage of a document, at most `room` tokens long; of one part: the second is
        empty, and it may be longer."""
        begin, stop = int(self.split.offsets[document]), int(self.split.offsets[document + 1]) - 1
        sentences = self.sentences[self.first[document] : self.first[document + 1]].tolist()
        if not sentences:
            return [(begin, stop, stop, stop)]
        (low, _), (_, high) = sentences[0], sentences[-1]
        found = [(a, b, b, b) for a, b in ((begin, low), (high, stop)) if a < b]
        backward, first, behind = rng.random() < 0.5, 0, len(sentences)  # those that are left
        while first < behind:
            limit = room if rng.random() >= SHORTER else int(rng.integers(2, room + 1))
            low, high = (behind - 1, behind) if backward else (first, first + 1)
            while low > first and backward and sentences[high - 1][1] - sentences[low - 1][0] <= limit:
                low -= 1
            while high < behind and not backward and sentences[high][1] - sentences[low][0] <= limit:
                high += 1
            first, behind = (first, low) if backward else (high, behind)
            border = int(rng.integers(low + 1, high)) if high - low > 1 else high
            start, middle, end = sentences[low][0], sentences[border - 1][1], sentences[high - 1][1]
            found.append((start, middle, sentences[border][0] if border < high else end, end))
        return found

    def pairs(self, documents: np.ndarray, max_len: int, rng: np.random.Generator) -> Rows:
        """Pairs, and what is read as one part."""
        room = max_len - 3
        found = [(d, *span) for d in documents.tolist() for span in self.spans(d, room, rng)]
        table = np.array(found, np.int64).reshape(-1, 5)
        document, starts, ends = table[:, 0], table[:, [1, 3]], table[:, [2, 4]]
        lengths = ends - starts
        other = rng.random(len(table)) < 0.5
        two = lengths[:, 1] > 0
        if self.form == "order":
            two[two] = select_balanced(lengths[two], self.edge_kinds(starts[two], lengths[two]), max_len // CELLS, rng)
            other &= two
            starts[other], lengths[other] = starts[other][:, ::-1], lengths[other][:, ::-1]
        else:
            index = np.flatnonzero(two)
            edge_kinds = self.edge_kinds(starts[index, 1], lengths[index, 1])
            partner = find_partners(document[index], lengths[index], edge_kinds, room, rng)
            one, index = index[partner >= 0], index[partner[partner >= 0]]
            two = np.isin(np.arange(len(table)), one)
            other &= two
            other[one] = other[np.minimum(one, index)]  # both or none of two
            one, index = one[other[one]], index[other[one]]
            starts[one, 1], lengths[one, 1] = starts[index, 1], lengths[index, 1]
        rest = one_part(table[~two, 1], table[~two, 4], max_len, rng)
        rows = Rows(starts[two], lengths[two], np.where(other, OTHER, FOLLOWS)[two])
        return Rows(*(np.concatenate(part) for part in zip(rows, rest, strict=True)))

    def edge_kinds(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """What kinds of tokens parts begin and end with, as one number."""
        places = np.stack((starts, starts + lengths - 1)).reshape(2, -1)
        begin, end = (self.marks.kinds[self.split.read_many(row, np.ones_like(row))] for row in places)
        return (begin * KINDS + end).reshape(starts.shape)


def one_part(starts: np.ndarray, ends: np.ndarray, max_len: int, rng: np.random.Generator) -> Rows:
    """Stretches of text as passages of one part; long ones are cut, at other places in every epoch."""
    room, borders = max_len - 2, np.concatenate(([0], np.cumsum(ends - starts)))
    pieces = cut_documents(borders, room, rng.integers(1, room + 1, len(starts)))
    keep = pieces.lengths > 0  # an empty document has no passage
    begin, lengths = pieces.starts[keep], pieces.lengths[keep]
    owner = np.searchsorted(borders, begin, side="right") - 1
    zeros = np.zeros(len(begin), np.int64)
    return Rows(
        np.stack((begin - borders[owner] + starts[owner], zeros), 1),
        np.stack((lengths, zeros), 1),
        np.full(len(begin), IGNORE),
    )


def select_balanced(lengths: np.ndarray, edge_kinds: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Which passages to keep so that of two parts that look different each is as often the first as the second. lengths and
    edge_kinds: (P, 2); width: lengths within it count as equal."""
    codes = edge_kinds * (int(lengths.max(initial=0)) + 1) + lengths // max(width, 1)
    sides = np.sign(codes[:, 0] - codes[:, 1])
    sides = np.where(sides == 0, np.sign(lengths[:, 0] - lengths[:, 1]), sides)
    _, cell = np.unique(np.sort(codes, axis=1), axis=0, return_inverse=True)
    # in random order, each numbered among those of its kind and side
    order = rng.permutation(len(lengths))
    order = order[np.lexsort((sides[order], cell[order]))]
    group = 3 * cell[order] + sides[order]
    _, first, index = np.unique(group, return_index=True, return_inverse=True)
    number = np.arange(len(order)) - first[index]
    counts = np.stack([np.bincount(cell[sides == side], minlength=cell.max(initial=-1) + 1) for side in (-1, 1)])
    keep = np.zeros(len(lengths), bool)
    keep[order] = (number < counts.min(0)[cell[order]]) | (sides[order] == 0)
    return keep


def find_partners(
    documents: np.ndarray, lengths: np.ndarray, edge_kinds: np.ndarray, room: int, rng: np.random.Generator
) -> np.ndarray:
    """For each passage another one, of another document, with a second part that looks alike, so that both may exchange theirs.
    lengths: (P, 2); edge_kinds: (P,) of second parts. −1 if there is none."""
    found = np.full(len(documents), -1)
    left = np.arange(len(documents))
    for width in WIDTHS:
        order = left[np.lexsort((lengths[left, 1] + rng.random(len(left)) * width, edge_kinds[left]))]
        one, two = order[0 : len(order) - 1 : 2], order[1::2]
        fits = (documents[one] != documents[two]) & (edge_kinds[one] == edge_kinds[two])
        fits &= np.abs(lengths[one, 1] - lengths[two, 1]) < width
        fits &= (lengths[one, 0] + lengths[two, 1] <= room) & (lengths[two, 0] + lengths[one, 1] <= room)
        one, two = one[fits], two[fits]
        found[one], found[two] = two, one
        left = left[found[left] < 0]
    return found
