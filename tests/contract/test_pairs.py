"""The property table of encoder–decoders, over every one of them and its variants."""

import pytest
import torch

from seqloom.weights import fill, load_tensors, save_tensors, unique
from tests.contract import pairs as p

DROPPED = {"dropout": 0.3}


def test_every_encoder_decoder_is_covered():
    assert set(p.SMALL) == set(p.encoder_decoders())


@pytest.mark.parametrize("name", p.EVERY)
@pytest.mark.parametrize(
    "holds",
    [
        p.packing,
        p.batch_order,
        p.causality,
        p.every_source_token,
        p.places,
        p.steps,
        p.chunks,
        p.every_gradient,
        p.shown,
        p.empty_source,
    ],
    ids=lambda check: check.__name__,
)
def test_property(holds, name):
    holds(p.build(name), 0)


@pytest.mark.parametrize("name", p.SMALL)
@pytest.mark.parametrize("holds", [p.packing, p.steps], ids=lambda check: check.__name__)
def test_property_in_single_precision(holds, name):
    holds(p.build(name, 1, torch.float32), 1)


@pytest.mark.parametrize("name", p.EVERY)
def test_save_and_load_is_bit_equal(name, tmp_path):
    model = p.build(name, 1, torch.float32)
    save_tensors(tmp_path / "w.safetensors", unique(model))
    other = p.build(name, 2, torch.float32)
    fill(other, load_tensors(tmp_path / "w.safetensors"), tmp_path)
    assert p.digest(model) == p.digest(other)
    pair = p.joined(p.texts(0, (5, 3), (4, 6)))
    assert torch.equal(model(pair).hidden, other(pair).hidden)


@pytest.mark.parametrize("name", [*p.SMALL, "seq2seq-every", "luong-parallel"])
def test_same_seed_same_bits(name):
    p.repeatable(name, **DROPPED)


QUICK = ("seq2seq", "bahdanau", "transformer")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.long)
        for name in (*p.SMALL, "seq2seq-cho", "luong-parallel")
    ],
)
def test_overfits_sixteen_pairs(name):
    p.overfits(name, 200 if name == "convs2s" else 150)
