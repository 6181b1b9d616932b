"""Our counts against torch's own counter, for every model that is trained by gradient and every objective that fits it."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqloom import cost
from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.batches.passages import Marks, Rows, passage
from seqloom.cost import Flops
from seqloom.models import MODELS, model_class
from seqloom.objectives import fitting_objectives, objective_class
from tests.contract.properties import build, following, sequences
from tests.corpus import MemorySplit
from tests.objectives.test_masked import VOCAB, Words
from tests.test_cost import Told, plain_products

PAIRS = [
    (name, objective)
    for name in MODELS
    if not getattr(model_class(name), "counted", False)
    for objective in fitting_objectives(model_class(name))
]
# wide and long enough that what is done once a sequence is as good as nothing
ENCODER = {"dim": 32, "num_layers": 3, "num_heads": 2, "max_len": 96, "dropout": 0.0, "vocab_size": VOCAB}
EXTRA = {"albert": {"embedding_dim": 16}, "electra": {"embedding_dim": 16}}


def encoder_example(learner):
    """Three passages of equal lengths, of two parts where the objective wants them: the counter would count empty cells."""
    split = MemorySplit([list(np.random.default_rng(i).integers(1, 190, 120)) for i in range(3)])
    first = 40 if learner.form != "single" else 94
    starts = split.offsets[:3]
    second = (starts + first) if learner.form != "single" else np.zeros(3, np.int64)
    lengths = np.array([[first, 93 - first if learner.form != "single" else 0]] * 3)
    labels = np.array([0, 1, 0]) if learner.form != "single" else np.full(3, IGNORE)
    rows = Rows(np.stack((starts, second), 1), lengths, labels)
    cut = passage(split, rows, Marks(197, 198, np.zeros(VOCAB, bool)), 96)
    assert cut.batch.is_full
    return learner.corrupt(cut, torch.Generator().manual_seed(0))


def learner_and_example(name, objective):
    torch.manual_seed(0)
    kind = objective_class(objective)
    model = model_class(name)
    if model.causal:
        config = {"start": 0.5, "end": 0.5} if objective == "scheduled-sampling" else {}
        learner = kind(build(name, dtype=torch.float32), kind.Config(tie=False, **config)).train()
        texts = sequences(0, (64, 64, 64))
        targets = following(texts)
        example = Excerpt(
            pack(texts), targets.where(targets != IGNORE, 1)
        )  # all are predicted: the plain path skips none
        learner.introduce(Told(example))
        learner.advance(0.5)
        return learner, example
    sizes = ENCODER | EXTRA.get(name, {}) | ({"pooler": True} if kind.form != "single" else {})
    learner = kind(model(model.Config(**sizes)), kind.Config()).train()
    learner.introduce(Words())
    return learner, encoder_example(learner)


def ratio(name, objective, monkeypatch) -> float:
    plain_products(monkeypatch)
    learner, example = learner_and_example(name, objective)
    with FlopCounterMode(display=False) as counter:
        learner(example).total.backward()
    return cost.of_training(learner)(example.sizes()) / counter.get_total_flops()


@pytest.mark.parametrize(("name", "objective"), PAIRS)
def test_training_within_one_percent_of_torch(name, objective, monkeypatch):
    assert ratio(name, objective, monkeypatch) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("name", "objective"), [("bert", "masked"), ("electra", "replaced-token"), ("lstm", "next-token")]
)
def test_planted_double_count_is_noticed(name, objective, monkeypatch):
    kind, measure = cost.PARTS[torch.nn.Linear]
    monkeypatch.setitem(cost.PARTS, torch.nn.Linear, (kind, lambda m: Flops(*(2 * part for part in measure(m)))))
    if name == "lstm":
        kind, measure_cell = cost.PARTS[cost.TorchCell]
        monkeypatch.setitem(
            cost.PARTS, cost.TorchCell, (kind, lambda m: Flops(*(2 * part for part in measure_cell(m))))
        )
    assert ratio(name, objective, monkeypatch) != pytest.approx(1, abs=0.01)


def test_planted_second_network_that_is_forgotten_is_noticed(monkeypatch):
    whole = cost.count
    monkeypatch.setattr(cost, "count", lambda learner: whole(getattr(learner, "backbone", learner)))
    assert ratio("electra", "replaced-token", monkeypatch) != pytest.approx(1, abs=0.01)
