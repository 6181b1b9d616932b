"""How well a model predicts hidden words of held-out text: masked perplexity, and the other metrics of its objective.

Words are predicted in single passages, whatever the form of the training passages, and on request in other forms as well. The
hidden ones are drawn with a fixed seed: two models with the same tokenizer, length of passages, size of batches and masking are
evaluated on the same words in the same places. The other metrics of an objective are computed on passages of its own form.

`loss` is the training loss: it counts every chosen token, also those that were kept or replaced by another token.
`masked_loss`, `masked_perplexity` and `accuracy` count only the tokens that became the mask token (`masked` of them).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from seqloom.batch import IGNORE, Passage, exact, to_device
from seqloom.batches.languages import WithLanguage
from seqloom.batches.passages import Passages
from seqloom.objectives.masked import MaskedLM
from seqloom.progress import Progress
from seqloom.randomness import derive_seed
from seqloom.training.share import ALONE, Share

SEED = 0


HeldOut = Mapping[
    str, Passages | WithLanguage
]  # one split in several forms, "single" and the objective's own among them


class Sums(NamedTuple):
    nats: float  # of all chosen tokens
    targets: int
    tokens: int
    more: dict[str, float]  # further sums of the objective

    @property
    def masked_loss(self) -> float:
        return self.more["hidden_nats"] / max(int(self.more["hidden"]), 1)


def masked_loss(
    learner: MaskedLM,
    held_out: HeldOut,
    device: torch.device,
    *,
    limit: int | None = None,
    share: Share = ALONE,
    title: str = "evaluate",
    by_form: bool = False,
) -> dict[str, Any]:
    """The metrics of one split, or of about `limit` tokens of it. by_form: the masked perplexity of each form, too."""
    sums = {form: sum_losses(learner, part, device, limit, share, title) for form, part in held_out.items()}
    own, single = sums[learner.form], sums["single"]
    more, masked = own.more, int(single.more["hidden"])
    loss = single.masked_loss
    # the training loss, and that of the hidden words alone
    result: dict[str, Any] = {"loss": (own.nats + more.get("extra", 0.0)) / max(own.targets, 1)}
    result |= {"masked_loss": loss, "masked_perplexity": exponential(loss), "tokens": single.tokens}
    result |= {"masked": masked, "accuracy": single.more["accuracy"] / max(masked, 1)}
    result["masked_targets"] = learner.measured_targets
    if by_form:
        result["masked_perplexity_by_form"] = {form: exponential(each.masked_loss) for form, each in sums.items()}
    if "passages" in more:
        result["relation_accuracy"] = more["relation_accuracy"] / max(more["passages"], 1.0)
    if "tokens_read" in more:
        result["detection_accuracy"] = more["detection_accuracy"] / max(more["tokens_read"], 1.0)
    return result


def readable(learner: MaskedLM, passage: Passage) -> Passage:
    """Without segments where the model tells none apart: it reads a pair by its separator alone."""
    if learner.backbone.segment_kind != "" or passage.batch.segments is None:
        return passage
    return passage._replace(batch=passage.batch._replace(segments=None))


def exponential(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def sum_losses(
    learner: MaskedLM,
    passages: Passages | WithLanguage,
    device: torch.device,
    limit: int | None,
    share: Share,
    title: str,
) -> Sums:
    plan = passages.plan(SEED, 0)
    sums: dict[str, float] = {}
    nats, targets, tokens = 0.0, 0, 0
    was_training = learner.training
    learner.eval()

    def add_up(i: int) -> tuple[float, int, int, dict[str, float]]:
        rng = torch.Generator().manual_seed(derive_seed(SEED, i))
        example = learner.corrupt(readable(learner, plan.batch(i)), rng)  # type: ignore[arg-type]
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(derive_seed(SEED, i, 1))  # a generator draws its words
            losses, more = learner.losses(to_device(example, device))
        chosen = int((example.targets != IGNORE).sum())
        further = {name: float(value) for name, value in more.items()}
        return float(exact(losses).sum()), chosen, example.sizes().tokens, further

    try:
        with Progress(title, total=float(limit or passages.split.num_tokens), unit="tokens") as bar, torch.no_grad():
            for own_nats, own_targets, own_tokens, more in share.each(len(plan), add_up):
                nats, targets, tokens = nats + own_nats, targets + own_targets, tokens + own_tokens
                for name, value in more.items():
                    sums[name] = sums.get(name, 0.0) + value
                bar.advance(own_tokens)
                if limit is not None and tokens >= limit:
                    break
    finally:
        learner.train(was_training)
    return Sums(nats, targets, tokens, sums)
