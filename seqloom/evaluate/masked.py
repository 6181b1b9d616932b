"""How well a model guesses hidden words of held-out text: masked perplexity, and what else its objective tells.

Every token of the split stands in one passage; those that are hidden are drawn from a seed of their own, so that two
measurements of one model, and of two models with one tokenizer and one rate, hide the same words.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from seqloom.batch import IGNORE, to_device
from seqloom.batches.languages import Told
from seqloom.batches.loader import mix
from seqloom.batches.passages import Passages
from seqloom.evaluate.perplexity import never
from seqloom.objectives.masked import MaskedLM
from seqloom.progress import Progress

SEED = 0


def masked_loss(
    learner: MaskedLM,
    passages: Passages | Told,
    device: torch.device,
    *,
    limit: int | None = None,
    stop: Callable[[], bool] = never,
    title: str = "evaluate",
) -> dict[str, Any] | None:
    """The metrics of one split, or of about `limit` tokens of it; None if `stop` said so on the way."""
    plan = passages.plan(SEED, 0)
    sums: dict[str, float] = {}
    nats, targets, tokens = 0.0, 0, 0
    was_training = learner.training
    learner.eval()
    try:
        with Progress(title, total=float(limit or passages.split.num_tokens), unit="tokens") as bar, torch.no_grad():
            for i in range(len(plan)):
                if stop():
                    return None
                rng = torch.Generator().manual_seed(mix(SEED, i))
                example = learner.corrupt(plan.batch(i), rng)  # type: ignore[arg-type]
                sizes = example.sizes()
                with torch.random.fork_rng([device] if device.type == "cuda" else []):
                    torch.manual_seed(mix(SEED, i, 1))  # a generator draws its words
                    losses, more = learner.losses(to_device(example, device))
                nats += float(losses.double().sum())
                targets += int((example.targets != IGNORE).sum())
                tokens += sizes.tokens
                for name, value in more.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
                bar.advance(sizes.tokens)
                if limit is not None and tokens >= limit:
                    break
    finally:
        learner.train(was_training)
    loss = nats / max(targets, 1)
    # what is learnt by, and what the hidden words alone cost
    result: dict[str, Any] = {"loss": loss + sums.get("extra", 0.0) / max(targets, 1)}
    result |= {"masked_loss": loss, "masked_perplexity": math.exp(min(loss, 700.0)), "tokens": tokens}
    result |= {"masked": targets, "accuracy": sums["accuracy"] / max(targets, 1)}
    if "passages" in sums:
        result["relation_accuracy"] = sums["relation_accuracy"] / max(sums["passages"], 1.0)
    if "tokens_read" in sums:
        result["detection_accuracy"] = sums["detection_accuracy"] / max(sums["tokens_read"], 1.0)
    return result
