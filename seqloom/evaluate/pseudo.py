"""Scores of whole texts by models that read in both directions, token by token.

    within-word   pseudo-log-likelihood (Salazar et al., 2020, arXiv 1910.14659): Σ log p(token | all others), where the later
                  pieces of the same word are hidden with it (Kauf & Ivanova, 2023, arXiv 2305.10588): else a word of
                  several pieces gives itself away
    plain         the same with that one token hidden alone
    replaced      Σ log(1 − p(replaced)), for models trained to detect replaced tokens (ELECTRA)

For every hidden token there is a copy of its text in a ragged batch, and only the hidden place goes through the output layer.
Special tokens are read and not counted. Sums are in fp64, logarithms in fp32 at least.
"""

from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F

from seqloom.batch import exact, to_device, wide
from seqloom.batches.plan import portions
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.replaced import ReplacedToken

Variant = Literal["within-word", "plain"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@torch.no_grad()
def pseudo(
    learner: MaskedLM,
    texts: SpecialTokenTexts,
    device: torch.device,
    kind: str,
    batch_tokens: int = 16384,
    asked: np.ndarray | None = None,
) -> list[list[float]]:
    """The log-probability of every token of every text. kind: "within-word" or "plain".
    asked: (T,) over all own tokens end to end, which of them are needed; the others get 0 where that saves work."""
    text, place = own_tokens(texts)
    ids = texts.flat[texts.starts[text] + texts.before + place]
    reach = word_rests(learner.inside[ids], place) if kind == "within-word" else np.ones(len(text), np.int64)
    found = np.zeros(len(text))
    order = np.argsort(texts.lengths[text], kind="stable")
    order = order if asked is None else order[asked[order]]
    for part in portions([texts.lengths[text[order]]], [batch_tokens]):
        copies = order[part]
        first = place[copies] + texts.before
        found[copies] = masked_log_probs(learner, texts, text[copies], first, reach[copies], device)
    return by_text(found, texts)


def own_tokens(texts: SpecialTokenTexts) -> tuple[np.ndarray, np.ndarray]:
    """(T,) the text of each token that is no special token, and its place there."""
    text = np.repeat(np.arange(len(texts.sizes)), texts.sizes)
    return text, np.arange(len(text)) - np.repeat(np.cumsum(texts.sizes) - texts.sizes, texts.sizes)


def by_text(found: np.ndarray, texts: SpecialTokenTexts) -> list[list[float]]:
    ends = np.cumsum(texts.sizes)
    return [found[end - size : end].tolist() for end, size in zip(ends.tolist(), texts.sizes.tolist(), strict=True)]


def word_rests(inside: np.ndarray, place: np.ndarray) -> np.ndarray:
    """(T,) how many tokens there are from each one to the end of its word. place: in its text; the first begins a word."""
    begins = np.append(np.flatnonzero(~inside | (place == 0)), len(inside))
    here = np.arange(len(inside))
    return begins[np.searchsorted(begins, here, side="right")] - here


def masked_log_probs(
    learner: MaskedLM,
    texts: SpecialTokenTexts,
    text: np.ndarray,
    first: np.ndarray,
    reach: np.ndarray,
    device: torch.device,
) -> np.ndarray:
    """(M,) log p of the token at `first` of each text, when `reach` tokens from there on are hidden."""
    batch = texts.batch(text)
    begin = torch.from_numpy(first)
    stop = begin + torch.from_numpy(reach)
    hidden = (batch.positions >= begin[batch.owner]) & (batch.positions < stop[batch.owner])
    where = batch.offsets[:-1] + begin
    targets = batch.ids[where]
    batch, where, targets = to_device(
        (batch._replace(ids=batch.ids.masked_fill(hidden, learner.mask)), where, targets), device
    )
    losses = learner.softmax(learner.guess(learner.reader(batch).hidden[where]), targets, each=True)
    return -exact(losses).cpu().numpy()


@torch.no_grad()
def unreplaced_scores(
    learner: ReplacedToken, texts: SpecialTokenTexts, device: torch.device, batch_tokens: int = 16384
) -> list[list[float]]:
    """log(1 − p(replaced)) of every token of every text: one pass, nothing is hidden."""
    found = np.zeros(int(texts.sizes.sum()))
    begin = np.cumsum(texts.sizes) - texts.sizes
    order = np.argsort(texts.lengths, kind="stable")
    order = order[texts.sizes[order] > 0]
    for part in portions([texts.lengths[order]], [batch_tokens]):
        batch = texts.batch(order[part])
        place, owner = batch.positions.numpy() - texts.before, order[part][batch.owner.numpy()]
        own = (place >= 0) & (place < texts.sizes[owner])
        odds = wide(learner.discriminate(learner.backbone(to_device(batch, device)).hidden))
        found[(begin[owner] + place)[own]] = exact(F.logsigmoid(-odds)).cpu().numpy()[own]
    return by_text(found, texts)
