"""Language modelling: predict each token from those before it. Bengio et al., 2003; Mikolov et al., 2010."""

import math

import torch
from torch import Tensor, nn

from seqloom.batch import IGNORE, Backbone, Excerpt, Loss, Objective, Output, State, detach
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError


class LeftToRight(Objective):
    """Predicts each token from those before it, by any output layer that is called as Softmax is."""

    softmax: nn.Module

    def corrupt(self, excerpt: Excerpt, rng: torch.Generator) -> Excerpt:
        return excerpt

    def forward(self, example: Excerpt, carry: State | None = None) -> Loss:
        output: Output = self.backbone(example.batch, state=carry)
        total = self.softmax(output.hidden, example.following)
        return Loss(total, (example.following != IGNORE).sum(), carry=detach(output.state))

    def losses(self, example: Excerpt, carry: State | None = None) -> tuple[Tensor, State | None]:
        """(T,) −log p of every target, in fp32 at least, and the state after them."""
        output: Output = self.backbone(example.batch, state=carry)
        return self.softmax(output.hidden, example.following, each=True), output.state


class NextToken(LeftToRight):
    softmax: Softmax

    class Config(BaseConfig):
        tie: bool = True  # the output layer shares the input embeddings (Press & Wolf, 2017; Inan et al., 2017)
        bias: bool = False

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__()
        self.backbone = backbone
        table = backbone.table
        if config.tie and table.embedding_dim != backbone.dim:
            raise UsageError(
                f"'objective.tie' = true: the embeddings have {table.embedding_dim} numbers, the hidden states "
                f"{backbone.dim}, so one table cannot serve both: set objective.tie = false"
            )
        self.softmax = Softmax(backbone.dim, table.num_embeddings, table if config.tie else None, config.bias)
        self.softmax.init_weights(std=0.02, tied=config.tie)

    def initial_loss(self) -> float:
        """What an untrained model must score, nearly: every token equally likely."""
        return math.log(self.softmax.weight.shape[0])
