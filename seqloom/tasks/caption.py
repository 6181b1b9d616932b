"""Captions of pictures: a translation whose source is a picture. Vinyals et al., 2015; Xu et al., 2015.

Hard attention draws the regions that it looks at, which have no gradient: a draw is learnt from by its reward, the
log-probability of the words from it on, less a baseline (REINFORCE; Williams, 1992).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, EncoderDecoder, Loss, Output, Pair, add_penalty, reads_pictures, wide
from seqloom.blocks.grid import to_grid
from seqloom.tasks.translate import Translate

MOVES = 0.1  # how far a step moves the baseline


class Caption(Translate):
    """Writes a text about a picture."""

    reads = "pictures"

    @classmethod
    def fits(cls, model: type[Backbone] | type[EncoderDecoder]) -> bool:
        return reads_pictures(model)

    def __init__(self, backbone: EncoderDecoder, config: Translate.Config):
        super().__init__(backbone, config)
        self.baseline: Tensor | None
        drawn = getattr(backbone.decoder, "draws", False)
        self.register_buffer("baseline", torch.zeros(()) if drawn else None)

    def loss_of_draws(self, output: Output, example: Pair) -> Loss:
        assert output.log_choice is not None
        scores, targets = wide(self.softmax(output.hidden)), example.targets  # both the loss and the rewards need them
        smoothing = self.smoothing if self.training else 0.0
        total = F.cross_entropy(scores, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing)
        loss = add_penalty(Loss(total, (targets != IGNORE).sum()), output.penalty)
        weight = getattr(self.backbone.decoder, "reward", 1.0)
        return add_penalty(loss, weight * self.reinforce(scores.detach(), output.log_choice, example))

    def reinforce(self, scores: Tensor, log_choice: Tensor, example: Pair) -> Tensor:
        """() whose gradient is that of −E[reward] over what was drawn: −Σ_t (R_t − b · words left) log p(drawn_t), with R_t the
        log-probability of the words from t on. The baseline b is that of one word, from the batches before."""
        assert self.baseline is not None
        real = (example.targets != IGNORE).to(log_choice.dtype)
        with torch.no_grad():
            rewards = -F.cross_entropy(scores, example.targets, ignore_index=IGNORE, reduction="none").to(real.dtype)
            both = to_grid(torch.stack((rewards, real), 1), example.target)  # (N, L, 2)
            left, words = both.flip(1).cumsum(1).flip(1).unbind(2)
            advantage = left - self.baseline.to(left.dtype) * words
            mean = rewards.sum() / real.sum().clamp(min=1)
            self.baseline.lerp_(mean.to(self.baseline.dtype), MOVES)
        return -(advantage * to_grid(log_choice * real, example.target)).sum()
