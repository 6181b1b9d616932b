"""GPT and GPT-2, as `transformers` stores them ⇄ ours. Matrices there are stored (in, out).

Ours has one rate of dropout for the embeddings and the layers, theirs two: that of the layers is taken.
"""

from typing import Any

from seqloom.convert.family import Family, Head
from seqloom.convert.names import stored_as

DECODER_VALUES = {
    "vocab_size": "vocab_size",
    "dim": "n_embd",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "max_len": "n_positions",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
}
DECODER_USUAL = {
    "n_positions": 512,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}
DECODER_NEEDED = {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}


def decoder(token: str, positions: str) -> dict[str, Any]:
    at = "transformer.h.{i}."
    return {
        "embedding.token": stored_as(f"transformer.{token}"),
        "embedding.positions": stored_as(f"transformer.{positions}"),
        "stack.layers.{i}.mixer.qkv": stored_as(f"{at}attn.c_attn", transposed=True),
        "stack.layers.{i}.mixer.out": stored_as(f"{at}attn.c_proj", transposed=True),
        "stack.layers.{i}.mixer_norm": stored_as(f"{at}ln_1"),
        "stack.layers.{i}.ffn.up": stored_as(f"{at}mlp.c_fc", transposed=True),
        "stack.layers.{i}.ffn.down": stored_as(f"{at}mlp.c_proj", transposed=True),
        "stack.layers.{i}.ffn_norm": stored_as(f"{at}ln_2"),
    }


def left_to_right(architecture: str, table: str) -> Head:
    return Head("", architecture, {"objective": {"name": "next-token"}}, {}, {"lm_head.weight": table})


GPT = Family(
    "gpt",
    "transformer.",
    DECODER_VALUES,
    DECODER_USUAL | {"afn": "gelu"},
    DECODER_NEEDED | {"afn": "gelu"},  # what is called so there is the one by tanh
    decoder("tokens_embed", "positions_embed"),
    (left_to_right("OpenAIGPTLMHeadModel", "transformer.tokens_embed.weight"),),
    unread=(r"h\.\d+\.attn\.bias", "position_ids"),
    more=lambda config, names: {"ffn_dim": 4 * config["n_embd"]},
)
GPT2 = Family(
    "gpt2",
    "transformer.",
    DECODER_VALUES | {"ffn_dim": "n_inner"},
    DECODER_USUAL
    | {
        "n_positions": 1024,
        "n_inner": None,
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    DECODER_NEEDED
    | {
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    decoder("wte", "wpe") | {"stack.top": stored_as("transformer.ln_f")},
    (left_to_right("GPT2LMHeadModel", "transformer.wte.weight"),),
    unread=(r"h\.\d+\.attn\.(masked_)?bias",),
)
