"""Fill the masks in a text with a model that has learnt to.

Each gap for itself: p(word | the text with all gaps open). Jointly: the best combinations by the chain from left to right,
p(m1) · p(m2 | m1) · …, each factor read off the text with the gaps before it filled and those behind it open, so that in "New
[MASK] and Los [MASK]" one word knows of the other. The chain is searched with a beam: exact where the beam holds all
beginnings, V^(gaps − 1) of them. A masked model reads an open gap as a mask, and p(m2 | m1) is another guess than those it has
learnt from, where m1 was no word of its own; one that predicts in any order has learnt just these factors.

A decoder that restores texts fills each gap with any number of tokens, by p(tokens in the gaps, and what stands between and
behind them | the text with the gaps open, what stands before the first), searched with a beam from left to right. At every
step each beginning is closed by what stands behind its gap, and extended by one more token. Probabilities are those of all that
the beam holds in the end, so that they sum to 1: exact where it holds everything.
"""

import math
import re
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.batch import Backbone, Context, Ragged, exact, pack, ragged, select, to_device, wide
from seqloom.errors import UsageError
from seqloom.objectives.denoising import Denoising
from seqloom.tokens.tokenizer import MASKS, Tokenizer

GAP = re.compile("|".join(map(re.escape, MASKS)))
# what is computed at once
TOKENS = 16384
SCORES = 1 << 24


class FillsGaps(Protocol):
    """An objective that predicts a token in the place of each mask."""

    backbone: Backbone

    def gap_scores(self, batch: Ragged, places: list[int], gaps: list[int], done: int) -> Tensor:
        """(K · places, V) of the tokens at some gaps of K texts of one length; the first `done` of all gaps are filled."""


class Filled(NamedTuple):
    tokens: list[int]  # one a gap that is filled, or so many as `sizes` has
    probability: float
    text: str  # with them in their places, as the tokenizer writes it
    sizes: list[int]  # how many tokens there are in each of the gaps

    @property
    def parts(self) -> list[list[int]]:
        """The tokens of each gap."""
        ends = [sum(self.sizes[: i + 1]) for i in range(len(self.sizes))]
        return [self.tokens[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]


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
def log_probs(
    learner: FillsGaps, rows: Tensor, places: list[int], gaps: list[int], done: int, device: torch.device
) -> Tensor:
    """(K, L) texts of one length → (K, places, V), in fp64, on the host. done: how many gaps are filled, the first ones."""
    count, length = rows.shape
    batch = to_device(ragged(rows.flatten(), torch.full((count,), length)), device)
    found = torch.log_softmax(wide(learner.gap_scores(batch, places, gaps, done)), 1)
    return exact(found).cpu().view(count, len(places), -1)


def fill_each(
    learner: FillsGaps, ids: list[int], places: list[int], top: int, device: torch.device
) -> list[list[tuple[list[int], float]]]:
    """For every place the likeliest tokens, best first, and their probabilities."""
    at_once = max(1, SCORES // learner.backbone.vocab_size)
    found = []
    for begin in range(0, len(places), at_once):
        (rows,) = log_probs(learner, torch.tensor([ids]), places[begin : begin + at_once], places, 0, device)
        best = rows.topk(min(top, rows.shape[1]))
        for tokens, values in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True):
            found.append([([token], value) for token, value in zip(tokens, values, strict=True)])
    return found


def fill_jointly(
    learner: FillsGaps, ids: list[int], places: list[int], top: int, beam: int, device: torch.device
) -> list[tuple[list[int], float]]:
    """The likeliest combinations, best first, and the products of their conditional probabilities."""
    size, kept = learner.backbone.vocab_size, max(beam, top)
    at_once = max(1, min(TOKENS // len(ids), SCORES // size))
    rows, sums = torch.tensor([ids]), torch.zeros(1, dtype=torch.float64)
    for done, place in enumerate(places):
        values, numbers = [], []
        for begin in range(0, len(rows), at_once):
            part = slice(begin, begin + at_once)
            found = log_probs(learner, rows[part], [place], places, done, device)[:, 0]
            total = (sums[part, None] + found).flatten()
            some = total.topk(min(kept, len(total)))
            values.append(some.values)
            numbers.append(some.indices + begin * size)
        best = torch.cat(values).topk(min(kept, sum(map(len, values))))
        chosen = torch.cat(numbers)[best.indices]
        rows, sums = rows[chosen // size], best.values
        rows[:, place] = chosen % size
    return list(zip(rows[:top, places].tolist(), sums[:top].exp().tolist(), strict=True))


class Begun(NamedTuple):
    """A target up to some token of a gap."""

    written: list[int]  # the whole target so far
    parts: list[list[int]]  # what is in the gaps; the last one may go on
    score: float  # log p of all that was written behind what stands before the first gap


def fill_stretches(
    learner: Denoising, ids: list[int], gaps: list[int], beam: int, longest: int, device: torch.device
) -> list[tuple[list[list[int]], float]]:
    """For all gaps together the likeliest tokens of each, best first, and how likely they are among all that were found, given
    all that stands around the gaps. longest: the most tokens of a gap."""
    source, known = open_gaps(learner, ids, gaps)
    known[0] = [learner.after[-1], *learner.before, *known[0]]
    known[-1] = [*known[-1], *learner.after]
    with torch.no_grad():
        context = learner.backbone.encode(to_device(pack([[*learner.before, *source, *learner.after]]), device))
    limit = learner.backbone.max_len
    room = math.inf if limit is None else limit - (sum(map(len, known)) - 1)  # for the tokens of all gaps
    found = [Begun(known[0], [], 0.0)]
    for behind in known[1:]:
        begun, closed = [Begun(each.written, [*each.parts, []], each.score) for each in found], []
        for size in range(longest + 1):
            ends, following = close(learner, begun, behind, context, device)
            closed += [
                Begun([*each.written, *behind], each.parts, each.score + end)
                for each, end in zip(begun, ends.tolist(), strict=True)
            ]
            closed = sorted(closed, key=lambda each: -each.score)[:beam]
            open_ends = [i for i, each in enumerate(begun) if sum(map(len, each.parts)) < room]
            if size == longest or not open_ends:
                break
            begun = extend(learner, [begun[i] for i in open_ends], following[open_ends], beam)
            # what goes on only becomes less likely
            if len(closed) == beam and begun[0].score <= closed[-1].score:
                break
        found = closed
    best = max(each.score for each in found)
    total = sum(math.exp(each.score - best) for each in found)
    return [(each.parts, math.exp(each.score - best) / total) for each in found]


def open_gaps(learner: Denoising, ids: list[int], gaps: list[int]) -> tuple[list[int], list[list[int]]]:
    """A text as its encoder reads it, and what the decoder writes before, between and behind the gaps."""
    borders = [-1, *gaps, len(ids)]
    known = [ids[a + 1 : b] for a, b in pairwise(borders)]
    source = list(ids)
    if learner.config.targets == "sentinels":
        if len(gaps) >= len(learner.sentinels):
            raise UsageError(f"{len(gaps)} gaps are more than the {len(learner.sentinels) - 1} that have a sentinel")
        known = [[sentinel] for sentinel in learner.sentinels[: len(known)].tolist()]
        for gap, (sentinel,) in zip(gaps, known, strict=False):
            source[gap] = sentinel
    elif not all(known[1:-1]):
        raise UsageError(
            "two gaps stand side by side: one [MASK] is filled by any number of tokens, so write one of them"
        )
    return source, known


@torch.no_grad()
def close(
    learner: Denoising, begun: list[Begun], behind: list[int], context: Context, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(K,) log p of what stands behind a gap if it ends here, and (K, V) of each token if it goes on; fp64, on the host."""
    size = learner.backbone.vocab_size
    longest = max(len(each.written) for each in begun) + len(behind)
    at_once = max(1, min(TOKENS // longest, SCORES // (size * len(behind))))
    ends, following = [], []
    for first in range(0, len(begun), at_once):
        some = begun[first : first + at_once]
        batch = to_device(pack([[*each.written, *behind[:-1]] for each in some]), device)
        hidden = learner.backbone.decoder(batch, context=repeated(context, len(some))).hidden
        last = batch.offsets[1:].long()[:, None] - len(behind) + torch.arange(len(behind), device=device)
        found = exact(torch.log_softmax(wide(learner.softmax(hidden[last.flatten()])), 1)).cpu()
        found = found.view(len(some), len(behind), size)
        ends.append(found[:, torch.arange(len(behind)), torch.tensor(behind)].sum(1))
        following.append(found[:, 0])
    return torch.cat(ends), torch.cat(following)


def extend(learner: Denoising, begun: list[Begun], following: Tensor, beam: int) -> list[Begun]:
    """The likeliest beginnings with one more token, none of the special ones; best first."""
    words = torch.from_numpy(learner.ordinary)
    scores = torch.tensor([each.score for each in begun], dtype=torch.float64)[:, None] + following[:, words]
    best = scores.flatten().topk(min(beam, scores.numel()))
    found = []
    for score, number in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        each, token = begun[number // len(words)], int(words[number % len(words)])
        found.append(Begun([*each.written, token], [*each.parts[:-1], [*each.parts[-1], token]], score))
    return found


def repeated(context: Context, times: int) -> Context:
    """What one source was read as, for so many targets."""
    size, device = len(context.hidden), context.hidden.device
    owner = torch.arange(times, device=device).repeat_interleave(size)
    offsets = torch.arange(0, size * times + 1, size, dtype=torch.int32, device=device)
    final = None if context.final is None else select(context.final, torch.zeros_like(offsets[1:]))
    return Context(context.hidden.repeat(times, 1), owner, offsets, size, final)
