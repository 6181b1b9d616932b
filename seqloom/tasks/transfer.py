"""What all tasks that predict labels of texts share: features of a backbone, fine-tuned or frozen, and a layer on top.

Features are the hidden states of a layer, or of several (`embed --layers` has the same names); `mix` learns how much each
layer counts (ELMo, Peters et al., 2018, arXiv 1802.05365). A bidirectional LSTM may read them first, as in TagLM (Peters et
al., 2017), CoVe (McCann et al., 2017) and ELMo. `frozen` leaves the backbone as it is.

Left-to-right models may keep their language-modelling loss as an auxiliary one: H = F + λ G (Radford et al., 2018).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
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
    reads_pictures,
    with_penalty,
)
from seqloom.batches.labelled import Frame, Row, add_special_tokens, spelling_of, truncate
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.feedforward import ACTIVATIONS
from seqloom.blocks.narrowed import NarrowedTable
from seqloom.blocks.pooling import LAYERS, ScalarMix, check_layers, choose, pool
from seqloom.blocks.recurrent import Bidirectional, init_lstm
from seqloom.blocks.softmax import Softmax
from seqloom.blocks.views import View
from seqloom.config import Config as BaseConfig
from seqloom.errors import DataError, UsageError
from seqloom.text.tables import NOTHING, PLAIN, Layout
from seqloom.tokens.tokenizer import Tokenizer

Rows = Sequence[Sequence[Row]]
Encoded = tuple[
    list[list[Row]], list[str]
]  # the rows of each example, and the places of texts that were too long and were cut


class BesideConfig(BaseConfig):
    """Features from other runs, which stay as they are (--beside)."""

    dim: int = Field(0, ge=0, description="Width of the features; it follows from the runs.")
    at: str = Field(
        "output",
        pattern=r"^(output|reader|\d{1,3})$",
        coerce_numbers_to_str=True,
        description="Where they enter: output, beside what the output layer reads; reader, beside what task.reader reads; or a "
        "layer of the model, beside what that gives: 0, the embedding, 1, the first layer (TagLM) and so on.",
    )
    layers: str = Field(
        "last", coerce_numbers_to_str=True, description="Layers of the other runs, as in embed --layers, but for all."
    )
    read: Literal["auto", "first", "last", "mean", "border"] = Field(
        "auto",
        description="State of a word: that of its first or last token, the mean, or border: behind it for a model that reads "
        "forward, before it for one that reads backward (Flair). auto: border for left-to-right models of characters or bytes, "
        "the token read last for other left-to-right ones, else the mean.",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout probability of the features.")


class Transfer(Task):
    """A task that predicts labels. Each defines `read`, `survey`, `encode`, `logits`, `loss`, `predictions`, `scores`."""

    reads = "labelled"
    main_metric: str  # the one of its scores that decides which weights are the best
    fields: ClassVar[tuple[str, ...]] = ("text",)  # of a row that it predicts for
    long_texts: str = "cut"  # or "windows", in which held-out texts are read that are longer than the model reads
    predicts: bool = True  # it can be asked for predictions, and be a task alone
    about_pictures: ClassVar[bool] = False  # its texts can be about pictures
    finds_spots: bool = True  # its rows can say which characters each token stands for
    reads_kept: bool = False  # the states of its frozen backbone are computed once, before training
    over_tokens = ("softmax",)  # it predicts the next token at every token, also where a label is of a whole text
    backbone: Backbone

    class Config(BaseConfig):
        layers: str = Field(
            "last",
            coerce_numbers_to_str=True,
            description="Layers of the backbone that are used, as in embed --layers; mix: with learnt weights.",
        )
        view: View = Field(
            "encoder",
            description="States of a translation model that are used: the encoder's, or the decoder's after both have read.",
        )
        frozen: bool = Field(False, description="Keep the weights of the backbone fixed.")
        reader: Literal["none", "lstm"] = Field(
            "none", description="Layer between the backbone and the output layer: none, or a bidirectional LSTM."
        )
        reader_dim: int = Field(256, gt=0, multiple_of=2, description="Width of that LSTM, both directions together.")
        at: Literal["input", "output", "both"] = Field(
            "input",
            description="Where a mix of layers enters: what that LSTM reads, beside what it gives (it then reads the token "
            "layer), or both, with a mix each.",
        )
        mix_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout probability of a mix of layers; ELMo: 0.5.")
        mix_l2: float = Field(
            0.0,
            ge=0,
            description="Weight λ of λ‖w‖² on the weights of a mix; ELMo: 0.001, or 1 for nearly equal shares.",
        )
        beside: BesideConfig = Field(BesideConfig(), description="Features from other runs (--beside).")
        dropout: float = Field(0.1, ge=0, lt=1, description="Dropout probability before the output layer.")
        lm: float = Field(0.0, ge=0, description="Weight λ of an auxiliary language-modelling loss.")
        lm_tie: bool = Field(
            True, description="Share the input embeddings with the output layer of the auxiliary loss."
        )
        lm_bias: bool = Field(False, description="Add a bias to the output layer of the auxiliary loss.")

    @classmethod
    def fits(cls, model: type[Backbone] | type[EncoderDecoder]) -> bool:
        if reads_pictures(model) and not cls.about_pictures:
            return False
        return model.learns_from != "counts"

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__()
        self.backbone, self.layers, self.frozen, self.lm = backbone, config.layers, config.frozen, config.lm
        self.about = config.model_dump()  # with what `survey` found
        stack: Any = getattr(backbone, "stack", None)
        # whether labels are predicted from the top layer itself
        beside = config.beside
        self.beside_at, self.beside_dropout = beside.at if beside.dim else "", nn.Dropout(beside.dropout)
        self.is_top = config.layers == "last" and config.reader == "none" and self.beside_at != "output"
        depth = 1 if stack is None else len(stack.unrolled_layers)
        check_layers(config.layers, depth, "'task.layers' =", [name for name in LAYERS if name != "all"])
        check_mix(config)
        check_beside(config)
        if self.beside_at.isdecimal():
            make_room(backbone, int(self.beside_at), beside.dim)
        self.mix = self.mix_above = None
        self.num_states = depth + 1 if config.layers == "mix" else 1  # of the backbone, that it uses
        if config.layers == "mix":
            check_has_layers(stack)
            self.mix = ScalarMix(depth + 1) if config.at != "output" else None
            self.mix_above = ScalarMix(depth + 1) if config.at != "input" else None
        self.mix_l2, self.mix_dropout = config.mix_l2, nn.Dropout(config.mix_dropout)
        width = self.chosen_width = backbone.dim * (4 if config.layers == "concat4" else 1)
        self.reader: Any = None
        if config.reader == "lstm":
            half = config.reader_dim // 2
            width += beside.dim if self.beside_at == "reader" else 0
            self.reader = Bidirectional(LstmCell(width, half), LstmCell(width, half), config.dropout)
            init_lstm(self.reader)
            width = config.reader_dim + (0 if self.mix_above is None else backbone.dim)
        width += beside.dim if self.beside_at == "output" else 0
        self.width, self.dropout = width, nn.Dropout(config.dropout)
        self.softmax = next_word_softmax(backbone, config) if config.lm else None
        if config.frozen:
            if config.lm:
                raise UsageError(
                    "'task.lm' and 'task.frozen': a frozen model does not go on learning: leave one of them out"
                )
            backbone.requires_grad_(False)

    def train(self, mode: bool = True) -> "Transfer":
        """A frozen backbone has no dropout: its features are always the same."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def look_at(self, others: Mapping[str, "Transfer"]) -> None:
        """Called where it is one of several tasks on one body, with all of them; few look."""

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.backbone.validate_loaded()

    # ---- from texts to features

    def features(self, batch: Ragged) -> tuple[Tensor, Output]:
        """(T, width) features, and the output of the backbone."""
        if self.beside_at:
            assert batch.beside is not None, "this task reads features of other runs, and the batch has none"
            batch = batch._replace(beside=self.beside_dropout(batch.beside))
        states, output = self.states(batch)
        found = states[0]
        if self.mix is not None:
            found = self.mixed(self.mix, states)
        if self.reader is not None:
            found, _, _ = self.reader(self.with_beside(found, batch, "reader"), batch)
        if self.mix_above is not None:
            found = torch.cat((found, self.mixed(self.mix_above, states)), 1)
        return self.with_beside(found, batch, "output"), output

    def states(self, batch: Ragged) -> tuple[tuple[Tensor, ...], Output]:
        """What is used of the backbone: all of its layers for a mix, else one (T, D). With its output."""
        if batch.states is not None:
            kept = batch.states.tensor_split(self.num_states, 1)
            return kept, Output(kept[-1])
        several = self.layers != "last"
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            output = self.backbone(batch, layers=several)
            states = (*output.layers[:-1], output.hidden)
            if self.layers == "mix":
                return states, output
            found = choose(states, self.layers)
            if found.shape[1] != self.chosen_width:
                widths = [state.shape[1] for state in states]
                raise UsageError(
                    f"'task.layers' = {self.layers}: the layers are {widths} wide, and labels are predicted from "
                    f'{self.chosen_width} numbers: use "last"'
                )
            return (found,), output

    def kept_states(self, batch: Ragged) -> Tensor:
        """(T, S) the same side by side, as a batch can have them."""
        states, _ = self.states(batch)
        check_widths(states)
        return torch.cat(states, 1)

    def with_beside(self, x: Tensor, batch: Ragged, place: str) -> Tensor:
        """With the features from other runs, if this is where they enter."""
        if self.beside_at != place or batch.beside is None:
            return x
        return torch.cat((x, batch.beside.to(x.dtype)), 1)

    def mixed(self, mix: ScalarMix, states: tuple[Tensor, ...]) -> Tensor:
        check_widths(states)
        return self.mix_dropout(mix(states))

    def with_mix_penalty(self, loss: Loss) -> Loss:
        """With λ‖w‖² for each label, as it is added to the mean loss of a batch."""
        if not self.mix_l2:
            return loss
        squares = [mix.weights.square().sum() for mix in (self.mix, self.mix_above) if mix is not None]
        added = self.mix_l2 * loss.count * torch.stack(squares).sum()
        logs = loss.logs | {"penalty": loss.logs.get("penalty", 0.0) + added.detach()}
        return loss._replace(total=loss.total + added, logs=logs)

    def forward(self, example: Labelled, carry: State | None = None) -> Loss:
        found, output = self.features(example.batch._replace(real=example.real))
        loss = self.loss(self.logits(found, example), example)
        if output.penalty is not None:
            # a sum over tokens, and the loss is one over labels: weighed as it is in pre-training
            output = output._replace(penalty=output.penalty * loss.count / example.real.sum().clamp(min=1))
        loss = self.with_mix_penalty(with_penalty(loss, output))
        if self.softmax is None:
            return loss
        ids, last = example.batch.ids, example.batch.offsets[1:].long() - 1
        following = torch.cat((ids[1:], ids[:1]))
        following[last.clamp(min=0)] = IGNORE
        following = following.where(example.real, IGNORE)
        modelled = self.lm * self.softmax(output.hidden, following, weights=self.shares(example, following != IGNORE))
        penalty = loss.logs.get("penalty", 0.0) + modelled.detach()
        return Loss(loss.total + modelled, loss.count, {"penalty": penalty})

    def label_weights(self, example: Labelled) -> Tensor:
        """(N,), or (W,) of words: the weight of each label in the loss."""
        return example.known

    def shares(self, example: Labelled, modelled: Tensor) -> Tensor:
        """(T,) weights of the language-modelling loss: the number of an example's labels, divided by that of its modelled tokens.
        So its mean over tokens is added for each label, as in the authors' code, and examples add up."""
        owner, weights = example.batch.owner, self.label_weights(example)
        group = example.groups[owner]
        of_label = example.groups if example.places is None else group[example.places[:, 0]]
        nothing = torch.zeros(example.groups.shape[0] + 1, device=owner.device)
        labels = nothing.index_add(0, of_label, weights.to(nothing.dtype))
        tokens = nothing.index_add(0, group, modelled.to(nothing.dtype))
        return (labels / tokens.clamp(min=1))[group]

    # ---- what each task defines

    @classmethod
    def read(cls, paths: Sequence[Path], need_labels: bool = True, layout: Layout = PLAIN) -> Iterator[Any]:
        """The examples of files. Without need_labels a row that cannot be read becomes a BadRow, and examples of tables have all
        columns of their row."""
        raise NotImplementedError

    @classmethod
    def column_fields(cls, need_labels: bool) -> dict[str, str]:
        """The field of its files whose column each of --text-column, --pair-column and --label-column names."""
        return {"text": "text", "label": "label"}

    @classmethod
    def layout(
        cls, columns: Mapping[str, str], encoding: str | None, need_labels: bool, trained: Mapping[str, str] = NOTHING
    ) -> Layout:
        """Where the fields of its files are. UsageError for a column of a field that it has not."""
        known = [*dict.fromkeys((*cls.fields, *cls.column_fields(need_labels).values(), "id"))]
        for field in columns:
            if field not in known:
                raise UsageError(f"a column for {field!r}: there is no such field: give one for {', '.join(known)}")
        return Layout(columns, encoding, trained)

    @classmethod
    def survey(cls, examples: Sequence[Any]) -> dict[str, Any]:
        """Values of its Config that follow from the training examples. DataError where nothing can be learnt from them."""
        raise NotImplementedError

    @classmethod
    def configure(cls, task: Mapping[str, Any], examples: Sequence[Any]) -> dict[str, Any]:
        """The section of a recipe with what follows from the training examples."""
        return cls.survey(examples) | dict(task)

    @classmethod
    def complete(cls, task: dict[str, Any], known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The section of a recipe with what follows from the other tasks that share the model. known: their sections."""
        return task

    @classmethod
    def check_against(cls, examples: Sequence[Any], about: Mapping[str, Any]) -> None:
        """Raises DataError where examples have labels that the training ones lack. about: the `survey` of those."""

    def check(self, examples: Sequence[Any]) -> None:
        self.check_against(examples, self.about)

    def encode(self, examples: Sequence[Any], tokenizer: Tokenizer, frame: Frame) -> Encoded:
        raise NotImplementedError

    def logits(self, features: Tensor, example: Labelled) -> Tensor:
        """Scores, in the form of the task."""
        raise NotImplementedError

    def loss(self, logits: Tensor, example: Labelled) -> Loss:
        raise NotImplementedError

    def predictions(self, logits: Tensor, example: Labelled, asked: Sequence[Any], rows: Rows) -> list[dict[str, Any]]:
        """The prediction for each example, as `predict` writes it. asked: the examples; rows: their rows in the batch."""
        raise NotImplementedError

    def ensemble(self, predictions: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The predictions of several runs combined: the mean of their probabilities."""
        raise UsageError("several runs can be an ensemble for classify, pair, regress and choose only: name one run")

    @classmethod
    def scores(cls, examples: Sequence[Any], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def of_row(cls, row: dict[str, Any], place: str) -> Any:
        """The example of one row of jsonl, without its label. Raises DataError where the row is no example."""
        raise NotImplementedError

    @staticmethod
    def texts_of(example: Any) -> Sequence[str]:
        """The texts from which a tokenizer is trained."""
        return example.texts


def check_mix(config: Transfer.Config) -> None:
    """Raises UsageError, with all that is wrong, for settings of a mix where there is none, or nothing to stand beside."""
    found = []
    if config.layers != "mix":
        chosen = {
            "mix_dropout": config.mix_dropout,
            "mix_l2": config.mix_l2,
            "at": "" if config.at == "input" else config.at,
        }
        found = [f"'task.{name}' = {value!r} is for task.layers = \"mix\"" for name, value in chosen.items() if value]
    elif config.at != "input" and config.reader == "none":
        found = [f"'task.at' = {config.at!r} is for task.reader = \"lstm\", beside whose output the mix enters"]
    if found:
        raise UsageError("; ".join(found) + ": set it, or leave them out")


def check_has_layers(stack: Any) -> None:
    if stack is None:
        raise UsageError('\'task.layers\' = "mix": this model has no layers to mix: use "last"')


def next_word_softmax(backbone: Backbone, config: Transfer.Config) -> Softmax:
    """Of the auxiliary loss."""
    if not backbone.causal or backbone.no_next_word:
        raise UsageError("'task.lm': only a model that reads from left to right can predict the next token beside")
    table = backbone.table if config.lm_tie else None
    if isinstance(table, NarrowedTable):
        raise UsageError(
            "'task.lm': rare words of this model have narrower vectors, which this loss cannot share: set "
            "task.lm_tie = false"
        )
    softmax = Softmax(backbone.dim, backbone.vocab_size, table, config.lm_bias)
    softmax.init_weights(std=0.02, tied=config.lm_tie)
    return softmax


def check_widths(states: tuple[Tensor, ...]) -> None:
    """Raises UsageError where states cannot be mixed."""
    widths = [state.shape[1] for state in states]
    if len(set(widths)) > 1:
        raise UsageError(f'\'task.layers\' = "mix": the layers are {widths} wide and cannot be mixed: use "last"')


def check_beside(config: Transfer.Config) -> None:
    """Raises UsageError where features from other runs have no place to enter."""
    if config.beside.dim and config.beside.at == "reader" and config.reader == "none":
        raise UsageError('\'task.beside.at\' = "reader" is for task.reader = "lstm": set it, or use "output"')
    if config.beside.dim and config.beside.at.isdecimal() and config.frozen:
        raise UsageError(
            f"'task.beside.at' = {config.beside.at}: a frozen model has no new weights for features inside it: use \"output\""
        )


def make_room(backbone: Any, layer: int, width: int) -> None:
    """Has a layer of a model read so many features more than what the layer below gives (0: the embedding)."""
    if not hasattr(backbone, "make_room"):
        raise UsageError(
            f"'task.beside.at' = {layer}: only layers of recurrent models can read other features: use \"output\""
        )
    backbone.make_room(layer, width)


def label_layer(reads: int, outputs: int) -> nn.Linear:
    """The output layer on top of a backbone, initialised as BERT's matrices: with small weights."""
    layer = nn.Linear(reads, outputs)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


class Summary(nn.Module):
    """One vector for a whole text, through the layer between body and labels where the model's paper has one. top: whether it
    reads the top hidden states, for which that layer is made."""

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
        """(T, D) → (N, width). Special tokens are pooled by `first` and `last` only, which pick one of them."""
        found = pool(states, example.batch, self.how, None if self.how in ("first", "last") else example.own)
        if self.pooled is not None:
            return self.pooled(found)
        return found if self.dense is None or self.activation is None else self.activation(self.dense(found))


def encode_texts(
    examples: Sequence[Any], tokenizer: Tokenizer, frame: Frame, combine: Any, labels: Sequence[Any]
) -> Encoded:
    """Rows for whole texts. combine: from an example's texts to those of each of its sequences; labels: of each sequence."""
    flat = [text for example in examples for text in example.texts]
    encoded = zip(*tokenizer.encode_batch_with_unknown(flat), strict=True)
    found: list[list[Row]] = []
    cut: list[str] = []
    for example, label in zip(examples, labels, strict=True):
        rows = []
        numbered = [(*next(encoded), number) for number in range(len(example.texts))]
        spots = [spots_of(text, len(ids), tokenizer) for text, (ids, *_) in zip(example.texts, numbered, strict=True)
                 if frame.spots]  # fmt: skip
        for texts, each in zip(combine(numbered), label, strict=True):
            whole, unknown, numbers = zip(*texts, strict=True)
            # of each: the tokens that are kept, its unknown words, and where each text begins in it
            parts: list[tuple[list[np.ndarray], Sequence[Sequence[str]], int]]
            if frame.windows and len(whole) == 1:
                (ids,) = whole
                spans = windows(len(ids), frame)
                parts = [([ids[part]], unknown_in(part, ids, unknown[0], tokenizer), part.start) for part in spans]
            else:
                parts = [(truncate(whole, frame.room(len(whole))), unknown, 0)]
            kept = sum(len(text) for fitting, *_ in parts for text in fitting)
            if kept < sum(map(len, whole)) and example.place not in cut[-1:]:
                cut.append(example.place)
            for fitting, unread, begin in parts:
                turn = slice(
                    None, None, -1 if frame.backward else 1
                )  # what is kept is the beginning, read from its end
                fitting = [text[turn] for text in fitting]
                ids, segments, source, _ = add_special_tokens(fitting, frame)
                chars = spelling_of(ids, list(zip(fitting, unread, strict=True)), tokenizer, frame)
                row = Row(ids, segments, source >= 0, each, chars=chars)
                if frame.spots:
                    placed = np.full((len(ids), 2), -1)
                    own = [spots[n][begin : begin + len(text)][turn] for n, text in zip(numbers, fitting, strict=True)]
                    placed[source >= 0] = np.concatenate(own)
                    row = row._replace(spots=placed, source=np.append(numbers, -1)[source])
                rows.append(row)
        found.append(rows)
    return found, cut


def spots_of(text: str, count: int, tokenizer: Tokenizer) -> np.ndarray:
    """(L, 2) the characters of each of a text's tokens, of which there are `count`."""
    _, spots = tokenizer.encode_with_offsets(text)
    if len(spots) != count:
        raise DataError(
            f"{tokenizer.where}: its tokens cannot be aligned with the characters of {text[:40]!r}: features of other runs need "
            f"that; learn a tokenizer by 'seqloom prepare'"
        )
    return np.array(spots, np.int64).reshape(-1, 2)


def windows(size: int, frame: Frame) -> list[slice]:
    """As few windows of a long text as cover it, all as long as the model reads and evenly spaced."""
    room = frame.room(1)
    if room is None or size <= room or not room:
        return [slice(0, size if room is None else min(size, room))]
    count = -(-size // room)
    starts = [round(i * (size - room) / (count - 1)) for i in range(count)]
    return [slice(start, start + room) for start in starts]


def unknown_in(part: slice, ids: np.ndarray, unknown: Sequence[str], tokenizer: Tokenizer) -> list[list[str]]:
    """The unknown words of a window of a text. unknown: those of the whole text, in order."""
    return [list(unknown)[int((ids[: part.start] == tokenizer.unk_id).sum()) :]]
