"""Every objective and task of attention models can be traced by torch's compiler: the same loss, the same gradients.

Traced alone (no kernels are generated), so that it runs in seconds without a GPU; tests/gpu has the kernels."""

import pytest
import torch

from seqloom.batch import Excerpt, pack
from seqloom.batches.labelled import batch_of
from seqloom.objectives.masked import MaskedLM
from seqloom.tasks.translate import Translate
from tests.contract import pairs, properties
from tests.contract.test_accumulation import hidden_parts
from tests.objectives.test_masked import OBJECTIVES, learner
from tests.tasks import labelled as tasks

LONG = pytest.mark.long


def learnt(made, call, example):
    made.zero_grad()
    torch.manual_seed(0)
    loss = call(example)
    loss.total.backward()
    return float(loss.total.detach()), [p.grad.clone() for p in made.parameters() if p.grad is not None]


def traced_equals_plain(made, example):
    torch._dynamo.reset()
    made = made.double().train()
    total, gradients = learnt(made, made, example)
    again, traced = learnt(made, torch.compile(made, backend="aot_eager"), example)
    assert again == pytest.approx(total, rel=1e-9) and len(traced) == len(gradients)
    for ours, theirs in zip(traced, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_hidden_words(name, monkeypatch):
    monkeypatch.setattr(torch, "rand_like", lambda given: torch.full_like(given, 0.5))
    made = learner(name, rate=0.3).double()
    traced_equals_plain(made, hidden_parts(made)[0])


@pytest.mark.parametrize("task", ["classify", pytest.param("tag", marks=LONG), pytest.param("span", marks=LONG)])
def test_tasks(task):
    made = tasks.learner(task, "gpt", lm=0.5, dropout=0.0)
    rows, _ = made.encode(tasks.examples(task, 4, 0), tasks.WORDS, tasks.frame(made))
    traced_equals_plain(made, batch_of(rows))


def test_next_tokens():
    texts = properties.sequences(0, (9, 4))
    example = Excerpt(pack(texts), properties.following(texts))
    traced_equals_plain(properties.learner_of(properties.build("gpt2")), example)


@pytest.mark.long
def test_translation():
    made = Translate(pairs.build("transformer"), Translate.Config(label_smoothing=0.0))
    traced_equals_plain(made, pairs.joined(pairs.texts(0)))


def test_a_planted_loss_that_changes_when_traced_is_noticed(monkeypatch):
    right = MaskedLM.mlm_loss
    monkeypatch.setattr(
        MaskedLM,
        "mlm_loss",
        lambda self, hidden, example: right(self, hidden, example) * (2 if torch.compiler.is_compiling() else 1),
    )
    made = learner("roberta", rate=0.3).double()
    with pytest.raises(AssertionError):
        traced_equals_plain(made, hidden_parts(made)[0])
