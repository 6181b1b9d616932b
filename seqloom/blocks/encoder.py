"""What recurrent encoder–decoders have in common: a stack of layers that reads a source, and the frame around both halves."""

from typing import Any

from torch import nn

from seqloom.batch import Backbone, Context, EncoderDecoder, Output, Ragged
from seqloom.blocks.recurrent import init_lstm, init_recurrent, mirrored
from seqloom.blocks.stack import Stack


class RecurrentEncoder(nn.Module):
    """reverse: each source is read from its end; what comes out stands in the source's own order again."""

    def __init__(self, embedding: nn.Module, stack: Stack, dim: int, reverse: bool = False):
        super().__init__()
        self.embedding: Any = embedding
        self.stack, self.dim, self.reverse = stack, dim, reverse

    def states(self, source: Ragged, layers: bool = False, maps: bool = False) -> Output:
        """What its layers make of a source, in the source's own order."""
        if not self.reverse:
            return self.stack(self.embedding(source), source, layers=layers, maps=maps)
        mirror = mirrored(source)
        output: Output = self.stack(self.embedding(source)[mirror], source, layers=layers, maps=maps)
        return output._replace(
            hidden=output.hidden[mirror],
            layers=tuple(layer[mirror] for layer in output.layers),
            maps=tuple(gates[mirror] for gates in output.maps),
        )

    def forward(self, source: Ragged) -> Context:
        output = self.states(source)
        return Context(output.hidden, source.owner, source.offsets, source.max_len, output.state)


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
