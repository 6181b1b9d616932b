"""Our counts against torch's own counter, for every model that is trained by gradient and every objective that fits it."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqloom import cost
from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.batches.labelled import Row, batch_of
from seqloom.batches.passages import Rows, passage
from seqloom.blocks.block_product import RowProduct
from seqloom.cost import Flops
from seqloom.models import MODELS, model_class
from seqloom.objectives import fitting_objectives, objective_class
from seqloom.objectives.bidirectional import Bidirectional, surround
from seqloom.objectives.denoising import Denoising
from seqloom.objectives.permuted import PermutedLM
from seqloom.objectives.replaced import ReplacedToken
from seqloom.tasks.classify import Classify
from seqloom.tasks.transfer import Transfer
from tests.contract import pairs, static
from tests.contract.properties import build, following, sequences
from tests.corpus import MemorySplit, marks_by
from tests.objectives.test_denoising import Words as RestoredWords
from tests.objectives.test_masked import VOCAB, Words
from tests.test_cost import Told, plain_products

PAIRS = [
    (name, objective)
    for name in MODELS
    if model_class(name).learns_from != "counts"
    for objective in fitting_objectives(model_class(name))
    if objective != "denoising" or name in ("transformer", "bart")  # of the others test_cost_pairs counts the parts
]
# wide and long enough that what is done once a sequence is as good as nothing
ENCODER = {"dim": 32, "num_layers": 3, "num_heads": 2, "max_len": 96, "dropout": 0.0, "vocab_size": VOCAB}
MANY = 8192
EXTRA = {"albert": {"embedding_dim": 16}, "electra": {"embedding_dim": 16}}


class ManyWords(Words):
    """The same special tokens, and so many others."""

    def continues(self):
        return torch.zeros(MANY, dtype=torch.bool)


def encoder_example(learner):
    """Three passages of equal lengths, of two parts where the objective wants them, nothing filled up: the counter would count
    empty cells."""
    split = MemorySplit([list(np.random.default_rng(i).integers(1, 190, 120)) for i in range(3)])
    first = 40 if learner.form != "single" else 94
    starts = split.offsets[:3]
    second = (starts + first) if learner.form != "single" else np.zeros(3, np.int64)
    lengths = np.array([[first, 93 - first if learner.form != "single" else 0]] * 3)
    labels = np.array([0, 1, 0]) if learner.form != "single" else np.full(3, IGNORE)
    rows = Rows(np.stack((starts, second), 1), lengths, labels)
    cut = passage(split, rows, marks_by(197, 198, np.zeros(VOCAB, bool)), 96)
    assert cut.batch.is_full
    example = learner.corrupt(cut, torch.Generator().manual_seed(0))
    chosen = example.targets != IGNORE
    return example._replace(where=example.where[chosen], targets=example.targets[chosen])


def two_directions(**larger):
    """With a vocabulary as large as asked for; the widths stay."""
    model = model_class("elmo")
    sizes = {"dim": 40, "proj_dim": 32, "dropout": 0.0, "max_chars": 8, "filters": [[1, 8], [3, 16]]}
    learner = Bidirectional(
        model(model.Config(**sizes, vocab_size=larger.get("vocab_size", VOCAB))), Bidirectional.Config()
    )
    texts = sequences(0, (96, 96, 96))
    # the counter counts what is not predicted, too: here next to nothing
    return learner.train(), surround(
        Excerpt(pack([text[:-1] for text in texts]), torch.tensor([i for text in texts for i in text[1:]]))
    )


def in_orders(**larger):
    """As many targets in every sequence: nothing filled up."""
    model = model_class("xlnet")
    sizes = {"dim": 32, "num_layers": 3, "num_heads": 2, "mem_len": 40, "dropout": 0.0, "vocab_size": VOCAB} | larger
    learner = PermutedLM(model(model.Config(**sizes)), PermutedLM.Config()).train()
    learner.set_vocabulary(RestoredWords())
    texts = sequences(0, (96, 96, 96))
    cut = Excerpt(pack(texts), torch.tensor([i for text in texts for i in text]))
    return learner, learner.corrupt(cut, torch.Generator().manual_seed(0))


def restored(name):
    """Nothing hidden, so that sources and targets are as long, and nothing filled up."""
    quiet = Denoising.Config(permute=0.0, infill=0.0)
    learner = Denoising(pairs.build(name, dtype=torch.float32, vocab_size=VOCAB), quiet).train()
    learner.set_vocabulary(RestoredWords())
    size = 80 - len(learner.before) - len(learner.after)
    ids = np.random.default_rng(0).integers(1, 190, 3 * size)
    owner = np.repeat(np.arange(3), size)
    return learner, learner.cover(ids, owner, np.zeros(len(ids), bool), 96)


def learner_and_example(name, objective, **larger):
    torch.manual_seed(0)
    kind = objective_class(objective)
    model = model_class(name)
    if model.learns_from == "windows":  # whole blocks of words, nothing filled up or left out
        learner = kind(static.build(name, dtype=torch.float32), kind.Config(subsample=0.0)).train()
        learner.set_vocabulary(static.Words())
        texts = [[1 + i % 50 for i in range(n)] for n in (64, 32, 64)]
        targets = torch.tensor([i for text in texts for i in text])
        return learner, learner.corrupt(Excerpt(pack(texts), targets), torch.Generator().manual_seed(0))
    if model.learns_from == "cells":
        learner = static.learner_of(name, objective, dtype=torch.float32)
        example = static.example_of(learner, 0)
        there = example.values > 0  # nothing filled up
        return learner, example._replace(**{key: getattr(example, key)[there] for key in ("rows", "columns", "values")})
    if objective == "denoising":
        return restored(name)
    if model.causal:
        config = {"start": 0.5, "end": 0.5} if objective == "scheduled-sampling" else {}
        learner = kind(build(name, dtype=torch.float32), kind.Config(tie=False, **config)).train()
        texts = sequences(0, (64, 64, 64))
        targets = following(texts)
        example = Excerpt(
            pack(texts), targets.where(targets != IGNORE, 1)
        )  # all are predicted: the plain path skips none
        learner.set_vocabulary(Told(example))
        learner.advance(0.5)
        return learner, example
    if objective == "bidirectional":
        return two_directions(**larger)
    if objective == "permuted":
        return in_orders(**larger)
    sizes = ENCODER | EXTRA.get(name, {}) | ({"pooler": True} if kind.form != "single" else {}) | larger
    learner = kind(model(model.Config(**sizes)), kind.Config()).train()
    learner.set_vocabulary(ManyWords() if larger else Words())
    return learner, encoder_example(learner)


def ratio(name, objective, monkeypatch, **larger) -> float:
    plain_products(monkeypatch)
    # the same as matrix products, which the counter counts
    monkeypatch.setattr(RowProduct, "forward", lambda self, a, b: torch.bmm(a[:, None, :], b[:, :, None]).flatten())
    learner, example = learner_and_example(name, objective, **larger)
    carried = {"carry": learner.start(example.batch.num_sequences)} if learner.backbone.carries else {}
    with FlopCounterMode(display=False) as counter:
        learner(example, **carried).total.backward()
    return cost.of_training(learner)(example.sizes()) / counter.get_total_flops()


@pytest.mark.parametrize(("name", "objective"), PAIRS)
def test_training_within_one_percent_of_torch(name, objective, monkeypatch):
    assert ratio(name, objective, monkeypatch) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("objective", ["skip-gram", "cbow"])
def test_a_tree_within_one_percent_of_torch(objective, monkeypatch):
    kind = objective_class(objective).Config
    monkeypatch.setattr(objective_class(objective), "Config", lambda **k: kind(output="hierarchical", **k))
    assert ratio("word2vec", objective, monkeypatch) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(("name", "objective"), [pair for pair in PAIRS if not model_class(pair[0]).causal])
def test_with_a_vocabulary_of_real_size(name, objective, monkeypatch):
    """There the output layer is most of the cost, and what is done over hidden tokens alone."""
    sizes = {"vocab_size": MANY, "dim": 80} | ({"embedding_dim": 80} if name == "electra" else {})
    assert ratio(name, objective, monkeypatch, **sizes) == pytest.approx(1, abs=0.01)


def test_planted_second_pass_of_the_generator_is_noticed(monkeypatch):
    true = ReplacedToken.losses_and_outputs
    monkeypatch.setattr(
        ReplacedToken, "losses_and_outputs", lambda self, given: (self.reader(given.batch), true(self, given))[1]
    )
    assert ratio("electra", "replaced-token", monkeypatch) != pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("lm", [0.0, 0.5])
def test_language_modelling_beside_a_task(lm, monkeypatch):
    assert beside_a_task(lm, monkeypatch) == pytest.approx(1, abs=0.01)


def test_planted_count_by_labels_is_noticed(monkeypatch):
    monkeypatch.setattr(Transfer, "over_tokens", ())
    assert beside_a_task(0.5, monkeypatch) < 0.9


def beside_a_task(lm, monkeypatch) -> float:
    plain_products(monkeypatch)
    torch.manual_seed(0)
    model = model_class("gpt2")
    backbone = model(model.Config(dim=32, num_layers=2, num_heads=2, max_len=64, dropout=0.0, vocab_size=2000))
    learner = Classify(backbone, Classify.Config(labels=["a", "b"], lm=lm)).train()
    rows = [[Row(np.arange(1, 65), None, np.ones(64, bool), np.array(i % 2))] for i in range(3)]
    example = batch_of(rows)
    with FlopCounterMode(display=False) as counter:
        learner(example).total.backward()
    return cost.of_training(learner)(example.sizes()) / counter.get_total_flops()


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
