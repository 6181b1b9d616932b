"""GPT-2: GPT with the norm before each block, and a last one on top. Radford et al., 2019.

Departures from the paper: attention dropout defaults to 0 (a non-zero value leaves the fastest kernel).
"""

from torch import nn

from seqloom.batch import Lineage
from seqloom.blocks.layers import PreNormLayer
from seqloom.models.fields import MaxLen, VocabSize
from seqloom.models.gpt import Gpt


class Gpt2(Gpt):
    """Pre-norm, and what each layer adds to the residual path starts smaller the more layers there are."""

    lineage = Lineage("Radford et al., Language models are unsupervised multitask learners", 2019, parent="gpt")
    layer = PreNormLayer
    has_final_norm = True

    class Config(Gpt.Config):
        vocab_size: VocabSize = 50257
        max_len: MaxLen = 1024

    presets = {  # noqa: RUF012
        "tiny": {"dim": 80, "num_layers": 3, "num_heads": 5, "max_len": 128, "dropout": 0.0},
        "small": {"vocab_size": 50257, "dim": 768, "num_layers": 12, "num_heads": 12, "max_len": 1024},
        "medium": {"vocab_size": 50257, "dim": 1024, "num_layers": 24, "num_heads": 16, "max_len": 1024},
        "large": {"vocab_size": 50257, "dim": 1280, "num_layers": 36, "num_heads": 20, "max_len": 1024},
        "xl": {"vocab_size": 50257, "dim": 1600, "num_layers": 48, "num_heads": 25, "max_len": 1024},
    }

    def init_weights(self) -> None:
        """As GPT, but what writes to the residual path is scaled by 1/√(number of residual layers)."""
        super().init_weights()
        residual = 2 * len(self.stack.layers)
        for name, weight in self.named_parameters():
            if name.endswith((".mixer.out.weight", ".ffn.down.weight")):
                nn.init.normal_(weight, std=0.02 / residual**0.5)
