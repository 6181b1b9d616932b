"""ERNIE: BERT that must guess whole entities and phrases. Sun et al., 2019 (arXiv 1904.09223).

The body is BERT's; what differs is the objective, which masks words, phrases and entities as wholes, and the text: Chinese.
"""

from typing import Any

from seqloom.batch import Lineage
from seqloom.models.bert import Bert
from seqloom.models.fields import VocabSize
from seqloom.models.shared_recipes import encoder_recipe


class Ernie(Bert):
    lineage = Lineage("Sun et al., ERNIE: Enhanced representation through knowledge integration", 2019, parent="bert")

    class Config(Bert.Config):
        vocab_size: VocabSize = 18000

    presets = {  # noqa: RUF012
        "tiny": Bert.presets["tiny"],
        "small": Bert.presets["small"],
        "base": Bert.presets["base"] | {"vocab_size": 18000},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return encoder_recipe(preset, cls.presets[preset], {"name": "masked", "unit": "word"})
