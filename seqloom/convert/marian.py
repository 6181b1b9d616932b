"""Marian translation models, as `transformers` stores them (Junczys-Dowmunt et al., 2018), → our Transformer.

Theirs is the Transformer of 2017 with swish, one table for both languages and the output layer, and a bias on the scores.
A target begins with the padding token, which is never an output, and ends with `eos_token_id`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.blocks.positions import SinusoidPositions
from seqloom.errors import ModelError

VALUES = {  # ours ← theirs
    "vocab_size": "vocab_size",
    "dim": "d_model",
    "num_layers": "encoder_layers",
    "num_heads": "encoder_attention_heads",
    "ffn_dim": "encoder_ffn_dim",
    "max_len": "max_position_embeddings",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
NEEDED = {  # what ours cannot do otherwise
    "model_type": "marian",
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
DEFAULTS = {  # left out of a file where they are as usual
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "attention_dropout": 0.0,
}
SAME = ("layers", "attention_heads", "ffn_dim")  # of encoder and decoder
ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}

LAYER = {  # ours ← theirs, several laid one above the other
    "mixer.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mixer.out": ("self_attn.out_proj",),
    "mixer_norm": ("self_attn_layer_norm",),
    "ffn.up": ("fc1",),
    "ffn.down": ("fc2",),
    "ffn_norm": ("final_layer_norm",),
}
ACROSS = {
    "cross.query": ("encoder_attn.q_proj",),
    "cross.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": ("encoder_attn.out_proj",),
    "cross_norm": ("encoder_attn_layer_norm",),
}
TABLE = "model.shared.weight"
SHARED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")


class Converted(NamedTuple):
    values: dict[str, Any]  # of Transformer.Config
    model: dict[str, Tensor]  # of a Transformer
    bias: Tensor  # (V,) of the output layer, whose weight is the table
    start_id: int  # what a target begins with, and never holds
    end_id: int


def from_marian(config: dict[str, Any], tensors: dict[str, Tensor]) -> Converted:
    """config.json and the weights of a Marian model."""
    values, rest = read_config(config), dict(tensors)
    dim, size, ffn = values["dim"], values["vocab_size"], values["ffn_dim"]

    def take(name: str, *shape: int) -> Tensor:
        if name not in rest:
            raise ModelError(f"the Marian model has no tensor {name!r}")
        tensor = rest.pop(name)
        if tensor.shape != shape:
            raise ModelError(f"{name!r} has the shape {list(tensor.shape)}, by config.json it has {list(shape)}")
        return tensor

    table = take(TABLE, size, dim)
    model = {f"{side}.embedding.token.weight": table for side in ("encoder", "decoder")}
    shapes = {"ffn.up": (ffn, dim), "ffn.down": (dim, ffn)}
    for side, names in (("encoder", LAYER), ("decoder", LAYER | ACROSS)):
        for i in range(values["num_layers"]):
            for ours, theirs in names.items():
                matrix = shapes.get(ours, (dim,) if ours.endswith("norm") else (dim, dim))
                for kind, shape in (("weight", matrix), ("bias", matrix[:1])):
                    parts = [take(f"model.{side}.layers.{i}.{name}.{kind}", *shape) for name in theirs]
                    model[f"{side}.stack.layers.{i}.{ours}.{kind}"] = torch.cat(parts)
    bias = take("final_logits_bias", 1, size)[0] if "final_logits_bias" in rest else table.new_zeros(size)
    for name in SHARED:  # stored again, or left out
        if name in rest and not torch.equal(take(name, size, dim), table):
            raise ModelError(f"{name!r} differs from {TABLE!r}, with which config.json says that it is shared")
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        expected = SinusoidPositions(values["max_len"], dim).values
        if name in rest and not torch.allclose(take(name, *expected.shape).float().cpu(), expected.float(), atol=1e-4):
            raise ModelError(f"{name!r} does not hold the sines and cosines of the positions")
    if rest:
        raise ModelError(f"the Marian model has {len(rest)} unknown tensors, {min(rest)!r} for one")
    ends, start = config["eos_token_id"], config.get("decoder_start_token_id")
    if not (isinstance(ends, int) and 0 <= ends < size and isinstance(start, int) and 0 <= start < size):
        raise ModelError(
            f"config.json: eos_token_id {ends!r} and decoder_start_token_id {start!r} must be ids below {size}"
        )
    return Converted(values, model, bias, start, ends)


def read_config(config: dict[str, Any]) -> dict[str, Any]:
    full = DEFAULTS | config
    missing = [name for name in (*VALUES.values(), *NEEDED, "activation_function", "eos_token_id") if name not in full]
    if missing:
        raise ModelError(f"config.json of the Marian model lacks {', '.join(missing)}")
    for name, value in NEEDED.items():
        if full[name] != value:
            raise ModelError(f"config.json: {name} = {full[name]!r}; the Transformer can only be built with {value!r}")
    for name in SAME:
        encoder, decoder = full.get(f"encoder_{name}"), full.get(f"decoder_{name}")
        if encoder != decoder:
            raise ModelError(f"config.json: encoder_{name} = {encoder} and decoder_{name} = {decoder} must be equal")
    if full["activation_function"] not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ModelError(f"config.json: activation_function {full['activation_function']!r} is none of {known}")
    values = {ours: full[theirs] for ours, theirs in VALUES.items()}
    return values | {"activation": ACTIVATIONS[full["activation_function"]], "norm": "post", "positions": "sinusoid"}
