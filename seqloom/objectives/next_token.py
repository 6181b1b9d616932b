"""Language modelling: predict each token from those before it. Bengio et al., 2003; Mikolov et al., 2010."""

import math
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import (
    IGNORE,
    Backbone,
    Excerpt,
    Loss,
    Objective,
    Output,
    State,
    Vocabulary,
    detach,
    join_streams,
    select,
    with_penalty,
)
from seqloom.blocks.adaptive import AdaptiveSoftmax
from seqloom.blocks.narrowed import NarrowedTable
from seqloom.blocks.ranks import clusters
from seqloom.blocks.sampled import SampledSoftmax
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError


class Streamed(Objective):
    """Learns from excerpts, the state of a stream being carried from batch to batch."""

    def state_before(self, example: Any, carry: State | None) -> State | None:
        """The state of every sequence of the batch, from the states that the streams carry."""
        if carry is None or example.joints is None:
            return carry
        return join_streams(self.backbone.start(example.batch.num_sequences, 0), carry, example.joints)

    def state_after(self, example: Any, output: Output) -> State | None:
        """What the streams carry into the next batch; no gradient follows it."""
        state = detach(output.state)
        return state if state is None or example.joints is None else select(state, example.joints.last)


class LeftToRight(Streamed):
    """Predicts each token from those before it, by any output layer that is called as Softmax is."""

    softmax: nn.Module
    has_next_word = True
    evaluator = "seqloom.evaluate.evaluators:LeftToRightEvaluator"

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return super().fits(model) and model.causal

    def forward(self, example: Excerpt, carry: State | None = None) -> Loss:
        real = example.targets != IGNORE
        output: Output = self.backbone(example.batch._replace(real=real), state=self.state_before(example, carry))
        total = self.softmax(output.hidden, example.targets)
        loss = Loss(total, real.sum(), carry=self.state_after(example, output))
        return with_penalty(loss, output)

    def left_to_right(self) -> "LeftToRight":
        """What predicts the next word: itself."""
        return self

    def losses(self, example: Excerpt, carry: State | None = None) -> tuple[Tensor, State | None]:
        """(T,) −log p of every target, in fp32 at least, and the state after them."""
        output: Output = self.backbone(example.batch, state=carry)
        return self.softmax(output.hidden, example.targets, each=True), output.state


def as_left_to_right(learner: Objective) -> LeftToRight:
    """What predicts the next word, of a learner that `has_next_word`."""
    found: Any = learner
    return found.left_to_right()


class NextToken(LeftToRight):
    softmax: Softmax | AdaptiveSoftmax

    class Config(BaseConfig):
        tie: bool = Field(
            True,
            description="Share the input embeddings with the output layer (Press & Wolf, 2017; Inan et al., 2017).",
        )
        bias: bool = Field(False, description="Add a bias to the output layer.")
        softmax: Literal["full", "adaptive", "sampled"] = Field(
            "full",
            description="Output layer: the full softmax, an adaptive one (Grave et al., 2017), or one over sampled "
            "words in training.",
        )
        cutoffs: tuple[int, ...] = Field(
            (),
            max_length=16,
            description="Frequency ranks at which the clusters of the adaptive softmax begin; empty: V^⅔ and V^⅚.",
        )
        samples: int = Field(
            1024, gt=0, description="Words that stand for all others in a step of the sampled softmax."
        )

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__()
        if backbone.no_next_word:
            raise UsageError(backbone.no_next_word)
        self.backbone = backbone
        self.softmax = output_layer(backbone, config)
        # recurrent states start small: through small weights, too, next to nothing would reach what is below
        self.softmax.init_weights(std=0.2 if backbone.recurrent else 0.02, tied=config.tie)
        if config.softmax == "adaptive":
            self.static = False  # how many targets are in which cluster is asked of the device

    def initial_loss(self) -> float:
        """What an untrained model must score, nearly: every token equally likely."""
        return math.log(self.backbone.vocab_size)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)
        self.softmax.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.backbone.validate_loaded()
        self.softmax.validate_loaded()


def output_layer(backbone: Backbone, config: NextToken.Config, dim: int | None = None) -> Softmax | AdaptiveSoftmax:
    """dim: the width of what it reads; all of the hidden states unless given."""
    table, size, dim = backbone.table, backbone.vocab_size, dim or backbone.dim
    if config.tie:
        why = ""
        if config.softmax == "sampled":
            why = "the sampled softmax has weights of its own"
        elif table is None:
            why = "the model reads words by their characters and has no embeddings to share"
        elif table.embedding_dim != dim:
            why = f"the embeddings have {table.embedding_dim} numbers, the hidden states {dim}, so one table "
            why += "cannot serve both"
        elif isinstance(table, NarrowedTable) and config.softmax == "full":
            why = "rare words have narrower vectors, which only an adaptive softmax can share"
        if why:
            raise UsageError(f"'objective.tie' = true: {why}: set objective.tie = false")
        if config.softmax == "full":
            return Softmax(dim, size, table, config.bias)
    if config.softmax == "sampled":
        return SampledSoftmax(dim, size, config.samples, config.bias)
    if config.softmax == "adaptive":
        own = config.cutoffs
        if config.tie and isinstance(table, NarrowedTable):
            if own not in ((), table.cutoffs):
                raise UsageError(
                    f"'objective.cutoffs' = {list(own)}: the embeddings have clusters at {list(table.cutoffs)}: leave it out"
                )
            own = table.cutoffs
        cutoffs = clusters("objective.cutoffs", own, size)
        return AdaptiveSoftmax(dim, size, cutoffs, config.bias, table if config.tie else None)
    return Softmax(dim, size, bias=config.bias)
