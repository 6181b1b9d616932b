"""The Transformer: an encoder and a decoder of attention alone. Vaswani et al., 2017 (arXiv 1706.03762).

Departures: attention dropout defaults to 0 (the paper's text has none; a non-zero value leaves the fastest kernel).
`norm = "pre"` is the order of Wang et al., 2019 (arXiv 1906.01787), with a norm above each stack: deep ones train with it.
"""

from typing import Any, Literal

from pydantic import Field, model_validator
from torch import nn

from seqloom.batch import Context, Edit, EncoderDecoder, Lineage, Output, Ragged, State
from seqloom.blocks.attention import (
    GLOBAL_EVERY,
    HEAD_DIM,
    WINDOW,
    CrossAttention,
    SelfAttention,
    heads_divide_dim,
    window_of,
    windows_fit,
)
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.experts import BALANCE, EXPERT_DIM, EXPERTS, EXPERTS_K, experts_fit, feed_forward, init_experts
from seqloom.blocks.layers import PostNormDecoderLayer, PostNormLayer, PreNormDecoderLayer, PreNormLayer
from seqloom.blocks.positions import LearnedPositions, SinusoidPositions
from seqloom.blocks.stack import Stack, StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import (
    AttentionDropout,
    Dim,
    Dropout,
    FfnDim,
    NumHeads,
    NumLayers,
    ShareEmbeddings,
    SourceVocabSize,
    VocabSize,
    shares_table,
    source_entries,
)


class Encoder(StackedBackbone):
    causal = False

    def init_weights(self) -> None:
        """The whole model does it."""


class Decoder(Encoder):
    """Causal layers that also look at a context. maps=True gives both kinds of weights; with a state those across."""

    causal = True

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
        output = super().forward(batch, state=state, context=context, layers=layers, maps=maps, edit=edit)
        if context is not None and context.penalty is not None and output.penalty is not None:
            output = output._replace(penalty=output.penalty + context.penalty)
        if not maps:
            return output
        own, across = zip(*output.maps, strict=True)
        return output._replace(maps=() if state is not None else own, cross=across)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        assert context is not None, "a decoder begins with what it looks at"
        layers: Any = self.stack.layers
        return State(
            tuple(layer.start(n, max_len) for layer in layers), tuple(layer.cross.read(context) for layer in layers)
        )


class Transformer(EncoderDecoder):
    """Sinusoid positions, post-norm layers, ReLU, one table for both languages and the output layer."""

    lineage = Lineage("Vaswani et al., Attention is all you need", 2017, "encoder–decoder", parent="gnmt")

    class Config(BaseConfig):
        vocab_size: VocabSize = 37000
        dim: Dim = 512
        num_layers: NumLayers = Field(6, description="Number of layers of the encoder, and of the decoder.")
        num_heads: NumHeads = 8
        ffn_dim: FfnDim = None
        max_len: int = Field(512, gt=0, description="The most tokens of a source, and of a target.")
        dropout: Dropout = 0.1
        attention_dropout: AttentionDropout = 0.0
        norm: Literal["post", "pre"] = Field(
            "post", description="Normalise after each sub-layer, as published, or before it."
        )
        positions: Literal["sinusoid", "learned"] = Field("sinusoid", description="Kind of position embeddings.")
        activation: Literal["relu", "gelu", "swish"] = Field(
            "relu", description="Activation function of the feed-forward layers."
        )
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None
        head_dim: int | None = HEAD_DIM
        window: int | None = WINDOW  # of both stacks; a decoder looks at the whole source
        global_every: int | None = GLOBAL_EVERY
        experts: int = EXPERTS
        experts_k: int = EXPERTS_K
        expert_dim: int | None = EXPERT_DIM
        balance: float = BALANCE

        whole_heads = model_validator(mode="after")(heads_divide_dim)
        some_windows = model_validator(mode="after")(windows_fit)
        enough_experts = model_validator(mode="after")(experts_fit)

    presets = {  # noqa: RUF012
        "tiny": {"dim": 64, "num_layers": 2, "num_heads": 4, "max_len": 256, "dropout": 0.0},
        "small": {"dim": 256, "num_layers": 3, "num_heads": 4, "ffn_dim": 512, "max_len": 256, "dropout": 0.3},
        "base": {"vocab_size": 37000},
        "big": {"vocab_size": 37000, "dim": 1024, "num_heads": 16, "dropout": 0.3},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """Vaswani et al., 2017: 4,000 steps of warm-up to a rate of (dim · 4000)^−½, β₂ 0.98, ε 1e-9, batches of 25,000 tokens a
        side on 8 GPUs, the mean of the last 5 (base) or 20 (big) checkpoints. Small text wants more dropout, a shorter
        warm-up and a higher rate that falls to nothing: on Multi30k 5 BLEU more than the paper's (docs/results)."""
        task = {"name": "translate", "label_smoothing": 0.1}
        optim: dict[str, Any] = {"lr": 3e-3, "beta2": 0.98, "eps": 1e-9, "clip": 1.0}
        schedule: dict[str, Any] = {"name": "inverse_sqrt", "warmup": 2000}
        if preset == "tiny":
            return {
                "task": task,
                "batches": {"kind": "pairs", "budget": 2048, "length": 128},
                "train": {"optim": optim, "schedule": schedule | {"warmup": 200}, "eval_every": 200},
                "budget": {"tokens": 1e6},
            }
        if preset == "small":
            return {
                "task": task,
                "batches": {"kind": "pairs", "budget": 4096, "length": 128},
                "train": {
                    "optim": optim | {"lr": 2e-3},
                    "schedule": {"name": "cosine", "warmup": 1000},
                    "average_last": 10,
                    "save_every": 100,
                    "eval_every": 200,
                },
                "budget": {"epochs": 60},
            }
        peak = (cls.presets[preset].get("dim", 512) * 4000) ** -0.5
        return {
            "task": task,
            "batches": {"kind": "pairs", "budget": 25000, "length": 256},
            "train": {
                "optim": optim | {"lr": float(f"{peak:.3g}"), "clip": 0.0},
                "schedule": schedule | {"warmup": 4000},
                "average_last": 20 if preset == "big" else 5,
                "save_every": 1000,
                "eval_every": 1000,
            },
            "budget": {"steps": 300_000 if preset == "big" else 100_000},
        }

    def __init__(self, config: Config):
        super().__init__()
        self.dim, self.max_len = config.dim, config.max_len

        def layer(decoder: bool, i: int) -> nn.Module:
            dim, heads, dropped = config.dim, config.num_heads, config.attention_dropout
            mixer = SelfAttention(dim, heads, decoder, dropped, config.head_dim, window_of(config, i))
            ffn = feed_forward(config, config.activation, config.ffn_dim or 4 * dim)
            post = config.norm == "post"
            if decoder:
                cross = CrossAttention(dim, heads, dropped, config.head_dim)
                return (PostNormDecoderLayer if post else PreNormDecoderLayer)(mixer, cross, ffn, dim, config.dropout)
            return (PostNormLayer if post else PreNormLayer)(mixer, ffn, dim, config.dropout)

        def stack(decoder: bool) -> Stack:
            top = nn.LayerNorm(config.dim) if config.norm == "pre" else None
            return Stack([layer(decoder, i) for i in range(config.num_layers)], top)

        self.encoder = Encoder(self.embed(config, source_entries(config)), stack(decoder=False), config.dim)
        self.decoder = Decoder(self.embed(config, config.vocab_size), stack(decoder=True), config.dim)
        self.encoder.max_len = self.decoder.max_len = config.max_len
        if shares_table(config):
            self.encoder.embedding.token = self.decoder.embedding.token
        self.init_weights()

    @staticmethod
    def embed(config: Config, entries: int) -> TokenEmbedding:
        return TokenEmbedding(entries, config.dim, config.dropout, Transformer.places(config), scale=config.dim**0.5)

    @staticmethod
    def places(config: Config) -> nn.Module:
        kind = SinusoidPositions if config.positions == "sinusoid" else LearnedPositions
        return kind(config.max_len, config.dim)

    def encode(self, source: Ragged) -> Context:
        output = self.encoder(source)
        return Context(output.hidden, source.owner, source.offsets, source.max_len, penalty=output.penalty)

    def init_weights(self) -> None:
        """Matrices as Glorot & Bengio have them, queries, keys and values each for itself; embeddings with std 1/√dim,
        which their factor √dim undoes."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:  # a gate of experts has none
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.dim**-0.5)
        for name, weight in self.named_parameters():
            if name.endswith((".qkv.weight", ".kv.weight")):
                for part in weight.data.chunk(3 if name.endswith(".qkv.weight") else 2):
                    nn.init.xavier_uniform_(part)
        init_experts(self, nn.init.xavier_uniform_)
