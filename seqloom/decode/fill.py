"""Fill the masks in a text with a masked language model.

Each gap for itself: p(word | the text with all gaps open). Jointly: the best combinations by the chain from left to right,
p(m1) · p(m2 | m1) · …, each factor read off the text with the gaps before it filled and those behind it open, so that in "New
[MASK] and Los [MASK]" one word knows of the other. The chain is searched with a beam: exact where the beam holds all
beginnings, V^(gaps − 1) of them.
"""

import re
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.batch import exact, ragged, to_device, wide
from seqloom.objectives.masked import MaskedLM
from seqloom.tokens.tokenizer import MASKS, Tokenizer

GAP = re.compile("|".join(map(re.escape, MASKS)))
# what is computed at once
TOKENS = 16384
SCORES = 1 << 24


class Filled(NamedTuple):
    tokens: list[int]  # one a gap that is filled
    probability: float
    text: str  # with them in their places, as the tokenizer writes it


def read_gaps(text: str, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The tokens of a text with masks, in any notation, and the positions of the masks."""
    assert tokenizer.mask_id is not None
    *parts, last = GAP.split(text)
    ids: list[int] = []
    gaps: list[int] = []
    for part in parts:
        # where a token has the blank before it in itself, so has the one that is to be found
        ids += tokenizer.encode(part.rstrip() if tokenizer.kind in ("bpe", "unigram") else part)
        gaps.append(len(ids))
        ids.append(tokenizer.mask_id)
    ids += tokenizer.encode(last)
    return ids, gaps


@torch.no_grad()
def log_probs(learner: MaskedLM, rows: Tensor, places: list[int], device: torch.device) -> Tensor:
    """(K, L) texts of one length → (K, places, V), in fp64, on the host."""
    count, length = rows.shape
    batch = to_device(ragged(rows.flatten(), torch.full((count,), length)), device)
    hidden = learner.reader(batch).hidden.view(count, length, -1)[:, places]
    found = torch.log_softmax(wide(learner.scores(hidden.flatten(0, 1))), 1)
    return exact(found).cpu().view(count, len(places), -1)


def fill_each(
    learner: MaskedLM, ids: list[int], places: list[int], top: int, device: torch.device
) -> list[list[tuple[list[int], float]]]:
    """For every place the likeliest tokens, best first, and their probabilities."""
    at_once = max(1, SCORES // learner.backbone.vocab_size)
    found = []
    for begin in range(0, len(places), at_once):
        (rows,) = log_probs(learner, torch.tensor([ids]), places[begin : begin + at_once], device)
        best = rows.topk(min(top, rows.shape[1]))
        for tokens, values in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True):
            found.append([([token], value) for token, value in zip(tokens, values, strict=True)])
    return found


def fill_jointly(
    learner: MaskedLM, ids: list[int], places: list[int], top: int, beam: int, device: torch.device
) -> list[tuple[list[int], float]]:
    """The likeliest combinations, best first, and the products of their conditional probabilities."""
    size, kept = learner.backbone.vocab_size, max(beam, top)
    at_once = max(1, min(TOKENS // len(ids), SCORES // size))
    rows, sums = torch.tensor([ids]), torch.zeros(1, dtype=torch.float64)
    for place in places:
        values, numbers = [], []
        for begin in range(0, len(rows), at_once):
            part = slice(begin, begin + at_once)
            total = (sums[part, None] + log_probs(learner, rows[part], [place], device)[:, 0]).flatten()
            some = total.topk(min(kept, len(total)))
            values.append(some.values)
            numbers.append(some.indices + begin * size)
        best = torch.cat(values).topk(min(kept, sum(map(len, values))))
        chosen = torch.cat(numbers)[best.indices]
        rows, sums = rows[chosen // size], best.values
        rows[:, place] = chosen % size
    return list(zip(rows[:top, places].tolist(), sums[:top].exp().tolist(), strict=True))
