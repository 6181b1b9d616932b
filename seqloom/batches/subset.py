"""Less text: a prepared folder with part of the training documents of another one, and the same tokenizer and held-out text.

Documents are taken whole, in one random order for all sizes: a smaller part lies within a larger one.
"""

import shutil
from pathlib import Path

import numpy as np

from seqloom.batches.plan import generator
from seqloom.batches.shards import EncodedBatch, ShardWriter
from seqloom.batches.store import MANIFEST, TOKENIZER, Manifest, Split, Store, fingerprint, shard_name
from seqloom.errors import DataError, UsageError
from seqloom.files import explained, sole_owner, write_json

ORDER = 0  # the seed of the order of documents
BLOCK = 1 << 22  # tokens read at once


def subset(source: Path, words: float, out: Path, shard_tokens: int = 1 << 24) -> Manifest:
    """Makes a folder with at most so many words of training text. A finished one is left as it is."""
    store = Store.open(source)
    split = store.split("train")
    chosen = choose_documents(split, words, source)
    if store.has_spelling:
        raise UsageError(
            f"{source} was prepared with --keep-spelling: give the files of a smaller text instead of words"
        )
    made = {"words": words, "of": store.manifest.fingerprint}
    with sole_owner(out):
        if (out / MANIFEST).exists():
            found = Store.open(out).manifest
            if found.options.get("subset") == made:
                return found
            raise UsageError(f"{out} holds another text: choose another folder")
        manifest = store.manifest
        with explained(out):
            for path in out.glob("*.bin"):  # of a call that was killed
                path.unlink()
            shutil.copy2(source / TOKENIZER, out / TOKENIZER)
            for name, entry in manifest.splits.items():
                for number in range(len(entry.shards) if name != "train" else 0):
                    for ending in ("tokens", "docs"):
                        file = f"{shard_name(name, number)}.{ending}.bin"
                        shutil.copy2(source / file, out / file)
        writer = ShardWriter(out, "train", np.dtype(manifest.dtype), shard_tokens, manifest.end_id, False)
        starts, lengths = split.offsets[:-1][chosen], np.diff(split.offsets)[chosen]
        ends = np.cumsum(lengths)
        for first in range(0, int(ends[-1]), BLOCK):
            part = slice(*np.searchsorted(ends, (first, first + BLOCK), side="right"))
            ids = split.read_many(starts[part], lengths[part]).astype(np.uint32)
            writer.add(EncodedBatch(ids, split.documents[chosen[part]], []))
        train = writer.close(manifest.splits["train"].surface_bits is not None)
        assert train is not None
        splits = manifest.splits | {"train": train}
        changes = {"splits": splits, "options": manifest.options | {"subset": made}}
        made_manifest = manifest.model_copy(update=changes | {"fingerprint": fingerprint(manifest.tokenizer, splits)})
        write_json(out / MANIFEST, made_manifest.model_dump())
        return made_manifest


def choose_documents(split: Split, words: float, source: Path) -> np.ndarray:
    """Their numbers, ascending: as many as fit into so many words, in the random order."""
    if words > split.words:
        raise DataError(f"{source}: its training text has {split.words:,} words, fewer than {words:,.0f}: ask for less")
    order = generator(ORDER, 0).permutation(split.num_documents)
    fits = np.cumsum(split.documents["words"][order], dtype=np.int64) <= words
    if not fits.any():
        raise DataError(
            f"{source}: a document has more than {words:,.0f} words, and documents are taken whole: ask for more"
        )
    return np.sort(order[fits])
