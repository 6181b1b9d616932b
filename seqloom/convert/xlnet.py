"""XLNet, as `transformers` stores it ⇄ ours. Matrices of attention there are stored (in, heads, width of a head).

Theirs has one rate of dropout, which stands in the feed-forward layers and on attention weights as well; ours has none there
unless asked for, so nothing is said of that: it changes nothing but further training. `eval_len`, the tokens that one sees from
left to right, is a key of ours in their config.json, which nothing else reads.
"""

from typing import Any

from seqloom.convert.family import Family, Head
from seqloom.convert.names import BY_HEAD, stored_as
from seqloom.errors import ModelError

SIZES = {
    "vocab_size": "vocab_size",
    "dim": "d_model",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "ffn_dim": "d_inner",
    "dropout": "dropout",
    "norm_eps": "layer_norm_eps",
}
NEEDED = {"attn_type": "bi", "bi_data": False, "same_length": False, "untie_r": True, "tie_word_embeddings": True}
EVAL_LEN = 512


def layer() -> dict[str, Any]:
    ours, theirs = "stack.layers.{i}.", "transformer.layer.{i}."
    mixer, attention = f"{ours}mixer.", f"{theirs}rel_attn."
    return {
        f"{mixer}qkv.weight": stored_as(*(attention + part for part in "qkv"), transposed=True, heads=BY_HEAD),
        f"{mixer}distance.weight": stored_as(f"{attention}r", transposed=True, heads=BY_HEAD),
        f"{mixer}out.weight": stored_as(f"{attention}o", heads=BY_HEAD),
        f"{mixer}content": stored_as(f"{attention}r_w_bias"),
        f"{mixer}position": stored_as(f"{attention}r_r_bias"),
        f"{mixer}segment": stored_as(f"{attention}r_s_bias"),
        f"{mixer}segments": stored_as(f"{attention}seg_embed"),
        f"{ours}mixer_norm": stored_as(f"{attention}layer_norm"),
        f"{ours}ffn.up": stored_as(f"{theirs}ff.layer_1"),
        f"{ours}ffn.down": stored_as(f"{theirs}ff.layer_2"),
        f"{ours}ffn_norm": stored_as(f"{theirs}ff.layer_norm"),
    }


def more(config: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """A memory that is not limited, null or 0 there, is none here."""
    memory, clamp, dim, heads = config["mem_len"], config["clamp_len"], config["d_model"], config["n_head"]
    for name, value in (("mem_len", memory), ("clamp_len", clamp)):
        if value is not None and type(value) is not int:
            raise ModelError(f"config.json: {name} = {str(value)[:60]!r} must be a whole number or null")
    if config.get("d_head") not in (None, dim // heads):
        raise ModelError(f"config.json: d_head = {config['d_head']!r} must be d_model / n_head = {dim // heads}")
    clamped = clamp is not None and clamp > 0
    return {"mem_len": memory or 0, "clamp_len": clamp if clamped else None, "eval_len": config["eval_len"]}


def back(values: dict[str, Any]) -> dict[str, Any]:
    clamp = values["clamp_len"]
    return {
        "mem_len": values["mem_len"],
        "clamp_len": -1 if clamp is None else clamp,
        "eval_len": values["eval_len"],
        "d_head": values["dim"] // values["num_heads"],
    }


XLNET = Family(
    "xlnet",
    "transformer.",
    SIZES,
    {
        "ff_activation": "gelu",
        "dropout": 0.1,
        "layer_norm_eps": 1e-12,
        "mem_len": 512,
        "clamp_len": -1,
        "eval_len": EVAL_LEN,
        **NEEDED,
    },
    NEEDED,
    {
        "embedding.token": stored_as("transformer.word_embedding"),
        "stack.query": stored_as("transformer.mask_emb", row=2),
        **layer(),
    },
    (
        Head(
            "lm_loss.bias",
            "XLNetLMHeadModel",
            {"objective": {"name": "permuted"}},
            {"softmax.bias": stored_as("lm_loss.bias")},
            {"lm_loss.weight": "transformer.word_embedding.weight"},
        ),
    ),
    "ff_activation",
    unread=(),
    more=more,
    back=back,
)
