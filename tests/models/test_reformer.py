"""Reformer equals the model of `transformers` in the published order, with the same weights and rotations."""

import pytest
import torch
from transformers import ReformerConfig, ReformerModelWithLMHead
from transformers.models.reformer.modeling_reformer import ReformerForMaskedLM

from seqloom.batch import Excerpt, pack
from seqloom.blocks.lsh import Chunks, LshAttention
from seqloom.errors import UsageError
from seqloom.models.reformer import Reformer
from seqloom.objectives.next_token import NextToken
from tests.contract import properties as p

V, D, LAYERS, HEADS, E, SEED = 53, 32, 3, 2, 12, 7
ROWS, COLUMNS, DIMS = 8, 8, (12, 20)
NAMES = {  # ours → theirs
    "mixer_norm": "attention.layer_norm",
    "mixer.qk": "attention.self_attention.query_key",
    "mixer.value": "attention.self_attention.value",
    "mixer.out": "attention.output.dense",
    "ffn_norm": "feed_forward.layer_norm",
    "ffn.up": "feed_forward.dense.dense",
    "ffn.down": "feed_forward.output.dense",
}


def theirs(buckets, chunk, rounds, decoder):
    config = ReformerConfig(
        vocab_size=V, hidden_size=D, num_attention_heads=HEADS, attention_head_size=E, feed_forward_size=48,
        attn_layers=["lsh"] * LAYERS, axial_pos_shape=(ROWS, COLUMNS), axial_pos_embds_dim=DIMS, is_decoder=decoder,
        lsh_attn_chunk_length=chunk, num_buckets=list(buckets) if len(buckets) > 1 else buckets[0], num_hashes=rounds,
        hash_seed=SEED, hidden_dropout_prob=0.0, lsh_attention_probs_dropout_prob=0.0, max_position_embeddings=ROWS * COLUMNS,
    )  # fmt: skip
    torch.manual_seed(0)
    model = (ReformerModelWithLMHead if decoder else ReformerForMaskedLM)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    # in fp32 a token that sees only itself, twice, has weights that are off by 0.004 there: its score of −1e5 has few digits
    return model.reformer.double().eval()


def ours(body, buckets, chunk, rounds, decoder):
    model = Reformer(
        Reformer.Config(
            vocab_size=V, dim=D, num_layers=LAYERS, num_heads=HEADS, head_dim=E, ffn_dim=48, max_len=ROWS * COLUMNS,
            axial=(ROWS, COLUMNS), axial_dims=DIMS, buckets=buckets, chunk=chunk, rounds=rounds, order="published",
            both_directions=not decoder, dropout=0.0,
        )
    )  # fmt: skip
    rows, columns = body.embeddings.position_embeddings.weights
    tensors = {
        "embedding.token.weight": body.embeddings.word_embeddings.weight,
        "embedding.positions.rows.weight": rows[:, 0],
        "embedding.positions.columns.weight": columns[0],
        "stack.top.0.weight": body.encoder.layer_norm.weight,
        "stack.top.0.bias": body.encoder.layer_norm.bias,
    }
    for i, layer in enumerate(body.encoder.layers):
        for mine, their in NAMES.items():
            for name, parameter in layer.get_submodule(their).named_parameters():
                tensors[f"stack.layers.{i}.{mine}.{name}"] = parameter
    model.load_state_dict({name: tensor.detach().clone() for name, tensor in tensors.items()})
    return model.double().eval()


def compare(buckets, chunk, rounds, decoder, length=ROWS * COLUMNS):
    body = theirs(buckets, chunk, rounds, decoder)
    model = ours(body, buckets, chunk, rounds, decoder)
    texts = torch.randint(0, V, (3, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = body(texts).last_hidden_state
        found = model(pack(texts.tolist())).hidden.view_as(expected)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def draw_as_they_do(monkeypatch):
    def rotations(mixer, like):
        torch.manual_seed(SEED)
        return torch.randn(mixer.num_heads, mixer.head_dim, mixer.rounds, mixer.directions, dtype=like.dtype)

    monkeypatch.setattr(LshAttention, "rotations", rotations)


CASES = [((8,), 8, 1, True), ((8,), 8, 4, True), ((4, 2), 16, 2, True), ((8,), 8, 3, False), ((2,), 64, 2, True)]


@pytest.mark.parametrize("case", CASES)
def test_equal(case, monkeypatch):
    draw_as_they_do(monkeypatch)
    compare(*case)


def test_equal_for_shorter_texts(monkeypatch):
    draw_as_they_do(monkeypatch)
    compare((8,), 8, 2, True, length=40)


def test_planted_other_chunk_before_the_first_is_noticed(monkeypatch):
    """Before the first chunk of a round stands the last of the round before; here the last of its own."""
    draw_as_they_do(monkeypatch)
    right = Chunks.last_is_before_first

    def wrong(self, count):
        found = right(self, count)
        return (found + torch.where(torch.arange(found.shape[1]) % count == 0, count, 0)) % found.shape[1]

    monkeypatch.setattr(Chunks, "last_is_before_first", wrong)
    with pytest.raises(AssertionError):
        compare((8,), 8, 3, False)


def small(**changes):
    return Reformer(Reformer.Config(**({"vocab_size": p.VOCAB} | p.SMALL["reformer"] | changes)))


def test_the_published_order_has_no_next_token():
    model = small(order="published")
    with pytest.raises(UsageError, match="a later token moves what earlier ones see"):
        NextToken(model, NextToken.Config(tie=False))
    with pytest.raises(ValueError, match="a later token moves"):
        model.start(1, 8)


def test_the_published_order_learns_labels():
    model = small(order="published", both_directions=True)
    assert not model.causal
    hidden = model.train()(pack(p.sequences(0))).hidden
    hidden.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def loss_in(precision, seed=0):
    learner = p.learner_of(p.build("reformer", seed, torch.float32)).train()
    texts = p.sequences(seed)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
        loss = learner(Excerpt(pack(texts), p.following(texts)))
    loss.total.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in learner.parameters())
    return loss.total.item() / loss.count.item()


def test_half_precision():
    assert loss_in("bf16") == pytest.approx(loss_in("fp32"), rel=0.01)
