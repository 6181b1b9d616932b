"""From text files to a prepared folder: survey, tokenizer, shards, and the manifest last.

A preparation that was killed goes on when it is called again with the same arguments and files: the survey and the tokenizer
are kept beside the shards until the manifest is written, and documents that are in finished shards are only read past. The
result is the same, byte for byte, however often it was interrupted and with however many workers.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.batches.shards import EncodedBatch, Encoder, ShardWriter, encoded
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
from seqloom.text.survey import SPLITS, Corpus, Plan, Request, Survey, survey
from seqloom.tokens.chunks import pieces
from seqloom.tokens.learn import LEARNT, check_options, storage_type
from seqloom.tokens.surface import Surface
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.unknown import ByteNgram

SAMPLE = 32_000_000  # bytes of text, spread over the whole corpus, that a tokenizer is learnt from
SHARD_TOKENS = 1 << 24
BATCH = 1 << 21  # characters encoded at once
MANY_BYTES = 16_000_000  # below this, starting worker processes costs more than it saves
_STATE, _PLAN, _COSTS = "prepare.json", "prepare.plan.bin", "prepare.costs.json"
_MERGED = 500_000  # different unknown words that the byte model learns from


def prepare(
    texts: list[Path],
    out: Path,
    *,
    tokenizer: str = "bpe",
    vocab_size: int | None = None,
    min_count: int | None = None,
    lowercase: bool = False,
    words: str = "punctuation",
    from_tokenizer: Path | None = None,
    valid: Path | float | None = None,
    test: Path | float | None = None,
    documents: str = "auto",
    split_field: str | None = None,
    split_by: str = "auto",
    keep_leaks: bool = False,
    keep_duplicates: bool = False,
    leak_share: float = 0.3,
    workers: int | None = None,
    overwrite: bool = False,
    keep_spelling: bool = False,
    backward: bool = False,
    encoding: str | None = None,
    shard_tokens: int = SHARD_TOKENS,
) -> Manifest:
    """Prepares a corpus and returns its manifest (with the data report).

    vocab_size: for bpe, wordpiece and unigram 8192 unless given, or what a small text has; for word and char a limit, for byte
    nothing.
    workers: processes that encode, None for one a core; the result does not depend on it.
    keep_spelling: unknown words, all of which are one token, are kept for models that read characters.
    backward: documents are read from their end, for language models that go the other way (ELMo, ULMFiT).
    encoding: of text files that are not in UTF-8. Text of which more than 0.1% of the characters cannot be read is refused.
    """
    check_options(tokenizer, vocab_size, min_count, words)
    if from_tokenizer is not None and (vocab_size is not None or min_count is not None or lowercase):
        raise UsageError(
            "--from-tokenizer brings its own vocabulary: leave out --vocab-size, --min-count and --lowercase"
        )
    if workers is not None and not 1 <= workers <= 1024:
        raise UsageError(f"--workers {workers}: choose 1 to 1024")
    request = Request(
        tuple(Path(path) for path in texts),
        valid,
        test,
        documents,
        split_field,
        split_by,
        keep_duplicates,
        keep_leaks,
        leak_share,
        encoding,
    )
    given = None if from_tokenizer is None else Tokenizer.load(from_tokenizer)
    kind = given.kind if given else tokenizer
    if keep_spelling and kind != "word":
        raise UsageError(
            f"--keep-spelling is for words that a vocabulary of words lacks, and --tokenizer is {kind}: use word"
        )
    if keep_spelling and backward:
        raise UsageError(
            "--keep-spelling and --backward: unknown words are spelt in the order of the text: leave one out"
        )
    corpus = Corpus(request)
    options = {
        "tokenizer": kind,
        "from_tokenizer": given.hash if given else None,
        "vocab_size": vocab_size,
        "min_count": min_count,
        "lowercase": lowercase,
        "words": words,
        "valid": valid if isinstance(valid, float) else valid and valid.name,
        "test": test if isinstance(test, float) else test and test.name,
        "documents": documents,
        "split_field": split_field,
        "split_by": split_by,
        "keep_leaks": keep_leaks,
        "keep_duplicates": keep_duplicates,
        "leak_share": leak_share,
        "keep_spelling": keep_spelling,
        "backward": backward,
        "encoding": encoding,
        "shard_tokens": shard_tokens,
    }
    out = Path(out)
    with sole_owner(out):
        return _Preparation(corpus, out, options, given, workers, overwrite).run()


class _Preparation:
    """The work on one folder, which nobody else holds."""

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
        if is_written(self.out) and not self.overwrite and self._saved() is not None:  # killed while it cleaned up
            self._clean()
            return Store.open(self.out).manifest
        survey, encoder = self._resumed() or self._begin()
        splits = self._encode(survey.plan, encoder)
        return self._finish(survey, encoder.tokenizer, splits)

    # ---- begin or resume

    def _resumed(self) -> tuple[Survey, Encoder] | None:
        names = contents(self.out, PREPARED)
        if self.overwrite:
            clear_folder(self.out, PREPARED)
            return None
        if MANIFEST in names:
            raise UsageError(f"{self.out} is prepared already: choose another --out, or --overwrite to prepare it anew")
        if _STATE not in names:
            foreign = sorted(name for name in names if not is_known(name, PREPARED))
            if foreign:
                raise UsageError(f"{self.out} is not empty (it holds {foreign[0]!r}): choose another --out")
            clear_folder(self.out, PREPARED)
            return None
        saved = self._saved()
        assert saved is not None
        remove_leftovers(self.out, PREPARED)
        for name, digest in saved["sha256"].items():
            if not (self.out / name).is_file() or sha256(self.out / name) != digest:
                raise self._damaged(name, "its SHA-256 is not the recorded one")
        say(f"{self.out}: going on with an unfinished preparation")
        with explained(self.out / _PLAN):
            flags = np.fromfile(self.out / _PLAN, np.uint8)
        borders = saved["borders"]
        plan = Plan(flags, None if borders is None else (borders[0], borders[1]))
        tokenizer, costs = Tokenizer.load(self.out / TOKENIZER), read_json(self.out / _COSTS)
        surface = None if costs["surface"] is None else Surface(tokenizer, costs["surface"])
        encoder = Encoder(tokenizer, ByteNgram(costs["unknown"]), surface, self.options["backward"])
        return Survey(plan, saved["report"], saved["modes"]), encoder

    def _saved(self) -> dict[str, Any] | None:
        """What an unfinished preparation has recorded, if there is one; it must be of the same arguments and files."""
        if not (self.out / _STATE).exists():
            return None
        try:
            saved = read_json(self.out / _STATE)
            whole = saved.pop("whole")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(_STATE, error) from error
        if whole != digest_of(saved):
            raise self._damaged(_STATE, "its SHA-256 is not the recorded one")
        if saved["options"] != self.options or saved["sources"] != self.sources:
            raise UsageError(
                f"{self.out} holds an unfinished preparation with other arguments or files: "
                "repeat those, choose another --out, or --overwrite to start anew"
            )
        return saved

    def _damaged(self, name: str, reason: object) -> ModelError:
        return ModelError(
            f"{self.out / name} is damaged ({reason}), or of an older version: remove {self.out}, or start anew with --overwrite"
        )

    def _begin(self) -> tuple[Survey, Encoder]:
        found = survey(self.corpus)
        if found.report["unreadable"]["refused"] is not None:
            raise DataError(found.report["unreadable"]["refused"])
        for (reader, _), mode in zip(self.corpus.readers, found.modes, strict=True):
            if mode in ("line", "blank", "file"):
                how = {"line": "one document a line", "blank": "documents between blank lines", "file": "one document"}[
                    mode
                ]
                say(f"{reader.path}: {how} (--documents changes this)")
        size = found.report["bytes"]
        sample = list(self._sample(found.plan, min(1.0, SAMPLE / max(size, 1))))
        found.report["tokenizer_sample"] = {"bytes": sum(map(_utf8, sample)), "of": size}
        tokenizer = self.given or self._learn(sample)
        unknown = ByteNgram(_merged(tokenizer, sample))
        surface = None
        if Surface.needed(tokenizer) and Surface.possible(tokenizer):
            surface = Surface(tokenizer).learn(_fed(sample, "learning what spaces and case cost"))
        tokenizer.save(self.out / TOKENIZER)
        write_bytes(self.out / _PLAN, found.plan.flags.tobytes())
        costs = {"unknown": unknown.words, "surface": None if surface is None else surface.as_json()}
        write_json(self.out / _COSTS, costs)
        borders = None if found.plan.borders is None else list(found.plan.borders)
        # last: whoever finds this file finds the others complete
        state: dict[str, Any] = {
            "options": self.options,
            "sources": self.sources,
            "borders": borders,
            "report": found.report,
            "modes": found.modes,
            "sha256": {name: sha256(self.out / name) for name in (TOKENIZER, _PLAN, _COSTS)},
        }
        state = json.loads(json.dumps(state))  # as it will be read
        write_json(self.out / _STATE, state | {"whole": digest_of(state)})
        return found, Encoder(tokenizer, unknown, surface, self.options["backward"])

    def _learn(self, sample: list[str]) -> Tokenizer:
        kind = self.options["tokenizer"]
        return Tokenizer.train(
            kind,
            _fed(sample, f"learning {kind}", note="then merging" if kind in LEARNT else None),
            vocab_size=self.options["vocab_size"],
            min_count=self.options["min_count"],
            lowercase=self.options["lowercase"],
            words=self.options["words"],
        )

    def _sample(self, plan: Plan, share: float) -> Iterator[str]:
        """Training text, all of it or an even share taken all along the corpus."""
        credit = 0.0
        for split, text in self._routed(plan, "sampling for the tokenizer"):
            if split != 0:
                continue
            for piece in pieces(text, 1 << 16):
                credit += share * len(piece)
                if share >= 1 or credit >= len(piece):
                    credit -= len(piece)
                    yield piece

    def _routed(self, plan: Plan, what: str) -> Iterator[tuple[int, str]]:
        place = 0
        for number, (document, fixed) in enumerate(self.corpus.documents(what)):
            yield from plan.route(number, document.text, place)
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
        past = [writer.finished_documents for writer in writers.values()]

        def batches() -> Iterator[tuple[int, list[str]]]:
            """Documents of one split at a time; those in finished shards are read past."""
            waiting: dict[int, list[str]] = {i: [] for i in writers}
            sizes = dict.fromkeys(writers, 0)
            for split, text in self._routed(plan, "encoding"):
                if past[split]:
                    past[split] -= 1
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
        for split, batch in encoded(encoder, batches(), workers):
            writers[split].add(batch)
        all_paid = encoder.surface is not None or not Surface.needed(tokenizer)
        return {SPLITS[i]: entry for i, writer in writers.items() if (entry := writer.close(all_paid)) is not None}

    def _finish(self, survey: Survey, tokenizer: Tokenizer, splits: dict[Any, SplitEntry]) -> Manifest:
        reason = "yes"
        if Surface.needed(tokenizer) and not Surface.possible(tokenizer):
            reason = "no: this tokenizer does not give back every byte, and the cost of what it loses is not known"
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
        """The state goes last: as long as it is there, whoever calls again cleans up."""
        remove_leftovers(self.out, PREPARED)
        for name in (_PLAN, _COSTS, _STATE):
            with explained(self.out / name):
                (self.out / name).unlink(missing_ok=True)


def is_written(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def is_prepared_whole(folder: Path) -> bool:
    """Whether nothing is left to do: its manifest is written, and what was kept to resume it is gone."""
    return is_written(folder) and not (folder / _STATE).exists()


def _fed(sample: list[str], what: str, note: str | None = None) -> Iterator[str]:
    with Progress(what, sum(map(len, sample)) / 1e6, unit="MB") as bar:
        for text in sample:
            yield text
            bar.advance(len(text) / 1e6, note=note)


def _merged(tokenizer: Tokenizer, sample: list[str]) -> Counter[str]:
    """The training words that became the unknown token."""
    words: Counter[str] = Counter()
    if tokenizer.unk_id is None:
        return words
    for start in range(0, len(sample), 64):
        for found in tokenizer.encode_batch_with_unknown(sample[start : start + 64])[1]:
            words.update(found)
    return Counter(dict(sorted(words.items(), key=lambda item: (-item[1], item[0]))[:_MERGED]))


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def is_prepared(folder: Path) -> bool:
    """By its manifest, or by what an unfinished preparation keeps; one that was killed before has nothing but files of ours."""
    if not is_written(folder) and (folder / _STATE).is_file() and (folder / _PLAN).is_file():
        return True
    for name, keys in ((MANIFEST, {"fingerprint", "splits"}), (_STATE, {"options", "sources"})):
        if (folder / name).is_file():
            try:
                return keys <= set(read_json(folder / name))
            except (ValueError, TypeError, RecursionError):
                return True  # damaged; only files of a preparation are removed anyway
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
