"""BART, as `transformers` stores it ⇄ ours.

Its tables of positions have two rows before the first, which no text reads: they are kept beside an imported run. What was
trained to summarise or translate is stored alike, so every folder becomes a run that restores texts: `translate` has it write.
Dropout inside the feed-forward layers, which ours has not, is left out: it changes nothing but further training.
"""

from typing import Any

from seqloom.convert.family import Family, Head
from seqloom.convert.marian import REPEATED, SIZES, check_halves, decoder_sizes, side
from seqloom.convert.names import stored_as

DEFAULTS = {
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "attention_dropout": 0.0,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "normalize_embedding": True,
}


def around(name: str) -> dict[str, Any]:
    """What stands under the layers of a half."""
    places = stored_as(f"model.{name}.embed_positions", skip=2)
    return {
        f"{name}.embedding.positions": places,
        f"{name}.embedding.norm": stored_as(f"model.{name}.layernorm_embedding"),
    }


def more(config: dict[str, Any], names: set[str]) -> dict[str, Any]:
    check_halves(config)
    return {"norm": "post", "positions": "learned", "share_embeddings": True}


def restores(bias: bool) -> dict[str, Any]:
    return {"objective": {"name": "denoising", "bias": bias}}


BART = Family(
    "bart",
    "",
    SIZES,
    DEFAULTS,
    {name: value for name, value in DEFAULTS.items() if name != "attention_dropout"},
    {"encoder.embedding.token": stored_as("model.shared")}
    | around("encoder")
    | around("decoder")
    | side("encoder")
    | side("decoder"),
    (
        Head(
            "final_logits_bias",
            "BartForConditionalGeneration",
            restores(True),
            {"softmax.bias": stored_as("final_logits_bias", row=True)},
            REPEATED,
            also=("translate",),
        ),
        Head("", "BartForConditionalGeneration", restores(False), {}, REPEATED, also=("translate",)),
    ),
    "activation_function",
    {"gelu": "gelu", "relu": "relu", "swish": "swish", "silu": "swish"},
    unread=(),
    more=more,
    back=decoder_sizes,
)
