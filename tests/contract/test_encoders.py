"""The property table of models that read in both directions, what they cost, and bugs that must be noticed."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from seqloom import cost
from seqloom.batch import Sizes, pack
from seqloom.blocks import grid, kernels, recurrent
from seqloom.models import model_class
from seqloom.recipes.schema import build_recipe
from seqloom.weights import fill, load_tensors, save_tensors
from tests.contract import encoders as e
from tests.contract.properties import sequences
from tests.contract.test_planted import noticed
from tests.test_cost import plain_products

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]  # of weights and texts


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", e.EVERY)
@pytest.mark.parametrize(
    "holds",
    [e.packing, e.batch_order, e.both_directions, e.every_gradient, e.accumulation, e.shown],
    ids=lambda check: check.__name__,
)
def test_property(holds, name, seed):
    holds(e.build(name, seed), seed)


@pytest.mark.parametrize("name", e.EVERY)
def test_packing_in_single_precision(name):
    # outputs are normalised, of about 1: as much as sums in another order may differ by
    e.packing(e.build(name, 1, torch.float32), 1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in e.SMALL else pytest.mark.long) for name in e.EVERY]
)
def test_same_seed_same_bits(name):
    e.repeatable(name)


@pytest.mark.parametrize("name", e.EVERY)
def test_save_and_load_is_bit_equal(name, tmp_path):
    model, other = (e.build(name, seed, torch.float32) for seed in (1, 2))
    save_tensors(tmp_path / "w.safetensors", model.state_dict())
    fill(other, load_tensors(tmp_path / "w.safetensors"), tmp_path)
    batch = e.laid(model, sequences(0))
    assert e.digest(model) == e.digest(other)
    assert torch.equal(model(batch).hidden, other(batch).hidden)


@pytest.mark.parametrize("name", e.ONE_STREAM)
def test_there_is_no_state(name):
    with pytest.raises(ValueError, match="both directions"):
        e.build(name).start(1, 8)


def test_all_layers_of_albert_are_one():
    """One layer's weights, whatever the depth; and what is run twice is not what is run once."""
    sizes = [sum(p.numel() for p in e.build("albert", num_layers=depth).parameters()) for depth in (1, 2, 5)]
    assert len(set(sizes)) == 1
    shallow, deep = e.build("albert", num_layers=2), e.build("albert", num_layers=5)
    deep.load_state_dict(shallow.state_dict())
    batch = pack(sequences(0))
    assert torch.equal(deep(batch, layers=True).layers[2], shallow(batch).hidden)
    assert not torch.equal(deep(batch).hidden, shallow(batch).hidden)


@pytest.mark.parametrize("name", list(e.SMALL))
def test_an_objective_from_left_to_right_is_refused(name):
    from seqloom.errors import UsageError

    with pytest.raises(UsageError, match=f"is not for the model {name}"):
        build_recipe(
            {"name": "x", "model": {"name": name}, "objective": {"name": "next-token"}, "budget": {"steps": 1}}, "x"
        )


@pytest.mark.parametrize("name", list(e.SMALL))
def test_presets(name):
    cls = model_class(name)
    assert {"tiny", "small"} <= set(cls.presets)
    with torch.device("meta"):
        for preset, values in cls.presets.items():
            model = cls(cls.Config(**({"vocab_size": 8192} | values)))
            summary = {"bilstm-cnn": "mean", "elmo": "mean", "text-cnn": "max", "xlnet": "last"}.get(name, "first")
            assert (model.causal, model.head_style.pooling, model.max_len) == (False, summary, values.get("max_len"))
            if preset == "tiny":
                assert 100_000 < sum(p.numel() for p in model.parameters()) < 950_000


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("name", e.ONE_STREAM)
def test_cost_is_within_one_percent_of_torch(name, training, monkeypatch):
    plain_products(monkeypatch)
    model = e.build(name, dtype=torch.float32)
    learner = e.Linear(model)
    batch = e.laid(model, sequences(0, (32, 32, 32)))
    with FlopCounterMode(display=False) as counter:
        loss = learner(batch)
        if training:
            loss.backward()
    part = cost.total(learner)
    ours = (part.training if training else part.forward)(Sizes(96, 3 * 32 * 32, 96, 96))
    assert ours / counter.get_total_flops() == pytest.approx(1, abs=0.01)


def test_planted_layers_that_are_counted_once_are_noticed(monkeypatch):
    model = e.build("albert", num_layers=5)
    right = cost.total(model)
    model.stack.repeat = 1
    assert cost.total(model).pair * 5 == right.pair and cost.total(model).token < right.token


# ---- bugs


@pytest.mark.parametrize("name", e.ATTENTIVE)
@pytest.mark.parametrize("shift", [-1, 1], ids=["one key too few", "one key too many"])
def test_a_mask_off_by_one_at_the_end(name, shift, monkeypatch):
    """The last token is hidden, or the first empty cell is seen."""
    lengths = kernels.lengths
    monkeypatch.setattr(kernels, "lengths", lambda keys: lengths(keys) + shift)
    noticed(e.packing, e.build(name), 0)
    noticed(e.shown, e.build(name), 0)
    if shift < 0:
        noticed(e.both_directions, e.build(name), 0)


@pytest.mark.parametrize("name", e.ATTENTIVE)
def test_padding_that_leaks(name, monkeypatch):
    def padded(q, k, v, batch, **_):
        q, k, v = (grid.to_grid(x, batch).transpose(1, 2) for x in (q, k, v))
        return grid.from_grid(F.scaled_dot_product_attention(q, k, v).transpose(1, 2), batch)

    monkeypatch.setattr(kernels, "padded", padded)
    for check in (e.packing, e.batch_order, e.accumulation, e.shown):
        noticed(check, e.build(name), 0)


@pytest.mark.parametrize("name", e.ATTENTIVE)
def test_attention_that_looks_back_only(name):
    model = e.build(name)
    for layer in model.stack.layers:
        layer.mixer.causal = True
    noticed(e.both_directions, model, 0)
    noticed(e.shown, model, 0)


def test_a_pooler_that_learns_nothing(monkeypatch):
    model = e.build("bert")
    monkeypatch.setattr(model, "pooled", lambda first: first)
    noticed(e.every_gradient, model, 0)


def test_segments_that_are_not_read(monkeypatch):
    model = e.build("bert")
    forward = model.embedding.forward
    monkeypatch.setattr(model.embedding, "forward", lambda batch: forward(batch._replace(segments=None)))
    noticed(e.every_gradient, model, 0)


def test_unseeded_dropout(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    noticed(e.repeatable, "bert")


@pytest.mark.parametrize("bug", ["borders", "one direction", "letters"])
def test_planted_bugs_of_a_recurrence_in_both_directions(bug, monkeypatch):
    model = e.build("bilstm-cnn")
    if bug == "borders":  # the backward cell begins in the next sequence
        monkeypatch.setattr(recurrent, "mirrored", lambda batch: torch.arange(len(batch.ids) - 1, -1, -1))
        noticed(e.packing, model, 0)
        noticed(e.both_directions, model, 0)
    elif bug == "one direction":
        monkeypatch.setattr(recurrent, "mirrored", lambda batch: torch.arange(len(batch.ids)))
        noticed(e.both_directions, model, 0)
    else:  # words are known by their numbers alone
        monkeypatch.setattr(
            type(model.embedding.spelt), "forward", lambda self, batch: torch.ones(len(batch.ids), 14).double()
        )
        noticed(e.every_gradient, model, 0)
