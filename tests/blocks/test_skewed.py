"""Attention by learned distances: the skew against brute force, and bugs in it that must be noticed."""

import pytest
import torch

from seqloom.blocks import relative, skewed
from seqloom.blocks.skewed import SkewedAttention, gathered_scores, skewed_scores
from tests.contract import properties as p
from tests.contract.test_planted import noticed


def skew_is_brute_force(length: int, count: int) -> None:
    torch.manual_seed(length)
    query, distance = torch.randn(2, length, 3, 4).double(), torch.randn(3, count, 4).double()
    found = skewed.skewed_scores(query, distance)
    assert found.shape == (2, 3, length, length)
    for i in range(length):
        for j in range(i + 1):
            right = (query[:, i] * distance[:, min(i - j, count - 1)]).sum(-1) / 2
            assert (found[:, :, i, j] - right).abs().max() < 1e-14


@pytest.mark.parametrize(("length", "count"), [(1, 1), (1, 5), (2, 1), (7, 3), (7, 7), (9, 20)])
def test_skew(length, count):
    skew_is_brute_force(length, count)


@pytest.mark.parametrize(("length", "count"), [(7, 3), (9, 20)])
def test_gathered_is_skewed(length, count):
    query, distance = torch.randn(2, length, 3, 4).double(), torch.randn(3, count, 4).double()
    place = torch.arange(length).expand(2, -1)
    one, other = skewed_scores(query, distance), gathered_scores(query, distance, place, length)
    assert (one.tril() - other.tril()).abs().max() < 1e-14


def test_gradient():
    query, distance = torch.randn(1, 5, 2, 3).double(), torch.randn(2, 3, 3).double()
    inputs = (query.requires_grad_(), distance.requires_grad_())
    assert torch.autograd.gradcheck(lambda q, r: skewed_scores(q, r).tril(), inputs)


def test_without_distances_it_is_plain_attention():
    model, batch = p.build("music-transformer"), p.pack(p.sequences(0))
    mixer = model.stack.layers[0].mixer
    with torch.no_grad():
        mixer.distance.zero_()
        x = torch.randn(len(batch.ids), 24).double()
        plain = super(SkewedAttention, mixer).forward(x, batch)[0]
        assert (mixer(x, batch)[0] - plain).abs().max() < 1e-12


def test_longer_than_trained():
    """Beyond the largest distance all are alike: what is far away is only far away."""
    model = p.build("music-transformer", max_distance=4)
    (text,) = p.sequences(0, (60,))
    found = model(p.pack([text])).hidden
    assert torch.isfinite(found).all()


def test_heads_are_removed_with_their_distances():
    mixer = p.build("music-transformer").stack.layers[0].mixer
    mixer.keep_heads(torch.tensor([0, 2]))
    x, batch = torch.randn(6, 24).double(), p.pack([[1, 2, 3, 4, 5, 6]])
    assert mixer.distance.shape[0] == 2 and mixer(x, batch)[0].shape == (6, 24)


def test_skew_off_by_one(monkeypatch):
    right = relative.shift
    monkeypatch.setattr(skewed, "shift", lambda scores: right(scores.roll(1, -1)))
    noticed(skew_is_brute_force, 7, 7)
    noticed(p.steps, p.build("music-transformer"), 0)


def test_garbage_above_the_diagonal(monkeypatch):
    """Nothing is masked after the skew."""
    attend = skewed.kernels.attend

    def unmasked(q, k, v, batch, *, causal, **options):
        return attend(q, k, v, batch, causal=False, **options)

    monkeypatch.setattr(skewed.kernels, "attend", unmasked)
    noticed(p.causality, p.build("music-transformer"), 0)
    noticed(p.steps, p.build("music-transformer"), 0)


def test_distances_counted_from_the_chunk(monkeypatch):
    right = skewed.gathered_scores
    monkeypatch.setattr(skewed, "gathered_scores", lambda q, r, place, keys: right(q, r, place - place[:, :1], keys))
    noticed(p.steps, p.build("music-transformer"), 0)


def test_borders_forgotten(monkeypatch):
    """Queries of all sequences are taken for one row."""
    right = skewed.skewed_scores
    monkeypatch.setattr(skewed, "skewed_scores", lambda q, r: right(q.flip(0), r))
    noticed(p.packing, p.build("music-transformer"), 0)
