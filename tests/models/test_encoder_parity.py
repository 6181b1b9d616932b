"""BERT and its family equal the models of `transformers` with the same weights: every layer, every map, the pooler."""

import pytest
import torch
import transformers as hf

from seqloom.batch import pack
from seqloom.convert.family import Family
from seqloom.convert.names import plan, stored_as, take
from seqloom.convert.values import FAMILIES, read_values
from seqloom.models import model_class
from seqloom.weights import unique

# folders of XLM are not exchanged: the table serves this comparison alone
XLM = Family(
    "xlm",
    "transformer.",
    {
        "vocab_size": "vocab_size",
        "dim": "emb_dim",
        "num_layers": "n_layers",
        "num_heads": "n_heads",
        "max_len": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "norm_eps": "layer_norm_eps",
    },
    {"layer_norm_eps": 1e-12, "asm": False, "causal": False, "is_encoder": True, "gelu_activation": True,
     "tie_word_embeddings": True},
    {"asm": False, "causal": False, "is_encoder": True, "gelu_activation": True, "tie_word_embeddings": True},
    {
        "embedding.token": stored_as("transformer.embeddings"),
        "embedding.positions": stored_as("transformer.position_embeddings"),
        "embedding.segments": stored_as("transformer.lang_embeddings"),
        "embedding.norm": stored_as("transformer.layer_norm_emb"),
        "stack.layers.{i}.mixer.qkv": stored_as(*(f"transformer.attentions.{{i}}.{part}_lin" for part in "qkv")),
        "stack.layers.{i}.mixer.out": stored_as("transformer.attentions.{i}.out_lin"),
        "stack.layers.{i}.mixer_norm": stored_as("transformer.layer_norm1.{i}"),
        "stack.layers.{i}.ffn.up": stored_as("transformer.ffns.{i}.lin1"),
        "stack.layers.{i}.ffn.down": stored_as("transformer.ffns.{i}.lin2"),
        "stack.layers.{i}.ffn_norm": stored_as("transformer.layer_norm2.{i}"),
    },
    (),
    unread=("position_ids",),
    more=lambda config, names: {
        "num_segments": config["n_langs"] if "transformer.lang_embeddings.weight" in names else 0
    },
)  # fmt: skip

V, D, LAYERS, HEADS, L = 67, 48, 3, 4, 40
SIZES = {
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 80,
    "max_position_embeddings": L,
}
XLM_SIZES = {
    "vocab_size": V,
    "emb_dim": D,
    "n_layers": LAYERS,
    "n_heads": HEADS,
    "n_langs": 3,
    "max_position_embeddings": L,
}
THEIRS = {
    "bert": (hf.BertConfig, hf.BertModel, SIZES),
    "roberta": (hf.RobertaConfig, hf.RobertaModel, SIZES | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "xlm-roberta": (hf.XLMRobertaConfig, hf.XLMRobertaModel, SIZES | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "albert": (hf.AlbertConfig, hf.AlbertModel, SIZES | {"embedding_size": 20}),
    "electra": (hf.ElectraConfig, hf.ElectraModel, SIZES | {"embedding_size": 20}),
    "electra-square": (hf.ElectraConfig, hf.ElectraModel, SIZES | {"embedding_size": D}),
    "ernie": (hf.ErnieConfig, hf.ErnieModel, SIZES | {"hidden_act": "relu"}),
    "xlm": (hf.XLMConfig, hf.XLMModel, XLM_SIZES),
}
PAD = {"roberta": 1, "xlm-roberta": 1, "xlm": 2}


def theirs(kind):
    config, cls, sizes = THEIRS[kind]
    torch.manual_seed(0)
    model = cls(config(**sizes, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def ours(reference):
    """The body alone, by the table of its family."""
    config, tensors = reference.config.to_dict(), reference.state_dict()
    family = FAMILIES.get(config["model_type"], XLM)
    names = {family.prefix + name for name in tensors}
    values = read_values(family, config, names, "config.json")
    model = model_class(family.model)(model_class(family.model).Config(**values)).eval()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    chosen = plan(family.table, unique(model), shapes, family.prefix, {}, family.unread, "theirs")
    model.load_state_dict(take(chosen, tensors, {}, "theirs")[0])
    return model


def texts(kind):
    """Of unequal lengths, without the padding token; the second half of each is of the second kind."""
    rng, pad = torch.Generator().manual_seed(1), PAD.get(kind, 0)
    rows = [torch.randint(3, V, (n,), generator=rng).tolist() for n in (33, 7, 1, 20)]
    ids = torch.tensor([[*row, *[pad] * (33 - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (33 - len(row)) for row in rows])
    kinds = [[int(i >= len(row) // 2) for i in range(len(row))] for row in rows]
    segments = torch.tensor([[*row, *[0] * (33 - len(row))] for row in kinds])
    return rows, ids, mask, segments


@pytest.mark.parametrize("kind", THEIRS)
def test_equal(kind):
    reference = theirs(kind)
    model = ours(reference)
    rows, ids, mask, segments = texts(kind)
    told = {} if "roberta" in kind else {"langs" if kind == "xlm" else "token_type_ids": segments}
    expected = reference(
        input_ids=ids, attention_mask=mask, output_hidden_states=True, output_attentions=True, return_dict=True, **told
    )
    batch = pack(rows)
    if told:
        batch = batch._replace(segments=segments[mask.bool()])
    output = model(batch, layers=True, maps=True)
    chosen = mask.bool()
    their_layers = expected.hidden_states[-LAYERS:]
    for mine, their in zip(output.layers[-LAYERS:], their_layers, strict=True):
        torch.testing.assert_close(mine, their[chosen], rtol=0, atol=1e-5)
    torch.testing.assert_close(output.hidden, expected.last_hidden_state[chosen], rtol=0, atol=1e-5)
    torch.testing.assert_close(model(batch).hidden, output.hidden, rtol=0, atol=1e-5)
    if len(expected.hidden_states) == LAYERS + 1 and kind not in ("albert",):
        torch.testing.assert_close(output.layers[0], expected.hidden_states[0][chosen], rtol=0, atol=1e-5)
    for mine, their in zip(output.maps, expected.attentions, strict=True):
        for n, row in enumerate(rows):
            torch.testing.assert_close(mine[n, :, : len(row)], their[n, :, : len(row)], rtol=0, atol=1e-5)
    pooled = getattr(expected, "pooler_output", None)
    assert (pooled is not None) == (model.pooler is not None)
    if pooled is not None:
        first = output.hidden[batch.offsets[:-1].long()]
        torch.testing.assert_close(model.pooled(first), pooled, rtol=0, atol=1e-5)


def test_gradients_are_equal():
    reference = theirs("bert")
    model = ours(reference)
    rows, ids, mask, segments = texts("bert")
    weights = torch.randn(int(mask.sum()), D)
    expected = reference(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state[mask.bool()]
    (expected * weights).sum().backward()
    batch = pack(rows)._replace(segments=segments[mask.bool()])
    (model(batch).hidden * weights).sum().backward()
    body = reference.get_submodule
    for mine, their in (
        (model.table.weight, reference.get_input_embeddings().weight),
        (model.embedding.segments.weight, body("embeddings.token_type_embeddings").weight),
        (model.stack.layers[0].ffn.up.weight, body("encoder.layer.0.intermediate.dense").weight),
    ):
        assert (mine.grad - their.grad).norm() / their.grad.norm() < 1e-4


def test_texts_without_segments_are_all_of_the_first_kind():
    model = ours(theirs("bert"))
    rows, *_ = texts("bert")
    batch = pack(rows)
    told = batch._replace(segments=torch.zeros_like(batch.ids))
    assert torch.equal(model(batch).hidden, model(told).hidden)
    assert not torch.equal(model(batch).hidden, model(told._replace(segments=told.segments + 1)).hidden)


def test_published_sizes():
    """Parameters of the released bodies, as `transformers` counts them."""
    expected = {
        ("bert", "base"): 109_482_240,
        ("bert", "large"): 335_141_888,
        ("bert", "multilingual"): 177_853_440,
        ("bert", "turc-tiny"): 4_385_920,
        ("bert", "turc-mini"): 11_170_560,
        ("albert", "base"): 11_683_584,
        ("albert", "xxlarge"): 222_595_584,
        ("electra", "small"): 13_483_008,
        ("roberta", "base"): 124_055_040 - 768 - 2 * 768,  # without a segment's vector and two positions of no use
    }
    with torch.device("meta"):
        for (name, preset), count in expected.items():
            cls = model_class(name)
            model = cls(cls.Config(**cls.presets[preset]))
            assert sum(p.numel() for p in model.parameters()) == count, (name, preset)


def test_there_is_nothing_to_carry():
    with pytest.raises(ValueError, match="both directions"):
        ours(theirs("bert")).start(1, 4)
