"""BERT and its family, as `transformers` stores them ⇄ ours."""

from collections.abc import Callable
from typing import Any

from seqloom.convert.family import Family, Head
from seqloom.convert.names import stored_as

ENCODER_VALUES = {
    "vocab_size": "vocab_size",
    "dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "max_len": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
}
ENCODER_DEFAULTS = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
ENCODER_NEEDED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def embeddings(prefix: str) -> dict[str, Any]:
    return {
        "embedding.token": stored_as(f"{prefix}embeddings.word_embeddings"),
        "embedding.positions": stored_as(f"{prefix}embeddings.position_embeddings"),
        "embedding.segments": stored_as(f"{prefix}embeddings.token_type_embeddings"),
        "embedding.norm": stored_as(f"{prefix}embeddings.LayerNorm"),
    }


def encoder(prefix: str, layer: str = "encoder.layer.{i}.") -> dict[str, Any]:
    at = prefix + layer
    attention = f"{at}attention.self."
    return embeddings(prefix) | {
        "stack.layers.{i}.mixer.qkv": stored_as(f"{attention}query", f"{attention}key", f"{attention}value"),
        "stack.layers.{i}.mixer.out": stored_as(f"{at}attention.output.dense"),
        "stack.layers.{i}.mixer_norm": stored_as(f"{at}attention.output.LayerNorm"),
        "stack.layers.{i}.ffn.up": stored_as(f"{at}intermediate.dense"),
        "stack.layers.{i}.ffn.down": stored_as(f"{at}output.dense"),
        "stack.layers.{i}.ffn_norm": stored_as(f"{at}output.LayerNorm"),
        "pooler": stored_as(f"{prefix}pooler.dense"),
    }


def masked(architecture: str, at: str, body: str, norm: str, mark: str, dense: str = "dense") -> Head:
    """The output layer of hidden words. at: where it is; body: of its family; norm, dense: as it calls them."""
    return Head(
        mark,
        architecture,
        {"objective": {"name": "masked"}},
        {
            "guess.dense": stored_as(f"{at}{dense}"),
            "guess.norm": stored_as(f"{at}{norm}"),
            "softmax.bias": stored_as(mark),
        },
        {f"{at}decoder.weight": f"{body}embeddings.word_embeddings.weight", f"{at}decoder.bias": mark},
    )


def with_relation(head: Head, architecture: str, objective: str, also: str, place: str) -> Head:
    """The same, and whether two parts belong together."""
    return head._replace(
        mark=f"{place}.weight",
        architecture=architecture,
        learns={"objective": {"name": objective}},
        table={**head.table, "relation": stored_as(place)},
        also=(also,),
    )


def bert_heads(name: str, body: str) -> tuple[Head, ...]:
    at = "cls.predictions."
    plain = masked(f"{name}ForMaskedLM", at, body, "transform.LayerNorm", f"{at}bias", "transform.dense")
    both = with_relation(plain, f"{name}ForPreTraining", "next-sentence", "sentence-order", "cls.seq_relationship")
    return (both, plain)


def roberta_heads(name: str) -> tuple[Head, ...]:
    return (masked(f"{name}ForMaskedLM", "lm_head.", "roberta.", "layer_norm", "lm_head.bias"),)


def albert_heads() -> tuple[Head, ...]:
    plain = masked("AlbertForMaskedLM", "predictions.", "albert.", "LayerNorm", "predictions.bias")
    place = "sop_classifier.classifier"
    return (with_relation(plain, "AlbertForPreTraining", "sentence-order", "next-sentence", place), plain)


def electra_heads() -> tuple[Head, ...]:
    at, table = "discriminator_predictions.", "electra.embeddings.word_embeddings.weight"
    judge = Head(
        f"{at}dense_prediction.weight",
        "ElectraForPreTraining",
        {"objective": {"name": "replaced-token", "generator": 0.0}},
        {"dense": stored_as(f"{at}dense"), "discriminator_head": stored_as(f"{at}dense_prediction")},
        left_out=("generator.", "guess.", "softmax."),
    )
    bias = "generator_lm_head.bias"
    writer = masked("ElectraForMaskedLM", "generator_predictions.", "electra.", "LayerNorm", bias)
    return (judge, writer._replace(repeated={"generator_lm_head.weight": table}))


def has_pooler(name: str) -> Callable[[dict[str, Any], set[str]], dict[str, Any]]:
    return lambda config, names: {"pooler": name in names}


BERT = Family(
    "bert",
    "bert.",
    ENCODER_VALUES,
    ENCODER_DEFAULTS,
    ENCODER_NEEDED,
    encoder("bert."),
    bert_heads("Bert", "bert."),
    "hidden_act",
    more=has_pooler("bert.pooler.dense.weight"),
)
ERNIE = BERT._replace(
    model="ernie",
    prefix="ernie.",
    defaults=ENCODER_DEFAULTS | {"use_task_id": False},
    needed=ENCODER_NEEDED | {"use_task_id": False},
    table=encoder("ernie."),
    heads=bert_heads("Ernie", "ernie."),
    more=has_pooler("ernie.pooler.dense.weight"),
)
ROBERTA = BERT._replace(
    model="roberta",
    prefix="roberta.",
    # positions are counted from behind the number of the padding token, 1 unless a folder has another (`with_padding`)
    defaults=ENCODER_DEFAULTS | {"pad_token_id": 1},
    needed=ENCODER_NEEDED | {"pad_token_id": 1},
    table=encoder("roberta.") | {"embedding.positions": stored_as("roberta.embeddings.position_embeddings", skip=2)},
    heads=roberta_heads("Roberta"),
    activations={"gelu": "gelu"},  # the output layer has it whatever the layers have
    skip=2,
    more=has_pooler("roberta.pooler.dense.weight"),
)
XLM_R = ROBERTA._replace(model="xlm-r", heads=roberta_heads("XLMRoberta"))
ELECTRA = BERT._replace(
    model="electra",
    prefix="electra.",
    values=ENCODER_VALUES | {"embedding_dim": "embedding_size"},
    defaults=ENCODER_DEFAULTS | {"embedding_size": 128},
    table=encoder("electra.") | {"embedding.project": stored_as("electra.embeddings_project")},
    heads=electra_heads(),
    activations={"gelu": "gelu"},
    more=lambda config, names: {"pooler": False},
)
_ALBERT = "albert.encoder.albert_layer_groups.0.albert_layers.0."
ALBERT = BERT._replace(
    model="albert",
    prefix="albert.",
    values=ENCODER_VALUES | {"embedding_dim": "embedding_size"},
    defaults=ENCODER_DEFAULTS
    | {
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
        "embedding_size": 128,
    },
    needed=ENCODER_NEEDED | {"num_hidden_groups": 1, "inner_group_num": 1},
    table=embeddings("albert.")
    | {
        "embedding.project": stored_as("albert.encoder.embedding_hidden_mapping_in"),
        "stack.layers.{i}.mixer.qkv": stored_as(*(f"{_ALBERT}attention.{part}" for part in ("query", "key", "value"))),
        "stack.layers.{i}.mixer.out": stored_as(f"{_ALBERT}attention.dense"),
        "stack.layers.{i}.mixer_norm": stored_as(f"{_ALBERT}attention.LayerNorm"),
        "stack.layers.{i}.ffn.up": stored_as(f"{_ALBERT}ffn"),
        "stack.layers.{i}.ffn.down": stored_as(f"{_ALBERT}ffn_output"),
        "stack.layers.{i}.ffn_norm": stored_as(f"{_ALBERT}full_layer_layer_norm"),
        "pooler": stored_as("albert.pooler"),
    },
    heads=albert_heads(),
    more=has_pooler("albert.pooler.weight"),
)
