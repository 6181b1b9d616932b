"""Reversible layers: gradients as with all activations kept, in memory that does not grow with depth."""

import pytest
import torch

from seqloom.batch import Excerpt, pack
from seqloom.blocks import reversible
from seqloom.blocks.lsh import LshAttention
from seqloom.blocks.positions import AxialPositions
from seqloom.blocks.reversible import Repeated
from tests.contract import properties as p

DROPPED = {"dropout": 0.3, "attention_dropout": 0.2, "num_layers": 3}


def gradients(changes, seed=0):
    model = p.build("reformer", seed, **(DROPPED | changes)).train()
    torch.manual_seed(3)
    hidden = model(pack(p.sequences(seed))).hidden
    after = torch.rand(1)
    weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1), dtype=hidden.dtype)
    (hidden * weight).sum().backward()
    return hidden.detach(), [parameter.grad for parameter in model.parameters()], after


def check(changes):
    plain, expected, after = gradients(changes | {"reversible": False})
    hidden, found, still = gradients(changes)
    p.close(hidden, plain, 1e-12)
    assert torch.equal(after, still), "other random numbers were used up"
    for ours, theirs in zip(found, expected, strict=True):
        p.close(ours, theirs, 1e-10 * max(1.0, float(theirs.abs().max())))


@pytest.mark.parametrize("changes", [{}, {"ffn_chunk": 7}, {"order": "published"}, {"buckets": (300,)}])
def test_gradients_are_those_of_kept_activations(changes):
    check(changes)


def forget_random_numbers(monkeypatch):
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)


def forget_buckets(monkeypatch):
    look = LshAttention.look
    monkeypatch.setattr(
        LshAttention, "look", lambda self, x, batch, buckets=None, *rest: look(
            self, x, batch, None if buckets is None else buckets * 0, *rest
        )
    )  # fmt: skip


def forget_the_feed_forward_gradient(monkeypatch):
    right = reversible.feed_again

    def wrong(layer, y1, d2, learnt):
        fed, down, sums = right(layer, y1, d2, learnt)
        return fed, torch.zeros_like(down), sums

    monkeypatch.setattr(reversible, "feed_again", wrong)


@pytest.mark.parametrize("bug", [forget_random_numbers, forget_buckets, forget_the_feed_forward_gradient])
def test_planted_bugs_are_noticed(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        check({})


def test_a_frozen_layer_is_left_alone():
    model = p.build("reformer").train()
    model.stack.layers[0].requires_grad_(False)
    model(pack(p.sequences(0))).hidden.square().sum().backward()
    assert all(parameter.grad is None for parameter in model.stack.layers[0].parameters())
    assert model.stack.layers[1].ffn.up.weight.grad is not None and model.table.weight.grad is not None


@pytest.mark.parametrize("size", [1, 5, 1000])
@torch.no_grad()
def test_pieces_of_the_feed_forward_change_nothing(size):
    whole, pieces = p.build("reformer"), p.build("reformer", ffn_chunk=size)
    batch = pack(p.sequences(0))
    p.close(pieces(batch).hidden, whole(batch).hidden, 1e-14)


def kept_bytes(depth, recompute, dropout=0.0, texts=8):
    """What a forward pass to the loss keeps for the backward pass, beside weights: of tokens, and of random numbers."""
    sizes = {
        "dim": 128,
        "num_heads": 2,
        "ffn_dim": 128,
        "num_layers": depth,
        "reversible": recompute,
        "chunk": 16,
        "dropout": dropout,
    }
    model = p.build("reformer", 0, torch.float32, **sizes).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept, states = {}, []

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    class Counted(Repeated):
        def __init__(self, *given):
            super().__init__(*given)
            states.append(0 if self.cpu is None else self.cpu.nbytes)

    with pytest.MonkeyPatch.context() as patch, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        patch.setattr(reversible, "Repeated", Counted)
        rows = p.sequences(0, (96,) * texts)
        loss = p.learner_of(model).train()(Excerpt(pack(rows), p.following(rows)))
    assert loss.total.requires_grad
    return sum(kept.values()), sum(states)


def test_memory_does_not_grow_with_depth():
    (two, _), (eight, _), (many, _) = (kept_bytes(depth, True) for depth in (2, 8, 32))
    assert two <= eight <= many <= 1.1 * two, (two, eight, many)
    assert kept_bytes(8, False)[0] > 3 * kept_bytes(2, False)[0]  # what is noticed where activations are kept


def test_random_numbers_take_the_same_room_for_every_text():
    state = torch.get_rng_state().nbytes
    assert [kept_bytes(2, True, 0.1, texts)[1] for texts in (1, 5)] == [4 * state] * 2


def test_axial_places_are_rows_and_columns():
    positions = AxialPositions((3, 4), (2, 5))
    batch = pack([[0] * 12, [0] * 5])
    found = positions(batch)
    assert found.shape == (17, 7) and torch.equal(found[:5], found[12:])
    for place in range(12):
        row, column = divmod(place, 4)
        assert torch.equal(found[place], torch.cat((positions.rows.weight[row], positions.columns.weight[column])))
    assert len({tuple(each.tolist()) for each in found[:12]}) == 12
