"""BiLSTM-CNN: words by their vector and by their letters, read from both ends. Ma & Hovy, 2016 (arXiv 1603.01354).

With `task.crf = true` it is the paper's BiLSTM-CNNs-CRF, which tags words from scratch. A word that is in no vocabulary is still
read by its letters; `train --vectors` fills the table of words with vectors that were learnt elsewhere.

Departures: characters are bytes; a projection and a norm stand above the convolutions (see `blocks.characters`); nothing is
dropped out of single characters; forget gates start open; two biases a gate, as kernels have them; numbers are not taken for
one word; whatever optimizer the recipe names (the paper: SGD at 0.015, momentum 0.9, batches of 10 sentences).
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import HeadStyle, Lineage, Ragged, Vocabulary
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.characters import CharacterCnn, CharacterEmbedding
from seqloom.blocks.recurrent import Bidirectional, init_lstm
from seqloom.blocks.stack import BidirectionalBackbone, Stack
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import CharDim, Filters, MaxChars, NumLayers, VocabSize


class SpeltEmbedding(nn.Module):
    """The vector of a word and that of its letters side by side: (T, embedding_dim + as many as there are filters)."""

    def __init__(self, vocab_size: int, dim: int, cnn: CharacterCnn):
        super().__init__()
        self.token, self.spelt = nn.Embedding(vocab_size, dim), CharacterEmbedding(vocab_size, cnn)
        self.characters = cnn.max_chars

    def forward(self, batch: Ragged) -> Tensor:
        return torch.cat((self.token(batch.ids), self.spelt(batch)), 1)


class BilstmCnn(BidirectionalBackbone):
    """filters: (width, how many) of the convolutions over max_chars characters; dim: of both directions together."""

    lineage = Lineage(
        "Ma & Hovy, End-to-end sequence labeling via bi-directional LSTM-CNNs-CRF",
        2016,
        "bidirectional LSTM",
        parent="lstm",
    )
    head_style = HeadStyle(pooling="mean")
    learns_from = "labels"

    class Config(BaseConfig):
        vocab_size: VocabSize
        embedding_dim: int = Field(100, gt=0, description="Width of the word vectors.")
        dim: int = Field(400, gt=0, multiple_of=2, description="Width of the hidden states, both directions together.")
        num_layers: NumLayers = 1
        dropout: float = Field(
            0.5, ge=0, lt=1, description="Dropout probability of each layer's input and of the top layer's output."
        )
        max_chars: MaxChars = 32
        char_dim: CharDim = 30
        filters: Filters = ((3, 30),)

    presets = {  # noqa: RUF012
        "tiny": {"embedding_dim": 64, "dim": 128, "dropout": 0.3},
        "small": {"embedding_dim": 100, "dim": 256},
        "ma-hovy-2016": {"embedding_dim": 100, "dim": 400},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """The rate was chosen on wikigold's validation part (one seed, small: F1 0.40 with 1e-3, 0.53 with 4e-3, 0.55 with
        1e-2)."""
        return {"task": {"name": "tag"}, "train": {"optim": {"lr": 4e-3}}}

    def __init__(self, config: Config):
        letters = sum(number for _, number in config.filters)
        cnn = CharacterCnn(config.char_dim, config.filters, 0, letters, config.max_chars)
        widths = [config.embedding_dim + letters, *[config.dim] * (config.num_layers - 1)]
        half = config.dim // 2
        layers = [Bidirectional(LstmCell(reads, half), LstmCell(reads, half), config.dropout) for reads in widths]
        embedding = SpeltEmbedding(config.vocab_size, config.embedding_dim, cnn)
        super().__init__(embedding, Stack(layers, top=nn.Dropout(config.dropout)), config.dim)

    def init_weights(self) -> None:
        init_lstm(self)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.embedding.spelt.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.embedding.spelt.validate_loaded()
