"""Reformer: attention among tokens that a hash puts together, in layers that need no memory for their gradient.
Kitaev et al., 2020 (arXiv 2001.04451).

Cost grows with length × chunk, not with the square of the length; activations do not grow with depth, as layers are computed anew
in the backward pass; the feed-forward networks run over pieces of the text, and places are rows and columns. Hidden states are
both streams of the reversible layers, 2 · dim numbers, so that the output layer cannot share the embeddings.

`order` decides who is seen. "causal" is ours: the last `chunk` tokens of the own bucket, of which a token after them changes
nothing. "published" is the paper's sort and cut over the whole text. A later token then moves what earlier ones see, so that
there is no probability of a next token: it is for tasks with labels and for comparison with other implementations.

Departures from the paper: a token of "published" sees its two chunks whole, as in transformers, not its bucket alone; keys that
several rounds find are not divided by how many did (in both orders); no local layers; AdamW.
"""

import math
from typing import Any, Self

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Context, HeadStyle, Lineage, State
from seqloom.blocks.attention import HEAD_DIM, heads_divide_dim
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import init_normal
from seqloom.blocks.lsh import LshAttention, Order
from seqloom.blocks.positions import AxialPositions
from seqloom.blocks.reversible import ReversibleLayer, ReversibleStack
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import AttentionDropout, Dim, Dropout, FfnDim, MaxLen, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import decoder_recipe

MOST_BUCKETS = 32_766


class Reformer(StackedBackbone):
    """Shared queries and keys, several rounds of hashes, ReLU, a norm before each block and one over both streams."""

    lineage = Lineage("Kitaev et al., Reformer: the efficient Transformer", 2020, parent="gpt2")

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 256
        num_layers: NumLayers = 6
        num_heads: NumHeads = 4
        head_dim: int | None = HEAD_DIM
        ffn_dim: FfnDim = None
        max_len: MaxLen = 4096
        axial: tuple[int, int] = Field(
            (64, 64), description="Rows and columns that places are laid over; their product is max_len."
        )
        axial_dims: tuple[int, int] | None = Field(
            None, description="Width of the vectors of rows and of columns; their sum is dim. Half each unless given."
        )
        buckets: tuple[int, ...] = Field(
            (64,),
            min_length=1,
            max_length=8,
            description="Number of buckets of a round, as a product of even numbers; [1] puts all tokens into one.",
        )
        chunk: int = Field(
            64,
            gt=0,
            le=1_000_000,
            description="Tokens of the own bucket that a token sees (causal), or of a chunk (published).",
        )
        rounds: int = Field(2, gt=0, le=64, description="Hashes of each token, with other rotations.")
        eval_rounds: int | None = Field(None, gt=0, le=64, description="The same in evaluation; `rounds` unless given.")
        order: Order = Field(
            "causal",
            description="Who is seen: the last tokens of the own bucket (causal), or neighbours in a sort of the whole text "
            "(published), which gives no next token.",
        )
        both_directions: bool = Field(False, description="Tokens see later ones, too; with the published order alone.")
        reversible: bool = Field(
            True, description="Compute layers anew in the backward pass and keep no activations of them."
        )
        ffn_chunk: int | None = Field(
            None, gt=0, description="Tokens that go through a feed-forward network at once; all unless given."
        )
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0

        whole_heads = model_validator(mode="after")(heads_divide_dim)

        @property
        def position_dims(self) -> tuple[int, int]:
            return self.axial_dims or (self.dim // 2, self.dim - self.dim // 2)

        @model_validator(mode="after")
        def places_fit(self) -> Self:
            rows, columns = self.axial
            if min(self.axial) < 1 or rows * columns != self.max_len:
                raise ValueError(
                    f"axial {list(self.axial)}: {rows} rows of {columns} places are {rows * columns}, not max_len {self.max_len}"
                )
            if min(self.position_dims) < 1 or sum(self.position_dims) != self.dim:
                raise ValueError(
                    f"axial_dims {list(self.position_dims)}: they are at least 1 each and {self.dim}, which is dim, together"
                )
            return self

        @model_validator(mode="after")
        def buckets_come_in_pairs(self) -> Self:
            if wrong := [factor for factor in self.buckets if factor < 1 or (factor % 2 and self.buckets != (1,))]:
                raise ValueError(
                    f"buckets {list(self.buckets)}: {wrong[0]} does not divide into directions and their opposites: "
                    "give even numbers, or [1] for one bucket"
                )
            if math.prod(self.buckets) > MOST_BUCKETS:
                raise ValueError(f"buckets {list(self.buckets)}: their product is more than {MOST_BUCKETS:,}")
            if self.both_directions and self.order == "causal":
                raise ValueError(
                    'both_directions = true is for order = "published": a causal order sees no later token'
                )
            return self

    presets = {  # noqa: RUF012
        "tiny": {  # narrow: it has two tables, one twice as wide
            "dim": 36,
            "num_layers": 3,
            "num_heads": 3,
            "max_len": 128,
            "axial": [16, 8],
            "buckets": [8],
            "chunk": 16,
            "dropout": 0.0,
        },
        "small": {
            "dim": 384,
            "num_layers": 6,
            "num_heads": 6,
            "max_len": 4096,
            "axial": [64, 64],
            "buckets": [128],
            "chunk": 64,
            "ffn_chunk": 8192,
        },
        # of the paper's ablations on enwik8 (3 layers), at the depth of its best model
        "enwik8": {
            "vocab_size": 205,
            "dim": 1024,
            "num_layers": 12,
            "num_heads": 8,
            "ffn_dim": 4096,
            "max_len": 65_536,
            "axial": [256, 256],
            "buckets": [32, 32],
            "chunk": 128,
            "rounds": 4,
            "eval_rounds": 8,
            "ffn_chunk": 16_384,
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """As the decoders', with an output layer of its own; of long texts as many tokens a step, at least one text."""
        recipe = decoder_recipe(preset, cls.presets[preset])
        length = cls.presets[preset]["max_len"]
        if preset != "tiny":
            recipe["batches"]["budget"] = max(65_536, length)
        return recipe | {"objective": {"name": "next-token", "tie": False}}

    def __init__(self, config: Config):
        causal = not config.both_directions
        layers = [
            ReversibleLayer(
                mixer=LshAttention(
                    config.dim,
                    config.num_heads,
                    config.head_dim or config.dim // config.num_heads,
                    number=i,
                    buckets=config.buckets,
                    chunk=config.chunk,
                    rounds=config.rounds,
                    eval_rounds=config.eval_rounds,
                    order=config.order,
                    causal=causal,
                    dropout=config.attention_dropout,
                ),
                ffn=FeedForward(config.dim, config.ffn_dim or 4 * config.dim, "relu"),
                dim=config.dim,
                dropout=config.dropout,
                ffn_chunk=config.ffn_chunk,
            )
            for i in range(config.num_layers)
        ]
        positions = AxialPositions(config.axial, config.position_dims)
        embedding = TokenEmbedding(config.vocab_size, config.dim, config.dropout, positions)
        top = nn.Sequential(nn.LayerNorm(2 * config.dim, eps=1e-12), nn.Dropout(config.dropout))
        super().__init__(embedding, ReversibleStack(layers, top, config.reversible), 2 * config.dim)
        self.max_len = config.max_len
        if config.both_directions:
            self.causal, self.head_style = False, HeadStyle(pooling="first")
        if config.order == "published":
            self.no_next_word = (
                "'model.order' = \"published\": where its chunks begin depends on the whole text, so that a later token moves "
                "what earlier ones see, and there is no probability of a next token for bits per byte, suites or generate: "
                'set model.order = "causal", or train it for a task with labels'
            )

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        if self.no_next_word:
            raise ValueError(self.no_next_word)
        return super().start(n, max_len)

    def init_weights(self) -> None:
        init_normal(self)
