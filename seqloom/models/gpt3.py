"""GPT-3: GPT-2 in eight sizes up to 175 billion parameters. Brown et al., 2020 (arXiv 2005.14165), table 2.1.

What most readers will want of them is their cost: `seqloom models gpt3 --cost` has it without building a weight.

Departures: all layers but those of `tiny` attend to all tokens; the paper has dense and banded layers in turn, and does not
say how wide the band is (`window`, `global_every = 2`). XL has 16 heads of 128 and 13b a width of 5,120: with the 24 heads and
the 5,140 that the table prints, they would not have the parameters that it prints.
"""

from typing import Any

from seqloom.batch import Lineage
from seqloom.models.fields import MaxLen
from seqloom.models.gpt2 import Gpt2


def size(dim: int, num_layers: int, num_heads: int) -> dict[str, Any]:
    return {"vocab_size": 50257, "dim": dim, "num_layers": num_layers, "num_heads": num_heads, "max_len": 2048}


class Gpt3(Gpt2):
    lineage = Lineage("Brown et al., Language models are few-shot learners", 2020, parent="gpt2")

    class Config(Gpt2.Config):
        max_len: MaxLen = 2048

    presets = {  # noqa: RUF012
        "tiny": {
            "dim": 80, "num_layers": 3, "num_heads": 5, "max_len": 128, "dropout": 0.0, "window": 32, "global_every": 2,
        },
        "small": size(768, 12, 12),
        "medium": size(1024, 24, 16),
        "large": size(1536, 24, 16),
        "xl": size(2048, 24, 16),
        "2.7b": size(2560, 32, 32),
        "6.7b": size(4096, 32, 32),
        "13b": size(5120, 40, 40),
        "175b": size(12288, 96, 96),
    }  # fmt: skip
