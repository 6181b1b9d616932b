"""What every task has that tells something about texts: features of a backbone, fine-tuned or frozen, and a layer on top.

Features are the hidden states of a layer, or of several (`embed --layers` has the same names); `mix` learns how much each
layer counts (ELMo, Peters et al., 2018, arXiv 1802.05365). A bidirectional LSTM may read them first, as in TagLM (Peters et
al., 2017), CoVe (McCann et al., 2017) and ELMo. `frozen` leaves the backbone as it is.

Left-to-right models may go on with their language modelling beside the task: H = F + λ G (Radford et al., 2018).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import (
    IGNORE,
    Backbone,
    EncoderDecoder,
    Labelled,
    Loss,
    Output,
    Ragged,
    State,
    Task,
    Vocabulary,
    with_penalty,
)
from seqloom.batches.labelled import Frame, Row, add_special_tokens, spelling_of, truncate
from seqloom.blocks.feedforward import ACTIVATIONS
from seqloom.blocks.pooling import LAYERS, ScalarMix, check_layers, choose, pool
from seqloom.blocks.recurrent import Bidirectional, LstmCell, init_lstm
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError
from seqloom.tokens.tokenizer import Tokenizer

Rows = Sequence[Sequence[Row]]
Encoded = tuple[list[list[Row]], list[str]]  # the rows of each example, and where texts were too long and were cut


class Transfer(Task):
    """A task is what `read`, `survey`, `encode`, `logits`, `loss`, `predictions` and `scores` say."""

    reads = "labelled"
    main_metric: str  # of its scores: the one that decides which weights are the best
    over_tokens = ("softmax",)  # the next one is predicted at every token, whatever the labels are of
    backbone: Backbone

    class Config(BaseConfig):
        layers: str = Field(
            "last", description="of the backbone: as embed --layers; mix: how much each counts is learnt"
        )
        view: Literal["encoder", "whole"] = Field(
            "encoder",
            description="of a model that translates: its encoder's states, or its decoder's after both have read",
        )
        frozen: bool = False
        reader: Literal["none", "lstm"] = "none"
        reader_dim: int = Field(256, gt=0, multiple_of=2, description="of both directions together")
        dropout: float = Field(0.1, ge=0, lt=1)
        lm: float = Field(0.0, ge=0, description="λ of the language-modelling loss beside")
        lm_tie: bool = True
        lm_bias: bool = False

    @classmethod
    def fits(cls, model: type[Backbone] | type[EncoderDecoder]) -> bool:
        return model.learns_from != "counts"

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__()
        self.backbone, self.layers, self.frozen, self.lm = backbone, config.layers, config.frozen, config.lm
        self.about = config.model_dump()  # with what `survey` found
        stack: Any = getattr(backbone, "stack", None)
        # whether labels are predicted from the top layer itself
        self.is_top = config.layers == "last" and config.reader == "none"
        depth = 1 if stack is None else len(stack.unrolled_layers)
        check_layers(config.layers, depth, "'task.layers' =", [name for name in LAYERS if name != "all"])
        self.mix = None
        if config.layers == "mix":
            if stack is None:
                raise UsageError('\'task.layers\' = "mix": this model has no layers to mix: use "last"')
            self.mix = ScalarMix(depth + 1)
        width = backbone.dim * (4 if config.layers == "concat4" else 1)
        self.reader: Any = None
        if config.reader == "lstm":
            half = config.reader_dim // 2
            self.reader = Bidirectional(LstmCell(width, half), LstmCell(width, half), config.dropout)
            init_lstm(self.reader)
            width = config.reader_dim
        self.width, self.dropout = width, nn.Dropout(config.dropout)
        self.softmax = None
        if config.lm:
            if not backbone.causal:
                raise UsageError(
                    "'task.lm': only a model that reads from left to right can predict the next token beside"
                )
            self.softmax = Softmax(
                backbone.dim, backbone.vocab_size, backbone.table if config.lm_tie else None, config.lm_bias
            )
            self.softmax.init_weights(std=0.02, tied=config.lm_tie)
        if config.frozen:
            if config.lm:
                raise UsageError(
                    "'task.lm' and 'task.frozen': a frozen model does not go on learning: leave one of them out"
                )
            backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> "Transfer":
        """A frozen backbone drops nothing out: its features are always the same."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.backbone.validate_loaded()

    # ---- from texts to features

    def features(self, batch: Ragged) -> tuple[Tensor, Output]:
        """(T, width), and what the backbone has given."""
        several = self.layers != "last"
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            output = self.backbone(batch, layers=several)
            states = (*output.layers[:-1], output.hidden)
            found = output.hidden if not several or self.mix is not None else choose(states, self.layers)
        if self.mix is not None:
            widths = [state.shape[1] for state in states]
            if len(set(widths)) > 1:
                raise UsageError(
                    f'\'task.layers\' = "mix": the layers are {widths} wide and cannot be put together: use "last"'
                )
            found = self.mix(states)
        if self.reader is not None:
            found, _, _ = self.reader(found, batch)
        return found, output

    def forward(self, example: Labelled, carry: State | None = None) -> Loss:
        found, output = self.features(example.batch)
        loss = with_penalty(self.loss(self.logits(found, example), example), output)
        if self.softmax is None:
            return loss
        ids, last = example.batch.ids, example.batch.offsets[1:].long() - 1
        following = torch.cat((ids[1:], ids[:1]))
        following[last.clamp(min=0)] = IGNORE
        following = following.where(example.real, IGNORE)
        modelled = self.lm * self.softmax(output.hidden, following, weights=self.shares(example, following != IGNORE))
        penalty = loss.logs.get("penalty", 0.0) + modelled.detach()
        return Loss(loss.total + modelled, loss.count, {"penalty": penalty})

    def counted(self, example: Labelled) -> Tensor:
        """(N,), or (W,) of words: how much each label counts in the loss."""
        return example.known

    def shares(self, example: Labelled, modelled: Tensor) -> Tensor:
        """(T,) the labels of an example, shared out evenly among its tokens that are modelled: its mean over tokens stands
        beside each of its labels, as in the authors' code, and examples add up."""
        owner, counted = example.batch.owner, self.counted(example)
        group = example.groups[owner]
        of_label = example.groups if example.places is None else group[example.places[:, 0]]
        nothing = torch.zeros(example.groups.shape[0] + 1, device=owner.device)
        labels = nothing.index_add(0, of_label, counted.to(nothing.dtype))
        tokens = nothing.index_add(0, group, modelled.to(nothing.dtype))
        return (labels / tokens.clamp(min=1))[group]

    # ---- what a task says of itself

    @staticmethod
    def read(paths: Sequence[Path], need_labels: bool = True) -> Iterator[Any]:
        """Examples out of files; BadRow where labels are not needed and a row is none."""
        raise NotImplementedError

    @classmethod
    def survey(cls, examples: Sequence[Any]) -> dict[str, Any]:
        """Values of its Config that follow from the training examples. DataError where nothing can be learnt from them."""
        raise NotImplementedError

    @classmethod
    def check_against(cls, examples: Sequence[Any], about: Mapping[str, Any]) -> None:
        """DataError where held-out examples have what the training ones, whose `survey` is given, have not."""

    def check(self, examples: Sequence[Any]) -> None:
        self.check_against(examples, self.about)

    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        raise NotImplementedError

    def logits(self, features: Tensor, example: Labelled) -> Tensor:
        """Scores, as the task has them."""
        raise NotImplementedError

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        raise NotImplementedError

    def predictions(self, logits: Tensor, example: Labelled, asked: Sequence[Any], rows: Rows) -> list[dict[str, Any]]:
        """One for each example that was asked about, as `predict` writes it."""
        raise NotImplementedError

    def ensemble(self, answers: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """What several runs answer, as one: the mean of their probabilities."""
        raise UsageError("several runs can answer together in classify, pair, regress and choose alone")

    @classmethod
    def scores(cls, examples: Sequence[Any], answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def of_row(cls, row: dict[str, Any], place: str) -> Any:
        """An example without a label out of one row of jsonl; DataError where it is none."""
        raise NotImplementedError

    @staticmethod
    def texts_of(example: Any) -> Sequence[str]:
        """What a tokenizer learns from."""
        return example.texts


def label_layer(reads: int, outputs: int) -> nn.Linear:
    """What is put on top of a backbone, beginning as BERT's matrices do: with little to say."""
    layer = nn.Linear(reads, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


class Summary(nn.Module):
    """One vector for a whole text: where the model's paper has a layer between its body and the labels, through that. top:
    whether it reads what that layer is made for, the hidden states themselves."""

    def __init__(self, backbone: Backbone, width: int, how: str, top: bool):
        super().__init__()
        own = how == "summary" and top
        self.how = backbone.head_style.pooling if how == "summary" else how
        self.pooled: Any = getattr(backbone, "pooled", None) if own and getattr(backbone, "pooler", None) else None
        self.dense = (
            label_layer(width, width) if own and backbone.head_style.hidden_activation and self.pooled is None else None
        )
        self.activation = ACTIVATIONS[backbone.head_style.hidden_activation] if self.dense is not None else None
        self.width = 3 * width if how == "concat" else width

    def forward(self, states: Tensor, example: Labelled) -> Tensor:
        """(T, D) → (N, width). Special tokens count for `first` and `last` alone, which are such."""
        found = pool(states, example.batch, self.how, None if self.how in ("first", "last") else example.own)
        if self.pooled is not None:
            return self.pooled(found)
        return found if self.dense is None or self.activation is None else self.activation(self.dense(found))


def encode_texts(
    examples: Sequence[Any], tokenizer: Tokenizer, frame: Frame, combine: Any, labels: Sequence[Any]
) -> Encoded:
    """combine: the texts of each sequence of an example; labels: of each sequence of each example."""
    flat = [text for example in examples for text in example.texts]
    encoded = zip(*tokenizer.encode_batch_with_unknown(flat), strict=True)
    found: list[list[Row]] = []
    cut: list[str] = []
    for example, label in zip(examples, labels, strict=True):
        rows = []
        for texts, each in zip(combine([next(encoded) for _ in example.texts]), label, strict=True):
            whole, unknown = zip(*texts, strict=True)
            fitting = truncate(whole, frame.room(len(whole)))
            if frame.backward:  # what is kept is the beginning, read from its end
                fitting = [text[::-1] for text in fitting]
            if sum(map(len, fitting)) < sum(map(len, whole)) and example.place not in cut[-1:]:
                cut.append(example.place)
            ids, segments, source, _ = add_special_tokens(fitting, frame)
            chars = spelling_of(ids, list(zip(fitting, unknown, strict=True)), tokenizer, frame)
            rows.append(Row(ids, segments, source >= 0, each, chars=chars))
        found.append(rows)
    return found, cut
