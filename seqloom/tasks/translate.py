"""Translation: reads a source and writes its translation from left to right. Sutskever et al., 2014; Vaswani et al., 2017.

Trained by teacher forcing with label smoothing (Szegedy et al., 2015) and, optionally, scheduled sampling (Bengio et al.,
2015). The training loss is that of the smoothed targets; every evaluation is without smoothing.
"""

import math

import torch
from pydantic import Field
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, EncoderDecoder, Loss, Output, Pair, State, Task, Vocabulary, add_penalty
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError
from seqloom.objectives.scheduled import OwnWords, own_words


class Translate(Task):
    """Predicts the target tokens of a pair of texts."""

    reads = "pairs"
    pair_evaluator = "seqloom.evaluate.translation:pair_loss"
    backbone: EncoderDecoder

    class Config(BaseConfig):
        tie: bool = Field(
            True, description="Share the embeddings of the target with the output layer (Press & Wolf, 2017)."
        )
        bias: bool = Field(False, description="Add a bias to the output layer.")
        label_smoothing: float = Field(
            0.1,
            ge=0,
            lt=1,
            description="Probability that is spread over all other words in the loss (Szegedy et al., 2016).",
        )
        own_words: OwnWords = Field(
            OwnWords(), description="Scheduled sampling: how often the decoder reads its own words in training."
        )
        start_id: int | None = Field(
            None, ge=0, description="Id of the token that targets begin with; the end token unless it is given."
        )

    @classmethod
    def fits(cls, model: type[Backbone] | type[EncoderDecoder]) -> bool:
        return issubclass(model, EncoderDecoder) and model.sources == "texts"

    def __init__(self, backbone: EncoderDecoder, config: Config):
        super().__init__()
        self.backbone, self.smoothing, self.schedule = backbone, config.label_smoothing, config.own_words
        self.start_id = config.start_id
        if config.start_id is not None and config.start_id >= backbone.vocab_size:
            raise UsageError(f"'task.start_id' = {config.start_id}: the vocabulary has {backbone.vocab_size:,} entries")
        table = backbone.table if config.tie else None
        if table is not None and table.embedding_dim != backbone.dim:
            raise UsageError(
                f"'task.tie' = true: the embeddings have {table.embedding_dim} numbers, the hidden states {backbone.dim}, so "
                f"one table cannot serve both: set task.tie = false"
            )
        self.softmax = Softmax(backbone.dim, backbone.vocab_size, table, config.bias)
        self.softmax.init_weights(std=backbone.dim**-0.5, tied=config.tie)
        self.static = not self.schedule.ever
        self.advance(0.0)

    def initial_loss(self) -> float:
        return math.log(self.backbone.vocab_size)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """It needs nothing of the vocabulary."""

    def advance(self, spent: float) -> None:
        self.rate = self.schedule.rate(spent)

    @property
    def extra_forwards(self) -> int:
        return int(self.rate > 0)

    def forward(self, example: Pair, carry: State | None = None) -> Loss:
        example = example.with_real()
        context = self.backbone.encode(example.source)
        target = example.target
        if self.training and self.rate > 0:
            with torch.no_grad():
                state = self.backbone.decoder.start(target.num_sequences, target.max_len, context)
            mixed = own_words(self.backbone.decoder, self.softmax, target, state, self.rate)
            target = target._replace(ids=mixed)
        output: Output = self.backbone.decoder(target, context=context)
        if output.log_choice is not None:
            return self.loss_of_draws(output, example)
        # read before the loss, where a compiler stops: torch 2.11 fails to put the example together after it
        hidden, penalty, targets = output.hidden, output.penalty, example.targets
        count = (targets != IGNORE).sum()
        total = self.softmax(hidden, targets, smoothing=self.smoothing if self.training else 0.0)
        return add_penalty(Loss(total, count), penalty)

    def loss_of_draws(self, output: Output, example: Pair) -> Loss:
        """The loss, with what is learnt from places that were drawn."""
        raise NotImplementedError

    def losses(self, example: Pair) -> Tensor:
        """(T,) −log p of every target, in fp32 at least."""
        return self.softmax(self.backbone(example).hidden, example.targets, each=True)
