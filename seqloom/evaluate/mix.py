"""Linear interpolation of two models: p = λ p₁ + (1 − λ) p₂ (Jelinek & Mercer, 1980). λ is tuned on the valid split."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from seqloom.batch import exact
from seqloom.batches.store import Split
from seqloom.evaluate.perplexity import check_split, half_context, loss_metrics, token_losses
from seqloom.objectives.next_token import LeftToRight
from seqloom.progress import Progress

Floats = npt.NDArray[np.float64]

CHUNK = 1 << 20  # tokens at once: memory holds two numbers for each token, and no more
CLOSE = 1e-6  # to the best λ


class Part(NamedTuple):
    name: str
    learner: LeftToRight
    device: torch.device


def mix(
    parts: tuple[Part, Part],
    valid: Split,
    asked: Split,
    *,
    stride: int | None = None,
    max_len: int | None = None,
    batch_tokens: int = 16384,
) -> dict[str, Any]:
    """Evaluates the mixture on the split that is asked for: its metrics, λ (of the first part), and the metrics of each part.

    Models read windows of max_len tokens that move on by stride (half of that); where it is not given, a Transformer those of its
    context, and a recurrent model whole documents."""
    same = asked.name == valid.name
    tuning = [split_losses(part, valid, stride, max_len, batch_tokens) for part in parts]
    weight = best_weight(tuning[0][0], tuning[1][0])
    found = tuning if same else [split_losses(part, asked, stride, max_len, batch_tokens) for part in parts]
    (first, context), (second, other_context) = found
    nats = mixture_loss(first, second, weight)
    return {
        "lambda": weight,
        "lambda_tuned_on": f"{valid.name}, the split being evaluated: optimistic" if same else valid.name,
        **loss_metrics(nats, len(first), asked, True, f"{context} + {other_context}"),
        "parts": [
            {"run": part.name, **loss_metrics(float(losses.sum()), len(losses), asked, True, context)}
            for part, (losses, context) in zip(parts, found, strict=True)
        ],
    }


@torch.no_grad()
def split_losses(
    part: Part, split: Split, stride: int | None, max_len: int | None, batch_tokens: int
) -> tuple[Floats, str]:
    """−log p of every token of a split, in its order, and a description of the context."""
    check_split(split)
    stride = half_context(part.learner, max_len) if stride is None else stride
    found = np.zeros(split.num_tokens)
    batches, context = token_losses(
        part.learner, split, split.offsets, part.device, stride, max_len, batch_tokens=batch_tokens
    )
    with Progress(f"{part.name} on {split.name}", total=float(split.num_tokens), unit="tokens") as bar:
        for batch in batches:
            for where, values in batch():
                found[where] = exact(values).cpu().numpy()
                bar.advance(len(where))
    return found, context


def best_weight(first: Floats, second: Floats) -> float:
    """The λ of the lowest loss. The loss is convex in λ, so that halving finds where its slope changes sign."""
    low, high = 0.0, 1.0
    while high - low > CLOSE:
        middle = (low + high) / 2
        gain = _gain(first, second, middle)
        if gain == 0:
            return middle
        low, high = (middle, high) if gain > 0 else (low, middle)
    return (low + high) / 2


def _gain(first: Floats, second: Floats, weight: float) -> float:
    """d/dλ Σ log(λ p₁ + (1 − λ) p₂) = Σ (p₁ − p₂) / (λ p₁ + (1 − λ) p₂), with both divided by the larger of them."""
    total = 0.0
    for i in range(0, len(first), CHUNK):
        a, b = first[i : i + CHUNK], second[i : i + CHUNK]
        best = np.minimum(a, b)
        p, q = np.exp(best - a), np.exp(best - b)
        total += float(((p - q) / (weight * p + (1 - weight) * q)).sum())
    return total


def mixture_loss(first: Floats, second: Floats, weight: float) -> float:
    """The summed loss in nats of the mixture, 0 < weight < 1."""
    total = 0.0
    for i in range(0, len(first), CHUNK):
        a, b = first[i : i + CHUNK], second[i : i + CHUNK]
        total -= float(np.logaddexp(np.log(weight) - a, np.log1p(-weight) - b).sum())
    return total
