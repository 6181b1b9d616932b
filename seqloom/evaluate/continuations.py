"""Scores of continuations by left-to-right models: log p(continuation | context), and whether greedy decoding would give the
same text.

Context and continuation are tokenised together, as one text. Where that leaves the tokens of the context as they are
alone, the continuation has all that follow them. Where a token spans the border, or the context ends in other tokens than it
would alone, the continuation begins with the first token that differs, so that all of it is scored. A continuation without
a token has log-probability 0 and is not greedy.

A model with a limited context reads as much before a continuation as there is room for; one that is longer than the context
itself is read in windows of that length, which do not overlap, except that the last one is filled from before.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from seqloom.batch import exact, to_device, wide
from seqloom.batches.plan import Pieces, excerpt, portions
from seqloom.blocks.softmax import chunk_rows
from seqloom.evaluate.perplexity import places
from seqloom.evaluate.score import Texts
from seqloom.objectives.next_token import LeftToRight
from seqloom.progress import Progress


class ContinuationScore(NamedTuple):
    log_prob: float  # a natural logarithm, the sum over its tokens
    greedy: bool  # each of its tokens is the most likely one in its place
    unknown: bool  # one of them is the unknown token: the text itself has no score
    right: float = 0.0  # the share of its tokens that are the most likely ones in their place
    cut: bool = False  # the model reads less at a time than the context and the continuation together


def count_after_context(contexts: Sequence[np.ndarray], texts: Sequence[np.ndarray]) -> np.ndarray:
    """(N,) the number of tokens after the context of each text: all from the first one that differs."""
    found = []
    for context, text in zip(contexts, texts, strict=True):
        shared = min(len(context), len(text))
        different = np.flatnonzero(context[:shared] != text[:shared])
        found.append(len(text) - (int(different[0]) if len(different) else shared))
    return np.array(found, np.int64)


@torch.no_grad()
def score_continuations(
    learner: LeftToRight,
    ids: Sequence[np.ndarray],
    counts: np.ndarray,
    end_id: int,
    device: torch.device,
    batch_tokens: int = 16384,
    spell: Callable[[np.ndarray], np.ndarray | None] = lambda flat: None,
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) the log-probability of the last counts[i] tokens of each text together, and the share of them that are greedy choices.

    spell: the characters (T, C) of all texts end to end, for a model that reads them."""
    texts = Texts(ids, end_id)
    texts.characters = spell(texts.flat)
    pieces, counted, text = windows(texts.offsets, counts, learner.backbone.max_len)
    log_probs, missed = np.zeros(len(ids)), np.zeros(len(ids), np.int64)
    order = np.argsort(pieces.lengths, kind="stable")
    with Progress("continuations", total=float(pieces.lengths.sum()), unit="tokens") as bar:
        for part in portions([pieces.lengths[order]], [batch_tokens]):
            index = order[part]
            some = Pieces(*(array[index] for array in pieces))
            example = excerpt(texts, some, int(some.lengths.max()))
            from_end = places(some) - np.repeat(some.starts + some.lengths, some.lengths)
            where = np.flatnonzero(from_end >= -np.repeat(counted[index], some.lengths))
            owner = text[index][example.batch.owner.numpy()[where]]
            example = to_device(example, device)
            chosen = torch.from_numpy(where).to(device)
            hidden, targets = learner.backbone(example.batch).hidden[chosen], example.targets[chosen]
            rows, sums, best = chunk_rows(hidden, learner.backbone.vocab_size), [], []
            for h, t in zip(hidden.split(rows), targets.split(rows), strict=True):
                scores = wide(learner.softmax(h)).log_softmax(1)
                sums.append(exact(scores.gather(1, t[:, None])[:, 0]))
                best.append(scores.argmax(1) == t)
            np.add.at(log_probs, owner, torch.cat(sums).cpu().numpy())
            np.add.at(missed, owner, ~torch.cat(best).cpu().numpy())
            bar.advance(float(some.lengths.sum()))
    return log_probs, (counts - missed) / np.maximum(counts, 1)


def windows(offsets: np.ndarray, counts: np.ndarray, max_len: int | None) -> tuple[Pieces, np.ndarray, np.ndarray]:
    """The windows over the last counts[i] tokens of each text, how many tokens at the end of each are counted, and which text it
    is of."""
    begins, ends = offsets[:-1], offsets[1:] - 1  # behind the last token, before the end of the text
    longest = max(1, int((ends - begins).max(initial=1))) if max_len is None else max_len
    number = -(-counts // longest)
    text = np.repeat(np.arange(len(counts)), number)
    index = np.arange(len(text)) - np.repeat(np.cumsum(number) - number, number)
    first = (ends - counts)[text] + index * longest  # that is counted
    end = np.minimum(first + longest, ends[text])
    begin = np.maximum(begins[text], end - longest)
    return Pieces(begin, end - begin, np.zeros(len(text), np.int64)), end - first, text
