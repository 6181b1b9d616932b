"""A continuous cache beside a recurrent model. Grave, Joulin & Usunier, 2017 (arXiv 1612.04426).

What was read lately is likely to come again. Each hidden state h(i) is kept with the word that followed it; the words of
states like the present one gain:

    p(w) = (1 − λ) p_model(w) + λ p_cache(w),   p_cache(w) ∝ Σ exp(θ h(t) · h(i)) over the last `size` i < t followed by w

The documents of a split are one stream, in their order: the model begins each of them anew, the cache goes on. Only the
last `size` states are held, and no metric depends on how many tokens are read at once.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from seqloom.batch import State, exact, select, to_device
from seqloom.batches.plan import Corpus, Pieces, excerpt
from seqloom.batches.store import Split
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.perplexity import check_split, loss_metrics
from seqloom.objectives.next_token import LeftToRight
from seqloom.progress import Progress

BLOCK = 256  # tokens read at once: BLOCK × (size + BLOCK) products are held
THETAS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
LAMBDAS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)


def evaluate_with_cache(
    learner: LeftToRight,
    device: torch.device,
    valid: Split | None,
    asked: Split,
    size: int,
    theta: float | None = None,
    share: float | None = None,
) -> dict[str, Any]:
    """Evaluates with a cache of `size` states on the split that is asked for. θ and λ, where they are not given, are the best
    of a grid on the valid split."""
    check(learner, size, theta, share)
    thetas = THETAS if theta is None else (theta,)
    shares = LAMBDAS if share is None else (share,)
    tuned_on = "given"
    if len(thetas) * len(shares) > 1:
        if valid is None or valid.num_documents == 0:
            raise DataError(
                "the data has no valid split to tune the cache on: prepare it with --valid FILE or --valid 0.05, "
                "or give --cache-theta and --cache-lambda"
            )
        best = int(total_losses(learner, valid, device, size, thetas, shares).argmin())
        thetas, shares = (thetas[best // len(shares)],), (shares[best % len(shares)],)
        tuned_on = f"{valid.name}, the split being evaluated: optimistic" if asked.name == valid.name else valid.name
    nats = total_losses(learner, asked, device, size, thetas, shares).item()
    return {
        "cache": size,
        "theta": thetas[0],
        "lambda": shares[0],
        "cache_tuned_on": tuned_on,
        **loss_metrics(nats, asked.num_tokens, asked, True, f"carried + cache of {size}"),
    }


def check(learner: LeftToRight, size: int, theta: float | None, share: float | None) -> None:
    backbone = learner.backbone
    if not backbone.recurrent:
        raise UsageError(
            "--cache is for recurrent networks, whose hidden states it compares: leave it out for this model"
        )
    if size < 1:
        raise UsageError(f"--cache {size}: it holds at least 1 state")
    if theta is not None and not 0 <= theta < float("inf"):
        raise UsageError(f"--cache-theta {theta}: give 0 or more")
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"--cache-lambda {share}: give a share from 0 to below 1")


@torch.no_grad()
def total_losses(
    learner: LeftToRight,
    split: Split,
    device: torch.device,
    size: int,
    thetas: tuple[float, ...],
    shares: tuple[float, ...],
) -> Tensor:
    """(thetas, shares) −log p of the whole split in nats, for every pair at once."""
    check_split(split)
    place = exact(torch.zeros((), device=device)).device  # where there is fp64
    total = torch.zeros(len(thetas), len(shares), dtype=torch.float64, device=place)
    weights = torch.tensor(shares, dtype=torch.float64, device=place)
    old: tuple[Tensor, Tensor] | None = None  # the states that are held, and the word that followed each
    with Progress(f"cache on {split.name}", total=float(split.num_tokens), unit="tokens") as bar:
        for hidden, words in states(learner, split, split.offsets, device):
            model = -exact(learner.softmax(hidden, words, each=True))
            kept = (hidden, words) if old is None else (torch.cat((old[0], hidden)), torch.cat((old[1], words)))
            products, held, same = hidden @ kept[0].T, *columns(kept[1], len(words), size)
            for row, theta in enumerate(thetas):
                cache = exact(cache_log_probs(products * theta, held, same))
                both = torch.logaddexp(torch.log1p(-weights) + model[:, None], weights.log() + cache[:, None])
                # nothing is held before the first word: the model alone predicts
                total[row] -= torch.where(torch.isnan(cache)[:, None], model[:, None], both).sum(0)
            old = (kept[0][-size:], kept[1][-size:])
            bar.advance(len(words))
    return total


def cache_log_probs(alike: Tensor, held: Tensor, same: Tensor) -> Tensor:
    """(count,) log p_cache of each word from the similarity (count, all that are kept) of the states; NaN where none is
    held."""
    alike = alike.where(held, -torch.inf)
    every = alike.logsumexp(1)
    return alike.where(same, -torch.inf).logsumexp(1) - every


def columns(words: Tensor, count: int, size: int) -> tuple[Tensor, Tensor]:
    """(count, all that are kept) for each of the last `count` words: which places are held, and where the same word is."""
    places = torch.arange(len(words), device=words.device)
    return ~outside(places, places[-count:, None], size), words == words[-count:, None]


def outside(then: Tensor, now: Tensor, size: int) -> Tensor:
    """Whether a place is not among the `size` places before now."""
    return (then >= now) | (then < now - size)


def states(
    learner: LeftToRight, split: Corpus, borders: np.ndarray, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Hidden states and the word after each, in the order of the corpus, every document from its own beginning."""
    backbone = learner.backbone
    state: State | None = None
    for begin in range(int(borders[0]), int(borders[-1]), BLOCK):
        end = min(begin + BLOCK, int(borders[-1]))
        inner = borders[(borders > begin) & (borders < end)]
        starts = np.concatenate(([begin], inner))
        lengths = np.diff(np.concatenate((starts, [end])))
        going_on = begin not in borders
        positions = np.zeros(len(starts), np.int64)
        positions[0] = begin - borders[np.searchsorted(borders, begin, side="right") - 1]
        part = to_device(excerpt(split, Pieces(starts, lengths, positions), int(lengths.max())), device)
        fresh = backbone.start(len(starts), 0)
        if going_on:  # the first document continues the one at the end of the block before
            fresh = pytree.tree_map(lambda new, old: torch.cat((old.to(new.dtype), new[1:])), fresh, state)
        output = backbone(part.batch, state=fresh)
        state = select(output.state, torch.tensor([len(starts) - 1], device=device))
        yield output.hidden, part.targets
