"""Labelled texts as token ids, and the batches of an epoch.

The model decides which special tokens are around a text:

    both directions     [CLS] a [SEP]    [CLS] a [SEP] b [SEP]         (Devlin et al., 2018)
    without segments    [CLS] a [SEP]    [CLS] a [SEP] [SEP] b [SEP]   (Liu et al., 2019)
    relative segments   a [SEP] [CLS]    a [SEP] b [SEP] [CLS]         (Yang et al., 2019)
    left to right       end a extract    end a delimiter b extract     (Radford et al., 2018)

Departure from GPT: no token is added to the vocabulary. A text starts behind the token that ends documents, as in
pre-training; the delimiter is a separator, or that token again; the token to extract from is the mask, which a left-to-right
model has never read, so that it is learnt with the task. Recurrent models are read at the end of the text.
"""

import hashlib
import os
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.batch import APART, IGNORE, Backbone, Images, Labelled, Ragged, Words
from seqloom.batches.pictures import Pictures, take_pictures
from seqloom.batches.plan import generator
from seqloom.progress import say
from seqloom.tokens.spelling import PAD, spell_text, spelling_table
from seqloom.tokens.tokenizer import Tokenizer

STEP = 256  # tokens of a batch are padded to a multiple of it where the same shapes should occur again
STEP_WORDS = 256
STEP_SEQUENCES = 8
IN_MEMORY = 1 << 30  # bytes of a table of features; a larger one is in a temporary file

Ids = np.ndarray


class Frame(NamedTuple):
    """The special tokens of a sequence: before the first text, between two, after the last."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    segments: bool  # whether the second text has its own segment id
    limit: int | None  # the most tokens that the model reads
    spelling: np.ndarray | None = None  # (V, C) of a model that reads characters, where words may be unknown
    backward: bool = False  # it reads each text from right to left
    windows: bool = False  # a longer text is read in several windows, not cut
    spots: bool = False  # rows say which characters each token stands for
    apart: bool = False  # the last token, which stands for all of it, has its own segment id, too

    @classmethod
    def of(cls, backbone: Backbone, tokenizer: Tokenizer, length: int, backward: bool = False) -> "Frame":
        """length: of the recipe; the model may read less."""
        limit = length if backbone.max_len is None else min(length, backbone.max_len)
        first, separator, end = tokenizer.first_id, tokenizer.separator_id, tokenizer.end_id
        spells = backbone.characters and tokenizer.unk_id is not None
        table = spelling_table(tokenizer, backbone.characters) if spells else None
        extract = end if backbone.recurrent or tokenizer.mask_id is None else tokenizer.mask_id
        around = backbone.surround(first, separator, end, extract)
        kind = backbone.segment_kind
        backward = backward and backbone.causal
        return cls(*around, kind in ("texts", "relative"), limit, table, backward, apart=kind == "relative")

    def room(self, texts: int) -> int | None:
        """The most tokens of this many texts together."""
        around = len(self.before) + len(self.after) + (texts - 1) * len(self.between)
        return None if self.limit is None else max(self.limit - around, 0)


class Features(NamedTuple):
    """Numbers for the tokens of one sequence: features from other models, or states of a frozen one."""

    table: np.ndarray  # (U, B) of all sequences of a split, in memory or on disk
    rows: np.ndarray  # (L,) the row of each token in it; −1: it has none, and is zeros

    def read(self) -> np.ndarray:
        """(L, B)"""
        if not len(self.table):
            return np.zeros((len(self.rows), self.table.shape[1]), np.float32)
        found = self.table[self.rows]
        found[self.rows < 0] = 0
        return found


def new_table(rows: int, width: int) -> np.ndarray:
    """Zeros; in a file that vanishes by itself where they are too many for memory. OSError where the disk has no room for it."""
    size = rows * width * 4
    if size <= IN_MEMORY:
        return np.zeros((rows, width), np.float32)
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # a file with holes would end the process where the disk is full later
            os.posix_fallocate(file.fileno(), 0, size)
        say(f"{size / 2**30:.1f} GiB of states are kept in a file in {tempfile.gettempdir()} until the run ends")
        return np.memmap(file, np.float32, "w+", shape=(rows, width))


class Row(NamedTuple):
    """One sequence. label: a number, or (W,) of words, or (2,) the first and last token of an answer."""

    ids: Ids
    segments: Ids | None
    own: np.ndarray  # (L,) as in Labelled
    label: np.ndarray
    places: np.ndarray | None = None  # (W, 2)
    chars: np.ndarray | None = None  # (L, C)
    spots: np.ndarray | None = None  # (L, 2) where they are asked for: the characters that each token stands for
    source: np.ndarray | None = None  # (L,) and the text that they are of, by its number; −1: a special token
    features: Features | None = None
    picture: tuple[Pictures, int] | None = None  # where it is, and its number
    states: Features | None = None  # of a frozen model, where they were computed before


def add_special_tokens(texts: Sequence[Ids], frame: Frame) -> tuple[Ids, Ids | None, np.ndarray, list[int]]:
    """Add special tokens to texts: ids, segments, the text of each token (−1: a special token), and the start of each text."""
    parts, sources, starts = [np.array(frame.before, np.int64)], [np.full(len(frame.before), -1)], []
    for i, text in enumerate(texts):
        if i:
            parts.append(np.array(frame.between, np.int64))
            sources.append(np.full(len(frame.between), -1))
        starts.append(sum(map(len, parts)))
        parts.append(np.asarray(text, np.int64))
        sources.append(np.full(len(text), i))
    parts.append(np.array(frame.after, np.int64))
    sources.append(np.full(len(frame.after), -1))
    ids, source = np.concatenate(parts), np.concatenate(sources)
    segments = None
    if frame.segments and (len(texts) > 1 or frame.apart):
        segments = np.zeros(len(ids), np.int64)
        segments[starts[1] if len(texts) > 1 else len(ids) :] = 1
        if frame.apart:
            segments[-1] = APART
    return ids, segments, source, starts


def spelling_of(
    ids: Ids, texts: Sequence[tuple[Ids, Sequence[str]]], tokenizer: Tokenizer, frame: Frame
) -> np.ndarray | None:
    """The characters of a sequence, for models that read them. texts: the tokens of each that are in the sequence, and its
    unknown words, of which the last ones may be cut off."""
    if frame.spelling is None:
        return None
    spelled = [list(words)[: int((kept == tokenizer.unk_id).sum())] for kept, words in texts]
    unknown = [word for words in spelled for word in (words[::-1] if frame.backward else words)]
    return spell_text(ids, unknown, tokenizer, frame.spelling)


def truncate(texts: Sequence[Ids], room: int | None) -> list[Ids]:
    """Truncate texts so that they fit together: always the longest loses its last token, as in `tokenizers` ("longest first").
    The remainder stays with the longest, of equal ones with the last."""
    sizes = [len(text) for text in texts]
    if room is None or sum(sizes) <= room:
        return list(texts)
    # the level to which all longer ones are cut
    level = bisect_right(range(max(sizes) + 1), room, key=lambda cut: sum(min(size, cut) for size in sizes)) - 1
    cuts = [min(size, level) for size in sizes]
    longer = sorted((size, i) for i, size in enumerate(sizes) if size > level)
    for _, i in longer[::-1][: room - sum(cuts)]:
        cuts[i] += 1
    return [text[:cut] for text, cut in zip(texts, cuts, strict=True)]


class Examples:
    """Labelled examples in memory: the sequences of each, usually one."""

    def __init__(self, rows: list[list[Row]], words: int, size: int):
        self.rows, self.words, self.bytes = rows, words, size

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        """Tokens of the texts, as a budget counts them."""
        return max(sum(int(row.own.sum()) for rows in self.rows for row in rows), 1)

    @property
    def fingerprint(self) -> str:
        found = hashlib.sha256()
        for rows in self.rows:
            for row in rows:
                found.update(row.ids.tobytes() + np.asarray(row.label, np.float64).tobytes())
                if row.picture is not None:
                    found.update(row.picture[0].one(row.picture[1]).tobytes())
            found.update(b"|")
        return found.hexdigest()


def batch_of(examples: Sequence[Sequence[Row]], max_len: int | None = None, max_words: int | None = None) -> Labelled:
    """Examples in one batch. max_len: the longest sequence of all, if the same shapes should occur again; tokens, words and
    sequences are then padded. max_words: the same for the words of an example, if words have labels."""
    rows = [row for example in examples for row in example]
    sizes = np.array([len(row.ids) for row in rows])
    total, longest = int(sizes.sum()), max_len or -(-int(sizes.max()) // 8) * 8
    padding = -total % STEP if max_len else 0
    lengths = padded_lengths(sizes, padding, longest, max_len is not None)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    ids = pad([row.ids for row in rows], padding, 0)
    own, real = pad([row.own for row in rows], padding, False), np.arange(len(ids)) < total
    example = np.repeat(np.arange(len(examples)), [len(each) for each in examples])
    groups = np.concatenate((example, np.full(len(lengths) - len(rows), len(examples))))
    batch = Ragged(
        torch.from_numpy(ids), torch.from_numpy(np.arange(len(ids)) - offsets[owner]), torch.from_numpy(owner),
        torch.from_numpy(offsets.astype(np.int32)), longest, segments=segments_of(rows, padding),
        chars=characters_of(rows, padding), beside=table_of([row.features for row in rows], padding),
        pictures=pictures_of(rows, len(lengths), max_len is not None),
        states=table_of([row.states for row in rows], padding),
    )  # fmt: skip
    found = Labelled(batch, torch.from_numpy(own), torch.from_numpy(real), torch.empty(0), torch.from_numpy(groups))
    if rows[0].places is not None:
        return with_words(found, examples, offsets, max_words or (max_len and 1 << 30))
    labels = np.stack([row.label for row in rows])
    if labels.ndim == 2:  # positions in a sequence become positions in the batch
        labels = labels + offsets[: len(rows), None]
    return found._replace(labels=torch.from_numpy(pad_labels(labels, len(lengths) - len(rows))))


def padded_lengths(sizes: np.ndarray, padding: int, longest: int, fixed: bool) -> np.ndarray:
    """The lengths of all sequences: the examples', then those of padding, then empty ones up to a multiple of STEP_SEQUENCES."""
    fill = np.full(-(-padding // longest), longest)
    if padding:
        fill[-1] = padding - longest * (len(fill) - 1)
    empty = -(len(sizes) + len(fill)) % STEP_SEQUENCES if fixed else 0
    return np.concatenate((sizes, fill, np.zeros(empty, np.int64))).astype(np.int64)


def pad(parts: list[np.ndarray], padding: int, value: Any) -> np.ndarray:
    return np.concatenate([*parts, np.full(padding, value, parts[0].dtype)])


def segments_of(rows: Sequence[Row], padding: int) -> torch.Tensor | None:
    if all(row.segments is None for row in rows):
        return None
    parts = [np.zeros(len(row.ids), np.int64) if row.segments is None else row.segments for row in rows]
    return torch.from_numpy(pad(parts, padding, 0))


def characters_of(rows: Sequence[Row], padding: int) -> torch.Tensor | None:
    if rows[0].chars is None:
        return None
    letters = [row.chars for row in rows if row.chars is not None]
    nothing = np.full((padding, letters[0].shape[1]), PAD, letters[0].dtype)
    return torch.from_numpy(np.concatenate([*letters, nothing]))


def table_of(each: Sequence[Features | None], padding: int) -> torch.Tensor | None:
    """each: of every row; all have some, or none has."""
    parts = [found.read() for found in each if found is not None]
    if not parts:
        return None
    return torch.from_numpy(np.concatenate([*parts, np.zeros((padding, parts[0].shape[1]), np.float32)]))


def pictures_of(rows: Sequence[Row], sequences: int, fixed: bool) -> Images | None:
    """The pictures of all sequences, each once. sequences: with those of padding; fixed: the same shapes should occur again."""
    if rows[0].picture is None:
        return None
    known: dict[tuple[int, int], int] = {}
    places = [row.picture for row in rows if row.picture is not None]
    if places[0][0].size.features:  # they differ in size, and cost nothing to repeat
        return take_pictures([*places, *places[:1] * (sequences - len(places))])
    numbers = [known.setdefault((id(store), number), len(known)) for store, number in places]
    first = dict(zip(numbers, places, strict=True))
    chosen = [first[i] for i in range(len(known))]
    chosen += chosen[:1] * (-len(chosen) % STEP_SEQUENCES if fixed else 0)
    texts = np.array(numbers + [0] * (sequences - len(numbers)))
    return take_pictures(chosen)._replace(texts=torch.from_numpy(texts))


def pad_labels(labels: np.ndarray, more: int) -> np.ndarray:
    nothing = np.nan if labels.dtype.kind == "f" else IGNORE
    return np.concatenate((labels, np.full((more, *labels.shape[1:]), nothing, labels.dtype)))


def with_words(
    found: Labelled, examples: Sequence[Sequence[Row]], offsets: np.ndarray, max_words: int | None
) -> Labelled:
    """Add the words: those of an example are one sequence, however many sequences of tokens they are in. max_words: the most
    words of a sequence, if the same shapes should occur again. Padding has its own sequences, at the last token, which
    belongs to no word."""
    rows = [row for example in examples for row in example]
    places = [row.places + start for row, start in zip(rows, offsets, strict=False)]
    count = [sum(len(row.label) for row in example) for example in examples]
    more, longest = 0, max(*count, 1)
    count += [0] * (found.batch.num_sequences - len(count))
    if max_words is not None:
        more = -sum(count) % STEP_WORDS
        longest = min(max_words, sum(count) + more)
        cuts = range(0, STEP_WORDS, longest)  # as many sequences for any amount of filler
        count += [min(max(more - cut, 0), longest) for cut in cuts]
    borders = np.concatenate(([0], np.cumsum(count)))
    words = Words(
        torch.from_numpy(np.repeat(np.arange(len(count)), count)), torch.from_numpy(borders.astype(np.int32)), longest
    )
    labels = pad_labels(np.concatenate([row.label for row in rows]), more)
    last = offsets[-1] - 1
    spots = np.concatenate([*places, np.tile([[last, last + 1]], (more, 1))])
    return found._replace(labels=torch.from_numpy(labels), places=torch.from_numpy(spots), words=words)


class LabelledPlan:
    def __init__(self, examples: Examples, parts: list[np.ndarray], max_len: int | None, max_words: int | None):
        self.examples, self.parts, self.max_len, self.max_words = examples, parts, max_len, max_words

    def __len__(self) -> int:
        return len(self.parts)

    def batch(self, i: int) -> Labelled:
        return batch_of([self.examples.rows[j] for j in self.parts[i]], self.max_len, self.max_words)


class LabelledBatches:
    """`size` examples per batch, in an order that is a function of (seed, epoch). fixed: the same shapes occur again."""

    rows = usual = 0

    def __init__(self, examples: Examples, size: int, fixed: bool):
        self.examples, self.size = examples, size
        longest = max(len(row.ids) for rows in examples.rows for row in rows)
        self.max_len = -(-longest // 8) * 8 if fixed else None
        self.max_words: int | None = None
        if fixed and examples.rows[0][0].places is not None:
            most = max(sum(len(row.label) for row in rows) for rows in examples.rows)
            self.max_words = -(-most // 8) * 8

    def plan(self, seed: int, epoch: int) -> LabelledPlan:
        order = generator(seed, epoch).permutation(len(self.examples))
        parts = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        return LabelledPlan(self.examples, parts, self.max_len, self.max_words)
