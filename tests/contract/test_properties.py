"""The property table, over every model and its variants."""

import pytest
import torch

from seqloom.batch import STATIC, EncoderDecoder
from seqloom.models import MODELS, model_class
from seqloom.weights import fill, load_tensors, save_tensors
from tests.contract import encoders, static
from tests.contract import properties as p

EVERY = [*p.SMALL, *p.VARIANTS]
CARRIED = [name for name in p.NEURAL if p.build(name).carries]


def test_every_model_is_covered():
    """Here, in the table of those that read in both directions, in that of static ones, or in that of encoder–decoders."""
    backbones = {name: model_class(name) for name in MODELS if not issubclass(model_class(name), EncoderDecoder)}
    assert set(static.SMALL) == {name for name, cls in backbones.items() if cls.learns_from in STATIC}
    backbones = {name: cls for name, cls in backbones.items() if cls.learns_from not in STATIC}
    assert set(p.SMALL) == {name for name, cls in backbones.items() if cls.causal}
    assert set(encoders.SMALL) == {name for name, cls in backbones.items() if not cls.causal}


REPEATED = ("rnn", "lstm", "gpt2", "bytenet", "reformer", "transformer-xl")  # trained twice; the others in test-all
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]  # of weights and texts


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "holds",
    [
        p.causality,
        p.packing,
        p.batch_order,
        p.steps,
        p.chunks,
    ],
    ids=lambda check: check.__name__,
)
def test_property(holds, name, seed):
    holds(p.build(name, seed), seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", p.NEURAL)
@pytest.mark.parametrize(
    "holds",
    [
        p.every_gradient,
        p.initial_loss,
        p.all_ignored,
        p.accumulation,
        p.shown,
    ],
    ids=lambda check: check.__name__,
)
def test_property_of_learning(holds, name, seed):
    holds(p.build(name, seed), seed)


@pytest.mark.parametrize(
    "layer", [{"softmax": "adaptive"}, {"softmax": "sampled", "samples": p.VOCAB}], ids=["adaptive", "sampled"]
)
@pytest.mark.parametrize(
    "holds", [p.every_gradient, p.initial_loss, p.all_ignored, p.accumulation], ids=lambda check: check.__name__
)
def test_property_of_learning_with_a_large_vocabulary(holds, layer, monkeypatch):
    learner_of = p.learner_of
    monkeypatch.setattr(p, "learner_of", lambda model: learner_of(model, tie=False, **layer).train())
    holds(p.build("big-lstm", 1), 1)


@pytest.mark.parametrize("name", p.NEURAL)
@pytest.mark.parametrize("holds", [p.packing, p.steps], ids=lambda check: check.__name__)
def test_property_in_single_precision(holds, name):
    holds(p.build(name, 1, torch.float32), 1)


@pytest.mark.parametrize("name", CARRIED)
def test_gradient_stops_at_the_segment(name):
    p.segment_gradient(p.build(name), 0)


@pytest.mark.parametrize("name", p.NEURAL)
def test_save_and_load_is_bit_equal(name, tmp_path):
    model = p.build(name, 1, torch.float32)
    save_tensors(tmp_path / "w.safetensors", model.state_dict())
    other = p.build(name, 2, torch.float32)
    fill(other, load_tensors(tmp_path / "w.safetensors"), tmp_path)
    assert p.digest(model) == p.digest(other)
    batch = p.pack(p.sequences(0))
    assert torch.equal(model(batch).hidden, other(batch).hidden)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in REPEATED else pytest.mark.long) for name in p.NEURAL]
)
def test_same_seed_same_bits(name):
    p.repeatable(name)


QUICK = ("lstm", "gpt2", "nnlm", "bytenet")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in MODELS if name in p.NEURAL],
)
def test_overfits_sixteen_sequences(name):
    p.overfits(name)
