"""The big LSTM language model. Józefowicz et al., 2016, Exploring the limits of language modeling (arXiv 1602.02410).

Words are read by their characters through a convolutional network, then by LSTMs of thousands of cells whose output is
projected to a smaller width (Sak et al., 2014); the output layer over a large vocabulary is learnt from samples.

Departures: characters are bytes; forget gates start open; two biases a gate, as kernels have them; whatever optimizer the
recipe names. The paper's second way out, a character network at the output, is not here.
"""

from typing import Any, Literal

from pydantic import Field

from seqloom.batch import Lineage, Vocabulary
from seqloom.blocks.cells import LstmCell
from seqloom.blocks.characters import CharacterCnn, CharacterEmbedding
from seqloom.blocks.connections import recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.recurrent import init_lstm
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import CharDim, Dim, Dropout, Filters, MaxChars, NumHighways, NumLayers, ProjDim, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe


class BigLstm(StackedBackbone):
    """filters: (width, how many) of the convolutions over max_chars characters; proj_dim 0: nothing is projected.

    With inputs = "words" it has a table of word vectors in place of the characters, and is the paper's other large model.
    """

    lineage = Lineage("Józefowicz et al., Exploring the limits of language modeling", 2016, parent="lstm")
    recurrent = carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize
        inputs: Literal["characters", "words"] = Field(
            "characters", description="What represents a word: its characters, or a vector of its own."
        )
        dim: Dim = 256
        proj_dim: ProjDim = 128
        num_layers: NumLayers = 2
        dropout: Dropout = 0.0
        max_chars: MaxChars = 50
        char_dim: CharDim = 16
        filters: Filters = ((1, 16), (2, 32), (3, 48), (4, 64))
        num_highways: NumHighways = 2

    presets = {  # noqa: RUF012
        "tiny": {
            "dim": 160,
            "proj_dim": 64,
            "max_chars": 16,
            "filters": [[1, 8], [2, 16], [3, 32], [4, 40]],
        },
        "small": {
            "dim": 1024,
            "proj_dim": 256,
            "max_chars": 24,
            "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256]],
        },
        # "BIG LSTM + CNN inputs" of the paper's table 1; 4,096 filters, two highways
        "jozefowicz-2016": {
            "vocab_size": 793_471,
            "dim": 8192,
            "proj_dim": 1024,
            "dropout": 0.25,
            "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024], [8, 2048]],
        },
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        values = recurrent_recipe(preset, cls.presets[preset])
        if preset == "jozefowicz-2016":
            values["objective"] |= {"softmax": "sampled", "samples": 8192}
        return values

    def __init__(self, config: Config):
        width = config.proj_dim or config.dim
        embedding: TokenEmbedding | CharacterEmbedding
        if config.inputs == "words":
            embedding = TokenEmbedding(config.vocab_size, width, dropout=0.0)
        else:
            cnn = CharacterCnn(config.char_dim, config.filters, config.num_highways, width, config.max_chars)
            embedding = CharacterEmbedding(config.vocab_size, cnn)
        stack = recurrent_stack(
            lambda reads: LstmCell(reads, config.dim, config.proj_dim),
            width,
            config.num_layers,
            config.dropout,
            "none",
        )
        super().__init__(embedding, stack, width)

    @property
    def vocab_size(self) -> int:
        embedding = self.embedding
        return embedding.spelling.shape[0] if isinstance(embedding, CharacterEmbedding) else super().vocab_size

    def init_weights(self) -> None:
        init_lstm(self)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        if isinstance(self.embedding, CharacterEmbedding):
            self.embedding.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        if isinstance(self.embedding, CharacterEmbedding):
            self.embedding.validate_loaded()
