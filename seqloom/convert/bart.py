"""BART, as `transformers` stores it ⇄ ours.

Its tables of positions have two rows before the first, which no text reads: they are kept beside an imported run. What was
trained to summarise or translate is stored alike, so every folder becomes a run that restores texts: `translate` has it write.
Dropout inside the feed-forward layers, which ours has not, is left out: it changes nothing but further training.
"""

from typing import Any

from seqloom.convert.family import Family, Head
from seqloom.convert.marian import REPEATED, SAME, side
from seqloom.convert.names import stored_as
from seqloom.errors import ModelError

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
    for part in SAME:
        encoder, decoder = config.get(f"encoder_{part}"), config.get(f"decoder_{part}")
        if encoder != decoder:
            raise ModelError(f"config.json: encoder_{part} = {encoder} and decoder_{part} = {decoder} must be equal")
    return {"norm": "post", "positions": "learned", "share_embeddings": True}


def restores(bias: bool) -> dict[str, Any]:
    return {"objective": {"name": "denoising", "bias": bias}}


BART = Family(
    "bart",
    "",
    {
        "vocab_size": "vocab_size",
        "dim": "d_model",
        "num_layers": "encoder_layers",
        "num_heads": "encoder_attention_heads",
        "ffn_dim": "encoder_ffn_dim",
        "max_len": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
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
    back=lambda values: {
        "decoder_layers": values["num_layers"],
        "decoder_attention_heads": values["num_heads"],
        "decoder_ffn_dim": values["ffn_dim"] or 4 * values["dim"],
        "is_encoder_decoder": True,
    },
)
