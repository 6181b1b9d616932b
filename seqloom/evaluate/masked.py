"""How well a model predicts hidden words of held-out text: masked perplexity, and the other metrics of its objective.

Words are predicted in passages of one document each, whatever the form of the training passages, and the hidden ones are drawn
with a fixed seed: two models with the same tokenizer, length of passages, size of batches and masking are evaluated on the same
words in the same places. The other metrics of an objective are computed on passages of its own form.

`loss` is the training loss: it counts every chosen token, also those that were kept or replaced by another token.
`masked_loss`, `masked_perplexity` and `accuracy` count only the tokens that became the mask token (`masked` of them).
"""

import math
from typing import Any, NamedTuple

import torch

from seqloom.batch import IGNORE, to_device
from seqloom.batches.languages import WithLanguage
from seqloom.batches.passages import Passages
from seqloom.evaluate.perplexity import Stop, never
from seqloom.objectives.masked import MaskedLM
from seqloom.progress import Progress
from seqloom.randomness import derive_seed

SEED = 0


class HeldOut(NamedTuple):
    """The passages of one split. alone: those of one document each, where the objective's own are pairs."""

    own: Passages | WithLanguage
    alone: Passages | WithLanguage | None = None


class Sums(NamedTuple):
    nats: float  # of all chosen tokens
    targets: int
    tokens: int
    more: dict[str, float]  # further sums of the objective


def masked_loss(
    learner: MaskedLM,
    held_out: HeldOut,
    device: torch.device,
    *,
    limit: int | None = None,
    stop: Stop = never,
    title: str = "evaluate",
) -> dict[str, Any]:
    """The metrics of one split, or of about `limit` tokens of it."""
    own = sum_losses(learner, held_out.own, device, limit, stop, title)
    alone = own if held_out.alone is None else sum_losses(learner, held_out.alone, device, limit, stop, title)
    more, masked = own.more, int(alone.more["hidden"])
    loss = alone.more["hidden_nats"] / max(masked, 1)
    # the training loss, and that of the hidden words alone
    result: dict[str, Any] = {"loss": (own.nats + more.get("extra", 0.0)) / max(own.targets, 1)}
    result |= {"masked_loss": loss, "masked_perplexity": math.exp(min(loss, 700.0)), "tokens": alone.tokens}
    result |= {"masked": masked, "accuracy": alone.more["accuracy"] / max(masked, 1)}
    result["masked_targets"] = learner.measured_targets
    if "passages" in more:
        result["relation_accuracy"] = more["relation_accuracy"] / max(more["passages"], 1.0)
    if "tokens_read" in more:
        result["detection_accuracy"] = more["detection_accuracy"] / max(more["tokens_read"], 1.0)
    return result


def sum_losses(
    learner: MaskedLM,
    passages: Passages | WithLanguage,
    device: torch.device,
    limit: int | None,
    stop: Stop,
    title: str,
) -> Sums:
    plan = passages.plan(SEED, 0)
    sums: dict[str, float] = {}
    nats, targets, tokens = 0.0, 0, 0
    was_training = learner.training
    learner.eval()
    try:
        with Progress(title, total=float(limit or passages.split.num_tokens), unit="tokens") as bar, torch.no_grad():
            for i in range(len(plan)):
                stop()
                rng = torch.Generator().manual_seed(derive_seed(SEED, i))
                example = learner.corrupt(plan.batch(i), rng)  # type: ignore[arg-type]
                sizes = example.sizes()
                with torch.random.fork_rng([device] if device.type == "cuda" else []):
                    torch.manual_seed(derive_seed(SEED, i, 1))  # a generator draws its words
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
    return Sums(nats, targets, tokens, sums)
