"""Transformer-XL: a Transformer that remembers the segment before. Dai et al., 2019 (arXiv 1901.02860).

No token knows its place, only how far it is from those that it looks at; so what the layers computed for earlier tokens can be
kept and looked at again. No gradient goes into the memory, but what it says reaches further back with every layer.

Departures from the paper: no dropout inside the feed-forward network; in tiny and small the norm stands before each block (an
option of the authors' code: few steps are enough for it), and the memory begins anew with every document, as in evaluation
(`batches.reset = false` lets it run on, as published); evaluation always has the authors' `same_length`; the clusters of the
adaptive softmax begin at V^⅔ and V^⅚ (`objective.cutoffs`, in large `model.cutoffs`; the authors: at 20,000, 40,000 and 200,000);
AdamW.
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Lineage, Vocabulary
from seqloom.blocks.attention import HEAD_DIM, heads_divide_dim
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.feedforward import FeedForward
from seqloom.blocks.layers import PostNormLayer, ResidualLayer
from seqloom.blocks.narrowed import NarrowedTable
from seqloom.blocks.ranks import clusters
from seqloom.blocks.relative import PreNormMemoryLayer, RelativeAttention, RelativePositions, RelativeStack
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import AttentionDropout, Dim, Dropout, FfnDim, NumHeads, NumLayers, VocabSize
from seqloom.models.shared_recipes import WARMUP

LAYERS: dict[str, type[ResidualLayer]] = {"post": PostNormLayer, "pre": PreNormMemoryLayer}


class TransformerXl(StackedBackbone):
    """Relative positions, post-norm layers, ReLU, embeddings times √dim, u and v shared by all layers."""

    lineage = Lineage(
        "Dai et al., Transformer-XL: attentive language models beyond a fixed-length context", 2019, parent="gpt"
    )
    carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize = 267_735
        dim: Dim = 410
        num_layers: NumLayers = 16
        num_heads: NumHeads = 10
        head_dim: int | None = HEAD_DIM
        ffn_dim: FfnDim = None
        mem_len: int = Field(
            150, ge=0, le=1_000_000, description="Tokens before a segment that are remembered in training; 0: none."
        )
        eval_len: int | None = Field(
            None,
            gt=0,
            le=1_000_000,
            description="Tokens that each token attends to in evaluation, itself included; 2 × mem_len unless given.",
        )
        clamp_len: int | None = Field(
            None, gt=0, description="Largest distance that is told from larger ones; all unless it is given."
        )
        norm: Literal["post", "pre"] = Field(
            "post", description="Where the norm stands: behind each residual connection, or before what it goes around."
        )
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0

        narrow: int = Field(
            1,
            ge=1,
            le=64,
            description="Words of each cluster of rarer words have vectors so many times narrower; 1: all are equally wide.",
        )
        cutoffs: tuple[int, ...] = Field(
            (), max_length=16, description="Frequency ranks at which these clusters begin; empty: V^⅔ and V^⅚."
        )

        whole_heads = model_validator(mode="after")(heads_divide_dim)

        @property
        def window(self) -> int:
            """How many tokens each one sees in evaluation."""
            return self.eval_len or 2 * self.mem_len

        @model_validator(mode="after")
        def evaluation_sees_something(self) -> Self:
            if self.mem_len == 0 and self.eval_len is None:
                raise ValueError("mem_len 0: without a memory eval_len must be given, such as the length of a segment")
            return self

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "norm": "pre", "mem_len": 64, "dropout": 0.0},
        "small": {"dim": 384, "num_layers": 6, "num_heads": 6, "norm": "pre", "mem_len": 128},
        # the authors' run scripts: WikiText-103 ("standard", "large") and enwik8
        "standard": {
            "vocab_size": 267_735,
            "dim": 410,
            "num_layers": 16,
            "num_heads": 10,
            "head_dim": 41,
            "ffn_dim": 2100,
            "mem_len": 150,
            "eval_len": 640,
            "clamp_len": 400,
        },
        "large": {
            "vocab_size": 267_735,
            "dim": 1024,
            "num_layers": 18,
            "num_heads": 16,
            "ffn_dim": 4096,
            "dropout": 0.2,
            "attention_dropout": 0.2,
            "mem_len": 384,
            "eval_len": 1600,
            "clamp_len": 1000,
            "narrow": 4,
        },
        "enwik8": {
            "vocab_size": 204,
            "dim": 512,
            "num_layers": 12,
            "num_heads": 8,
            "ffn_dim": 2048,
            "mem_len": 512,
            "eval_len": 2100,
            "clamp_len": 820,
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """Streams with a carried memory, segments as long as it. Rates of the small sizes as those of the decoders."""
        length = cls.presets[preset]["mem_len"]
        objective: dict[str, Any] = {"name": "next-token"}
        if preset == "tiny":
            return {
                "objective": objective,
                "batches": {"kind": "streams", "streams": 32, "length": length, "reset": True},
                "valid": {"warmup": WARMUP},
                "train": {"optim": {"lr": 4e-3, "weight_decay": 0.01}, "schedule": {"warmup": 50}, "eval_every": 200},
                "budget": {"tokens": 2e6},
            }
        small = preset == "small"
        if preset in ("standard", "large"):
            objective |= {"softmax": "adaptive"}
        return {
            "objective": objective,
            "batches": {"kind": "streams", "streams": 64, "length": length, "reset": small},
            "valid": {"warmup": 2 * length},
            "train": {
                "optim": {"lr": 1e-3 if small else 2.5e-4, "weight_decay": 0.1 if small else 0.0, "clip": 0.25},
                "schedule": {"warmup": 200 if small else 0},
            },
            "budget": {"epochs": 10},
        }

    def __init__(self, config: Config):
        head_dim = config.head_dim or config.dim // config.num_heads
        layers = [
            LAYERS[config.norm](
                mixer=RelativeAttention(
                    config.dim,
                    config.num_heads,
                    head_dim,
                    memory=config.mem_len,
                    window=config.window,
                    dropout=config.attention_dropout,
                ),
                ffn=FeedForward(config.dim, config.ffn_dim or 4 * config.dim, "relu"),
                dim=config.dim,
                dropout=config.dropout,
            )
            for _ in range(config.num_layers)
        ]
        embedding = TokenEmbedding(config.vocab_size, config.dim, config.dropout, scale=config.dim**0.5)
        if config.narrow > 1:
            cutoffs = clusters("model.cutoffs", config.cutoffs, config.vocab_size)
            embedding.token = NarrowedTable(config.vocab_size, config.dim, cutoffs, config.narrow)
        positions = RelativePositions(config.dim, config.num_heads, head_dim, config.dropout, config.clamp_len)
        stack = RelativeStack(layers, positions, top=nn.Dropout(config.dropout))
        super().__init__(embedding, stack, config.dim)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        if isinstance(self.table, NarrowedTable):
            self.table.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        if isinstance(self.table, NarrowedTable):
            self.table.ranks.validate_loaded()

    def init_weights(self) -> None:
        """Normal, std 0.02, for every matrix, u and v; zero for every bias."""
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif "norm" not in name:
                nn.init.normal_(weight, std=0.02)
