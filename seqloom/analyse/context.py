"""How much context a model uses: the loss of the same words when it reads only the last c tokens before each.

The relative effective context length compares models of one group (Dai et al., 2019, arXiv 1901.02860, appendix C): the better a
model is by a short context, the harder it is to gain by a longer one, so all are measured against the best of them. With
ℓ_i(c, t) the loss of model i at word t,

    b(c, t) = min_i ℓ_i(c, t)                        what the best model does with c tokens
    f_i(c, c′) = mean over T of min(b(c, t), ℓ_i(c′, t))     T: the share r of the words that are worst by b(c, ·)
    g_i(c, c′) = 1 − exp(f_i(c, c′) − f_i(c, c))     the relative gain in perplexity

and the length of a model is the first c from which a step further gains less than 1%. A model that cannot read c tokens reads as
many as it can.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from seqloom.batch import exact, to_device
from seqloom.batches.plan import Pieces, excerpt
from seqloom.errors import DataError
from seqloom.evaluate.score import Texts
from seqloom.objectives.next_token import LeftToRight
from seqloom.progress import Progress

HARDEST = 0.1  # r: the share of the words that count
GAIN = 0.01  # a step that gains less is none
STEPS = 16  # contexts that are measured, unless it is said how far apart they are


class ContextLosses(NamedTuple):
    """What a model loses at the same words with contexts of several lengths."""

    name: str
    contexts: tuple[int, ...]  # rising
    losses: np.ndarray  # (contexts, words) −log p


class Reach(NamedTuple):
    """What a model gains by longer contexts, measured against its group."""

    name: str
    length: int  # the relative effective context length
    gains: tuple[float, ...]  # of each step from a context to the next one
    at_end: bool  # the last step still gained: it may be longer


def contexts_up_to(longest: int, step: int | None = None) -> tuple[int, ...]:
    """Rising by equal steps, the last of them `longest`."""
    step = step or max(1, longest // STEPS)
    return tuple(range(longest, 0, -step))[::-1]


def choose_words(texts: Texts, longest: int, count: int) -> np.ndarray:
    """(n ≤ count,) words with at least `longest` tokens before them in their document, spread evenly over the texts."""
    sizes = np.diff(texts.offsets)
    fits = [np.arange(begin + longest - 1, begin + size) for begin, size in zip(texts.offsets, sizes, strict=False)]
    words = np.concatenate([np.zeros(0, np.int64), *fits])
    if not len(words):
        raise DataError(
            f"no document has {longest} tokens before a word, the longest has {int(sizes.max(initial=0))}: give "
            f"longer documents or a smaller --context"
        )
    return words[np.unique(np.linspace(0, len(words) - 1, min(count, len(words))).astype(np.int64))]


@torch.no_grad()
def context_losses(
    name: str,
    learner: LeftToRight,
    texts: Texts,
    words: np.ndarray,
    contexts: Sequence[int],
    device: torch.device,
    batch_tokens: int = 16384,
) -> ContextLosses:
    """Each word is predicted from the `c` tokens before it and nothing else, as if the text began there."""
    limit = learner.backbone.max_len
    found: dict[int, np.ndarray] = {}
    was_training = learner.training
    learner.eval()
    read = sorted({c if limit is None else min(c, limit) for c in contexts})
    try:
        with Progress(f"context of {name}", total=float(len(words) * sum(read)), unit="tokens") as bar:
            for c in read:
                parts = []
                for part in np.array_split(words, -(-len(words) // max(1, batch_tokens // c))):
                    parts.append(last_losses(learner, texts, part, c, device))
                    bar.advance(c * len(part))
                found[c] = np.concatenate(parts)
    finally:
        learner.train(was_training)
    rows = [found[c if limit is None else min(c, limit)] for c in contexts]
    return ContextLosses(name, tuple(contexts), np.stack(rows))


def last_losses(
    learner: LeftToRight, texts: Texts, words: np.ndarray, context: int, device: torch.device
) -> np.ndarray:
    pieces = Pieces(words - context + 1, np.full(len(words), context), np.zeros(len(words), np.int64))
    example = to_device(excerpt(texts, pieces, context), device)
    last = example.batch.offsets[1:].long() - 1
    hidden = learner.backbone(example.batch).hidden
    return exact(learner.softmax(hidden[last], example.targets[last], each=True)).cpu().numpy()


def reaches(group: Sequence[ContextLosses], hardest: float = HARDEST, gain: float = GAIN) -> list[Reach]:
    """The relative effective context lengths of a group that was measured at the same words."""
    contexts = group[0].contexts
    every = np.stack([each.losses for each in group])  # (models, contexts, words)
    steps = []
    for k in range(len(contexts) - 1):
        best = every[:, k].min(0)
        chosen = np.argsort(-best, kind="stable")[: max(1, round(hardest * len(best)))]
        before, after = (np.minimum(best[chosen], every[:, i][:, chosen]).mean(1) for i in (k, k + 1))
        steps.append(1 - np.exp(after - before))
    gains = np.array(steps).reshape(-1, len(group))
    found = []
    for i, each in enumerate(group):
        small = np.flatnonzero(gains[:, i] < gain)
        first = int(small[0]) if len(small) else len(contexts) - 1
        found.append(Reach(each.name, contexts[first], tuple(gains[:, i].tolist()), not len(small)))
    return found
