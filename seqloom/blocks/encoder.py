"""What recurrent encoder–decoders have in common: a stack of layers that reads a source, and the frame around both halves."""

from typing import Any

from torch import nn

from seqloom.batch import Backbone, Context, EncoderDecoder, Ragged
from seqloom.blocks.recurrent import init_lstm, init_recurrent, mirrored
from seqloom.blocks.stack import Stack


class RecurrentEncoder(nn.Module):
    """reverse: each source is read from its end; what comes out stands in the source's own order again."""

    def __init__(self, embedding: nn.Module, stack: Stack, reverse: bool = False):
        super().__init__()
        self.embedding: Any = embedding
        self.stack, self.reverse = stack, reverse

    def forward(self, source: Ragged) -> Context:
        x, mirror = self.embedding(source), mirrored(source)
        output = self.stack(x[mirror] if self.reverse else x, source)
        hidden = output.hidden[mirror] if self.reverse else output.hidden
        return Context(hidden, source.owner, source.offsets, source.max_len, output.state)


class RecurrentEncoderDecoder(EncoderDecoder):
    encoder: Any

    def __init__(self, encoder: nn.Module, decoder: Backbone, share_embeddings: bool, cell: str = "lstm"):
        super().__init__()
        self.encoder, self.decoder, self.dim = encoder, decoder, decoder.dim
        self.initialise = init_lstm if cell == "lstm" else init_recurrent
        if share_embeddings:
            encoder.embedding.token = decoder.embedding.token  # type: ignore[union-attr]
        self.init_weights()

    def encode(self, source: Ragged) -> Context:
        return self.encoder(source)

    def init_weights(self) -> None:
        self.initialise(self)
