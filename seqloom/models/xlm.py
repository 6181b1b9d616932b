"""XLM: BERT's encoder with language embeddings. Lample & Conneau, 2019 (arXiv 1901.07291).

A segment is a language here. Departures from the paper: weights start as BERT's.
"""

from typing import Any

from pydantic import Field

from seqloom.batch import Lineage
from seqloom.models.bert import Bert
from seqloom.models.fields import Dim, NumHeads, VocabSize
from seqloom.models.shared_recipes import encoder_recipe


class Xlm(Bert):
    lineage = Lineage("Lample & Conneau, Cross-lingual language model pretraining", 2019, parent="bert")
    segment_kind = "languages"

    class Config(Bert.Config):
        vocab_size: VocabSize = 95000
        dim: Dim = 1024
        num_heads: NumHeads = 8
        num_segments: int = Field(15, ge=0, description="Number of language embeddings; 0: none.")
        pooler: bool = Field(False, description="Put a dense layer with tanh over the first token.")

    presets = {  # noqa: RUF012
        "tiny": Bert.presets["tiny"],
        "small": Bert.presets["small"],
        "base": {"vocab_size": 95000, "dim": 1024, "num_layers": 12, "num_heads": 8, "max_len": 512},
        "en": {"vocab_size": 30145, "dim": 2048, "num_heads": 16, "max_len": 512, "num_segments": 0},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return encoder_recipe(preset, cls.presets[preset], {"name": "masked"}, smoothing=0.5)
