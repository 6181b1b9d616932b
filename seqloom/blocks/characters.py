"""Words as vectors made of their characters, by convolution. Kim et al., 2016 (arXiv 1508.06615); Józefowicz et al., 2016.

    characters (T, C) → embeddings → convolutions of several widths → the largest over the word → highways → projection

Words that look alike begin alike, and a word that was never seen has a vector all the same. Departures: a convolution may
begin at every character of the word and at none behind its end (blanks follow), so that C changes nothing; the vectors are
normalised, because what all words have in common is more than what tells them apart, and under Adam it grew until the gates
above were deaf to the rest (a toy text after 300 steps: 3.35 nats without, which is no context at all, and 2.31 with).
"""

from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Ragged, Vocabulary
from seqloom.tokens.spelling import CHARACTERS, ELMO_CHARACTERS, PAD, SPECIAL, mark_sentences

# of filters in a config: how many characters one sees, and how many there are
Width = Annotated[int, Field(ge=1, le=64)]
Number = Annotated[int, Field(ge=1, le=1 << 20)]


class HighwayLayer(nn.Module):
    """g ReLU(W x) + (1 − g) x, g = σ(V x). Srivastava et al., 2015. The gate starts nearly closed, as Kim et al. have it."""

    def __init__(self, dim: int):
        super().__init__()
        self.both = nn.Linear(dim, 2 * dim)

    def init_weights(self) -> None:
        self.both.reset_parameters()
        nn.init.constant_(self.both.bias.data.chunk(2)[1], -2.0)

    def forward(self, x: Tensor) -> Tensor:
        y, gate = self.both(x).chunk(2, dim=1)
        return x + torch.sigmoid(gate) * (F.relu(y) - x)


class CharacterCnn(nn.Module):
    """characters (T, C) → (T, D). filters: (width, how many) of each convolution."""

    num_characters = CHARACTERS

    def __init__(self, char_dim: int, filters: Sequence[tuple[int, int]], num_highways: int, dim: int, max_chars: int):
        super().__init__()
        self.max_chars = max_chars
        self.character = nn.Embedding(self.num_characters, char_dim, padding_idx=PAD)
        self.convolutions: Any = nn.ModuleList(nn.Conv1d(char_dim, number, width) for width, number in filters)
        features = sum(number for _, number in filters)
        self.highways = nn.ModuleList(HighwayLayer(features) for _ in range(num_highways))
        self.projection = nn.Linear(features, dim)
        self.norm: Any = nn.LayerNorm(dim)

    def starts(self, width: int) -> int:
        """At how many characters of a word a convolution of this width begins."""
        return self.max_chars

    def init_weights(self) -> None:
        nn.init.uniform_(self.character.weight, -1.0, 1.0)
        nn.init.zeros_(self.character.weight.data[PAD])
        self.init_filters()
        self.norm.reset_parameters()

    def init_filters(self) -> None:
        for layer in (*self.convolutions, self.projection):
            nn.init.normal_(layer.weight, std=(2 / layer.weight[0].numel()) ** 0.5)
            nn.init.zeros_(layer.bias)

    def scores(self, characters: Tensor) -> list[Tensor]:
        """(T, filters, starts) of each convolution"""
        x = self.character(characters).transpose(1, 2)  # (T, E, C)
        behind = (characters == PAD).unsqueeze(1)
        padded = ((each, F.pad(x, (0, each.kernel_size[0] - 1))) for each in self.convolutions)
        return [convolution(wider).masked_fill(behind, float("-inf")) for convolution, wider in padded]

    def forward(self, characters: Tensor) -> Tensor:
        x = F.relu(torch.cat([scores.amax(2) for scores in self.scores(characters)], dim=1))
        for highway in self.highways:
            x = highway(x)
        return self.norm(self.projection(x))


class ElmoCharacterCnn(CharacterCnn):
    """As the authors of ELMo have it: a convolution begins wherever it fits into all C characters, blanks behind the word
    included, which have a vector of their own; nothing is normalised."""

    num_characters = ELMO_CHARACTERS

    def __init__(self, char_dim: int, filters: Sequence[tuple[int, int]], num_highways: int, dim: int, max_chars: int):
        super().__init__(char_dim, filters, num_highways, dim, max_chars)
        self.character = nn.Embedding(self.num_characters, char_dim)
        self.norm = nn.Identity()

    def init_weights(self) -> None:
        nn.init.uniform_(self.character.weight, -1.0, 1.0)
        self.init_filters()

    def starts(self, width: int) -> int:
        return self.max_chars - width + 1

    def scores(self, characters: Tensor) -> list[Tensor]:
        x = self.character(characters).transpose(1, 2)  # (T, E, C)
        return [convolution(x) for convolution in self.convolutions]


class CharacterEmbedding(nn.Module):
    """Tokens as vectors by the characters of the batch, or where it has none by the spelling of each vocabulary entry."""

    spelling: Tensor  # (V, C), filled by `set_vocabulary`; stored with the weights

    def __init__(self, vocab_size: int, cnn: CharacterCnn):
        super().__init__()
        self.cnn, self.characters = cnn, cnn.max_chars
        self.register_buffer("spelling", torch.full((vocab_size, cnn.max_chars), PAD, dtype=torch.int16))

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.spelling.copy_(vocabulary.spellings(self.spelling.shape[1]))

    def validate_loaded(self) -> None:
        count = self.cnn.num_characters
        if int(self.spelling.min()) < 0 or int(self.spelling.max()) >= count:
            raise ValueError(f"a character in the spelling of a word is none of the {count}")

    def forward(self, batch: Ragged) -> Tensor:
        characters = self.spelling[batch.ids] if batch.chars is None else batch.chars
        return self.cnn(characters.long())


class ElmoCharacterEmbedding(CharacterEmbedding):
    """Special tokens are one mark between those of a word, as ELMo's authors have it, whatever their names are."""

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.spelling.copy_(torch.from_numpy(mark_sentences(vocabulary.spellings(self.spelling.shape[1]).numpy())))

    def forward(self, batch: Ragged) -> Tensor:
        if batch.chars is not None:
            special = batch.chars[:, :1] == SPECIAL
            batch = batch._replace(chars=torch.where(special, self.spelling[batch.ids], batch.chars))
        return super().forward(batch)
