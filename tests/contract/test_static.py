"""The property table of models without a context, and bugs that must be noticed."""

import pytest
import torch

from seqloom.models import model_class
from seqloom.objectives.windows import Draws
from seqloom.weights import fill, load_tensors, save_tensors
from tests.contract import encoders as e
from tests.contract import properties as p
from tests.contract import static as s
from tests.contract.test_planted import noticed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", s.SMALL)
@pytest.mark.parametrize(
    "holds",
    [s.reads_no_context, s.shown, p.causality, p.packing, p.batch_order],
    ids=lambda check: check.__name__,
)
def test_property(holds, name, seed):
    holds(s.build(name, seed), seed)


@pytest.mark.parametrize(("name", "objective"), s.LEARNERS)
@pytest.mark.parametrize(
    "holds", [s.every_gradient, s.accumulation, s.nothing_to_learn], ids=lambda check: check.__name__
)
def test_property_of_learning(holds, name, objective):
    holds(s.learner_of(name, objective), 0)


@pytest.mark.parametrize(("name", "objective"), s.LEARNERS)
@pytest.mark.parametrize("holds", [s.repeatable, s.learns], ids=lambda check: check.__name__)
def test_training(holds, name, objective):
    holds(name, objective)


@pytest.mark.parametrize(("name", "objective"), s.LEARNERS)
def test_save_and_load_is_bit_equal(name, objective, tmp_path):
    one, two = (s.learner_of(name, objective, seed, torch.float32) for seed in (1, 2))
    save_tensors(tmp_path / "w.safetensors", one.state_dict())
    fill(two, load_tensors(tmp_path / "w.safetensors"), tmp_path)
    two.validate_loaded()
    assert p.digest(one) == p.digest(two)
    assert torch.equal(one(s.example_of(one, 0)).total, two(s.example_of(two, 0)).total)


@pytest.mark.parametrize("name", s.SMALL)
def test_presets(name):
    cls = model_class(name)
    assert {"tiny", "small"} <= set(cls.presets)


def test_a_planted_neighbour_that_is_seen(monkeypatch):
    model = s.build("word2vec")
    forward = type(model).forward

    def mixed(self, batch, **asked):
        output = forward(self, batch, **asked)
        return output._replace(hidden=output.hidden + output.hidden.roll(1, 0))

    monkeypatch.setattr(type(model), "forward", mixed)
    noticed(s.reads_no_context, model, 0)
    noticed(p.packing, model, 0)


@pytest.mark.parametrize("objective", ["skip-gram", "cbow"])
def test_planted_words_that_do_not_learn(objective, monkeypatch):
    learner = s.learner_of("word2vec", objective)
    forward = type(learner.backbone).forward
    monkeypatch.setattr(
        type(learner.backbone),
        "forward",
        lambda self, b, **k: forward(self, b, **k)._replace(hidden=self.token(b.ids).detach()),
    )
    noticed(s.every_gradient, learner, 0)


def test_a_planted_generator_that_is_not_seeded(monkeypatch):
    negatives, other = Draws.negatives, torch.Generator()
    monkeypatch.setattr(Draws, "negatives", lambda self, shape, rng: negatives(self, shape, other))
    noticed(s.repeatable, "word2vec", "skip-gram")


def test_the_tables_do_not_overlap():
    assert not set(s.SMALL) & (set(p.SMALL) | set(e.SMALL))
