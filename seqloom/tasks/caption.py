"""Captions of pictures: a translation whose source is a picture. Vinyals et al., 2015; Xu et al., 2015.

Hard attention draws the regions that it looks at, which have no gradient: a draw is learnt from by its reward, the
log-probability of the words from it on, less a baseline (REINFORCE; Williams, 1992).
"""

import torch
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, EncoderDecoder, Loss, Output, Pair, add_penalty, reads_pictures
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
        total = self.softmax(output.hidden, example.targets, smoothing=self.smoothing if self.training else 0.0)
        loss = add_penalty(Loss(total, (example.targets != IGNORE).sum()), output.penalty)
        weight = getattr(self.backbone.decoder, "reward", 1.0)
        return add_penalty(loss, weight * self.reinforce(output.hidden, output.log_choice, example))

    def reinforce(self, hidden: Tensor, log_choice: Tensor, example: Pair) -> Tensor:
        """() whose gradient is that of −E[reward] over what was drawn: −Σ_t (R_t − b · words left) log p(drawn_t), with R_t the
        log-probability of the words from t on. The baseline b is that of one word, from the batches before."""
        assert self.baseline is not None
        real = (example.targets != IGNORE).to(log_choice.dtype)
        with torch.no_grad():
            rewards = -self.softmax(hidden, example.targets, each=True).to(real.dtype) * real
            both = to_grid(torch.stack((rewards, real), 1), example.target)  # (N, L, 2)
            left, words = both.flip(1).cumsum(1).flip(1).unbind(2)
            advantage = left - self.baseline.to(left.dtype) * words
            mean = rewards.sum() / real.sum().clamp(min=1)
            self.baseline.lerp_(mean.to(self.baseline.dtype), MOVES)
        return -(advantage * to_grid(log_choice * real, example.target)).sum()
