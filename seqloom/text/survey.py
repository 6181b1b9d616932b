"""A survey of a corpus before it is prepared: counts, lengths, bad rows, duplicates, the split and its leaks.

Two passes in bounded memory (about 25 bytes a document): the first counts, hashes and indexes the held-out documents, the
second checks every training document against that index. The outcome is a report for people and a plan for `prepare`.

Which documents are held out: those of a file given for it, those whose row says so (`split_field`), or a fraction. A fraction
is chosen by the hash of the document, so it does not change when documents are reordered or added, and copies stay together;
with fewer than 20 documents, or split_by="characters", the end of the text is cut off instead.
"""

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seqloom.errors import DataError, UsageError
from seqloom.progress import Progress
from seqloom.text.leak import SHARE, LeakIndex, N, same_words
from seqloom.text.read import UNREADABLE, Document, Problems, Reader
from seqloom.text.songs import SongReader
from seqloom.text.stream import check_encoding, guess_encoding
from seqloom.text.words import count_words

SPLITS = ("train", "valid", "test")
DROPPED = 3  # in a plan: 0, 1, 2 are splits, this is "left out"
MAX_UNREADABLE = 0.001  # the share of characters that may be left out because they are not UTF-8
NO_LEAKS = "the same 13 events are in many songs; only copies of whole songs were looked for"
FEW = 20  # with fewer documents a fraction of them is not a sample
_NAMED = 5
_ALIASES = {"train": 0, "training": 0, "valid": 1, "validation": 1, "dev": 1, "val": 1, "test": 2}


@dataclass(frozen=True)
class Request:
    """What to read and how to split it."""

    train: tuple[Path, ...]
    valid: Path | float | None = None
    test: Path | float | None = None
    documents: str = "auto"
    split_field: str | None = None
    split_by: str = "auto"
    keep_duplicates: bool = False
    keep_leaks: bool = False
    leak_share: float = SHARE
    encoding: str | None = None  # of text files that are not in UTF-8
    music: str | None = None  # the files are songs, to be read as a text of this kind: events or grid

    def check(self) -> None:
        if not self.train:
            raise UsageError("no text file given")
        if self.encoding is not None:
            check_encoding(self.encoding)
        if self.split_by not in ("auto", "document", "characters"):
            raise UsageError(f"--split-by {self.split_by}: choose auto, document or characters")
        if not 0 < self.leak_share <= 1:
            raise UsageError(f"--leak-share {self.leak_share}: choose a fraction above 0 and at most 1")
        for name, value in (("valid", self.valid), ("test", self.test)):
            if isinstance(value, float) and not 0 < value < 1:
                raise UsageError(f"--{name} {value}: give a file, or a fraction between 0 and 1")
        if sum(self.fractions, 0.0) >= 1:
            raise UsageError("--valid and --test together leave no training text: choose smaller fractions")
        if self.split_field is not None and any(self.fractions):
            raise UsageError("--split-field cannot be combined with a fraction: leave one of them out")
        if self.music is not None:
            self.check_music()

    def check_music(self) -> None:
        given = {
            "--documents": self.documents != "auto",
            "--split-field": self.split_field is not None,
            "--split-by characters": self.split_by == "characters",
            "--encoding": self.encoding is not None,
        }
        for option in (option for option, there in given.items() if there):
            raise UsageError(f"{option} is for text, and --tokenizer {self.music} reads songs: leave it out")

    @property
    def fractions(self) -> tuple[float, float]:
        return (
            self.valid if isinstance(self.valid, float) else 0.0,
            self.test if isinstance(self.test, float) else 0.0,
        )

    @property
    def files(self) -> list[tuple[Path, int | None]]:
        """Every file with the split that it was given for; None: training text that a fraction or field may divide."""
        given: list[tuple[Path, int | None]] = [(path, None) for path in self.train]
        return given + [(path, i) for i, path in ((1, self.valid), (2, self.test)) if isinstance(path, Path)]


@dataclass
class Plan:
    """For each document in reading order: its split, or left out. `borders`: where the text is cut, in characters."""

    flags: npt.NDArray[np.uint8]
    borders: tuple[int, int] | None = None

    def route(self, number: int, text: str, place: int) -> list[tuple[int, str]]:
        """The split(s) of one document, whose first character is the `place`-th of the text that is divided."""
        flag = int(self.flags[number])
        if flag >= DROPPED:
            return []
        if self.borders is None or flag != 0:
            return [(flag, text)]
        cuts = [min(max(border - place, 0), len(text)) for border in self.borders]
        parts = [text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]]
        return [(i, part) for i, part in enumerate(parts) if part]


@dataclass
class Survey:
    plan: Plan
    report: dict[str, Any]
    modes: list[str] = field(default_factory=list)  # how each file is split into documents


class Corpus:
    """All documents of a request, in order, with progress; each pass is one iteration."""

    def __init__(self, request: Request):
        request.check()
        self.request = request
        self.problems = Problems()
        self.readers = [
            (self._reader(path, request.split_field if split is None else None), split) for path, split in request.files
        ]
        self.size = sum(reader.size for reader, _ in self.readers)
        if not self.size:
            names = ", ".join(str(path) for path in request.train[:3])
            raise DataError(f"{names}: the file is empty: give a file with text")

    def _reader(self, path: Path, split_field: str | None) -> Reader | SongReader:
        request = self.request
        if request.music is not None:
            reader = SongReader(path, request.music, self.problems)
            if reader.has_splits and any(request.fractions):
                raise UsageError(f"{path} has splits of its own: leave out --valid and --test")
            return reader
        return Reader(path, request.documents, self.problems, split_field, request.encoding)

    def documents(self, what: str) -> Iterator[tuple[Document, int | None]]:
        """Every document with the split of its file. Only the first pass notes what is wrong with rows."""
        before = 0
        with Progress(what, self.size / 1e6, unit="MB") as bar:
            for reader, split in self.readers:
                for document in reader:
                    yield document, split
                    bar.advance((before + reader.position()) / 1e6 - bar.done)
                before += reader.size
            bar.advance(self.size / 1e6 - bar.done)
        for reader, _ in self.readers:
            reader.problems = Problems()  # later passes meet the same rows again


class _Tally:
    """What the first pass remembers of every document."""

    def __init__(self) -> None:
        self.hashes, self.words, self.lines = array("Q"), array("I"), array("Q")
        self.normal = array("Q")  # the same for documents of the same words
        self.flags = array("B")
        self.characters = [0, 0, 0]
        self.bytes = [0, 0, 0]
        self.divided = 0  # characters of the text that a fraction divides


def survey(corpus: Corpus) -> Survey:
    request = corpus.request
    tally, index, test = _Tally(), _HeldOut(request.leak_share), _HeldOut(request.leak_share)
    indexed_by_fraction = False
    for number, (document, fixed) in enumerate(corpus.documents("reading")):
        words = document.text.split()
        digest = hashlib.blake2b(" ".join(words).encode(), digest_size=8).digest()
        value = int.from_bytes(digest, "little")
        flag = _split_of(request, document, fixed, value)
        tally.hashes.append(value)
        tally.normal.append(same_words(document.text))
        tally.words.append(count_words(document.text))
        tally.lines.append(int(document.location.rpartition(":")[2]))
        tally.flags.append(flag)
        if fixed is None and request.split_field is None:
            tally.divided += len(document.text)
            indexed_by_fraction |= flag != 0
        tally.characters[flag] += len(document.text)
        tally.bytes[flag] += len(document.text.encode())
        if flag and not (request.split_by == "characters" and fixed is None):
            index.add(document.text, number)
            if flag == 2:
                test.add(document.text, number)
    if not tally.words:
        _raise_no_documents(corpus)
    flags = np.array(tally.flags, np.uint8)
    places = _Places(corpus, tally)
    borders = _borders(request, flags, tally, places)
    if borders is not None:
        free = np.arange(flags.size) < places.free
        flags[free] = 0
        if indexed_by_fraction:  # those documents are no longer held out whole
            index, test = _HeldOut(request.leak_share), _HeldOut(request.leak_share)
            for number, (document, fixed) in enumerate(corpus.documents("reading")):
                if fixed is not None:
                    index.add(document.text, number)
                    if fixed == 2:
                        test.add(document.text, number)
    if not (flags == 0).any():
        raise DataError("no document is for training: all of them are of the valid or the test split; add others")
    report = _counts(tally, flags)
    report["problems"] = corpus.problems.as_json()
    report["unreadable"] = _unreadable(corpus.problems, sum(tally.characters), len(tally.words))
    report["duplicates"] = _duplicates(request, tally, flags, places, borders is not None)
    if test.numbers and (flags == 1).any():
        report["valid_in_test"] = _repeated(corpus, tally, test, flags, places, 1)
        if not (flags == 1).any():
            raise DataError(
                "no document is left in the valid split: all of them are also in the test split; hold out other text for one "
                "of them, or keep them with --keep-leaks"
            )
    report["leaks"] = _leaks(corpus, tally, index, flags, places, borders)
    if not (flags == 0).any():
        raise DataError(
            "no training document is left: all of them are copies of held-out text; keep them with --keep-leaks"
        )
    return Survey(Plan(flags, borders), report, [reader.mode for reader, _ in corpus.readers])


def _unreadable(problems: Problems, characters: int, documents: int) -> dict[str, Any]:
    """What is lost because it is not UTF-8, and why `prepare` rejects the text; None if it is negligible."""
    lost = problems.counts.get(UNREADABLE, 0)
    share = problems.unreadable / max(problems.unreadable + characters, 1)
    refused = None
    if share > MAX_UNREADABLE:
        remedy = f"give the encoding of the text (maybe --encoding {guess_encoding(problems.sample)}), or convert it to UTF-8"
        if problems.has_utf_8:  # another encoding would garble what can be read now
            remedy = "other documents are UTF-8, so the text is in two encodings: convert these to UTF-8"
        refused = (
            f"{problems.places[UNREADABLE][0]}: not UTF-8: {lost:,} of {lost + documents:,} documents with {share:.1%} of all "
            f"characters would be lost: {remedy}"
        )
    return {"documents": lost, "characters": problems.unreadable, "share": share, "refused": refused}


def _split_of(request: Request, document: Document, fixed: int | None, value: int) -> int:
    if fixed is not None:
        return fixed
    if request.split_field is not None or document.split is not None:
        flag = _ALIASES.get((document.split or "").lower())
        if flag is None:
            raise DataError(
                f"{document.location}: {request.split_field} is {document.split!r}: it must be train, valid or test"
            )
        return flag
    valid, test = request.fractions
    point = value / 2**64
    return 1 if point < valid else 2 if point < valid + test else 0


def _raise_no_documents(corpus: Corpus) -> None:
    refused = _unreadable(corpus.problems, 0, 0)["refused"]
    if refused is not None:
        raise DataError(refused)
    found = "; ".join(f"{kind} at {corpus.problems.places[kind][0]}" for kind in corpus.problems.counts)
    names = ", ".join(str(path) for path in corpus.request.train[:3])
    raise DataError(f"{names}: no usable documents" + (f" ({found})" if found else "") + ": give a file with text")


class _Places:
    """file:line of a document, from its number."""

    def __init__(self, corpus: Corpus, tally: _Tally):
        self._lines = tally.lines
        # line numbers rise within a file; files follow one another, so a document's file is found by counting
        self._files: list[tuple[int, Path]] = []
        self.free = 0  # documents of the files that a fraction or field divides; they come first
        number = 0
        for (reader, split), count in zip(corpus.readers, _per_file(corpus), strict=True):
            self._files.append((number, reader.path))
            number += count
            if split is None:
                self.free = number

    def __getitem__(self, number: int) -> str:
        path = next(path for first, path in reversed(self._files) if first <= number)
        return f"{path}:{self._lines[number]}"


def _per_file(corpus: Corpus) -> list[int]:
    return [reader.count for reader, _ in corpus.readers]


def _borders(request: Request, flags: npt.NDArray[np.uint8], tally: _Tally, places: _Places) -> tuple[int, int] | None:
    """Where the text is cut in characters, when it is not divided by documents."""
    valid, test = request.fractions
    if not valid + test:
        return None
    mine = flags[: places.free]
    short = [name for i, name in ((1, "valid"), (2, "test")) if request.fractions[i - 1] and not (mine == i).any()]
    if request.split_by == "document" or request.music is not None:
        if short and request.music is not None:
            raise DataError(
                f"--{short[0]} {request.fractions[0 if short[0] == 'valid' else 1]}: none of the {mine.size} songs was chosen; "
                "use a larger fraction, or name a song"
            )
        if short:
            raise DataError(
                f"--{short[0]} {request.fractions[0 if short[0] == 'valid' else 1]}: none of the {mine.size} documents "
                "was chosen; use a larger fraction or --split-by characters"
            )
        return None
    if request.split_by == "auto" and mine.size >= FEW and not short:
        return None
    return int(tally.divided * (1 - valid - test) + 1e-6), int(tally.divided * (1 - test) + 1e-6)


def _counts(tally: _Tally, flags: npt.NDArray[np.uint8]) -> dict[str, Any]:
    words = np.frombuffer(tally.words, np.uint32).astype(np.int64)
    return {
        "documents": len(words),
        "words": int(words.sum()),
        "characters": sum(tally.characters),
        "bytes": sum(tally.bytes),
        "words_per_document": {
            "min": int(words.min()),
            "median": float(np.median(words)),
            "mean": round(float(words.mean()), 2),
            "p95": float(np.percentile(words, 95)),
            "max": int(words.max()),
        },
        "splits": {name: int((flags == i).sum()) for i, name in enumerate(SPLITS) if (flags == i).any()},
    }


def _duplicates(
    request: Request, tally: _Tally, flags: npt.NDArray[np.uint8], places: _Places, cut: bool
) -> dict[str, Any]:
    """Copies within one split (blanks apart). The first stays; documents under 13 words and given held-out files stay too."""
    hashes = np.frombuffer(tally.hashes, np.uint64)
    keys = np.stack([hashes, flags.astype(np.uint64)])
    order = np.lexsort((np.arange(hashes.size), keys[1], keys[0]))
    same = (keys[:, order[1:]] == keys[:, order[:-1]]).all(axis=0)
    copies = np.sort(order[1:][same])
    group_start = order[0] if order.size else 0
    named: dict[int, int] = {}
    wanted = set(copies[:_NAMED].tolist())
    for position in range(1, order.size) if wanted else ():
        if not same[position - 1]:
            group_start = order[position]
        elif int(order[position]) in wanted:
            named[int(order[position])] = int(group_start)
            if len(named) == len(wanted):
                break
    long = np.frombuffer(tally.words, np.uint32)[copies] >= N
    droppable = copies[long & (copies < places.free)]
    if not request.keep_duplicates and not cut:
        flags[droppable] = DROPPED
    first_of = [f"{places[copy]} = {places[named[copy]]}" for copy in sorted(named)]
    dropped = 0 if request.keep_duplicates or cut else int(droppable.size)
    return {"count": int(copies.size), "dropped": dropped, "places": first_of}


class _HeldOut:
    """Held-out documents: their 13-grams, and their numbers in the corpus."""

    def __init__(self, share: float):
        self.index, self.numbers = LeakIndex(share), list[int]()

    def add(self, text: str, number: int) -> None:
        self.index.add(text)
        self.numbers.append(number)


def _leaks(
    corpus: Corpus,
    tally: _Tally,
    held: _HeldOut,
    flags: npt.NDArray[np.uint8],
    places: _Places,
    borders: tuple[int, int] | None,
) -> dict[str, Any]:
    if not held.numbers:
        reason = "the held-out part is cut from the same text" if borders else "there is no held-out text"
        return {"checked": False, "reason": reason}
    found, index = _repeated(corpus, tally, held, flags, places, 0), held.index
    if corpus.request.music is not None:
        return {"checked": False, "reason": f"{NO_LEAKS} ({found['count']} found, {found['dropped']} dropped)"}
    return {
        "checked": True,
        **found,
        "held_out_documents": index.documents,
        "held_out_sharing": int((index.shared() > 0).sum()),  # one 13-gram or more with any training document
        "held_out_repeated": int((index.coverage() >= corpus.request.leak_share).sum()),
        "share": corpus.request.leak_share,
        "one_ngram_in": index.every,
    }


def _repeated(
    corpus: Corpus, tally: _Tally, held: _HeldOut, flags: npt.NDArray[np.uint8], places: _Places, split: int
) -> dict[str, Any]:
    """Documents of a split that repeat held-out ones: as a whole (any length), or in their 13-grams. They are dropped unless
    leaks are to be kept."""
    normal, keep = np.frombuffer(tally.normal, np.uint64), corpus.request.keep_leaks
    numbers = np.array(held.numbers)
    same = np.flatnonzero((flags == split) & np.isin(normal, normal[numbers]))
    first = {int(value): int(number) for value, number in zip(normal[numbers][::-1], numbers[::-1], strict=True)}
    found = [f"{places[i]}: the same words as {places[first[int(normal[i])]]}" for i in same[: 2 * _NAMED].tolist()]
    known = set(same.tolist())
    held.index.close()
    for batch, documents in _documents_of(corpus, flags, split) if corpus.request.music is None else ():
        leaks = held.index.check_many([document.text for document in documents])
        for number, document, leak in zip(batch, documents, leaks, strict=True):
            if leak is None or number in known:
                continue
            known.add(number)
            if len(found) < 4 * _NAMED:
                found.append(
                    f"{document.location}: {leak.own_share:.0%} of it is in held-out text, "
                    f"it contains {leak.held_share:.0%} of {places[held.numbers[leak.held_out]]}"
                )
    if not keep:
        flags[list(known)] = DROPPED
    return {"count": len(known), "copies": int(same.size), "dropped": 0 if keep else len(known), "places": found}


def _documents_of(
    corpus: Corpus, flags: npt.NDArray[np.uint8], split: int
) -> Iterator[tuple[list[int], list[Document]]]:
    """The documents of a split with their numbers, about a million characters at a time."""
    numbers: list[int] = []
    documents: list[Document] = []
    size = 0
    for number, (document, _) in enumerate(corpus.documents("looking for leaks")):
        if flags[number] != split:
            continue
        numbers.append(number)
        documents.append(document)
        size += len(document.text)
        if size >= 1 << 20:
            yield numbers, documents
            numbers, documents, size = [], [], 0
    if documents:
        yield numbers, documents
