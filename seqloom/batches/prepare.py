"""From text files to a prepared folder: survey, tokenizer, shards, and the manifest last.

An interrupted preparation resumes when it is called again with the same arguments and files: the survey and the tokenizer are
kept beside the shards until the manifest is written, and documents in finished shards are skipped. The result is the same, byte
for byte, however often it was interrupted and however many workers there are.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from seqloom.batches.shards import EncodedBatch, Encoder, ShardWriter, encode_batches
from seqloom.batches.store import (
    MANIFEST,
    TOKENIZER,
    Manifest,
    Source,
    SplitEntry,
    Store,
    fingerprint,
)
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.files import (
    FolderKind,
    clear_folder,
    contents,
    digest_of,
    explained,
    files_below,
    is_known,
    read_json,
    remove_leftovers,
    sha256,
    sole_owner,
    write_bytes,
    write_json,
)
from seqloom.migrations import PREPARED as FORMAT
from seqloom.progress import Progress, say
from seqloom.text.music import is_music, variants
from seqloom.text.survey import SPLITS, Corpus, Plan, Request, Survey, survey
from seqloom.text.words import SCRIPTS
from seqloom.tokens.chunks import pieces
from seqloom.tokens.learn import LEARNT, check_options, storage_type
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.unknown import ByteNgram
from seqloom.tokens.whitespace_and_case import WhitespaceAndCase
from seqloom.vocabulary import MOST_SENTINELS

MAX_TRANSPOSE, MAX_STRETCH = 12, 0.5
NO_BYTES = "no: songs have no bytes, characters or words that a rate could be of: compare nats per event"
SAMPLE = 32_000_000  # bytes of text, spread over the whole corpus, that a tokenizer is learnt from
SHARD_TOKENS = 1 << 24
BATCH = 1 << 21  # characters encoded at once
MANY_BYTES = 16_000_000  # below this, starting worker processes costs more than it saves
_STATE, _PLAN, _COSTS = "prepare.json", "prepare.plan.bin", "prepare.costs.json"
_MAX_UNKNOWN_WORDS = 500_000  # different unknown words that the byte model learns from


@dataclass(frozen=True)
class PrepareOptions:
    """How text is prepared. Everything here decides the result; the manifest records it."""

    tokenizer: str = "bpe"
    vocab_size: int | None = None  # bpe, wordpiece, unigram: 8192, or fewer for a small text; word, char: a limit
    min_count: int | None = None
    lowercase: bool = False
    sentinels: int = 0  # tokens <extra_id_0> and so on behind the vocabulary, for T5's targets
    words: str = "punctuation"  # where word tokenizers split: at punctuation, or only at space
    from_tokenizer: Path | None = None  # use this file instead of learning a tokenizer
    valid: Path | float | None = None  # a file, or a fraction of the text
    test: Path | float | None = None
    documents: str = "auto"
    split_field: str | None = None
    split_by: str = "auto"
    keep_leaks: bool = False
    keep_duplicates: bool = False
    leak_share: float = 0.3
    keep_spelling: bool = False  # store unknown words, all of which are one token, for models that read characters
    backward: bool = False  # reverse documents, for right-to-left language models (ELMo, ULMFiT)
    encoding: str | None = None  # of text files that are not UTF-8
    transpose: int = 0  # songs: add copies of the training songs, moved by up to so many semitones
    stretch: float = (
        0.0  # songs: add copies of the training songs, slower and faster by this fraction and by half of it
    )
    shard_tokens: int = SHARD_TOKENS

    def check(self) -> None:
        """Raise UsageError for options that contradict each other, before any file is read."""
        check_options(self.tokenizer, self.vocab_size, self.min_count, self.words)
        if not 0 <= self.sentinels <= MOST_SENTINELS:
            raise UsageError(f"--sentinels {self.sentinels}: choose 0 to {MOST_SENTINELS}")
        learns = self.vocab_size is not None or self.min_count is not None or self.lowercase
        if self.from_tokenizer is not None and learns:
            raise UsageError(
                "--from-tokenizer has its own vocabulary: leave out --vocab-size, --min-count and --lowercase"
            )

    def check_spelling(self, kind: str) -> None:
        """kind: of the tokenizer that is used."""
        if self.keep_spelling and kind != "word":
            raise UsageError(
                f"--keep-spelling works with --tokenizer word only, not with {kind}: use word, or leave it out"
            )
        if self.keep_spelling and self.backward:
            raise UsageError("--keep-spelling and --backward cannot be combined: leave one of them out")

    def check_music(self, kind: str) -> None:
        """kind: of the tokenizer that is used."""
        if not 0 <= self.transpose <= MAX_TRANSPOSE:
            raise UsageError(f"--transpose {self.transpose}: choose 0 to {MAX_TRANSPOSE} semitones")
        if not 0 <= self.stretch <= MAX_STRETCH:
            raise UsageError(f"--stretch {self.stretch}: choose a fraction of 0 to {MAX_STRETCH}")
        if not is_music(kind) and (self.transpose or self.stretch):
            raise UsageError(f"--transpose and --stretch are for songs, not for --tokenizer {kind}: leave them out")
        if kind == "grid" and self.stretch:
            raise UsageError("--stretch: a grid of 16th notes has no tempo to change: leave it out")

    def request(self, texts: list[Path], kind: str) -> Request:
        """kind: of the tokenizer that is used."""
        return Request(
            tuple(Path(path) for path in texts), self.valid, self.test, self.documents, self.split_field, self.split_by,
            self.keep_duplicates, self.keep_leaks, self.leak_share, self.encoding, kind if is_music(kind) else None,
        )  # fmt: skip

    def record(self, given: Tokenizer | None) -> dict[str, Any]:
        """As the manifest has them. given: the tokenizer that was not learnt."""
        later = {"sentinels": self.sentinels, "transpose": self.transpose, "stretch": self.stretch}
        known = {name: value for name, value in later.items() if value}  # older folders have no such keys
        return known | {
            "tokenizer": given.kind if given else self.tokenizer,
            "from_tokenizer": given.hash if given else None,
            "vocab_size": self.vocab_size,
            "min_count": self.min_count,
            "lowercase": self.lowercase,
            "words": self.words,
            "word_rule": "musical events" if is_music(given.kind if given else self.tokenizer) else SCRIPTS,
            "valid": _file_name(self.valid),
            "test": _file_name(self.test),
            "documents": self.documents,
            "split_field": self.split_field,
            "split_by": self.split_by,
            "keep_leaks": self.keep_leaks,
            "keep_duplicates": self.keep_duplicates,
            "leak_share": self.leak_share,
            "keep_spelling": self.keep_spelling,
            "backward": self.backward,
            "encoding": self.encoding,
            "shard_tokens": self.shard_tokens,
        }


class PrepareKeywords(TypedDict, total=False):
    """The fields of PrepareOptions as keyword arguments."""

    tokenizer: str
    vocab_size: int | None
    min_count: int | None
    lowercase: bool
    sentinels: int
    words: str
    from_tokenizer: Path | None
    valid: Path | float | None
    test: Path | float | None
    documents: str
    split_field: str | None
    split_by: str
    keep_leaks: bool
    keep_duplicates: bool
    leak_share: float
    keep_spelling: bool
    backward: bool
    encoding: str | None
    transpose: int
    stretch: float
    shard_tokens: int


def prepare(
    texts: list[Path],
    out: Path,
    options: PrepareOptions = PrepareOptions(),
    *,
    workers: int | None = None,
    overwrite: bool = False,
    **keywords: Unpack[PrepareKeywords],
) -> Manifest:
    """Prepare a corpus and return its manifest, which has the data report. options and keywords: see PrepareOptions; workers:
    processes that encode, by default one per core; the result does not depend on it. Text is rejected if more than 0.1% of its
    characters cannot be decoded."""
    options = replace(options, **keywords)
    options.check()
    if workers is not None and not 1 <= workers <= 1024:
        raise UsageError(f"--workers {workers}: choose 1 to 1024")
    given = None if options.from_tokenizer is None else Tokenizer.load(options.from_tokenizer)
    kind = given.kind if given else options.tokenizer
    options.check_spelling(kind)
    options.check_music(kind)
    corpus, out = Corpus(options.request(texts, kind)), Path(out)
    with sole_owner(out):
        return _Preparation(corpus, out, options.record(given), given, workers, overwrite).run()


def _file_name(held_out: Path | float | None) -> str | float | None:
    return held_out.name if isinstance(held_out, Path) else held_out


class _Preparation:
    """The work on one folder, which is locked meanwhile."""

    def __init__(
        self,
        corpus: Corpus,
        out: Path,
        options: dict[str, Any],
        given: Tokenizer | None,
        workers: int | None,
        overwrite: bool,
    ):
        self.corpus, self.out, self.options, self.given = corpus, out, options, given
        self.workers, self.overwrite = workers, overwrite
        self.sources = [
            {"name": reader.path.name, "sha256": sha256(reader.path), "bytes": reader.size}
            for reader, _ in corpus.readers
        ]

    def run(self) -> Manifest:
        if is_written(self.out) and not self.overwrite and self._saved_state() is not None:  # killed during cleanup
            self._clean()
            return Store.open(self.out).manifest
        survey, encoder = self._resume() or self._begin()
        splits = self._encode(survey.plan, encoder)
        return self._finish(survey, encoder.tokenizer, splits)

    # ---- begin or resume

    def _resume(self) -> tuple[Survey, Encoder] | None:
        names = contents(self.out, PREPARED)
        if self.overwrite:
            clear_folder(self.out, PREPARED)
            return None
        if MANIFEST in names:
            raise UsageError(
                f"{self.out} is prepared already: choose another --out, or prepare it again with --overwrite"
            )
        if _STATE not in names:
            foreign = sorted(name for name in names if not is_known(name, PREPARED))
            if foreign:
                raise UsageError(f"{self.out} is not empty (it contains {foreign[0]!r}): choose another --out")
            clear_folder(self.out, PREPARED)
            return None
        saved = self._saved_state()
        assert saved is not None
        remove_leftovers(self.out, PREPARED)
        for name, digest in saved["sha256"].items():
            if not (self.out / name).is_file() or sha256(self.out / name) != digest:
                raise self._damaged(name, "its SHA-256 differs from the recorded one")
        say(f"{self.out}: resuming an unfinished preparation")
        with explained(self.out / _PLAN):
            flags = np.fromfile(self.out / _PLAN, np.uint8)
        borders = saved["borders"]
        plan = Plan(flags, None if borders is None else (borders[0], borders[1]))
        tokenizer, costs = Tokenizer.load(self.out / TOKENIZER), read_json(self.out / _COSTS)
        lost_text = None if costs["surface"] is None else WhitespaceAndCase(tokenizer, costs["surface"])
        encoder = Encoder(tokenizer, ByteNgram(costs["unknown"]), lost_text, self.options["backward"])
        return Survey(plan, saved["report"], saved["modes"]), encoder

    def _saved_state(self) -> dict[str, Any] | None:
        """The state of an unfinished preparation, or None; UsageError if it was started with other arguments or files."""
        if not (self.out / _STATE).exists():
            return None
        try:
            saved = read_json(self.out / _STATE)
            whole = saved.pop("whole")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(_STATE, error) from error
        if whole != digest_of(saved):
            raise self._damaged(_STATE, "its SHA-256 differs from the recorded one")
        if saved["options"] != self.options or saved["sources"] != self.sources:
            raise UsageError(
                f"{self.out} contains an unfinished preparation with other arguments or files: "
                "repeat those, choose another --out, or start again with --overwrite"
            )
        return saved

    def _damaged(self, name: str, reason: object) -> ModelError:
        return ModelError(
            f"{self.out / name} is damaged ({reason}), or from an older version: remove {self.out}, or start again with "
            "--overwrite"
        )

    def _begin(self) -> tuple[Survey, Encoder]:
        found = survey(self.corpus)
        if found.report["unreadable"]["refused"] is not None:
            raise DataError(found.report["unreadable"]["refused"])
        for (reader, _), mode in zip(self.corpus.readers, found.modes, strict=True):
            if mode in ("line", "blank", "file"):
                how = {
                    "line": "one document per line",
                    "blank": "documents separated by blank lines",
                    "file": "one document",
                }[mode]
                say(f"{reader.path}: {how} (change this with --documents)")
        size = found.report["bytes"]
        sample = list(self._sample(found.plan, min(1.0, SAMPLE / max(size, 1))))
        found.report["tokenizer_sample"] = {"bytes": sum(map(_utf8_size, sample)), "of": size}
        tokenizer = self.given or self._learn(sample)
        if sentinels := self.options.get("sentinels"):
            tokenizer = tokenizer.with_sentinels(sentinels)
        unknown = ByteNgram(_unknown_words(tokenizer, sample))
        lost_text = None
        if WhitespaceAndCase.needed(tokenizer) and WhitespaceAndCase.possible(tokenizer):
            lost_text = WhitespaceAndCase(tokenizer).learn(
                _with_progress(sample, "learning the cost of whitespace and case")
            )
        tokenizer.save(self.out / TOKENIZER)
        write_bytes(self.out / _PLAN, found.plan.flags.tobytes())
        costs = {"unknown": unknown.words, "surface": None if lost_text is None else lost_text.as_json()}
        write_json(self.out / _COSTS, costs)
        borders = None if found.plan.borders is None else list(found.plan.borders)
        # written last: if this file exists, the others are complete
        state: dict[str, Any] = {
            "options": self.options,
            "sources": self.sources,
            "borders": borders,
            "report": found.report,
            "modes": found.modes,
            "sha256": {name: sha256(self.out / name) for name in (TOKENIZER, _PLAN, _COSTS)},
        }
        state = json.loads(json.dumps(state))  # as it will be when it is read back
        write_json(self.out / _STATE, state | {"whole": digest_of(state)})
        return found, Encoder(tokenizer, unknown, lost_text, self.options["backward"])

    def _learn(self, sample: list[str]) -> Tokenizer:
        kind = self.options["tokenizer"]
        return Tokenizer.train(
            kind,
            _with_progress(sample, f"learning {kind}", note="then merging" if kind in LEARNT else None),
            vocab_size=self.options["vocab_size"],
            min_count=self.options["min_count"],
            lowercase=self.options["lowercase"],
            words=self.options["words"],
        )

    def _sample(self, plan: Plan, share: float) -> Iterator[str]:
        """Training text: all of it, or a fraction spread evenly over the corpus."""
        credit = 0.0
        for split, text in self._texts_by_split(plan, "sampling for the tokenizer"):
            if split != 0:
                continue
            for piece in pieces(text, 1 << 16):
                credit += share * len(piece)
                if share >= 1 or credit >= len(piece):
                    credit -= len(piece)
                    yield piece

    def _texts_by_split(self, plan: Plan, what: str) -> Iterator[tuple[int, str]]:
        place = 0
        transpose, stretch = self.options.get("transpose", 0), self.options.get("stretch", 0.0)
        for number, (document, fixed) in enumerate(self.corpus.documents(what)):
            for split, text in plan.route(number, document.text, place):
                if split == 0 and (transpose or stretch):
                    yield from ((split, copy) for copy in variants(self.options["tokenizer"], text, transpose, stretch))
                else:
                    yield split, text
            if fixed is None:
                place += len(document.text)

    # ---- encode

    def _encode(self, plan: Plan, encoder: Encoder) -> dict[Any, SplitEntry]:
        tokenizer = encoder.tokenizer
        dtype, spelling = storage_type(tokenizer.vocab_size), self.options["keep_spelling"]
        writers = {
            i: ShardWriter(self.out, name, dtype, self.options["shard_tokens"], tokenizer.end_id, spelling)
            for i, name in enumerate(SPLITS)
        }
        skipped = [writer.finished_documents for writer in writers.values()]

        def batches() -> Iterator[tuple[int, list[str]]]:
            """Documents of one split at a time; those in finished shards are skipped."""
            waiting: dict[int, list[str]] = {i: [] for i in writers}
            sizes = dict.fromkeys(writers, 0)
            for split, text in self._texts_by_split(plan, "encoding"):
                if skipped[split]:
                    skipped[split] -= 1
                    continue
                waiting[split].append(text)
                sizes[split] += len(text)
                if sizes[split] >= BATCH:
                    yield split, waiting[split]
                    waiting[split], sizes[split] = [], 0
            yield from ((split, rows) for split, rows in waiting.items() if rows)

        workers = self.workers or min(os.cpu_count() or 1, 16)
        if self.workers is None and self.corpus.size < MANY_BYTES:
            workers = 1
        batch: EncodedBatch
        for split, batch in encode_batches(encoder, batches(), workers):
            writers[split].add(batch)
        bits_complete = encoder.lost_text is not None or not WhitespaceAndCase.needed(tokenizer)
        return {SPLITS[i]: entry for i, writer in writers.items() if (entry := writer.close(bits_complete)) is not None}

    def _finish(self, survey: Survey, tokenizer: Tokenizer, splits: dict[Any, SplitEntry]) -> Manifest:
        reason = "yes"
        if WhitespaceAndCase.needed(tokenizer) and not WhitespaceAndCase.possible(tokenizer):
            reason = (
                NO_BYTES
                if is_music(tokenizer.kind)
                else "no: this tokenizer does not give back every byte, and the cost of what it loses is not known"
            )
        manifest = Manifest(
            **FORMAT.stamp(),
            dtype="uint16" if storage_type(tokenizer.vocab_size).itemsize == 2 else "uint32",
            tokenizer=tokenizer.hash,
            vocab_size=tokenizer.vocab_size,
            end_id=tokenizer.end_id,
            byte_exact=tokenizer.byte_exact,
            options=self.options,
            sources=[
                Source(
                    name=str(source["name"]),
                    sha256=str(source["sha256"]),
                    bytes=int(str(source["bytes"])),
                    split=None if split is None else SPLITS[split],
                    documents=mode,
                )
                for source, (_, split), mode in zip(self.sources, self.corpus.readers, survey.modes, strict=True)
            ],
            splits=splits,
            bits_per_byte=reason,
            report=survey.report,
            fingerprint=fingerprint(tokenizer.hash, splits),
        )
        write_json(self.out / MANIFEST, manifest.model_dump())
        self._clean()
        return Store.open(self.out).manifest

    def _clean(self) -> None:
        """Remove the state last: while it exists, the next call cleans up."""
        remove_leftovers(self.out, PREPARED)
        for name in (_PLAN, _COSTS, _STATE):
            with explained(self.out / name):
                (self.out / name).unlink(missing_ok=True)


def is_written(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def is_prepared_whole(folder: Path) -> bool:
    """Whether the preparation is finished: the manifest is written, and the state to resume from is removed."""
    return is_written(folder) and not (folder / _STATE).exists()


def _with_progress(sample: list[str], what: str, note: str | None = None) -> Iterator[str]:
    with Progress(what, sum(map(len, sample)) / 1e6, unit="MB") as bar:
        for text in sample:
            yield text
            bar.advance(len(text) / 1e6, note=note)


def _unknown_words(tokenizer: Tokenizer, sample: list[str]) -> Counter[str]:
    """The training words that became the unknown token."""
    words: Counter[str] = Counter()
    if tokenizer.unk_id is None:
        return words
    for start in range(0, len(sample), 64):
        for found in tokenizer.encode_batch_with_unknown(sample[start : start + 64])[1]:
            words.update(found)
    return Counter(dict(sorted(words.items(), key=lambda item: (-item[1], item[0]))[:_MAX_UNKNOWN_WORDS]))


def _utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def is_prepared(folder: Path) -> bool:
    """Whether a folder is prepared text: by its manifest, by the state of an unfinished preparation, or because every file in it
    has a name that preparations use."""
    if not is_written(folder) and (folder / _STATE).is_file() and (folder / _PLAN).is_file():
        return True
    for name, keys in ((MANIFEST, {"fingerprint", "splits"}), (_STATE, {"options", "sources"})):
        if (folder / name).is_file():
            try:
                return keys <= set(read_json(folder / name))
            except (ValueError, TypeError, RecursionError):
                return True  # damaged; only files of a preparation are removed in any case
    return all(is_known(path, PREPARED) for path in files_below(folder))


PREPARED_FILES = r"(manifest|tokenizer|prepare|prepare\.costs)\.json|prepare\.plan\.bin|(train|valid|test)-[^/]+\.bin"
PREPARED = FolderKind("prepared text", re.compile(PREPARED_FILES), (), is_prepared)  # the manifest is removed first


def as_report(manifest: Manifest) -> dict[str, Any]:
    """What `seqloom prepare --json` prints."""
    values = manifest.model_dump(exclude={"splits", "needs"})
    values["splits"] = {
        name: entry.model_dump(exclude={"shards"}) | {"shards": len(entry.shards)}
        for name, entry in manifest.splits.items()
    }
    return values


__all__ = ["as_report", "prepare"]
