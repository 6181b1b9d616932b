"""Attention before the step. Bahdanau et al., 2015, Neural machine translation by jointly learning to align and translate.

(arXiv 1409.0473.) The encoder reads in both directions; the decoder looks at all of it with the state of the step before,
and what it sees enters the step: s = f(y, c, s′). A maxout layer over s, y and c predicts.

Departures: the output layer reads the new state s where the appendix has the one before; the reset gate stands after the
matrix, as kernels have it; encoders narrower than the paper's, dim/2 a direction, so that every score fits; embeddings as
wide as what predicts, so that an output layer may share them; `cell = "lstm"` (its memory cell starts at 0) and scores
other than additive are not the paper's. bahdanau-2015 is RNNsearch-50.
"""

from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batch import Context, Lineage, Ragged
from seqloom.blocks.alignment import AlignedCell, AlignedConfig, AlignedDecoder, Alignment, Memory
from seqloom.blocks.cells import CELLS, CellState
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.encoder import RecurrentEncoder, RecurrentEncoderDecoder
from seqloom.blocks.feedforward import Maxout
from seqloom.blocks.recurrent import Bidirectional, scan
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


class Decoder(AlignedDecoder):
    once = ("first",)

    def __init__(
        self,
        embedding: TokenEmbedding,
        cell: AlignedCell,
        encoder_dim: int,
        readout_dim: int,
        dropout: float,
    ):
        super().__init__()
        self.embedding, self.cell, self.dim = embedding, cell, readout_dim
        self.first = nn.Linear(encoder_dim, cell.dim)
        reads = cell.dim + cell.alignment.hidden_dim + embedding.token.embedding_dim
        self.readout, self.dropout = Maxout(reads, readout_dim), nn.Dropout(dropout)

    def begin(self, context: Context) -> CellState:
        """The first state of the decoder, from the backward half of the encoder at the first token."""
        assert context.final is not None
        ((_, backward),) = context.final.own
        both, *rest = self.cell.start(context.num_sequences)
        h = torch.tanh(self.first(backward[0]))
        return torch.cat((h, both[:, self.cell.dim :].to(h.dtype)), dim=1), *rest

    def write(
        self, x: Tensor, batch: Ragged, own: CellState, memory: Memory, maps: bool
    ) -> tuple[Tensor, CellState, Tensor | None]:
        both, own, weights = scan(self.cell, x, batch, own, maps, memory)
        return self.dropout(self.readout(torch.cat((both, x), dim=1))), own, weights


class Bahdanau(RecurrentEncoderDecoder):
    """A bidirectional encoder, additive scores, a gated unit that reads what it sees."""

    lineage = Lineage(
        "Bahdanau et al., Neural machine translation by jointly learning to align and translate",
        2015,
        "encoder–decoder",
        parent="seq2seq",
    )

    class Config(AlignedConfig):
        vocab_size: VocabSize = 30000
        embedding_dim: int = Field(620, gt=0, description="Width of the word vectors.")
        dim: Dim = Field(1000, description="Width of the decoder's hidden states.")
        encoder_dim: int | None = Field(
            None, gt=0, description="Width of each direction of the encoder; dim / 2 unless it is given."
        )
        readout_dim: int | None = Field(
            None, gt=0, description="Width of the layer that predicts the next word; embedding_dim unless it is given."
        )
        cell: Literal["gru", "lstm"] = Field("gru", description="Recurrent cell of both sides.")
        dropout: Dropout = 0.0
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None

        @model_validator(mode="after")
        def halves(self) -> Self:
            if self.encoder_dim is None and self.dim % 2:
                raise ValueError(f"dim {self.dim} has no half: give an even one, or encoder_dim, too")
            return self

    presets = {  # noqa: RUF012
        "tiny": {"embedding_dim": 80, "dim": 96},
        "small": {"embedding_dim": 256, "dim": 512, "dropout": 0.3},
        "bahdanau-2015": {
            "vocab_size": 30000,
            "encoder_dim": 1000,
            "readout_dim": 500,
            "share_embeddings": False,
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_pairs_recipe(preset)

    def __init__(self, config: Config):
        half, make = config.encoder_dim or config.dim // 2, CELLS[config.cell]

        def embedding(entries: int) -> TokenEmbedding:
            return TokenEmbedding(entries, config.embedding_dim, config.dropout)

        both = Bidirectional(make(config.embedding_dim, half), make(config.embedding_dim, half))
        alignment = Alignment(config, config.dim, 2 * half)
        decoder = Decoder(
            embedding(config.vocab_size),
            AlignedCell(make(config.embedding_dim, config.dim), alignment),
            half,
            config.readout_dim or config.embedding_dim,
            config.dropout,
        )
        encoder = RecurrentEncoder(
            embedding(source_entries(config)), Stack([both], top=nn.Dropout(config.dropout)), 2 * half
        )
        super().__init__(encoder, decoder, shares_table(config), config.cell)
        self.max_len = config.max_len
