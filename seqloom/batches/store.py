"""A prepared corpus on disk: token ids in memory-mapped shards, one folder, one manifest written last.

    manifest.json              what is in the folder; a folder without it is unfinished
    tokenizer.json             the tokenizer that made the ids
    train-00000.tokens.bin     ids of the documents, little-endian uint16 or uint32; each document is followed by the end id
    train-00000.docs.bin       one record a document (`DOCUMENT`)
    train-00000.words.bin      its unknown words, with --keep-spelling (`unknown_words`)
    train-sentences.bin        where sentences begin and end, kept by the first run that asks (`sentences`); no part of the data

All positions below count tokens in the concatenation of a split's shards.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from seqloom.batches.unknown_words import UnknownWords
from seqloom.config import Config, problems
from seqloom.errors import DataError, ModelError
from seqloom.files import check_prepared_folder, explained, parse_json
from seqloom.migrations import PREPARED
from seqloom.text.survey import SPLITS
from seqloom.text.words import WHITESPACE
from seqloom.tokens.spelling import Characters, spelling_table
from seqloom.tokens.tokenizer import Tokenizer

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
SENTENCES = "sentences.bin"
MANIFEST_LIMIT = 64 << 20

# tokens counts the end token; unknown is the number of unknown tokens; the bits are what bits per byte adds for them
DOCUMENT = np.dtype(
    [
        ("tokens", "<u4"),
        ("words", "<u4"),
        ("characters", "<u4"),
        ("bytes", "<u4"),
        ("unknown", "<u4"),
        ("unknown_bits", "<f4"),
        ("surface_bits", "<f4"),  # of what decode loses: whitespace and case
    ]
)

Ints = npt.NDArray[np.int64]


Count = Annotated[int, Field(ge=0, le=1 << 48)]  # what no corpus passes, and no sum of which overflows


class Shard(Config):
    file: str  # without the ending: train-00000
    sha256: str  # of the tokens file followed by the documents file
    documents: Count
    tokens: Count


class SplitEntry(Config):
    documents: Count
    words: Count
    tokens: Count
    characters: Count
    bytes: Count
    unknown: Count
    unknown_bits: float
    surface_bits: float | None  # of what decode loses (whitespace, case); None: unknown, so there are no bits per byte
    shards: list[Shard]


class Source(Config):
    name: str
    sha256: str
    bytes: int
    split: str | None = None
    documents: str | None = None  # how documents are separated: line, blank, file, jsonl, parquet


class Manifest(Config):
    format: int
    needs: str  # the first seqloom that reads it
    dtype: Literal["uint16", "uint32"]
    tokenizer: str
    vocab_size: Count
    end_id: Count
    byte_exact: bool
    options: dict[str, Any]
    sources: list[Source]
    splits: dict[Literal["train", "valid", "test"], SplitEntry]
    bits_per_byte: str  # "yes", or the reason why this corpus has no such figure
    report: dict[str, Any]
    fingerprint: str

    @property
    def word_rule(self) -> str:
        """What was counted as a word."""
        return str(self.options.get("word_rule", WHITESPACE))


def fingerprint(tokenizer: str, splits: Mapping[Any, SplitEntry]) -> str:
    """Names the tokens themselves: equal for equal shards and tokenizer, whatever the files were called."""
    digest = hashlib.sha256(tokenizer.encode())
    for name in SPLITS:
        if name in splits:
            digest.update(f"\n{name}".encode())
            for shard in splits[name].shards:
                digest.update(shard.sha256.encode())
    return digest.hexdigest()


def shard_name(split: str, number: int) -> str:
    return f"{split}-{number:05d}"


def shard_hash(folder: Path, name: str, spelling: bool = False) -> str:
    digest = hashlib.sha256()
    for ending in ("tokens", "docs", "words") if spelling else ("tokens", "docs"):
        with explained(folder / f"{name}.{ending}.bin"), open(folder / f"{name}.{ending}.bin", "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


class Split:
    """One of train, valid and test: flat token ids and where each document starts. Safe to read from several threads."""

    def __init__(self, folder: Path, name: str, entry: SplitEntry, dtype: str, end_id: int, vocab_size: int):
        self.name, self.entry, self.end_id, self.vocab_size = name, entry, end_id, vocab_size
        self.num_documents, self.num_tokens = entry.documents, entry.tokens
        self.words, self.characters, self.bytes = entry.words, entry.characters, entry.bytes
        self._folder, self._unk_id = folder, -1
        self._table: Characters | None = None
        self._unknown: dict[int, UnknownWords] = {}
        self._shards: list[npt.NDArray[Any]] = []
        self._document_files: list[Path] = []
        self._starts = np.zeros(len(entry.shards) + 1, np.int64)
        for i, shard in enumerate(entry.shards):
            # names come from the position, never from the manifest: nothing in a file chooses a path
            name_i = shard_name(name, i)
            if shard.file != name_i:
                raise DataError(
                    f"{folder / MANIFEST}: shard {shard.file!r} should be {name_i!r}: prepare the data again"
                )
            tokens = folder / f"{name_i}.tokens.bin"
            docs = folder / f"{name_i}.docs.bin"
            for path, size in (
                (tokens, shard.tokens * np.dtype(dtype).itemsize),
                (docs, shard.documents * DOCUMENT.itemsize),
            ):
                with explained(path):
                    actual = path.stat().st_size
                if actual != size:
                    raise DataError(
                        f"{path} has {actual} bytes instead of {size}: it is damaged, prepare the data again"
                    )
            self._starts[i + 1] = self._starts[i] + shard.tokens
            with explained(tokens):
                # a plain view of the map: slicing a memmap object itself costs ten times as much
                mapped: Any = np.memmap(tokens, np.dtype(dtype).newbyteorder("<"), mode="r") if shard.tokens else []
                self._shards.append(np.asarray(mapped, np.dtype(dtype)))
            self._document_files.append(docs)
        if self._starts[-1] != entry.tokens or sum(shard.documents for shard in entry.shards) != entry.documents:
            raise DataError(f"{folder / MANIFEST}: the shards of {name} do not add up: prepare the data again")

    @property
    def sentences_file(self) -> Path:
        return self._folder / f"{self.name}-{SENTENCES}"

    @cached_property
    def documents(self) -> npt.NDArray[Any]:
        """The records of all documents (see `DOCUMENT`)."""
        parts = [np.fromfile(path, DOCUMENT) for path in self._document_files]
        return np.concatenate(parts) if parts else np.zeros(0, DOCUMENT)

    @cached_property
    def offsets(self) -> Ints:
        """Where each document starts, and the end: num_documents + 1 positions."""
        offsets = np.zeros(self.num_documents + 1, np.int64)
        np.cumsum(self.documents["tokens"], dtype=np.int64, out=offsets[1:])
        if offsets[-1] != self.num_tokens:
            raise DataError(f"the document lengths of split {self.name!r} do not add up: prepare the data again")
        return offsets

    @cached_property
    def document_bytes(self) -> Ints:
        return self.documents["bytes"].astype(np.int64)

    def read(self, start: int, stop: int) -> Ints:
        """Ids of tokens start … stop-1. Position -1 is the end token before the first document."""
        return self.read_many(np.array([start]), np.array([stop - start]))

    def spell(self, table: Characters, unk_id: int) -> None:
        """Make `characters_of` return spellings; the table has those of the known words."""
        self._table, self._unk_id = table, unk_id

    def characters_of(self, starts: npt.ArrayLike, lengths: npt.ArrayLike, ids: Ints) -> Characters | None:
        """(T, C) the characters of the ids that read_many returned for the same spans; None if spellings are not used."""
        if self._table is None:
            return None
        characters = self._table[ids]
        unknown = np.flatnonzero(ids == self._unk_id)
        begin, length = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        place = (np.repeat(begin - (np.cumsum(length) - length), length) + np.arange(len(ids)))[unknown]
        shard = np.searchsorted(self._starts, place, side="right") - 1
        for number in np.unique(shard).tolist():
            if number not in self._unknown:
                path = self._folder / f"{shard_name(self.name, number)}.words.bin"
                shard_ids, longest = self._shards[number], self._table.shape[1]
                self._unknown[number] = UnknownWords(path, shard_ids, self._unk_id, longest)
            here = shard == number
            characters[unknown[here]] = self._unknown[number].at(place[here] - self._starts[number])
        return characters

    def read_many(self, starts: npt.ArrayLike, lengths: npt.ArrayLike) -> Ints:
        """The ids of many spans, concatenated."""
        begin = np.asarray(starts, np.int64).reshape(-1)
        length = np.asarray(lengths, np.int64).reshape(-1)
        if begin.shape != length.shape:
            raise ValueError(f"{begin.size} starts but {length.size} lengths")
        if begin.size == 0:
            return np.zeros(0, np.int64)
        if length.min() < 0 or begin.min() < -1 or (begin + length).max() > self.num_tokens:
            raise IndexError(f"a span lies outside -1 … {self.num_tokens} of split {self.name!r}")
        out = np.empty(int(length.sum()), np.int64)
        place = 0
        first = np.searchsorted(self._starts, np.maximum(begin, 0), side="right") - 1
        for position, count, shard in zip(begin.tolist(), length.tolist(), first.tolist(), strict=True):
            stop = place + count
            if position < 0 and count:
                out[place] = self.end_id
                place, position = place + 1, 0
            while place < stop:
                base = int(self._starts[shard])
                take = min(stop - place, int(self._starts[shard + 1]) - position)
                out[place : place + take] = self._shards[shard][position - base : position - base + take]
                place, position, shard = place + take, position + take, shard + 1
            place = stop
        if len(out) and int(out.max()) >= self.vocab_size:  # on a GPU it would be an error of no place
            raise DataError(
                f"{self._folder}: split {self.name!r} has the token {int(out.max()):,}, outside the vocabulary of "
                f"{self.vocab_size:,}: it is damaged, prepare the data again"
            )
        return out


HELD_BACK: ContextVar[frozenset[str]] = ContextVar("splits that nothing may be chosen by", default=frozenset())


@contextmanager
def held_back(*splits: str) -> Iterator[None]:
    """Within it nobody opens these splits."""
    token = HELD_BACK.set(frozenset(splits))
    try:
        yield
    finally:
        HELD_BACK.reset(token)


class Store:
    """A prepared folder. Opening checks the manifest and every size; `verify=True` checks every hash too."""

    def __init__(self, folder: Path, manifest: Manifest):
        self.folder, self.manifest = folder, manifest
        self._open = {
            name: Split(folder, name, entry, manifest.dtype, manifest.end_id, manifest.vocab_size)
            for name, entry in manifest.splits.items()
        }

    def __repr__(self) -> str:
        splits = [
            f"{name} {entry.documents:,} documents, {entry.tokens:,} tokens"
            for name, entry in self.manifest.splits.items()
        ]
        return f"<Store {self.folder}: {'; '.join(splits)}; vocabulary of {self.manifest.vocab_size:,}>"

    @classmethod
    def open(cls, folder: Path | str, verify: bool = False) -> "Store":
        folder = Path(folder)
        path = folder / MANIFEST
        if not path.exists():
            check_prepared_folder(folder)
            raise DataError(
                f"{folder} has no {MANIFEST}: it is not a prepared folder, or its preparation was interrupted; "
                f"make one with 'seqloom prepare TEXT... --out FOLDER' (rerun the same command to resume)"
            )
        store = cls(folder, read_manifest(path))
        if verify:
            store.verify()
        return store

    def verify(self) -> None:
        """Reads every byte and compares the hashes."""
        for name, entry in self.manifest.splits.items():
            for shard in entry.shards:
                if shard_hash(self.folder, shard.file, self.has_spelling) != shard.sha256:
                    raise DataError(
                        f"{self.folder / shard.file}.*.bin of split {name!r} is damaged: prepare the data again"
                    )
        if fingerprint(self.manifest.tokenizer, self.manifest.splits) != self.manifest.fingerprint:
            raise DataError(
                f"{self.folder / MANIFEST}: the fingerprint does not match the shards: prepare the data again"
            )
        _ = self.tokenizer

    @cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        if tokenizer.hash != self.manifest.tokenizer:
            raise ModelError(
                f"{self.folder / TOKENIZER} is not the tokenizer that this data was made with: prepare the data again"
            )
        return tokenizer

    @property
    def backward(self) -> bool:
        """Whether documents are read from their end."""
        return bool(self.manifest.options.get("backward"))

    @property
    def has_spelling(self) -> bool:
        """Whether the spelling of unknown words was kept."""
        return bool(self.manifest.options.get("keep_spelling"))

    def spell(self, longest: int) -> None:
        """For a model that reads the first `longest` characters of a word, if there are spellings; 0: it reads none."""
        unk_id = self.tokenizer.unk_id
        if self.has_spelling and longest and unk_id is not None:
            table = spelling_table(self.tokenizer, longest)
            for split in self._open.values():
                split.spell(table, unk_id)

    @property
    def fingerprint(self) -> str:
        return self.manifest.fingerprint

    @property
    def splits(self) -> list[str]:
        return [name for name in SPLITS if name in self._open]

    def split(self, name: str) -> Split:
        if name in HELD_BACK.get():
            raise DataError(f"{self.folder}: its {name} split is held back here: nothing may be chosen by it")
        if name not in self._open:
            has = ", ".join(self.splits) or "none"
            raise DataError(
                f"{self.folder} has no split {name!r} (it has: {has}): prepare it with --{name} FILE or --{name} 0.05"
            )
        return self._open[name]


def read_manifest(path: Path) -> Manifest:
    with explained(path):
        if path.stat().st_size > MANIFEST_LIMIT:
            raise DataError(
                f"{path} is larger than {MANIFEST_LIMIT >> 20} MB, too large for a manifest: prepare the data again"
            )
        data = path.read_bytes()
    try:
        values = parse_json(data)
        values = PREPARED.migrate(values, path)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}): prepare the data again") from error
    found = problems(Manifest, values)
    if found:
        raise DataError(f"{path} is damaged or from another version ({found[0]}): prepare the data again")
    return Manifest.model_validate(values)
