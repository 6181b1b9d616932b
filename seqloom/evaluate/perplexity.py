"""Perplexity and bits per byte, character and word of a left-to-right model.

Every token of every document is predicted once, its end included, from what stands before it in that document:

    sliding   models with a limited context, and any model that is given one (max_len), read overlapping windows: each window
              moves on by `stride` tokens, and only those are counted; stride = max_len gives disjoint windows, smaller ones
              more context and more work
    carried   recurrent models read each document from its start to its end, their state carried along

With `carry` recurrent models read on from document to document in the order of the split, as those were trained whose streams
were not reset.

No metric depends on how many sequences are computed together. Bits per byte count every byte: unknown words are
charged what their spelling costs under a byte model, and spaces and case that a tokenizer loses what it costs to restore
them (the data's manifest has both); where that is unknown there are no bits per byte.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from seqloom.batch import State, exact, select, to_device
from seqloom.batches.plan import Corpus, Pieces, excerpt
from seqloom.batches.store import Split
from seqloom.errors import DataError, UsageError
from seqloom.objectives.next_token import LeftToRight
from seqloom.progress import Progress
from seqloom.training.share import ALONE, Share

CHUNK = 256  # the fewest tokens of a document that a recurrent model reads at once
PART = 8  # the length of a part of a long document, as a multiple of its warm-up


def perplexity(
    learner: LeftToRight,
    split: Split,
    device: torch.device,
    *,
    stride: int | None = None,
    max_len: int | None = None,
    batch_tokens: int = 16384,
    carry: bool = False,
    warmup: int | None = None,
    limit: int | None = None,
    items: bool = False,
    share: Share = ALONE,
    title: str = "",
) -> dict[str, Any]:
    """Evaluates on one split, or on its first `limit` tokens.

    warmup: of recurrent models, read long documents in parts side by side, each begun with so many tokens that are not counted;
    None reads every document from its start to its end, which is exact and slow where there are few of them.
    items: "items" of whole splits, too: the bits and bytes of each document, in the order of the split, or its nats and tokens
    where there are no bits per byte."""
    if split.num_documents == 0:
        raise DataError("there is no document to evaluate on: prepare the data with --valid or --test")
    borders = split.offsets if limit is None else clip_borders(split.offsets, limit)
    if carry:
        if not learner.backbone.carries:
            raise UsageError("--carry is for recurrent models: leave it out for this model, which carries no state")
        borders = borders[[0, -1]]
    batches, context = token_losses(learner, split, borders, device, stride, max_len, batch_tokens, warmup)
    nats, tokens = 0.0, 0
    documents = np.zeros(split.num_documents)
    was_training = learner.training
    learner.eval()

    def add_up(number: int) -> list[tuple[float, int, list[int], list[float]]]:
        """Of each part of a batch: nats, tokens, and the nats of documents."""
        found = []
        for where, part in batches[number]():
            owner = np.searchsorted(split.offsets, where, side="right") - 1 if items else np.zeros(0, np.int64)
            own = np.unique(owner)
            each = np.bincount(owner, exact(part).cpu().numpy())[own].tolist() if items else []
            found.append((float(exact(part).sum()), part.shape[0], own.tolist(), each))
            bar.advance(part.shape[0])
            share.stop()
        return found

    try:
        total = float(borders[-1]) / share.world
        with Progress(title or "evaluate", total=total, unit="tokens") as bar, torch.no_grad():
            for parts in share.each(len(batches), add_up):
                for nats_of_part, tokens_of_part, own, each in parts:
                    nats, tokens = nats + nats_of_part, tokens + tokens_of_part
                    documents[own] += each
    finally:
        learner.train(was_training)
    assert tokens == int(borders[-1]), "every token is counted once"
    result = loss_metrics(nats, tokens, split, limit is None, f"{context} over documents" if carry else context)
    if items and "bits_per_byte" in result:
        more = split.documents["unknown_bits"].astype(float) + split.documents["surface_bits"]
        result["items"] = {"bits": documents / math.log(2) + more, "bytes": split.document_bytes}
    elif items and limit is None:
        result["items"] = {"nats": documents, "tokens": np.diff(split.offsets)}
    return result


def half_context(learner: LeftToRight, max_len: int | None = None) -> int | None:
    """The default stride: half of a window. None for models without windows."""
    longest = max_len or learner.backbone.max_len
    return None if longest is None else max(1, longest // 2)


def check_split(split: Split) -> None:
    if split.num_documents == 0:
        raise DataError(f"the {split.name} split is empty: prepare the data with --{split.name} FILE or 0.05")


def token_losses(
    learner: LeftToRight,
    split: Corpus,
    borders: np.ndarray,
    device: torch.device,
    stride: int | None = None,
    max_len: int | None = None,
    batch_tokens: int = 16384,
    warmup: int | None = None,
) -> tuple[list["Batch"], str]:
    """−log p of every token within the borders, in batches that any process can compute, and a description of their context."""
    backbone = learner.backbone
    if backbone.carries and max_len is None:
        how = "carried" if warmup is None else f"carried, long documents in parts after {warmup} tokens"
        return carried_losses(learner, split, borders, device, batch_tokens, warmup), how
    longest = backbone.max_len if max_len is None else max_len
    assert longest is not None
    if backbone.max_len is not None and longest > backbone.max_len:
        raise UsageError(f"--max-len {longest} is more than the {backbone.max_len} tokens that this model can take in")
    stride = longest if stride is None else stride
    if not 1 <= stride <= longest:
        raise UsageError(f"--stride {stride} must lie between 1 and the context of {longest} tokens")
    losses = sliding_losses(learner, split, borders, device, batch_tokens, longest, stride)
    return losses, f"sliding, {longest} tokens, stride {stride}"


def loss_metrics(nats: float, tokens: int, split: Split, whole: bool, context: str) -> dict[str, Any]:
    loss = nats / tokens
    result: dict[str, Any] = {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700.0)),
        "tokens": tokens,
        "context": context,
    }
    if not whole:  # the sizes in the manifest are those of the whole split
        return result
    entry = split.entry
    result |= {"documents": entry.documents, "words": entry.words, "characters": entry.characters, "bytes": entry.bytes}
    if entry.surface_bits is None:
        return result
    # all three count the whole text: its tokens, and the bits of unknown words, spaces and case
    bits = nats / math.log(2) + entry.unknown_bits + entry.surface_bits
    for name, count in (("word", entry.words), ("char", entry.characters), ("byte", entry.bytes)):
        result[f"bits_per_{name}"] = bits / max(count, 1)
    return result


def clip_borders(offsets: np.ndarray, limit: int) -> np.ndarray:
    """The borders of the documents within the first `limit` tokens; the last of them is cut."""
    kept = offsets[: np.searchsorted(offsets, limit, side="left") + 1].copy()
    kept[-1] = min(kept[-1], limit)
    return kept


def windows(borders: np.ndarray, max_len: int, stride: int) -> tuple[Pieces, np.ndarray]:
    """The windows over every document, and how many tokens at the end of each are counted."""
    sizes = np.diff(borders)
    counts = 1 + np.maximum(0, -(-(sizes - max_len) // stride))
    document = np.repeat(np.arange(len(sizes)), counts)
    index = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    end = np.minimum(max_len + index * stride, sizes[document])
    counted_from = np.where(index == 0, 0, max_len + (index - 1) * stride)
    begin = np.maximum(0, end - max_len)
    pieces = Pieces(borders[:-1][document] + begin, end - begin, np.zeros(len(document), np.int64))
    return pieces, end - counted_from


Losses = Iterator[tuple[np.ndarray, torch.Tensor]]  # where tokens stand in the corpus, and −log p of each
Batch = Callable[[], Losses]  # computed when it is called


def sliding_losses(
    learner: LeftToRight,
    split: Corpus,
    borders: np.ndarray,
    device: torch.device,
    batch_tokens: int,
    max_len: int,
    stride: int,
) -> list[Batch]:
    pieces, counted = windows(borders, max_len, stride)
    per_batch = max(1, batch_tokens // max_len)

    def read(i: int) -> Losses:
        part = Pieces(*(array[i : i + per_batch] for array in pieces))
        losses, _ = learner.losses(to_device(excerpt(split, part, int(part.lengths.max())), device))
        from_end = np.arange(int(part.lengths.sum())) - np.repeat(np.cumsum(part.lengths), part.lengths)
        chosen = from_end >= -np.repeat(counted[i : i + per_batch], part.lengths)
        yield places(part)[chosen], losses[torch.from_numpy(chosen).to(device)]

    return [partial(read, i) for i in range(0, len(counted), per_batch)]


def carried_losses(
    learner: LeftToRight,
    split: Corpus,
    borders: np.ndarray,
    device: torch.device,
    batch_tokens: int,
    warmup: int | None = None,
) -> list[Batch]:
    starts, sizes, skipped = stretches(borders, warmup)
    longest_first = np.argsort(-sizes, kind="stable")
    rows = max(1, batch_tokens // min(CHUNK, int(sizes.max(initial=1))))

    def read(documents: np.ndarray) -> Losses:
        state: State | None = None
        begin, longest = 0, int(sizes[documents[0]])
        while begin < longest:
            alive = documents[sizes[documents] > begin]  # the longest first: those that go on come first
            # few long documents, as novels are, would be read in many small steps
            chunk = max(CHUNK, batch_tokens // len(alive))
            lengths = np.minimum(sizes[alive] - begin, chunk)
            pieces = Pieces(starts[alive] + begin, lengths, np.full(len(alive), begin))
            if state is not None:
                state = select(state, torch.arange(len(alive), device=device))
            losses, state = learner.losses(to_device(excerpt(split, pieces, int(lengths.max())), device), state)
            at, first = places(pieces), np.repeat(starts[alive] + skipped[alive], lengths)
            counted = at >= first
            yield at[counted], losses if counted.all() else losses[torch.from_numpy(counted).to(device)]
            begin += chunk

    return [partial(read, longest_first[i : i + rows]) for i in range(0, len(longest_first), rows)]


def stretches(borders: np.ndarray, warmup: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sequences to read: the start of each, its length, and how many of its first tokens are not counted. They are documents,
    or with a warm-up parts of long ones, each of which starts so many tokens earlier: then a single document, too, is read in
    many rows at once. The parts do not depend on the batch."""
    begin, sizes = borders[:-1], np.diff(borders)
    if warmup is None:
        return begin, sizes, np.zeros_like(sizes)
    part = PART * warmup
    counts = np.maximum(-(-sizes // part), 1)
    document = np.repeat(np.arange(len(sizes)), counts)
    first = part * (np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts))
    skipped = np.minimum(first, warmup)
    return begin[document] + first - skipped, np.minimum(sizes[document] - first, part) + skipped, skipped


def places(pieces: Pieces) -> np.ndarray:
    """Where each token of the pieces stands in the corpus."""
    first = np.cumsum(pieces.lengths) - pieces.lengths
    return np.arange(int(pieces.lengths.sum())) + np.repeat(pieces.starts - first, pieces.lengths)
