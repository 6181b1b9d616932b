"""Fields that the configs of several models share, each with its range and what it means."""

from typing import Annotated, Any

from pydantic import Field

from seqloom.blocks.characters import Number, Width

VocabSize = Annotated[int, Field(gt=0, description="Entries of the vocabulary. The tokenizer decides it in a run.")]
SourceVocabSize = Annotated[
    int | None,
    Field(
        gt=0,
        description="Entries of the vocabulary of the sources, which have a table of their own then; one vocabulary serves both "
        "sides unless it is given. The tokenizers decide it in a run.",
    ),
]
Dim = Annotated[int, Field(gt=0, description="Width of the hidden states.")]
NumLayers = Annotated[int, Field(gt=0, description="Number of layers.")]
NumHeads = Annotated[int, Field(gt=0, description="Attention heads of each layer.")]
FfnDim = Annotated[
    int | None, Field(gt=0, description="Width inside the feed-forward layers; 4 × dim unless it is given.")
]
MaxLen = Annotated[int, Field(gt=0, description="The most tokens that the model reads at once.")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="Dropout probability.")]
AttentionDropout = Annotated[float, Field(ge=0, lt=1, description="Dropout probability of the attention weights.")]
ShareEmbeddings = Annotated[bool, Field(description="Use one embedding table for both languages.")]
CharDim = Annotated[int, Field(gt=0, description="Width of the vector of a character.")]
MaxChars = Annotated[int, Field(ge=3, le=1000, description="The most characters of a word that are read.")]
ProjDim = Annotated[int, Field(ge=0, description="Width that the output of a layer is projected to; 0: no projection.")]
Filters = Annotated[
    tuple[tuple[Width, Number], ...],
    Field(
        min_length=1,
        max_length=32,
        description="Width and number of the convolution filters over characters, one pair for each width.",
    ),
]
NumHighways = Annotated[int, Field(ge=0, le=16, description="Number of highway layers over the characters' filters.")]


def source_entries(config: Any) -> int:
    """Rows of the table that sources are read with."""
    return config.source_vocab_size or config.vocab_size


def shares_table(config: Any) -> bool:
    """Whether sources and targets have one table: two vocabularies have none to share."""
    return config.share_embeddings and config.source_vocab_size is None
