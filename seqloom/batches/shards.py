"""Write shards: encode documents, in one process or several, and write full shards in reading order."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seqloom.batches.store import DOCUMENT, Shard, SplitEntry, shard_hash, shard_name
from seqloom.batches.unknown_words import words_file
from seqloom.errors import OutOfMemory
from seqloom.files import explained, write_bytes
from seqloom.text.words import count_words
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.unknown import ByteNgram
from seqloom.tokens.whitespace_and_case import WhitespaceAndCase


class EncodedBatch(NamedTuple):
    ids: npt.NDArray[np.uint32]  # of all documents, each followed by the end id
    records: npt.NDArray[Any]  # DOCUMENT
    words: list[str]  # the unknown ones in their order, as the tokenizer reads them


class Encoder:
    """Texts → ids and the record of each document. backward: its tokens from the last to the first."""

    def __init__(
        self, tokenizer: Tokenizer, unknown: ByteNgram, lost_text: WhitespaceAndCase | None, backward: bool = False
    ):
        self.tokenizer, self.unknown, self.lost_text, self.backward = tokenizer, unknown, lost_text, backward

    def __call__(self, texts: list[str]) -> EncodedBatch:
        rows, unknown = self.tokenizer.encode_batch_with_unknown(texts)
        records = np.zeros(len(texts), DOCUMENT)
        lost = self.lost_text.bits(texts) if self.lost_text else np.zeros(len(texts))
        for i, (text, ids, words) in enumerate(zip(texts, rows, unknown, strict=True)):
            size = len(text) if text.isascii() else len(text.encode())
            bits = sum(map(self.unknown.bits, words))
            records[i] = (len(ids) + 1, count_words(text), len(text), size, len(words), bits, lost[i])
        end = np.array([self.tokenizer.end_id], np.uint32)
        flat = np.concatenate([part for ids in rows for part in (ids[::-1] if self.backward else ids, end)])
        return EncodedBatch(flat, records, [self.tokenizer.lowered(word) for words in unknown for word in words])


_encoder: Encoder | None = None  # of a worker process


def _start_worker(encoder: Encoder) -> None:
    global _encoder
    _encoder = encoder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone answers it
    # a worker whose parent was killed would wait for work for ever
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()


def _work(texts: list[str]) -> EncodedBatch:
    assert _encoder is not None
    return _encoder(texts)


class Worker(SpawnProcess):
    """A process that imports this package alone. Usually it would run the caller's script once more, which must be written for
    that: without a guard around its calls it would start such processes, too, and end before it has read what it is to do."""

    @staticmethod
    def _Popen(process: Any) -> Any:  # noqa: N802
        main = vars(sys.modules["__main__"])
        hidden: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
        main.update(dict.fromkeys(hidden))
        try:
            return SpawnProcess._Popen(process)
        finally:
            main.update(hidden)


class Workers(SpawnContext):
    """New processes, because threads of this one make a fork unsafe."""

    Process = Worker


def encode_batches(
    encoder: Encoder, batches: Iterable[tuple[int, list[str]]], workers: int
) -> Iterator[tuple[int, EncodedBatch]]:
    """Encode batches and return them in order, for any number of workers."""
    if workers == 1:
        for split, texts in batches:
            yield split, encoder(texts)
        return
    # each worker uses one core: threads of the Rust side below them would only compete
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pool = ProcessPoolExecutor(workers, mp_context=Workers(), initializer=_start_worker, initargs=(encoder,))
    waiting: deque[tuple[int, Future[EncodedBatch]]] = deque()
    try:
        for split, texts in batches:
            waiting.append((split, pool.submit(_work, texts)))
            if len(waiting) > 2 * workers:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool:
        raise OutOfMemory("a worker process was killed, probably because memory ran out: use fewer --workers") from None
    finally:
        pool.shutdown(cancel_futures=True)
        if before is None:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


class ShardWriter:
    """Collects the documents of one split and writes a shard whenever `shard_tokens` are there.

    A shard counts as finished when its documents file, written last, exists: all appear whole or not at all.
    """

    def __init__(self, folder: Path, split: str, dtype: np.dtype[Any], shard_tokens: int, end_id: int, spelling: bool):
        self.folder, self.split, self.dtype, self.shard_tokens = folder, split, dtype, shard_tokens
        self.end_id, self.spelling = end_id, spelling
        self.shards: list[Shard] = []
        self.totals: dict[str, float] = dict.fromkeys(DOCUMENT.names or (), 0)
        self.finished_documents = 0
        self._ids: list[npt.NDArray[np.uint32]] = []
        self._records: list[npt.NDArray[Any]] = []
        self._words: list[str] = []
        self._tokens = 0
        while self._docs(len(self.shards)).exists():
            self._count(np.fromfile(self._docs(len(self.shards)), DOCUMENT))
        self.finished_documents = sum(shard.documents for shard in self.shards)

    def _docs(self, number: int) -> Path:
        return self.folder / f"{shard_name(self.split, number)}.docs.bin"

    def add(self, batch: EncodedBatch) -> None:
        ids, records, words = batch
        ends = np.cumsum(records["tokens"], dtype=np.int64)
        start = taken = 0
        # a shard is closed by the document that fills it: the borders do not depend on how batches were cut
        while (full := int(np.searchsorted(ends, taken + self.shard_tokens - self._tokens))) < len(records):
            done = int(records["unknown"][start : full + 1].sum(dtype=np.int64))
            self._keep(ids[taken : int(ends[full])], records[start : full + 1], words[:done])
            words = words[done:]
            start, taken = full + 1, int(ends[full])
            self._write()
        self._keep(ids[taken:], records[start:], words)

    def _keep(self, ids: npt.NDArray[np.uint32], records: npt.NDArray[Any], words: list[str]) -> None:
        self._ids.append(ids.astype(self.dtype))
        self._records.append(records)
        self._words += words if self.spelling else []
        self._tokens += len(ids)

    def _write(self) -> None:
        name = shard_name(self.split, len(self.shards))
        records = np.concatenate(self._records)
        write_bytes(self.folder / f"{name}.tokens.bin", np.concatenate(self._ids).tobytes())
        if self.spelling:
            write_bytes(self.folder / f"{name}.words.bin", words_file(self._words))
        write_bytes(self.folder / f"{name}.docs.bin", records.tobytes())
        self._ids, self._records, self._words, self._tokens = [], [], [], 0
        self._count(records)

    def _count(self, records: npt.NDArray[Any]) -> None:
        name = shard_name(self.split, len(self.shards))
        for key in self.totals:
            kind = np.float64 if key.endswith("bits") else np.int64
            self.totals[key] += records[key].sum(dtype=kind).item()
        with explained(self.folder / name):
            digest = shard_hash(self.folder, name, self.spelling)
        tokens = int(records["tokens"].sum(dtype=np.int64))
        self.shards.append(Shard(file=name, sha256=digest, documents=len(records), tokens=tokens))

    def close(self, bits_complete: bool) -> SplitEntry | None:
        """Writes what is left; None when the split has no document at all. `all_paid`: the cost of what decode loses is known."""
        if self._tokens:
            self._write()
        if not self.shards:
            return None
        return SplitEntry(
            documents=sum(shard.documents for shard in self.shards),
            words=int(self.totals["words"]),
            tokens=int(self.totals["tokens"]),
            characters=int(self.totals["characters"]),
            bytes=int(self.totals["bytes"]),
            unknown=int(self.totals["unknown"]),
            unknown_bits=round(self.totals["unknown_bits"], 3),
            surface_bits=round(self.totals["surface_bits"], 3) if bits_complete else None,
            shards=self.shards,
        )
