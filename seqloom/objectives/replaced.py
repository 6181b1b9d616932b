"""Replaced token detection: a small masked LM fills gaps, and the model detects which tokens were replaced.

Clark et al., 2020 (arXiv 2003.10555), ELECTRA. Both learn together: the sum of the generator's loss and λ times the
discriminator's, each a mean in the paper. Here both are sums over one count, that of the hidden tokens: the discriminator's
mean over a passage counts as many times as tokens of it are hidden by the rate, and parts of a batch add up. No gradient flows
through the draw.
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import IGNORE, Backbone, Loss, Output, State, wide, with_penalty
from seqloom.blocks.feedforward import ACTIVATIONS
from seqloom.errors import UsageError
from seqloom.objectives.masked import Masked, MaskedLM, MlmHead, counts


class ReplacedToken(MaskedLM):
    """`backbone` is the discriminator, which is kept; the generator is a smaller one that shares its embeddings."""

    evaluator = "seqloom.evaluate.evaluators:ReplacedEvaluator"

    class Config(MaskedLM.Config):
        keep: float = Field(0.0, ge=0, le=1, description="Share of the chosen tokens that are left as they are.")
        random: float = Field(
            0.0, ge=0, le=1, description="Share of the chosen tokens that are replaced by a random token."
        )
        weight: float = Field(50.0, gt=0, description="Weight λ of the discriminator's loss.")
        generator: float = Field(
            0.25,
            ge=0,
            le=1,
            description="Width of the generator as a share of the discriminator's; 0: no generator, so that the "
            "model scores texts but cannot be trained.",
        )

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return super().fits(model) and hasattr(model, "smaller")

    def __init__(self, backbone: Backbone, config: Config):
        if not hasattr(backbone, "smaller"):
            raise UsageError("replaced token detection needs a model that can be its own small generator: use electra")
        super().__init__(backbone, config)
        self.weight = config.weight
        self.dense, self.discriminator_head = nn.Linear(backbone.dim, backbone.dim), nn.Linear(backbone.dim, 1)
        self.activation = ACTIVATIONS[backbone.head_style.activation]
        self.generator: Backbone | None = None
        if config.generator == 0:  # as in published models
            del self.guess, self.softmax
        else:
            self.generator = backbone.smaller(config.generator)  # type: ignore[operator]
            assert self.generator is not None
            assert self.generator.table is not None
            width = self.generator.table.embedding_dim
            self.guess = MlmHead(self.generator.dim, width, backbone.head_style.activation, backbone.head_style.eps)
        for linear in (self.dense, self.discriminator_head):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
        if self.generator is not None:
            self.guess.init_weights()

    @property
    def reader(self) -> Backbone:
        if self.generator is None:
            raise UsageError(
                "this ELECTRA came without its generator: it scores texts and gives vectors, but it fills no gaps, is not "
                "measured by them, and cannot be trained further by replaced-token"
            )
        return self.generator

    def discriminate(self, hidden: Tensor) -> Tensor:
        """(T, D) → (T,) the log-odds that a token was replaced."""
        return self.discriminator_head(self.activation(self.dense(hidden))).squeeze(1)

    def detection_loss(self, scores: Tensor, example: Masked) -> tuple[Tensor, Tensor, Output]:
        """The discriminator's loss over all tokens, weighted as above, how many it gets right, and its output.
        scores: the generator's."""
        ids, wrong = self.fill_gaps(scores, example)
        output: Output = self.backbone(example.batch._replace(ids=ids))
        odds = wide(self.discriminate(output.hidden))
        # special tokens count, too
        part = counts(example.text, example.batch) / counts(example.real, example.batch).clamp(min=1)
        weight = (part[example.batch.owner] * example.real).to(odds.dtype)
        total = F.binary_cross_entropy_with_logits(odds, wrong.to(odds.dtype), weight=weight, reduction="sum")
        return self.weight * self.rate * total, (((odds > 0) == wrong) & example.real).sum(), output

    def forward(self, example: Masked, carry: State | None = None) -> Loss:
        losses, sums, outputs = self.losses_and_outputs(example)
        loss = Loss(losses.sum() + sums["extra"], (example.targets != IGNORE).sum())
        for output in outputs:
            loss = with_penalty(loss, output)
        return loss

    def losses(self, example: Masked) -> tuple[Tensor, dict[str, Tensor]]:
        return self.losses_and_outputs(example)[:2]

    def losses_and_outputs(self, example: Masked) -> tuple[Tensor, dict[str, Tensor], tuple[Output, Output]]:
        """`losses`, and the outputs of the generator and the discriminator."""
        generated: Output = self.reader(example.batch)
        scores = self.scores(generated.hidden[example.where])
        losses, sums = self.measure(scores, example)
        detection, right, discriminated = self.detection_loss(scores.detach(), example)
        sums |= {"extra": detection, "detection_accuracy": right, "tokens_read": example.real.sum()}
        return losses, sums, (generated, discriminated)

    @torch.no_grad()
    def fill_gaps(self, scores: Tensor, example: Masked) -> tuple[Tensor, Tensor]:
        """(T,) the text with words drawn from the generator's scores in its gaps, and where they are wrong."""
        scores = scores.float()
        noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-9, 1 - 1e-7)))
        kept = example.targets != IGNORE
        ids = put(example, (scores + noise).argmax(1), kept)
        return ids, ids != put(example, example.targets, kept)


def put(example: Masked, values: Tensor, kept: Tensor) -> Tensor:
    """(T,) the ids with the values at their places; what was not chosen, all at place 0, changes nothing and asks nobody."""
    ids = example.batch.ids
    changes = torch.zeros_like(ids).index_add(0, example.where, torch.where(kept, values - ids[example.where], 0))
    return ids + changes
