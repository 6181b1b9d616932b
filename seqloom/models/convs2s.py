"""ConvS2S: translation by gated convolutions, with attention in every decoder layer. Gehring et al., 2017 (arXiv 1705.03122).

An encoder layer sees its neighbours on both sides, a decoder layer those before. Each decoder layer looks at the source from its
own state and the embedding of the target's token; what it sees is the sum of the encoder's state and the embedding of a word.

Departures: the gradients of the encoder are divided by the number of looks, as the text says (the authors' code halves them once
more); what is seen goes through a matrix, as in their code; the output layer's weights are not normalised, so that they can be
tied. Whatever optimizer the recipe names (the paper: Nesterov's momentum 0.99, rate 0.25, clipped at 0.1).
"""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, Edit, EncoderDecoder, Lineage, Output, Ragged, State, without_state
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.multi_step import (
    HALF,
    GatedConvolution,
    MultiStepLayer,
    ScaledGradient,
    Seen,
    init_in_scale,
    normalise_weights,
    read,
)
from seqloom.blocks.positions import LearnedPositions
from seqloom.blocks.stack import Stack
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dropout, ShareEmbeddings, SourceVocabSize, VocabSize, shares_table, source_entries

Size = Annotated[int, Field(ge=1, le=1_000_000)]
Width = Annotated[int, Field(ge=1, le=128)]
Layers = tuple[tuple[Size, Width], ...]


class Half(Backbone):
    """The frame of both: an embedding, a matrix, layers, a matrix back to the width of the embedding."""

    embedding: Any

    def __init__(self, embedding: nn.Module, layers: list[nn.Module], widths: tuple[int, int], dim: int):
        super().__init__()
        self.embedding, self.stack, self.dim = embedding, Stack(layers), dim
        self.enter, self.leave = nn.Linear(dim, widths[0]), nn.Linear(widths[1], dim)

    @property
    def table(self) -> nn.Embedding:
        return self.embedding.token

    def init_weights(self) -> None:
        """The whole model does it."""


class Encoder(Half):
    """hidden: what is seen, the sum of states and embeddings."""

    causal = False
    looks = 1  # how many decoder layers look at it

    def read(
        self, batch: Ragged, layers: bool = False, maps: bool = False, edit: Edit | None = None
    ) -> tuple[Tensor, Output]:
        """What a decoder compares with, and what it sees."""
        x = self.embedding(batch)
        output: Output = self.stack(self.enter(x), batch, None, None, layers, maps, edit)
        keys = self.leave(output.hidden)
        if self.training:  # elsewhere gradients are those of what is computed: answers are traced by them
            keys = ScaledGradient.apply(keys, 1 / self.looks)
        return keys, output._replace(hidden=(keys + x) * HALF)

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
    ) -> Output:
        return without_state(self.read(batch, layers, maps, edit)[1])

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        raise ValueError("an encoder reads whole texts: it has no state and cannot write token by token")


class Decoder(Half):
    def __init__(
        self, embedding: nn.Module, layers: list[nn.Module], widths: tuple[int, int], dim: int, dropout: float
    ):
        super().__init__(embedding, layers, widths, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        x = self.embedding(batch)
        own, source = (None, context) if state is None else (State(state.own), state.shared)
        output: Output = self.stack(self.enter(x), batch, own, Seen(x, source), layers, maps)
        assert output.state is not None
        after = None if state is None else State(output.state.own, state.shared)
        return Output(self.dropout(self.leave(output.hidden)), after, output.layers, cross=output.maps)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        assert context is not None, "a decoder begins with what it looks at"
        return State(self.stack.start(n, max_len).own, read(context))


class ConvS2s(EncoderDecoder):
    """Gated linear units, residual connections, learned positions on both sides, normalised weights."""

    lineage = Lineage(
        "Gehring et al., Convolutional sequence to sequence learning", 2017, "encoder–decoder", parent="bytenet-mt"
    )
    encoder: Encoder

    class Config(BaseConfig):
        vocab_size: VocabSize = 40000
        dim: int = Field(512, gt=0, description="Width of the embeddings, and of what the words are predicted from.")
        encoder_layers: Layers = Field(
            ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2,
            min_length=1,
            max_length=256,
            description="Units and width in tokens of the encoder's convolutions, one pair for each layer.",
        )
        decoder_layers: Layers = Field(
            ((512, 3),) * 9 + ((1024, 3),) * 4 + ((2048, 1),) * 2,
            min_length=1,
            max_length=256,
            description="The same of the decoder's, which see the tokens before.",
        )
        max_len: int = Field(1024, gt=0, description="The most tokens of a source, and of a target.")
        dropout: Dropout = 0.1
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None

    presets = {  # noqa: RUF012
        "tiny": {
            "dim": 64, "encoder_layers": [[64, 3]] * 3, "decoder_layers": [[64, 3]] * 3, "max_len": 256, "dropout": 0.0,
        },
        "small": {
            "dim": 256, "encoder_layers": [[256, 3]] * 4, "decoder_layers": [[256, 3]] * 3, "max_len": 256, "dropout": 0.2,
        },
        "wmt-en-ro": {"vocab_size": 40000, "encoder_layers": [[512, 3]] * 20, "decoder_layers": [[512, 3]] * 20},
        "wmt-en-de": {"vocab_size": 40000},
        "wmt-en-fr": {
            "vocab_size": 40000,
            "encoder_layers": [*[[512, 3]] * 5, *[[768, 3]] * 4, *[[1024, 3]] * 3, [2048, 1], [4096, 1]],
            "decoder_layers": [*[[512, 3]] * 5, *[[768, 3]] * 4, *[[1024, 3]] * 3, [2048, 1], [4096, 1]],
        },
    }  # fmt: skip

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        tiny = preset == "tiny"
        return {
            "task": {"name": "translate", "label_smoothing": 0.1},
            "batches": {"kind": "pairs", "budget": 2048 if tiny else 4096, "length": 128 if tiny else 256},
            "train": {
                "optim": {"lr": 3e-3 if tiny else 1e-3 if preset == "small" else 5e-4, "clip": 1.0, "beta2": 0.98},
                "schedule": {"name": "cosine", "warmup": 100 if tiny else 500},
                "eval_every": 200,
            },
            "budget": {"tokens": 1e6} if tiny else {"epochs": 30},
        }

    def __init__(self, config: Config):
        super().__init__()
        self.dim, self.max_len, self.keep = config.dim, config.max_len, 1 - config.dropout

        def embed(entries: int) -> TokenEmbedding:
            positions = LearnedPositions(config.max_len, config.dim)
            return TokenEmbedding(entries, config.dim, config.dropout, positions)

        def inputs(layers: Layers) -> list[tuple[int, int, int]]:
            """Of each layer how many units it reads and has, and its width."""
            units = [size for size, _ in layers]
            return [(below, size, width) for below, (size, width) in zip((units[0], *units), layers, strict=False)]

        encoder, decoder = inputs(config.encoder_layers), inputs(config.decoder_layers)
        self.encoder = Encoder(
            embed(source_entries(config)),
            [GatedConvolution(*sizes, False, config.dropout) for sizes in encoder],
            (encoder[0][0], encoder[-1][1]),
            config.dim,
        )
        self.decoder = Decoder(
            embed(config.vocab_size),
            [MultiStepLayer(*sizes, config.dim, config.dropout) for sizes in decoder],
            (decoder[0][0], decoder[-1][1]),
            config.dim,
            config.dropout,
        )
        self.encoder.looks = len(decoder)
        self.encoder.max_len = self.decoder.max_len = config.max_len
        if shares_table(config):
            self.encoder.embedding.token = self.decoder.embedding.token
        normalise_weights(self)
        self.init_weights()

    def encode(self, source: Ragged) -> Context:
        """What is compared with and what is seen, side by side."""
        keys, output = self.encoder.read(source)
        hidden = torch.cat((keys, output.hidden), 1)
        return Context(hidden, source.owner, source.offsets, source.max_len)

    def init_weights(self) -> None:
        init_in_scale(self, self.keep)
