"""Log-probabilities of single texts, token by token: Σ log p(token), each from what stands before it in its text."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from seqloom.batch import exact
from seqloom.evaluate.perplexity import token_losses
from seqloom.objectives.next_token import LeftToRight


class Texts:
    """Token ids in memory, each text followed by the end token, as a corpus has them."""

    characters: np.ndarray | None = None  # (T, C) of `flat`, for a model that reads them

    def __init__(self, ids: Sequence[Sequence[int] | np.ndarray], end_id: int):
        end = np.array([end_id], np.int64)
        self.flat = np.concatenate([end, *(part for text in ids for part in (np.asarray(text, np.int64), end))])
        self.offsets = np.cumsum([0, *(len(text) + 1 for text in ids)])

    def read_many(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return cut(self.flat, starts, lengths)

    def characters_of(self, starts: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
        return None if self.characters is None else cut(self.characters, starts, lengths)


def cut(row: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([row[s + 1 : s + 1 + n] for s, n in zip(starts.tolist(), lengths.tolist(), strict=True)])


class Scored(NamedTuple):
    log_probs: list[float]  # natural logarithms, one for each token
    end: float | None  # the log-probability of the end after them, for left-to-right models


@torch.no_grad()
def score(
    learner: LeftToRight,
    ids: Sequence[Sequence[int] | np.ndarray],
    end_id: int,
    device: torch.device,
    batch_tokens: int = 16384,
    spell: Callable[[np.ndarray], np.ndarray | None] = lambda flat: None,
) -> list[Scored]:
    """Scores texts token by token. spell: the characters (T, C) of all texts end to end, for a model that reads them.

    Texts longer than a model's context are read in windows that move on by half of it."""
    if not len(ids):
        return []
    texts = Texts(ids, end_id)
    texts.characters = spell(texts.flat)
    found = np.zeros(len(texts.flat) - 1)
    longest = learner.backbone.max_len
    if longest is not None:  # windows no longer than the texts: more of them at once
        longest = min(longest, int(np.diff(texts.offsets).max()))
    stride = None if longest is None else max(1, longest // 2)
    batches, _ = token_losses(learner, texts, texts.offsets, device, stride, longest, batch_tokens)
    for batch in batches:
        for where, part in batch():
            found[where] = -exact(part).cpu().numpy()
    rows = [found[a:b].tolist() for a, b in zip(texts.offsets[:-1].tolist(), texts.offsets[1:].tolist(), strict=True)]
    return [Scored(row[:-1], row[-1]) for row in rows]
