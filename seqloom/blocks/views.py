"""An encoder–decoder seen as a Backbone, so that what is learnt from pairs can be embedded, probed and fine-tuned.

encoder   the encoder's states of a text (CoVe, McCann et al., 2017, arXiv 1708.00107)
whole     the text goes into the encoder, and shifted by one into the decoder, whose states these are (BART, Lewis et al., 2019,
          arXiv 1910.13461, section 3.1)

Both read a text as a source is read, between the special tokens that its model has around one.
"""

from typing import Any, Literal

import torch
from torch import nn

from seqloom.batch import Backbone, Context, Edit, EncoderDecoder, HeadStyle, Output, Ragged, State, without_state

View = Literal["encoder", "whole"]


class SourceView(Backbone):
    causal = False

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.around, self.max_len = model.surround, model.max_len

    def surround(
        self, first: int, separator: int, end: int, extract: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return self.around(first, separator, end)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        raise ValueError(
            "a view of an encoder–decoder reads whole texts: it has no state and cannot write token by token"
        )

    def init_weights(self) -> None:
        """The whole model does it."""


class EncoderView(SourceView):
    encoder: Any
    head_style = HeadStyle(pooling="mean")

    def __init__(self, model: EncoderDecoder):
        super().__init__(model)
        encoder: Any = model.encoder
        self.encoder, self.dim = encoder, encoder.dim

    @property
    def table(self) -> nn.Embedding | None:
        return self.encoder.embedding.token

    @property
    def stack(self) -> nn.Module:
        """Its layers, which tasks may mix."""
        return self.encoder.stack

    @property
    def gates(self) -> tuple[tuple[str, ...], ...]:
        found = tuple(getattr(layer, "gates", ()) for layer in getattr(self.stack, "unrolled_layers", ()))
        return found if any(found) else ()

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
        if isinstance(self.encoder, Backbone):
            return self.encoder(batch, layers=layers, maps=maps, edit=edit)
        return without_state(self.encoder.states(batch, layers, maps))


class WholeView(SourceView):
    def __init__(self, model: EncoderDecoder):
        super().__init__(model)
        self.model, self.dim, self.head_style = model, model.dim, model.head_style

    @property
    def stack(self) -> nn.Module | None:
        """The decoder's layers, which tasks may mix."""
        return getattr(self.model.decoder, "stack", None)

    @property
    def table(self) -> nn.Embedding | None:
        return self.model.table

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        source = self.model.encode(batch)
        # each token after the one before it; the first one after the last, which ends the text and begins a target
        before = torch.arange(len(batch.ids), device=batch.ids.device) - 1
        first = batch.positions == 0
        before = torch.where(first, batch.offsets[1:].long()[batch.owner] - 1, before)
        shifted = batch._replace(ids=batch.ids[before])
        return without_state(self.model.decoder(shifted, context=source, layers=layers, maps=maps))


VIEWS: dict[str, type[SourceView]] = {"encoder": EncoderView, "whole": WholeView}
