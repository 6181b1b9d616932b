"""Texts or labelled examples as batches of what a run was trained for, so that its loss can be looked into."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.batch import IGNORE, Excerpt, Passage, pack
from seqloom.batches.labelled import batch_of
from seqloom.batches.pairs import pair_batch
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.errors import DataError, UsageError
from seqloom.text.labelled import BadRow
from seqloom.text.pairs import read_pairs
from seqloom.tokens.spelling import spell_text

BATCH = 16  # examples
MOST = 512
LONGEST = 256  # tokens of a text; longer ones are cut


def measured_examples(run: Any, texts: Sequence[str], file: Path | None) -> tuple[list[Any], str]:
    """Batches of the run's own loss, and what it is the loss of. texts: for what is learnt from plain text; file: with examples,
    for tasks."""
    makers: dict[str, Callable[[], tuple[list[Any], str]]] = {
        "excerpts": lambda: (excerpts(run, texts), "bits a token"),
        "passages": lambda: (passages(run, texts), "bits a target"),
        "labelled": lambda: (labelled(run, file), "bits an example" if run.task != "tag" else "bits a word"),
        "pairs": lambda: (pairs(run, file), "bits a token"),
    }
    reads = run.learner.reads
    if reads not in makers:
        raise UsageError(f"{run.folder} learns from {reads}: its loss on single texts cannot be looked into")
    return makers[reads]()


def cut(run: Any, texts: Sequence[str], around: int) -> tuple[list[np.ndarray], list[str]]:
    limit = run.learner.backbone.max_len
    room = LONGEST if limit is None else min(LONGEST, limit - around)
    ids, unknown = run.tokenizer.encode_batch_with_unknown(list(texts[:MOST]))
    turn = slice(None, None, -1 if getattr(run, "backward", False) else 1)
    found = [np.array(each[:room])[turn] for each in ids if len(each)]
    if not found:
        raise DataError("the texts are empty: give at least one word")
    words = [
        word
        for each, some in zip(ids, unknown, strict=True)
        if len(each)
        for word in some[: count_unknown(run, each[:room])][turn]
    ]
    return found, words


def count_unknown(run: Any, ids: np.ndarray) -> int:
    return int((np.asarray(ids) == run.tokenizer.unk_id).sum()) if run.tokenizer.unk_id is not None else 0


def excerpts(run: Any, texts: Sequence[str]) -> list[Any]:
    end = run.tokenizer.end_id
    rows, unknown = cut(run, texts, 1)
    found, reached = [], 0
    for i in range(0, len(rows), BATCH):
        some = rows[i : i + BATCH]
        batch = pack([[end, *ids.tolist()] for ids in some])
        targets = torch.tensor([token for ids in some for token in (*ids.tolist(), end)])
        if getattr(run, "characters", 0):
            here = sum(count_unknown(run, ids) for ids in some)
            chars = spell_text(batch.ids.numpy(), unknown[reached : reached + here], run.tokenizer, run.reading.table)
            batch, reached = batch._replace(chars=torch.from_numpy(chars)), reached + here
        found.append(run.learner.corrupt(Excerpt(batch, targets), torch.Generator().manual_seed(i)))
    return found


def passages(run: Any, texts: Sequence[str]) -> list[Any]:
    encoder = run.reading.encoder
    rows, _ = cut(run, texts, len(encoder.before) + len(encoder.after))
    whole = SpecialTokenTexts(rows, encoder.before, encoder.after)
    found = []
    for i in range(0, len(rows), BATCH):
        index = np.arange(i, min(i + BATCH, len(rows)))
        batch = whole.batch(index)
        place = batch.positions - len(encoder.before)
        own = (place >= 0) & (place < torch.from_numpy(whole.sizes[index])[batch.owner])
        places = torch.where(own, torch.arange(len(batch.ids)), -1)
        labels = torch.full((len(index),), IGNORE)
        found.append(run.learner.corrupt(Passage(batch, places, labels), torch.Generator().manual_seed(i)))
    return found


def labelled(run: Any, file: Path | None) -> list[Any]:
    if file is None:
        raise UsageError(f"{run.folder} is trained for {run.task}: --text names a file with labelled examples")
    layout = run.layout({}, None, need_labels=True)
    examples = [each for each in run.learner.read([file], layout=layout) if not isinstance(each, BadRow)][:MOST]
    run.learner.check(examples)
    rows = run.encoded(examples, "heads").rows
    return [batch_of(rows[i : i + BATCH]) for i in range(0, len(rows), BATCH)]


def pairs(run: Any, file: Path | None) -> list[Any]:
    if file is None:
        raise UsageError(f"{run.folder} is a translator: --text names a file with pairs, .tsv or .jsonl")
    given = [pair for pair, _ in zip(read_pairs([file]), range(MOST), strict=False)]
    encoded = run.encode_pairs(given, "heads")
    count = len(encoded.source.lengths)
    return [pair_batch(encoded, np.arange(i, min(i + BATCH, count))) for i in range(0, count, BATCH)]
