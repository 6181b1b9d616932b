"""Permutation language models on held-out text: as they are trained, and as the left-to-right models that they are as well.

`loss` during training and `permuted_loss` are of targets in a random order, drawn with a fixed seed: two runs with the same
tokenizer, length of segments and rate are evaluated on the same tokens in the same orders. Segments are read without a memory.
Perplexity, bits per byte and scores of texts are those of the identity order: each token from those before it, in the query
stream. With partial prediction few tokens of a segment are predicted, and those from most of the others: so little on one
side is not what the model has learnt from, and a left-to-right model of the same size predicts the next word better.
"""

import math
from typing import Any

import numpy as np
import torch

from seqloom.batch import IGNORE, exact, to_device
from seqloom.batches.plan import Packed
from seqloom.evaluate.evaluators import EncodedTexts, HeldOutText, LeftToRightEvaluator
from seqloom.evaluate.score import Scored, score
from seqloom.objectives.permuted import PermutedLM
from seqloom.progress import Progress
from seqloom.randomness import derive_seed
from seqloom.training.share import ALONE, Share

SEED = 0
AT_ONCE = 16384  # tokens


class PermutedEvaluator(LeftToRightEvaluator):
    definitions = {  # noqa: RUF012
        "identity": "Σ log p(token | the text before it), in the order of the text, by the query stream"
    }
    word_definitions = {  # noqa: RUF012
        "identity": "log p(word | the sentence before it), in the order of the text, by the query stream: Σ over its tokens; "
        "what comes after is not read"
    }

    def __init__(self, learner: PermutedLM, device: torch.device):
        super().__init__(learner.left_to_right(), device)
        self.permuted = learner

    def measure(self, prepared: HeldOutText, limit: int | None, share: Share, title: str) -> dict[str, Any]:
        found = permuted_loss(self.permuted, prepared, self.device, limit, share, title)
        return {"loss": found["permuted_loss"], **found}

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        return super().evaluate(text, **options) | permuted_loss(self.permuted, text, self.device)

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "identity")
        return "identity"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        return score(self.learner, texts.ids, texts.end_id, self.device, batch_tokens, texts.spell)


def permuted_loss(
    learner: PermutedLM,
    text: HeldOutText,
    device: torch.device,
    limit: int | None = None,
    share: Share = ALONE,
    title: str = "evaluate",
) -> dict[str, Any]:
    """The loss of targets in a random order, of one split or of about `limit` tokens of it."""
    plan = Packed(text.split, max(AT_ONCE, text.length), text.length).plan(SEED, 0)
    nats, right, targets, tokens = 0.0, 0, 0, 0
    was_training = learner.training
    learner.eval()

    def add_up(i: int) -> tuple[float, int, int, int]:
        example = learner.corrupt(plan.batch(i), torch.Generator().manual_seed(derive_seed(SEED, i)))  # type: ignore[arg-type]
        losses, hits = learner.losses(to_device(example, device))
        wanted = int((example.targets != IGNORE).sum())
        return float(exact(losses).sum()), int(hits.sum()), wanted, example.sizes().tokens

    try:
        with Progress(title, total=float(limit or text.split.num_tokens), unit="tokens") as bar, torch.no_grad():
            for own_nats, own_right, own_targets, own_tokens in share.each(len(plan), add_up):
                nats, right = nats + own_nats, right + own_right
                targets, tokens = targets + own_targets, tokens + own_tokens
                bar.advance(own_tokens)
                share.stop()
                if limit is not None and tokens >= limit:
                    break
    finally:
        learner.train(was_training)
    loss = nats / max(targets, 1)
    return {
        "permuted_loss": loss,
        "permuted_perplexity": math.exp(min(loss, 700.0)),
        "permuted_accuracy": right / max(targets, 1),
        "permuted_targets": targets,
    }
