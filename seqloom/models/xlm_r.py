"""XLM-R: RoBERTa over the text of a hundred languages, with one vocabulary for them all. Conneau et al., 2020 (arXiv 1911.02116).

The model is RoBERTa; languages are drawn by smoothed shares, and have no embeddings.
"""

from typing import Any

from seqloom.batch import Lineage
from seqloom.models.fields import VocabSize
from seqloom.models.roberta import Roberta
from seqloom.models.shared_recipes import encoder_recipe


class XlmR(Roberta):
    lineage = Lineage(
        "Conneau et al., Unsupervised cross-lingual representation learning at scale", 2020, parent="roberta"
    )

    class Config(Roberta.Config):
        vocab_size: VocabSize = 250002

    presets = {  # noqa: RUF012
        "tiny": Roberta.presets["tiny"],
        "small": Roberta.presets["small"],
        "base": Roberta.presets["base"] | {"vocab_size": 250002},
        "large": Roberta.presets["large"] | {"vocab_size": 250002},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return encoder_recipe(preset, cls.presets[preset], {"name": "masked"}, smoothing=0.3)
