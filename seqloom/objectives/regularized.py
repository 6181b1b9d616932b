"""Language modelling with activation regularisation. Merity, McCann & Socher, 2017 (arXiv 1708.01009).

AR   α · mean of h², of the last layer after its dropout: no activation is larger than it must be
TAR  β · mean of (h(t) − h(t−1))², of the last layer before its dropout: states move slowly

Both are means over places and features, as the paper has them, added to the mean loss. They are learnt from and never
reported: the training log leaves them out, and outside training the loss is that of the next token.
"""

import torch
from pydantic import Field
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, Excerpt, Loss, Output, Ragged, State, wide, with_penalty
from seqloom.objectives.next_token import NextToken


class Regularized(NextToken):
    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return super().fits(model) and model.recurrent

    class Config(NextToken.Config):
        alpha: float = Field(2.0, ge=0, description="Weight of activation regularisation (AR).")
        beta: float = Field(1.0, ge=0, description="Weight of temporal activation regularisation (TAR).")

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.alpha, self.beta = config.alpha, config.beta

    def forward(self, example: Excerpt, carry: State | None = None) -> Loss:
        if not self.training:
            return super().forward(example, carry)
        wanted = example.targets != IGNORE
        batch = example.batch._replace(real=wanted)
        output: Output = self.backbone(batch, state=self.state_before(example, carry), layers=True)
        penalty = self.alpha * size(output.hidden, wanted)
        penalty = penalty + self.beta * change(output.layers[-1], wanted, example.batch)
        total = self.softmax(output.hidden, example.targets) + penalty
        loss = Loss(total, wanted.sum(), {"penalty": penalty.detach()}, self.state_after(example, output))
        return with_penalty(loss, output)


def size(hidden: Tensor, wanted: Tensor) -> Tensor:
    """Σ over the wanted places of the mean of h²: divided by their number it is the mean over all."""
    return (wide(hidden).square().mean(1) * wanted).sum()


def change(hidden: Tensor, wanted: Tensor, batch: Ragged) -> Tensor:
    """Each sequence's mean of (h(t) − h(t−1))² as often as it has wanted places. The first step has nothing before it, so
    that L places have L − 1 differences; weighed like this, sequences add up and equally long ones give the plain mean."""
    inside = (batch.owner[1:] == batch.owner[:-1]) & wanted[1:]
    moved = (wide(hidden[1:]) - wide(hidden[:-1])).square().mean(1) * inside
    per_sequence = torch.zeros(3, batch.num_sequences, device=hidden.device, dtype=moved.dtype)
    sums = per_sequence[0].index_add(0, batch.owner[1:], moved)
    pairs = per_sequence[1].index_add(0, batch.owner[1:], inside.to(moved.dtype))
    places = per_sequence[2].index_add(0, batch.owner, wanted.to(moved.dtype))
    return (sums / pairs.clamp(min=1) * places).sum()
