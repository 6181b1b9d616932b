"""Fields that the configs of several models share, each with its range and what it means."""

from typing import Annotated

from pydantic import Field

from seqloom.blocks.characters import Number, Width

VocabSize = Annotated[int, Field(gt=0, description="Entries of the vocabulary. The tokenizer decides it in a run.")]
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
