"""Patches of a picture through a Transformer into words: a Vision Transformer (Dosovitskiy et al., 2021, An image is worth 16×16
words, arXiv 2010.11929) as the encoder of a Transformer's decoder, as in Li et al., 2021, TrOCR (arXiv 2109.10282).

The encoder computes what transformers' ViTModel computes (tests compare them), and `seqloom train --vit` takes over its
weights.

Departures: the small sizes have no class token; pictures are resized to a square without cropping.
"""

from typing import Any

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Context, Images, Lineage
from seqloom.batches.pictures import PictureSize
from seqloom.blocks.attention import HEAD_DIM, CrossAttention, SelfAttention, heads_divide_dim
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import PreNormDecoderLayer, PreNormLayer, init_normal
from seqloom.blocks.pictures import FEATURES, SIDE, PatchEmbedding, PictureModel
from seqloom.blocks.positions import LearnedPositions
from seqloom.blocks.stack import Stack
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, FfnDim, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import caption_recipe
from seqloom.models.transformer import Decoder

EPS = 1e-12  # of the norms of a Vision Transformer


class PatchEncoder(nn.Module):
    """A Vision Transformer: patches, then layers that normalise first, then a norm."""

    def __init__(self, embedding: PatchEmbedding, stack: Stack, dim: int):
        super().__init__()
        self.embedding, self.stack, self.dim = embedding, stack, dim

    def forward(self, source: Images) -> Context:
        x, borders = self.embedding(source)
        output = self.stack(x, borders)
        return Context(output.hidden, borders.owner, borders.offsets, borders.max_len)


class PatchCaptioner(PictureModel):
    """A Vision Transformer that reads, a Transformer's decoder that writes."""

    lineage = Lineage(
        "Dosovitskiy et al., An image is worth 16×16 words; Li et al., TrOCR", 2021, "captioner", parent="transformer"
    )

    class Config(BaseConfig):
        vocab_size: VocabSize = 10000
        dim: Dim = 768
        encoder_layers: int = Field(12, ge=1, description="Number of layers of the encoder.")
        num_layers: NumLayers = Field(6, description="Number of layers of the decoder.")
        num_heads: NumHeads = 12
        ffn_dim: FfnDim = None
        max_len: int = Field(128, gt=0, description="The most tokens of a caption.")
        side: int = SIDE
        patch: int = Field(8, ge=1, description="Pixels of a side of a patch.")
        features: int = FEATURES
        class_token: bool = Field(False, description="Put a learnt token before the patches, as published.")
        dropout: Dropout = 0.0
        head_dim: int | None = HEAD_DIM

        whole_heads = model_validator(mode="after")(heads_divide_dim)

    presets = {  # noqa: RUF012
        "tiny": {"dim": 96, "encoder_layers": 2, "num_layers": 2, "num_heads": 4, "ffn_dim": 192, "max_len": 64},
        "small": {
            "dim": 384, "encoder_layers": 6, "num_layers": 4, "num_heads": 6, "side": 128, "patch": 16, "dropout": 0.1,
        },
        "vit-base": {"vocab_size": 50265, "side": 224, "patch": 16, "class_token": True},
    }  # fmt: skip

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return caption_recipe(preset, rate=1e-3)

    @classmethod
    def picture_size(cls, config: Config) -> PictureSize:
        regions = (config.side // config.patch) ** 2 + config.class_token
        return PictureSize(config.side, regions, config.features)

    def __init__(self, config: Config):
        super().__init__()
        self.dim, self.max_len, self.grid_offset = config.dim, config.max_len, int(config.class_token)

        def layer(decoder: bool) -> nn.Module:
            mixer = SelfAttention(config.dim, config.num_heads, decoder, head_dim=config.head_dim)
            ffn = FeedForward(config.dim, config.ffn_dim or 4 * config.dim, "gelu")
            if decoder:
                cross = CrossAttention(config.dim, config.num_heads, 0.0, config.head_dim)
                return PreNormDecoderLayer(mixer, cross, ffn, config.dim, config.dropout)
            return PreNormLayer(mixer, ffn, config.dim, config.dropout, EPS)

        patches = PatchEmbedding(
            config.side, config.patch, config.features, config.dim, config.class_token, config.dropout
        )
        read = Stack([layer(False) for _ in range(config.encoder_layers)], nn.LayerNorm(config.dim, EPS))
        self.encoder: Any = PatchEncoder(patches, read, config.dim)
        words = TokenEmbedding(
            config.vocab_size, config.dim, config.dropout, LearnedPositions(config.max_len, config.dim)
        )
        write = Stack([layer(True) for _ in range(config.num_layers)], nn.LayerNorm(config.dim))
        self.decoder = Decoder(words, write, config.dim)
        self.decoder.max_len = config.max_len
        self.init_weights()

    def encode(self, source: Images) -> Context:
        return self.encoder(source)

    def init_weights(self) -> None:
        init_normal(self)
        self.encoder.embedding.init_weights()
