"""A caption written while looking at a picture. Xu et al., 2015, Show, attend and tell (arXiv 1502.03044).

An encoder makes regions of a picture; an LSTM looks at them with its state before every step (Bahdanau's cell), and a gate β says
how much of what is seen enters. It starts from the mean of the regions. What predicts is L_o(E y + L_h h + L_z ẑ).
`attention = "hard"` looks at one region, drawn by the weights, and learns to draw by REINFORCE with a moving baseline and an
entropy term.

Departures: a small convolutional network of its own, trained with the rest, in place of VGG-19's frozen features (published
features are read with `features`), and a learnt vector for each place, because it is too shallow to know where a region stands;
what predicts is tanh of that sum. Hard attention: half of the words, not of the pictures, see the mean in training; a draw is
rewarded for the words from it on, and the baseline is a moving mean of the log-probability of a word; the largest weight is
looked at when a caption is written. `doubly_stochastic` is 0 in the small sizes: ten words cannot look at each of 64 regions
once.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Images, Lineage, Output, Ragged, State
from seqloom.blocks.alignment import AlignedConfig, AlignedDecoder, Alignment, Memory
from seqloom.blocks.cells import CellState, LstmCell
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.glimpse import GatedCell, HardCell, doubly_stochastic, entropy, log_choice
from seqloom.blocks.pictures import CHANNELS, FEATURES, SIDE, PictureModel, RegionEncoder
from seqloom.blocks.pooling import pool
from seqloom.blocks.recurrent import init_lstm, scan
from seqloom.models.fields import Dim, Dropout, VocabSize
from seqloom.models.shared_recipes import caption_recipe


class Decoder(AlignedDecoder):
    each_sequence = ("first",)
    reward = 1.0

    def __init__(self, embedding: TokenEmbedding, cell: GatedCell, dropout: float, doubly: float, entropy: float):
        super().__init__()
        width, regions = embedding.token.embedding_dim, cell.alignment.hidden_dim
        self.embedding, self.cell, self.dim = embedding, cell, width
        self.first = nn.Linear(regions, 2 * cell.dim)
        self.readout, self.dropout = nn.Linear(cell.dim + regions, width), nn.Dropout(dropout)
        self.doubly, self.entropy = doubly, entropy  # weights of the two penalties
        self.draws = isinstance(cell, HardCell)

    def begin(self, context: Context) -> CellState:
        """h and c from the mean of the regions."""
        h, c = torch.tanh(self.first(pool(context.hidden, context, "mean"))).chunk(2, dim=1)
        both, _ = self.cell.start(context.num_sequences)
        return torch.cat((h, both[:, self.cell.dim :].to(h.dtype)), dim=1), c

    def write(
        self, x: Tensor, batch: Ragged, own: CellState, memory: Memory, maps: bool
    ) -> tuple[Tensor, CellState, Tensor | None]:
        both, own, weights = scan(self.cell, x, batch, own, maps, memory)
        return self.dropout(torch.tanh(x + self.readout(self.dropout(both)))), own, weights

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        learns = self.training and state is None and bool(self.draws or self.doubly)
        output = super().forward(batch, state=state, context=context, layers=layers, maps=maps or learns)
        if not output.cross:
            return output
        (values,) = output.cross  # (T, 1, S), or (T, 2, S) with what was drawn
        weights, real = values[:, 0], batch.real
        penalty: Tensor | None = None
        chosen = None
        if learns:
            penalty = self.doubly * doubly_stochastic(weights, batch, real) if self.doubly else weights.new_zeros(())
        if learns and self.draws:
            chosen = log_choice(weights, values[:, 1])
            uncertainty = entropy(weights) * values[:, 1].sum(-1)
            assert penalty is not None
            penalty = penalty - self.entropy * (uncertainty if real is None else uncertainty * real).sum()
        return output._replace(cross=(values[:, :1],) if maps else (), penalty=penalty, log_choice=chosen)


class ShowAttendTell(PictureModel):
    """A convolutional encoder, additive attention with a gate, one LSTM."""

    lineage = Lineage(
        "Xu et al., Show, attend and tell: neural image caption generation with visual attention",
        2015,
        "captioner",
        parent="bahdanau",
    )

    class Config(AlignedConfig):
        vocab_size: VocabSize = 10000
        embedding_dim: int = Field(512, gt=0, description="Width of the word vectors.")
        dim: Dim = Field(1000, description="Width of the LSTM.")
        side: int = SIDE
        channels: tuple[int, ...] = CHANNELS
        features: int = FEATURES
        positions: Literal["learned", "none"] = Field(
            "learned", description="Add a learnt vector for its place to each region of a picture, or none."
        )
        attention: Literal["soft", "hard"] = Field(
            "soft", description="Look at the mean of the regions by their weights, or at one that is drawn by them."
        )
        doubly_stochastic: float = Field(
            0.0, ge=0, description="Weight λ of λ Σ (1 − Σ α)², which has every region looked at once; the paper: 1."
        )
        reward: float = Field(
            1.0,
            ge=0,
            description="Weight λ of what hard attention learns from its draws; 1: the gradient of the reward.",
        )
        entropy: float = Field(0.01, ge=0, description="Weight of the entropy of hard attention, which is raised.")
        mean_share: float = Field(
            0.5, ge=0, le=1, description="Share of words that see the mean in the training of hard attention."
        )
        dropout: Dropout = 0.0

    presets = {  # noqa: RUF012
        "tiny": {"embedding_dim": 64, "dim": 128, "reward": 0.05},
        "small": {"embedding_dim": 256, "dim": 512, "side": 128, "channels": [32, 64, 128, 256], "dropout": 0.3},
        "xu-2015": {
            "vocab_size": 10000,
            "features": 512,
            "positions": "none",
            "doubly_stochastic": 1.0,
            "dropout": 0.5,
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return caption_recipe(preset)

    def __init__(self, config: Config):
        super().__init__()
        self.encoder = RegionEncoder(config.side, config.channels, config.features, config.positions)
        alignment = Alignment(config, config.dim, self.encoder.dim)
        lstm = LstmCell(config.embedding_dim, config.dim)
        cell = (
            GatedCell(lstm, alignment) if config.attention == "soft" else HardCell(lstm, alignment, config.mean_share)
        )
        embedding = TokenEmbedding(config.vocab_size, config.embedding_dim, config.dropout)
        self.decoder = Decoder(embedding, cell, config.dropout, config.doubly_stochastic, config.entropy)
        self.decoder.reward = config.reward
        self.dim, self.max_len = self.decoder.dim, config.max_len
        self.init_weights()

    def encode(self, source: Images) -> Context:
        return self.encoder(source)

    def init_weights(self) -> None:
        init_lstm(self)
