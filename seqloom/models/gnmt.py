"""A deep residual stack with attention. Wu et al., 2016, Google's neural machine translation system (arXiv 1609.08144).

The bottom encoder layer reads in both directions. The bottom decoder layer looks at the encoder with its state of the step
before (which is Bahdanau's cell), and every decoder layer reads what it saw; so only that one layer waits for itself, and
all others run through whole targets. From the third layer on a layer's input is added to its output.

Departures: the decoder begins with zeros, of which the paper says nothing; no quantisation, no clipping of states; dropout
on what each layer reads and on what predicts (Zaremba et al., 2014).
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Lineage, Ragged, State
from seqloom.blocks.alignment import AlignedCell, AlignedConfig, AlignedDecoder, Alignment, Memory
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.connections import Residual
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.encoder import RecurrentEncoder, RecurrentEncoderDecoder
from seqloom.blocks.layers import Mixed
from seqloom.blocks.recurrent import Bidirectional, RecurrentLayer, scan
from seqloom.blocks.stack import Stack
from seqloom.models.fields import (
    Dim,
    Dropout,
    ShareEmbeddings,
    SourceVocabSize,
    VocabSize,
    shares_table,
    source_entries,
)
from seqloom.models.shared_recipes import recurrent_pairs_recipe


class Upper(Residual):
    identity_path = False  # two layers lie between it and the embedding


class RemindedLayer(RecurrentLayer):
    """Reads x and what the bottom layer saw, side by side."""

    def forward(self, x: Tensor, batch: Ragged, state: Any = None, context: Any = None, maps: bool = False) -> Mixed:
        return super().forward(torch.cat((x, context), dim=1), batch, state, None, maps)


class Decoder(AlignedDecoder):
    def __init__(self, embedding: nn.Module, cell: AlignedCell, upper: Stack, dropout: float):
        super().__init__()
        self.embedding, self.cell, self.upper, self.dropout = embedding, cell, upper, nn.Dropout(dropout)
        self.dim = cell.dim

    def begin(self, context: Context) -> tuple[Any, ...]:
        return self.cell.start(context.num_sequences), *self.upper.start(context.num_sequences, 0).own

    def write(
        self, x: Tensor, batch: Ragged, own: tuple[Any, ...], memory: Memory, maps: bool
    ) -> tuple[Tensor, tuple[Any, ...], Tensor | None]:
        both, bottom, weights = scan(self.cell, self.dropout(x), batch, own[0], maps, memory)
        hidden, seen = both[:, : self.dim], both[:, self.dim :]
        output = self.upper(hidden, batch, State(own[1:]), seen)
        return output.hidden, (bottom, *output.state.own), weights


class Gnmt(RecurrentEncoderDecoder):
    """Eight LSTM layers on either side."""

    lineage = Lineage("Wu et al., Google's neural machine translation system", 2016, "encoder–decoder", parent="luong")

    class Config(AlignedConfig):
        vocab_size: VocabSize = 32000
        dim: Dim = 1024
        num_layers: int = Field(8, ge=2, description="Number of layers of the encoder, and of the decoder.")
        dropout: Dropout = 0.2
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None

    presets = {  # noqa: RUF012
        "tiny": {"dim": 64, "num_layers": 3, "dropout": 0.0},
        "small": {"dim": 256, "num_layers": 4, "dropout": 0.3},
        "gnmt": {"vocab_size": 32000},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_pairs_recipe(preset)

    def __init__(self, config: Config):
        dim, dropout = config.dim, config.dropout

        def embedding(entries: int) -> TokenEmbedding:
            return TokenEmbedding(entries, dim, dropout=0.0)  # the layer above drops what it reads

        def past(layer: nn.Module, i: int) -> nn.Module:
            return Upper(layer, dim) if i >= 2 else layer

        layers: list[nn.Module] = [Bidirectional(LstmCell(dim, dim), LstmCell(dim, dim), dropout)]
        reminded: list[nn.Module] = []
        for i in range(1, config.num_layers):
            layers.append(past(RecurrentLayer(LstmCell(2 * dim if i == 1 else dim, dim), dropout), i))
            reminded.append(past(RemindedLayer(LstmCell(2 * dim, dim), dropout), i))
        cell = AlignedCell(LstmCell(dim, dim), Alignment(config, dim, dim))
        upper = Stack(reminded, top=nn.Dropout(dropout))
        super().__init__(
            RecurrentEncoder(embedding(source_entries(config)), Stack(layers), dim),
            Decoder(embedding(config.vocab_size), cell, upper, dropout),
            shares_table(config),
        )
        self.max_len = config.max_len
