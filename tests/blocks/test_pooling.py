"""Pooling and the mix of layers against their definitions, one sequence at a time; and bugs that must be noticed."""

import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import pack, ragged
from seqloom.blocks import pooling
from seqloom.blocks.pooling import POOLS, ScalarMix, pool

SIZES = [3, 1, 5, 0, 2, 0]


def by_hand(rows, how):
    if not len(rows):
        return torch.zeros(rows.shape[1:]) if how != "concat" else torch.zeros(*rows.shape[1:-1], 3 * rows.shape[-1])
    found = {"first": rows[0], "last": rows[-1], "mean": rows.mean(0), "max": rows.max(0).values}
    found["concat"] = torch.cat([found["last"], found["max"], found["mean"]], -1)
    return found[how]


def check(how, with_own, inner=()):
    torch.manual_seed(0)
    batch = ragged(torch.zeros(sum(SIZES), dtype=torch.long), torch.tensor(SIZES))
    states = torch.randn(sum(SIZES), *inner, 4) - 3  # below zero: a zero that slips in is the greatest
    own = torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1], dtype=torch.bool) if with_own else None
    kept = torch.ones(sum(SIZES), dtype=torch.bool) if own is None else own
    wanted = [by_hand(rows[keep], how) for rows, keep in zip(states.split(SIZES), kept.split(SIZES), strict=True)]
    states.requires_grad_()
    found = pool(states, batch, how, own)
    torch.testing.assert_close(found, torch.stack(wanted))
    found.sum().backward()
    assert states.grad is not None and not states.grad[~kept].any(), "what is left out is not learnt from"


@pytest.mark.parametrize("with_own", [False, True])
@pytest.mark.parametrize("how", POOLS)
def test_equal_to_each_sequence_alone(how, with_own):
    check(how, with_own)
    check(how, with_own, inner=(2,))


def test_nothing_to_pool():
    for how in POOLS:
        found = pool(torch.zeros(0, 4), pack([[], []]), how)
        assert found.shape == (2, 12 if how == "concat" else 4) and not found.any()
    with pytest.raises(ValueError, match="pooling 'middle': choose first"):
        pool(torch.zeros(2, 4), pack([[1, 1]]), "middle")


def test_a_mean_of_half_precision_is_summed_wide():
    states = torch.full((4001, 1), 1.0).bfloat16()
    assert pool(states, pack([[0] * 4001]), "mean").item() == 1.0


@pytest.mark.parametrize("with_own", [False, True])
def test_planted_borders_that_are_forgotten(monkeypatch, with_own):
    right = pooling.pool

    def wrong(states, batch, how, own=None):
        return right(states, batch._replace(owner=batch.owner.roll(1)), how, own)

    monkeypatch.setitem(globals(), "pool", wrong)
    for how in POOLS:
        with pytest.raises(AssertionError):
            check(how, with_own)


def test_planted_tokens_that_do_not_count(monkeypatch):
    right = pooling.pool
    monkeypatch.setitem(globals(), "pool", lambda states, batch, how, own=None: right(states, batch, how))
    for how in POOLS:
        with pytest.raises(AssertionError):
            check(how, True)


@pytest.mark.parametrize("norm", [False, True])
def test_a_mix_is_the_weighted_sum(norm):
    layers = [torch.randn(5, 4) * 3 + 1 for _ in range(3)]
    mix = ScalarMix(3, norm)
    parts = [F.layer_norm(layer, (4,)) for layer in layers] if norm else layers
    torch.testing.assert_close(mix(layers), sum(parts) / 3)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 1.0, -2.0]))
        mix.gamma.fill_(2.5)
    powers = torch.tensor([0.0, 1.0, -2.0]).exp()
    wanted = 2.5 * sum(power / powers.sum() * part for power, part in zip(powers, parts, strict=True))
    torch.testing.assert_close(mix(layers), wanted)
    assert mix.shares.sum().item() == pytest.approx(1)
    mix(layers).sum().backward()
    assert mix.weights.grad is not None and mix.gamma.grad is not None


def test_layers_that_cannot_be_mixed_are_refused():
    with pytest.raises(ValueError, match=r"a mix of 3 layers of one width was given \[4, 4\]"):
        ScalarMix(3)([torch.zeros(2, 4)] * 2)
    with pytest.raises(ValueError, match=r"given \[4, 5\]"):
        ScalarMix(2)([torch.zeros(2, 4), torch.zeros(2, 5)])
