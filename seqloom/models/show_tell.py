"""A picture as the first word of its caption. Vinyals et al., 2015, Show and tell (arXiv 1411.4555).

A convolutional network makes one vector of a picture; an LSTM reads it once, before the first word, and never looks back.

Departures: a small convolutional network of its own, trained with the rest, in place of one trained on ImageNet (published
features are read with `features`); the largest value of each feature stands beside the mean of the regions, of which a thing
is but a small part; the vector is normalised over pictures (`BatchRenorm`). Without that, what all pictures have in common
grows in it until the LSTM's first step is saturated and no gradient reaches the network, which then sees nothing. Where
processes share a batch, each normalises over its own part. The forget gates start open. vinyals-2015 has the paper's LSTM of 512
numbers over 2,048 features.
"""

from typing import Any

from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Images, Lineage
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.grid import FullGrid
from seqloom.blocks.pictures import CHANNELS, FEATURES, SIDE, PictureModel, RegionEncoder, pooled
from seqloom.blocks.recurrent import RecurrentLayer, RecurrentStack, init_lstm
from seqloom.blocks.renorm import BatchRenorm
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, NumLayers, VocabSize
from seqloom.models.seq2seq import Decoder
from seqloom.models.shared_recipes import caption_recipe


class PictureVector(RegionEncoder):
    """One vector for a picture, of the mean of its regions and the largest value of each feature."""

    each_sequence = ("first",)

    def __init__(self, side: int, channels: tuple[int, ...], features: int, width: int):
        super().__init__(side, channels, features, "none")
        self.first, self.norm = nn.Linear(2 * self.dim, width), BatchRenorm(width)

    def vector(self, context: Context) -> Tensor:
        """(N, width)"""
        return self.norm(self.first(pooled(context)))


class ShowTell(PictureModel):
    """A convolutional encoder, and LSTM layers that read the picture first."""

    lineage = Lineage(
        "Vinyals et al., Show and tell: a neural image caption generator", 2015, "captioner", parent="seq2seq"
    )
    aligned = False
    once_more = ("reader",)

    class Config(BaseConfig):
        vocab_size: VocabSize = 10000
        embedding_dim: int | None = Field(
            None, gt=0, description="Width of the token embeddings; dim unless it is given."
        )
        dim: Dim = 512
        num_layers: NumLayers = Field(1, description="Number of LSTM layers.")
        side: int = SIDE
        channels: tuple[int, ...] = CHANNELS
        features: int = FEATURES
        dropout: Dropout = 0.0

    presets = {  # noqa: RUF012
        "tiny": {"embedding_dim": 64, "dim": 128},
        "small": {"embedding_dim": 256, "dim": 512, "side": 128, "channels": [32, 64, 128, 256], "dropout": 0.3},
        "vinyals-2015": {"vocab_size": 10000, "features": 2048, "dropout": 0.3},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return caption_recipe(preset)

    def __init__(self, config: Config):
        super().__init__()
        dim, width = config.dim, config.embedding_dim or config.dim
        self.encoder: Any = PictureVector(config.side, config.channels, config.features, width)
        cells = [LstmCell(width if i == 0 else dim, dim) for i in range(config.num_layers)]
        layers = RecurrentStack([RecurrentLayer(cell, config.dropout) for cell in cells], nn.Dropout(config.dropout))
        self.decoder: Any = Decoder(TokenEmbedding(config.vocab_size, width, dropout=0.0), layers, dim)
        self.dim = dim
        self.init_weights()

    @property
    def reader(self) -> nn.Module:
        """What reads the picture before the words."""
        return self.decoder.stack

    def encode(self, source: Images) -> Context:
        regions = self.encoder(source)
        n, device = source.num_sequences, regions.hidden.device
        read: Any = self.decoder.stack(self.encoder.vector(regions), FullGrid.of(n, 1, device))
        return regions._replace(final=read.state)

    def init_weights(self) -> None:
        init_lstm(self)
