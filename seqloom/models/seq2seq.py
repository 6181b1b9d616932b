"""A whole source in one vector. Sutskever et al., 2014, Sequence to sequence learning with neural networks (arXiv 1409.3215).

Deep LSTM layers read the source from its end; the state of every layer is where the decoder's layer begins.

cho-2014 is Cho et al., 2014, Learning phrase representations using RNN encoder–decoder (arXiv 1406.1078), of the same
summer: one GRU layer, the source read as it stands, and its summary c not only the beginning: every step reads it beside
the token, and a maxout layer over h, c and the token predicts.

Departures: the forget gates start open; c is the last state of the top layer, without Cho's tanh(V h) between; the
decoder's layers begin where the encoder's ended in both; embeddings as wide as what predicts.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Edit, Lineage, Output, Ragged, State
from seqloom.blocks.cells import CELLS
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.encoder import RecurrentEncoder, RecurrentEncoderDecoder
from seqloom.blocks.feedforward import Maxout
from seqloom.blocks.recurrent import RecurrentLayer, RecurrentStack
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import (
    Dim,
    Dropout,
    NumLayers,
    ShareEmbeddings,
    SourceVocabSize,
    VocabSize,
    shares_table,
    source_entries,
)
from seqloom.models.shared_recipes import recurrent_pairs_recipe


class Decoder(StackedBackbone):
    """Begins with the encoder's last states and never looks back."""

    recurrent = carries = True

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
        if edit is not None:
            raise ValueError(f"{type(self).__name__} of a recurrent encoder–decoder has no heads or layers to gate")
        if state is None:
            state = self.start(batch.num_sequences, 0, context)
        return self.write(self.embedding(batch), batch, state, layers, maps)

    def write(self, x: Tensor, batch: Ragged, state: State, layers: bool, maps: bool) -> Output:
        return self.stack(x, batch, state, None, layers, maps)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        assert context is not None and context.final is not None, "a decoder begins with what was read"
        return State(context.final.own)

    def init_weights(self) -> None:
        """The whole model does it."""


class ReminderDecoder(Decoder):
    """The summary c is read at every step, by the bottom layer and by what predicts."""

    def __init__(self, embedding: TokenEmbedding, stack: RecurrentStack, dim: int, readout_dim: int, dropout: float):
        super().__init__(embedding, stack, readout_dim)
        self.readout = Maxout(2 * dim + embedding.token.embedding_dim, readout_dim)
        self.dropout = nn.Dropout(dropout)

    def write(self, x: Tensor, batch: Ragged, state: State, layers: bool, maps: bool) -> Output:
        (summary,) = state.shared
        per_source = batch.num_sequences // summary.shape[0]
        c = summary[batch.owner // per_source]  # (T, D)
        read: Any = self.stack(torch.cat((x, c), dim=1), batch, State(state.own), None, layers, maps)
        hidden = self.dropout(self.readout(torch.cat((read.hidden, c, x), dim=1)))
        return read._replace(hidden=hidden, state=State(read.state.own, state.shared))

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        own = super().start(n, max_len, context).own
        return State(own, (own[-1][0].clone(),))  # the state's own tensors may be written into


class Seq2seq(RecurrentEncoderDecoder):
    """Two stacks that share nothing but a state."""

    lineage = Lineage(
        "Sutskever et al., Sequence to sequence learning with neural networks", 2014, "encoder–decoder", parent="lstm"
    )
    aligned = False

    class Config(BaseConfig):
        vocab_size: VocabSize = 80000
        embedding_dim: int | None = Field(
            None, gt=0, description="Width of the token embeddings; dim unless it is given."
        )
        dim: Dim = 1000
        num_layers: NumLayers = Field(4, description="Number of layers of the encoder, and of the decoder.")
        cell: Literal["lstm", "gru"] = Field("lstm", description="Recurrent cell of both sides.")
        reverse: bool = Field(True, description="Read sources from their end to their start.")
        context: Literal["first", "every"] = Field(
            "first", description="Steps of the decoder that read the vector of the source: the first one, or every one."
        )
        dropout: Dropout = 0.0
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 2},
        "small": {"dim": 512, "num_layers": 2, "dropout": 0.3},
        "sutskever-2014": {"vocab_size": 80000, "source_vocab_size": 160000, "share_embeddings": False},
        "cho-2014": {
            "vocab_size": 15000,
            "embedding_dim": 100,
            "num_layers": 1,
            "cell": "gru",
            "reverse": False,
            "context": "every",
            "share_embeddings": False,
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_pairs_recipe(preset)

    def __init__(self, config: Config):
        dim, width, reminded = config.dim, config.embedding_dim or config.dim, config.context == "every"

        def embedding(entries: int) -> TokenEmbedding:
            return TokenEmbedding(entries, width, dropout=0.0)  # the layer above drops what it reads

        def stack(reads: int, top: float | None) -> RecurrentStack:
            cells = [CELLS[config.cell](reads if i == 0 else dim, dim) for i in range(config.num_layers)]
            layers = [RecurrentLayer(cell, config.dropout) for cell in cells]
            return RecurrentStack(layers, None if top is None else nn.Dropout(top))

        decoder = (
            ReminderDecoder(embedding(config.vocab_size), stack(width + dim, None), dim, width, config.dropout)
            if reminded
            else Decoder(embedding(config.vocab_size), stack(width, config.dropout), dim)
        )
        encoder = RecurrentEncoder(embedding(source_entries(config)), stack(width, None), dim, config.reverse)
        super().__init__(encoder, decoder, shares_table(config), config.cell)
