"""A convolutional classifier of texts: filters over a few words each, and of each filter the strongest answer. Kim, 2014
(arXiv 1408.5882).

The maximum over a text is taken by the task (`summary`). Departures: filters stand over every token, those at the ends of a text
over zeros, too; weights are decayed instead of held to a norm; whatever optimizer the recipe names (the paper: Adadelta).
"""

from typing import Annotated, Any

from pydantic import Field
from torch import nn

from seqloom.batch import HeadStyle, Lineage
from seqloom.blocks.characters import Number
from seqloom.blocks.convolution import Convolutions
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.stack import BidirectionalBackbone, Stack
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import VocabSize

Width = Annotated[int, Field(ge=1, le=128)]


class TextCnn(BidirectionalBackbone):
    """filters: (width in tokens, how many)."""

    lineage = Lineage("Kim, Convolutional neural networks for sentence classification", 2014, "convolutional")
    head_style = HeadStyle(pooling="max")
    learns_from = "labels"

    class Config(BaseConfig):
        vocab_size: VocabSize
        embedding_dim: int = Field(300, gt=0, description="Width of the word vectors.")
        filters: tuple[tuple[Width, Number], ...] = Field(
            ((3, 100), (4, 100), (5, 100)),
            min_length=1,
            max_length=32,
            description="Width in tokens and number of the convolution filters, one pair for each width.",
        )
        dropout: float = Field(
            0.5, ge=0, lt=1, description="Dropout probability before the label layer; half of it on the embeddings."
        )

    presets = {  # noqa: RUF012
        "tiny": {"embedding_dim": 64, "filters": [[2, 32], [3, 32], [4, 32]], "dropout": 0.3},
        "small": {"embedding_dim": 128},
        "kim-2014": {"embedding_dim": 300},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """The rate is that of the BiLSTM-CNN, not searched."""
        return {"task": {"name": "classify"}, "train": {"optim": {"lr": 4e-3}}}

    def __init__(self, config: Config):
        layer = Convolutions(config.embedding_dim, config.filters, config.dropout / 2)
        embedding = TokenEmbedding(config.vocab_size, config.embedding_dim, dropout=0.0)
        dim = sum(many for _, many in config.filters)
        super().__init__(embedding, Stack([layer], top=nn.Dropout(config.dropout)), dim)

    def init_weights(self) -> None:
        """Word vectors uniform in ±0.25, as the paper has those that are not given; filters as PyTorch has them."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.uniform_(module.weight, -0.25, 0.25)
            elif isinstance(module, nn.Conv1d):
                module.reset_parameters()
