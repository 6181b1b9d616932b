"""RoBERTa: BERT without segments and without the next sentence, trained longer. Liu et al., 2019 (arXiv 1907.11692).

What it changes most is how it learns: whole stretches of text, masked anew whenever they are read. In the model itself
only the segments, the pooler for next-sentence prediction, and the norms' epsilon differ from BERT's.
"""

from typing import Any

from pydantic import Field

from seqloom.batch import Lineage
from seqloom.models.bert import Bert
from seqloom.models.fields import VocabSize
from seqloom.models.shared_recipes import encoder_recipe


class Roberta(Bert):
    lineage = Lineage("Liu et al., RoBERTa: A robustly optimized BERT pretraining approach", 2019, parent="bert")

    class Config(Bert.Config):
        vocab_size: VocabSize = 50265
        num_segments: int = Field(0, ge=0, description="Number of segment ids; 0: no segments.")
        pooler: bool = Field(False, description="Put a dense layer with tanh over the first token.")
        norm_eps: float = Field(1e-5, gt=0, le=0.1, description="Number added to the variance in layer normalisation.")

    presets = {  # noqa: RUF012
        "tiny": Bert.presets["tiny"],
        "small": Bert.presets["small"],
        "base": Bert.presets["base"] | {"vocab_size": 50265},
        "large": Bert.presets["large"] | {"vocab_size": 50265},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return encoder_recipe(preset, cls.presets[preset], {"name": "masked"})
