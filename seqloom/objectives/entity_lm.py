"""Masked language modelling that hides entities as wholes. Sun et al., 2019 (arXiv 1904.09223), ERNIE.

A name that is hidden in part is predicted from its other part; hidden as a whole it must be predicted from the context. Which
tokens are an entity (or a phrase) is known from tags, of a person, a tagger or a segmenter. The rest of the text is hidden
token by token. unit = "token" is plain masking on the same text.

Departures: one stage with entities and single tokens instead of three with tokens, phrases and entities one after the other.
"""

from typing import Literal

import numpy as np
import torch
from pydantic import Field

from seqloom.batch import Passage
from seqloom.objectives.masked import MaskedLM


class EntityLM(MaskedLM):
    """Predicts hidden entities and tokens."""

    reads = "tagged"

    class Config(MaskedLM.Config):
        unit: Literal["token", "word", "span", "entity"] = Field(  # type: ignore[assignment]
            "entity", description="What is chosen as a whole: single tokens, words, spans or named entities."
        )

    def groups(self, cut: Passage, rng: torch.Generator) -> np.ndarray:
        if self.unit != "entity":
            return super().groups(cut, rng)
        assert cut.joined is not None
        return np.where((cut.places >= 0).numpy(), np.cumsum(~cut.joined.numpy()), -1)
