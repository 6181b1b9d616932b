"""ByteNet: dilated convolutions that read and write in time that grows with the length alone. Kalchbrenner et al., 2016
(arXiv 1610.10099).

A block makes its input half as wide, convolves it and makes it wide again, each after a norm and a ReLU, beside a residual
path. Dilations double from block to block and begin anew, so that few blocks see far. The decoder alone is a language model
(`bytenet`); stacked on an encoder it translates (`bytenet-mt`): at place t it reads what the encoder has found at place t, beside
the target's token. There is no attention. So that a target may be longer than its source, the encoder goes on behind the end of a
source for |t| = stretch · |s| places; the decoder reads zeros after them.

Departures: what the encoder has found is added to the embedding of the target's token (the paper does not say how the two meet);
blocks of ReLUs for the language model, too, where the paper has multiplicative units; no bags of characters.
"""

from typing import Any, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, Edit, EncoderDecoder, Lineage, Output, Ragged, State
from seqloom.blocks.convolution import Convolution, receptive_field
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.grid import FullGrid, lengths, to_grid
from seqloom.blocks.layers import Mixed
from seqloom.blocks.stack import Stack, StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dropout, ShareEmbeddings, SourceVocabSize, VocabSize, shares_table, source_entries
from seqloom.models.shared_recipes import WARMUP

PAPER = "Kalchbrenner et al., Neural machine translation in linear time"


class Block(nn.Module):
    """x + wide(convolution(narrow(x))), a norm and a ReLU before each of the three."""

    gates = ("filters",)

    def __init__(self, dim: int, width: int, dilation: int, causal: bool, dropout: float):
        super().__init__()
        inner = dim // 2
        self.narrow, self.wide = nn.Linear(dim, inner), nn.Linear(inner, dim)
        self.convolution = Convolution(inner, inner, width, dilation, causal)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in (dim, inner, inner))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, batch: Ragged, state: Any = None, context: Any = None, maps: bool = False) -> Mixed:
        before, between, behind = self.norms
        y = self.narrow(before(x).relu())
        y, state = self.convolution(between(y).relu(), batch, state)
        y = behind(y).relu()
        return x + self.dropout(self.wide(y)), state, y[:, None]

    def start(self, n: int, max_len: int) -> Tensor:
        return self.convolution.start(n)


class BytenetConfig(BaseConfig):
    vocab_size: VocabSize
    dim: int = Field(512, gt=0, multiple_of=2, description="Width of the hidden states (2d in the paper).")
    num_layers: int = Field(30, gt=0, description="Number of blocks; of the encoder, and of the decoder.")
    width: int = Field(3, ge=1, le=128, description="Tokens that a filter stands over.")
    dilations: tuple[int, ...] = Field(
        (1, 2, 4, 8, 16),
        min_length=1,
        max_length=64,
        description="Distance of these tokens in each block; they begin anew where there are more blocks.",
    )
    dropout: Dropout = 0.0

    @field_validator("dilations")
    @classmethod
    def dilations_are_distances(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [value for value in values if not 1 <= value <= 1_000_000]:
            raise ValueError(f"a dilation of {wrong[0]}: dilations are from 1 to 1,000,000 tokens")
        return values

    def stack(self, causal: bool) -> Stack:
        dilations = [self.dilations[i % len(self.dilations)] for i in range(self.num_layers)]
        top = nn.Sequential(nn.LayerNorm(self.dim), nn.ReLU(), nn.Linear(self.dim, self.dim), nn.ReLU())
        return Stack([Block(self.dim, self.width, each, causal, self.dropout) for each in dilations], top)


def init_blocks(model: nn.Module, dim: int, depth: int) -> None:
    """Matrices as He et al., 2015, have those before ReLUs; what writes to the residual path is smaller the more blocks there
    are, as the whole grows with their number otherwise; embeddings with std 0.02."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            std = (2 / module.in_features) ** 0.5
            nn.init.normal_(module.weight, std=std / depth**0.5 if name.endswith(".wide") else std)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)


class Bytenet(StackedBackbone):
    """The decoder as a language model: each token sees the 1 + Σ (width − 1) · dilation last ones, itself included."""

    lineage = Lineage(PAPER, 2016, "convolutional", parent="nnlm")
    carries = True

    class Config(BytenetConfig):
        pass

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 10},
        "small": {"dim": 384, "num_layers": 20, "dropout": 0.1},
        "enwik8": {"vocab_size": 205, "dim": 1024, "num_layers": 30, "dropout": 0.1},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """Streams: each batch goes on where the one before has ended, and sees the tokens before it."""
        tiny = preset == "tiny"
        return {
            "objective": {"name": "next-token"},
            "batches": {"kind": "streams", "streams": 32 if tiny else 64, "length": 64 if tiny else 128, "reset": True},
            "valid": {"warmup": WARMUP},
            "train": {
                "optim": {"lr": 4e-3 if tiny else 1e-3 if preset == "small" else 3e-4, "weight_decay": 0.01},
                "schedule": {"warmup": 50 if tiny else 200},
                **({"eval_every": 200} if tiny else {}),
            },
            "budget": {"tokens": 2e6} if tiny else {"epochs": 10},
        }

    def __init__(self, config: Config):
        embedding = TokenEmbedding(config.vocab_size, config.dim, config.dropout)
        super().__init__(embedding, config.stack(causal=True), config.dim)

    @property
    def receptive_field(self) -> int:
        blocks: Any = self.stack.layers
        return receptive_field(block.convolution for block in blocks)

    def init_weights(self) -> None:
        init_blocks(self, self.dim, len(self.stack.layers))


class Encoder(StackedBackbone):
    """Reads texts that go on behind their end, so many thousandths as long."""

    causal = False

    def __init__(self, embedding: nn.Module, stack: Stack, dim: int, thousandths: int):
        super().__init__(embedding, stack, dim)
        self.thousandths = thousandths

    def init_weights(self) -> None:
        """The whole model does it."""

    def read(self, source: Ragged, layers: bool = False, maps: bool = False) -> tuple[Output, Ragged]:
        """What it finds in all places, and their borders, some sequences of filler behind the others."""
        longer, token, inside = lengthen(source, self.thousandths)
        x = self.embedding(source)[token] * inside[:, None]
        return self.stack(x, longer, None, None, layers, maps), longer

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
        """What it finds at the tokens themselves."""
        output, longer = self.read(batch, layers, maps)
        own = longer.offsets[:-1].long()[batch.owner] + batch.positions
        found, shown = (tuple(each[own] for each in some) for some in (output.layers, output.maps))
        return Output(output.hidden[own], None, found, shown)


class Decoder(Backbone):
    """Its input is the sum of the target's embedding and of what the encoder has found at the same place."""

    embedding: Any

    def __init__(self, embedding: nn.Module, stack: Stack, dim: int):
        super().__init__()
        self.embedding, self.stack, self.dim = embedding, stack, dim

    @property
    def table(self) -> nn.Embedding:
        return self.embedding.token

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        found = state.shared[0] if state is not None else self.found(context)
        source = batch.owner // (batch.num_sequences // found.shape[0])  # hypotheses of one source stand together
        place = batch.positions.clamp(max=found.shape[1] - 1)
        beside = found[source, place] * (batch.positions < found.shape[1])[:, None]
        own = None if state is None else State(state.own)
        output: Output = self.stack(self.embedding(batch) + beside, batch, own, None, layers)
        after = None if output.state is None or state is None else State(output.state.own, state.shared)
        return Output(output.hidden, after, output.layers)

    @staticmethod
    def found(context: Context | None) -> Tensor:
        assert context is not None, "a decoder begins with what it reads beside its own tokens"
        return to_grid(context.hidden, context)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        return State(self.stack.start(n, max_len).own, (self.found(context),))

    def init_weights(self) -> None:
        """The whole model does it."""


class BytenetMt(EncoderDecoder):
    """An encoder whose filters look at both sides, and a causal decoder stacked on it."""

    lineage = Lineage(PAPER, 2016, "encoder–decoder", parent="bytenet")
    aligned = False
    encoder: Encoder
    decoder: Decoder

    class Config(BytenetConfig):
        stretch: float = Field(
            1.2, ge=1, le=16, description="Places of a source that the decoder can read, per token of the source."
        )
        share_embeddings: ShareEmbeddings = True
        source_vocab_size: SourceVocabSize = None

        @model_validator(mode="after")
        def stretch_is_exact(self) -> Self:
            if abs(self.stretch * 1000 - round(self.stretch * 1000)) > 1e-6:
                raise ValueError(f"stretch {self.stretch}: give it in thousandths")
            return self

    presets = {  # noqa: RUF012
        "tiny": {"dim": 64, "num_layers": 5},
        "small": {"dim": 384, "num_layers": 15, "dropout": 0.2},
        "wmt": {"vocab_size": 323, "dim": 1600, "num_layers": 30, "dropout": 0.1},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """The paper: characters, Adam at 3e-4. Texts of characters are long: so are batches."""
        tiny = preset == "tiny"
        return {
            "task": {"name": "translate", "label_smoothing": 0.1},
            "batches": {"kind": "pairs", "budget": 4096 if tiny else 16384, "length": 512},
            "train": {
                "optim": {"lr": 3e-3 if tiny else 1e-3 if preset == "small" else 3e-4, "clip": 1.0},
                "schedule": {"name": "cosine", "warmup": 100 if tiny else 500},
                "eval_every": 200,
            },
            "budget": {"tokens": 1e6} if tiny else {"epochs": 30},
        }

    def __init__(self, config: Config):
        super().__init__()
        self.dim, self.thousandths = config.dim, round(config.stretch * 1000)

        def embed(entries: int) -> TokenEmbedding:
            return TokenEmbedding(entries, config.dim, config.dropout)

        self.encoder = Encoder(embed(source_entries(config)), config.stack(causal=False), config.dim, self.thousandths)
        self.decoder = Decoder(embed(config.vocab_size), config.stack(causal=True), config.dim)
        if shares_table(config):
            self.encoder.embedding.token = self.decoder.embedding.token
        self.init_weights()

    @property
    def source_stretch(self) -> float:
        """How much more the encoder reads than a source has: its cost follows."""
        return self.thousandths / 1000

    def encode(self, source: Ragged) -> Context:
        """A full grid, with zeros behind what the decoder can read of each source."""
        output, longer = self.encoder.read(source)
        kept = to_grid(output.hidden, longer)[: source.num_sequences]
        borders = FullGrid.of(source.num_sequences, longer.max_len, kept.device)
        return Context(kept.flatten(0, 1), borders.owner, borders.offsets, borders.max_len)

    def init_weights(self) -> None:
        init_blocks(self, self.dim, len(self.decoder.stack.layers))


def lengthen(source: Ragged, thousandths: int) -> tuple[Ragged, Tensor, Tensor]:
    """Sequences so many thousandths as long, the number of the source's token at each of their places, and which of these are
    inside the source; 0 is read behind it.

    How many places there are is known from shapes alone, so that nothing has to ask the device: the few too many are sequences of
    filler behind the others.
    """
    device, n, tokens = source.ids.device, source.num_sequences, source.ids.shape[0]
    longest, count = source.max_len * thousandths // 1000, tokens * thousandths // 1000
    ends = (lengths(source) * thousandths // 1000).cumsum(0)
    filler = torch.arange(1, n // max(longest, 1) + 2, device=device) * longest
    offsets = torch.cat((ends.new_zeros(1), ends, (ends[-1] + filler).clamp(max=count)))
    place = torch.arange(count, device=device)
    owner = torch.searchsorted(offsets, place, right=True) - 1
    positions = place - offsets[owner]
    of_source = owner.clamp(max=n - 1)
    inside = (owner < n) & (positions < lengths(source)[of_source])
    token = (source.offsets[:-1].long()[of_source] + positions).clamp(max=tokens - 1)
    ids = torch.where(inside, source.ids[token], 0)
    return Ragged(ids, positions, owner, offsets.int(), longest), token, inside
