"""Attention after the step. Luong et al., 2015, Effective approaches to attention-based NMT (arXiv 1508.04025).

A stack of LSTM layers writes, as in Sutskever et al., 2014; above it h̃ = tanh(W [c ; h]) joins what the top layer knows
and what it sees in the source. With input feeding h̃ is read by the bottom layer in the next step, together with the token.

Departures: global attention only, no window of predicted places; biases 1 at the forget gates; cosine and scaled dot are
not the paper's.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Lineage, Ragged, State
from seqloom.blocks.alignment import AlignedConfig, AlignedDecoder, Alignment, Memory, ScoreName
from seqloom.blocks.cells import CellState, LstmCell
from seqloom.blocks.connections import recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.encoder import RecurrentEncoder, RecurrentEncoderDecoder
from seqloom.blocks.grid import from_grid, to_grid
from seqloom.blocks.recurrent import scan
from seqloom.blocks.stack import Stack
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


class AttentionalCell(nn.Module):
    """State: h̃ where it is fed back, then h and c of each layer."""

    gates: tuple[str, ...] = ("alignment",)

    def __init__(self, stack: Stack, alignment: Alignment, dim: int, input_feeding: bool):
        super().__init__()
        self.stack, self.alignment, self.dim = stack, alignment, dim
        self.combine = nn.Linear(2 * dim, dim, bias=False)
        self.feed = nn.Linear(dim, 4 * dim, bias=False) if input_feeding else None

    def combined(self, seen: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat((seen, h), dim=1)))

    def inputs(self, x: Tensor) -> Tensor:
        bottom: Any = self.stack.layers[0]
        return bottom.cell.inputs(bottom.dropout(x))

    def step(self, x: Tensor, state: CellState, *memory: Tensor) -> tuple[CellState, tuple[Tensor, ...]]:
        assert self.feed is not None
        h, after = x, []
        for i, layer in enumerate(self.stack.layers):
            read: Any = layer
            given = x + self.feed(read.dropout(state[0])) if i == 0 else read.cell.inputs(read.dropout(h))
            (h, c), _ = read.cell.step(given, state[2 * i + 1 : 2 * i + 3])
            after += [h, c]
        seen, weights = self.alignment(h, *memory)
        return (self.combined(seen, h), *after), (weights,)

    def start(self, n: int) -> CellState:
        return (self.combine.weight.new_zeros(n, self.dim),) if self.feed is not None else ()


class Decoder(AlignedDecoder):
    cell: AttentionalCell

    def __init__(self, embedding: nn.Module, cell: AttentionalCell, dropout: float):
        super().__init__()
        self.embedding, self.cell, self.dim, self.dropout = embedding, cell, cell.dim, nn.Dropout(dropout)

    def begin(self, context: Context) -> CellState:
        assert context.final is not None
        given = (part for layer in context.final.own for part in layer)
        return *self.cell.start(context.num_sequences), *given

    def write(
        self, x: Tensor, batch: Ragged, own: CellState, memory: Memory, maps: bool
    ) -> tuple[Tensor, CellState, Tensor | None]:
        if self.cell.feed is not None:
            hidden, own, weights = scan(self.cell, x, batch, own, maps, memory)
            return self.dropout(hidden), own, weights
        # nothing is fed back: the layers run in their kernels, and all tokens look at once
        output = self.cell.stack(x, batch, State(tuple(zip(own[::2], own[1::2], strict=True))))
        assert output.state is not None
        grid = to_grid(output.hidden, batch)
        seen, shares = (part.unflatten(0, grid.shape[:2]) for part in self.cell.alignment(grid.flatten(0, 1), *memory))
        hidden = self.cell.combined(from_grid(seen, batch), output.hidden)
        weights = from_grid(shares, batch).unsqueeze(1) if maps else None
        return self.dropout(hidden), tuple(part for layer in output.state.own for part in layer), weights


class Luong(RecurrentEncoderDecoder):
    """Reversed sources, LSTM layers, six scores, input feeding."""

    lineage = Lineage(
        "Luong et al., Effective approaches to attention-based neural machine translation",
        2015,
        "encoder–decoder",
        parent="bahdanau",
    )

    class Config(AlignedConfig):
        vocab_size: VocabSize = 50000
        dim: Dim = 1000
        num_layers: NumLayers = Field(4, description="Number of layers of the encoder, and of the decoder.")
        score: ScoreName = Field("general", description="How a decoder state is scored against the encoder states.")
        input_feeding: bool = Field(True, description="Feed the attentional state into the next step.")
        dropout: Dropout = 0.2
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 2, "dropout": 0.0},
        "small": {"dim": 384, "num_layers": 2, "dropout": 0.3},
        "luong-2015": {"vocab_size": 50000, "share_embeddings": False},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_pairs_recipe(preset)

    def __init__(self, config: Config):
        dim, dropout = config.dim, config.dropout

        def embedding(entries: int) -> TokenEmbedding:
            return TokenEmbedding(entries, dim, dropout=0.0)  # the layer above drops what it reads

        def stack() -> Stack:
            layers = recurrent_stack(lambda width: LstmCell(width, dim), dim, config.num_layers, dropout, "none")
            layers.top = None  # nothing predicts from it; what looks at it does so undropped
            return layers

        cell = AttentionalCell(stack(), Alignment(config, dim, dim), dim, config.input_feeding)
        super().__init__(
            RecurrentEncoder(embedding(source_entries(config)), stack(), dim, reverse=True),
            Decoder(embedding(config.vocab_size), cell, dropout),
            shares_table(config),
        )
        self.max_len = config.max_len
