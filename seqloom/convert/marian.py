"""Marian translation models, as `transformers` stores them (Junczys-Dowmunt et al., 2018) ⇄ our Transformer.

Theirs is the Transformer of 2017 with swish, one table for both languages and the output layer, and a bias on the scores.
A target begins with the padding token, which is never an output, and ends with `eos_token_id`.
"""

from typing import Any

import torch
from torch import Tensor

from seqloom.blocks.positions import SinusoidPositions
from seqloom.convert.family import Family, Head
from seqloom.convert.names import stored_as
from seqloom.errors import ModelError

LONGEST = 1 << 16  # positions are computed, so no weights bear them out
SIZES = {
    "vocab_size": "vocab_size",
    "dim": "d_model",
    "num_layers": "encoder_layers",
    "num_heads": "encoder_attention_heads",
    "ffn_dim": "encoder_ffn_dim",
    "max_len": "max_position_embeddings",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
DEFAULTS = {
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "attention_dropout": 0.0,
}
NEEDED = {name: value for name, value in DEFAULTS.items() if name != "attention_dropout"} | {"scale_embedding": True}
TABLE = "model.shared.weight"
REPEATED = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"), TABLE
)


def side(name: str) -> dict[str, Any]:
    """The layers of a half."""
    ours, theirs = f"{name}.stack.layers.{{i}}.", f"model.{name}.layers.{{i}}."
    own, across = f"{theirs}self_attn.", f"{theirs}encoder_attn."
    table = {
        "mixer.qkv": stored_as(f"{own}q_proj", f"{own}k_proj", f"{own}v_proj"),
        "mixer.out": stored_as(f"{own}out_proj"),
        "mixer_norm": stored_as(f"{theirs}self_attn_layer_norm"),
        "ffn.up": stored_as(f"{theirs}fc1"),
        "ffn.down": stored_as(f"{theirs}fc2"),
        "ffn_norm": stored_as(f"{theirs}final_layer_norm"),
    }
    if name == "decoder":
        table |= {
            "cross.query": stored_as(f"{across}q_proj"),
            "cross.kv": stored_as(f"{across}k_proj", f"{across}v_proj"),
            "cross.out": stored_as(f"{across}out_proj"),
            "cross_norm": stored_as(f"{theirs}encoder_attn_layer_norm"),
        }
    return {ours + part: place for part, place in table.items()}


def check_halves(config: dict[str, Any]) -> None:
    """Raises ModelError where the two halves have different sizes."""
    for part in ("layers", "attention_heads", "ffn_dim"):
        encoder, decoder = config.get(f"encoder_{part}"), config.get(f"decoder_{part}")
        if encoder != decoder:
            raise ModelError(f"config.json: encoder_{part} = {encoder} and decoder_{part} = {decoder} must be equal")


def decoder_sizes(values: dict[str, Any]) -> dict[str, Any]:
    """What a config.json says of the decoder, whose sizes are those of the encoder."""
    return {
        "decoder_layers": values["num_layers"],
        "decoder_attention_heads": values["num_heads"],
        "decoder_ffn_dim": values["ffn_dim"] or 4 * values["dim"],
        "is_encoder_decoder": True,
    }


def more(config: dict[str, Any], names: set[str]) -> dict[str, Any]:
    check_halves(config)
    if config["max_position_embeddings"] > LONGEST:
        raise ModelError(
            f"config.json: max_position_embeddings = {config['max_position_embeddings']} is more than {LONGEST:,}"
        )
    return {"norm": "post", "positions": "sinusoid", "share_embeddings": True}


def check_positions(values: dict[str, Any], unread: dict[str, Tensor]) -> None:
    for name, tensor in unread.items():
        expected = SinusoidPositions(values["max_len"], values["dim"]).values
        if tensor.shape != expected.shape or not torch.allclose(tensor.float().cpu(), expected.float(), atol=1e-2):
            raise ModelError(f"{name!r} does not hold the sines and cosines of the positions")


def task(bias: bool) -> dict[str, Any]:
    return {"task": {"name": "translate", "tie": True, "bias": bias}}


MARIAN = Family(
    "transformer",
    "",
    SIZES,
    DEFAULTS,
    NEEDED,
    {"encoder.embedding.token": stored_as("model.shared")} | side("encoder") | side("decoder"),
    (
        Head(
            "final_logits_bias",
            "MarianMTModel",
            task(True),
            {"softmax.bias": stored_as("final_logits_bias", row=True)},
            REPEATED,
        ),
        Head("", "MarianMTModel", task(False), {}, REPEATED),
    ),
    "activation_function",
    {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"},
    unread=(r"model\.(en|de)coder\.embed_positions\.weight",),
    more=more,
    back=lambda values: decoder_sizes(values) | {"decoder_vocab_size": values["vocab_size"]},
    check=check_positions,
)
