"""Gates on heads and layers of a model while it computes."""

import pytest
import torch

from seqloom.batch import Edit, pack
from seqloom.blocks.attention import SelfAttention
from tests.contract import encoders as e
from tests.contract import pairs
from tests.contract import properties as p

TEXTS = p.sequences(0, (9, 4, 12))


def models():
    """(model, its layers, what runs it)"""
    for name in ("gpt", "gpt2", "gpt2-window", "gpt2-deep"):
        model = p.build(name)
        yield model, lambda edit, model=model: model(pack(TEXTS), edit=edit).hidden
    for name in ("bert", "albert"):
        model = e.build(name)
        yield model, lambda edit, model=model: model(e.laid(model, TEXTS), edit=edit).hidden
    for name in ("transformer", "transformer-pre"):
        whole = pairs.build(name)
        context = whole.encode(pack(TEXTS))
        yield whole.decoder, lambda edit, m=whole.decoder, c=context: m(pack(TEXTS), context=c, edit=edit).hidden


def ones(model):
    depth = len(model.stack.unrolled_layers)
    heads = {i: torch.ones(model.stack.unrolled_layers[i].mixer.num_heads) for i in range(depth)}
    return Edit(heads, torch.ones(depth))


@torch.no_grad()
def test_gates_of_one_change_no_bit():
    for model, run in models():
        plain = run(None)
        assert torch.equal(run(ones(model)), plain) and torch.equal(run(Edit()), plain)


@torch.no_grad()
def check_heads():
    """A gate of 0 is that head's part of the output matrix set to zero."""
    for model, run in models():
        for layer, mixer in {i: each.mixer for i, each in enumerate(model.stack.layers)}.items():
            # one set of weights for all layers: the gates of each must be 0
            layers = range(model.stack.repeat) if model.stack.repeat > 1 else (layer,)
            for head in range(mixer.num_heads):
                gates = torch.ones(mixer.num_heads)
                gates[head] = 0
                gated = run(Edit(dict.fromkeys(layers, gates)))
                kept = mixer.out.weight.clone()
                mixer.out.weight[:, head * mixer.head_dim : (head + 1) * mixer.head_dim] = 0
                without = run(None)
                mixer.out.weight.copy_(kept)
                torch.testing.assert_close(gated, without, rtol=0, atol=1e-12)
                assert not torch.allclose(gated, run(None), atol=1e-6)


def test_a_head_that_is_closed():
    check_heads()


def test_planted_gate_on_another_head(monkeypatch):
    forward = SelfAttention.forward

    def wrong(self, *given):
        return forward(self, *given[:5], *(None if gates is None else gates.roll(1) for gates in given[5:]))

    monkeypatch.setattr(SelfAttention, "forward", wrong)
    with pytest.raises(AssertionError):
        check_heads()


@torch.no_grad()
def test_a_layer_that_is_closed_is_not_there():
    """Also of a recurrent model, and step by step."""
    for name in ("gpt2-deep", "lstm"):
        model = p.build(name)
        depth = len(model.stack.layers)
        gates = torch.ones(depth)
        gates[1] = 0
        gated = model(pack(TEXTS), edit=Edit(layers=gates)).hidden
        state = model.start(3, 12)
        stepped = model(pack(TEXTS), state=state, edit=Edit(layers=gates)).hidden
        torch.testing.assert_close(stepped, gated, rtol=0, atol=1e-12)
        del model.stack.layers[1]
        assert torch.equal(gated, model(pack(TEXTS)).hidden)


def loss_of(model, heads, layers):
    torch.manual_seed(3)
    hidden = model(pack(TEXTS), edit=Edit(dict(enumerate(heads)), layers)).hidden
    return (hidden * torch.randn_like(hidden)).sum()


@pytest.mark.parametrize("name", ["gpt", "gpt2-window"])
def test_the_gradient_of_gates(name):
    model = p.build(name)
    rng = torch.Generator().manual_seed(0)
    heads = torch.rand(2, 3, dtype=torch.float64, generator=rng).requires_grad_()
    layers = torch.rand(2, dtype=torch.float64, generator=rng).requires_grad_()
    assert torch.autograd.gradcheck(lambda h, s: loss_of(model, h, s), (heads, layers), atol=1e-6)


def test_gates_that_do_not_fit():
    model, recurrent = p.build("gpt2"), p.build("lstm")
    with pytest.raises(ValueError, match="gates for 3 layers were given, and there are 2"):
        model(pack(TEXTS), edit=Edit(layers=torch.ones(3)))
    with pytest.raises(ValueError, match="no layer 2"):
        model(pack(TEXTS), edit=Edit({2: torch.ones(3)}))
    with pytest.raises(ValueError, match="layer 1 has no attention heads"):
        recurrent(pack(TEXTS), edit=Edit({1: torch.ones(3)}))
    with pytest.raises(ValueError, match="no heads or layers to gate"):
        pairs.build("seq2seq").decoder(pack(TEXTS), edit=Edit(layers=torch.ones(2)))
