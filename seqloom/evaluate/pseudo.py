"""Scores of whole texts by models that read in both directions, token by token, as their objective gives them.

    within-word   pseudo-log-likelihood (Salazar et al., 2020, arXiv 1910.14659): Σ log p(token | all others), where the later
                  pieces of the same word are hidden with it (Kauf & Ivanova, 2023, arXiv 2305.10588): else a word of
                  several pieces gives itself away
    plain         the same with that one token hidden alone
    replaced      Σ log(1 − p(replaced)), for models that were taught to tell replaced tokens (ELECTRA)

Every hidden token is a copy of its text in a ragged batch, and only the hidden place meets the vocabulary. Special tokens are
read and not counted. Sums are in fp64, logarithms in fp32 at least.
"""

from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F

from seqloom.batch import Objective, to_device, wide
from seqloom.batches.enclosed import Enclosed
from seqloom.batches.plan import portions
from seqloom.config import unknown_name
from seqloom.errors import UsageError
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.replaced import ReplacedToken

Variant = Literal["within-word", "plain"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
DEFINITIONS = {
    "within-word": "pseudo-log-likelihood, within-word: Σ log p(token | the text without it and the rest of its word)",
    "plain": "pseudo-log-likelihood: Σ log p(token | the text without it)",
    "replaced": "Σ log(1 − p(replaced))",
    "causal": "Σ log p(token | the text before it)",
    "backward": "Σ log p(token | the text after it)",
}
OF_WORDS = {  # of a word in its sentence, by the same names
    "within-word": "log p(word | the sentence before and after it): Σ over its tokens, each hidden with the rest of the word",
    "plain": "log p(word | the sentence before and after it): Σ over its tokens, each hidden alone",
    "replaced": "Σ log(1 − p(replaced)) over the whole sentence with the word",
    "causal": "log p(word | the sentence before it): Σ over its tokens; what comes after is not read",
    "backward": "Σ log p(token | the text after it) over the whole sentence with the word",
}


def definition(learner: Objective, variant: str | None = None) -> str:
    """Which of them a score is by. variant: asked for; UsageError where there is no choice."""
    kind = "replaced" if isinstance(learner, ReplacedToken) else "masked" if isinstance(learner, MaskedLM) else "causal"
    if variant is None:
        return "within-word" if kind == "masked" else kind
    if variant not in VARIANTS:
        raise UsageError(unknown_name("--pll", variant, variant, list(VARIANTS)))
    if kind != "masked":
        raise UsageError(
            f"--pll {variant} is for masked models; this one is scored by {DEFINITIONS[kind]}: leave it out"
        )
    return variant


@torch.no_grad()
def pseudo(
    learner: MaskedLM,
    texts: Enclosed,
    device: torch.device,
    kind: str,
    batch_tokens: int = 16384,
    asked: np.ndarray | None = None,
) -> list[list[float]]:
    """A natural logarithm for every token of every text. kind: of DEFINITIONS, one of models that read in both directions.
    asked: (T,) of all own tokens end to end, those that are wanted; of the others 0 is given where that saves work."""
    count = len(texts.sizes)
    text = np.repeat(np.arange(count), texts.sizes)  # (T,) of each own token
    place = np.arange(len(text)) - np.repeat(np.cumsum(texts.sizes) - texts.sizes, texts.sizes)
    if isinstance(learner, ReplacedToken):
        found = unreplaced(learner, texts, len(text), device, batch_tokens)
    else:
        ids = texts.flat[texts.starts[text] + texts.before + place]
        reach = word_rests(learner.inside[ids], place) if kind == "within-word" else np.ones(len(text), np.int64)
        found = np.zeros(len(text))
        order = np.argsort(texts.lengths[text], kind="stable")
        order = order if asked is None else order[asked[order]]
        for part in portions([texts.lengths[text[order]]], [batch_tokens]):
            copies = order[part]
            first = place[copies] + texts.before
            found[copies] = guessed(learner, texts, text[copies], first, reach[copies], device)
    ends = np.cumsum(texts.sizes)
    return [found[end - size : end].tolist() for end, size in zip(ends.tolist(), texts.sizes.tolist(), strict=True)]


def word_rests(inside: np.ndarray, place: np.ndarray) -> np.ndarray:
    """(T,) how many tokens there are from each one to the end of its word. place: in its text; the first begins a word."""
    begins = np.append(np.flatnonzero(~inside | (place == 0)), len(inside))
    here = np.arange(len(inside))
    return begins[np.searchsorted(begins, here, side="right")] - here


def guessed(
    learner: MaskedLM, texts: Enclosed, text: np.ndarray, first: np.ndarray, reach: np.ndarray, device: torch.device
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
    return -losses.double().cpu().numpy()


def unreplaced(
    learner: ReplacedToken, texts: Enclosed, total: int, device: torch.device, batch_tokens: int
) -> np.ndarray:
    """(T,) log(1 − p(replaced)) of every own token: one pass, nothing is hidden."""
    found = np.zeros(total)
    begin = np.cumsum(texts.sizes) - texts.sizes
    order = np.argsort(texts.lengths, kind="stable")
    order = order[texts.sizes[order] > 0]
    for part in portions([texts.lengths[order]], [batch_tokens]):
        batch = texts.batch(order[part])
        place, owner = batch.positions.numpy() - texts.before, order[part][batch.owner.numpy()]
        own = (place >= 0) & (place < texts.sizes[owner])
        odds = wide(learner.judged(learner.backbone(to_device(batch, device)).hidden))
        found[(begin[owner] + place)[own]] = F.logsigmoid(-odds).double().cpu().numpy()[own]
    return found
