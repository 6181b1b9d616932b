"""What a body adds to the loss (Output.penalty) is learnt from by every objective and task, and not reported."""

import pytest
import torch

from seqloom.batch import Excerpt, pack
from seqloom.batches.labelled import batch_of
from seqloom.objectives.regularized import Regularized
from seqloom.tasks.translate import Translate
from tests.contract import pairs, properties
from tests.contract.test_accumulation import hidden_parts
from tests.objectives.test_masked import OBJECTIVES, learner
from tests.tasks import labelled as tasks


def excerpt(texts):
    return Excerpt(pack(texts), properties.following(texts))


def penalised(body):
    """The body, which from now on adds a sum of its own."""
    right = body.forward

    def forward(*arguments, **options):
        output = right(*arguments, **options)
        return output._replace(penalty=0.25 * output.hidden.square().sum())

    body.forward = forward
    return body


def check(made, bodies, example):
    torch.manual_seed(0)
    before = made(example)
    for body in bodies:
        penalised(body)
    torch.manual_seed(0)
    after = made(example)
    added = after.logs["penalty"] - before.logs.get("penalty", 0.0)
    assert float(added.detach()) > 0 and int(after.count) == int(before.count)
    torch.testing.assert_close(after.total - before.total, added.to(after.total.dtype))
    after.total.backward()  # a gradient flows through it
    assert after.total.requires_grad and not after.logs["penalty"].requires_grad


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_next_tokens(name):
    made = properties.learner_of(properties.build(name))
    check(made, [made.backbone], excerpt(properties.sequences(0, (9, 4))))


def test_regularized():
    made = Regularized(properties.build("lstm"), Regularized.Config(alpha=2.0, beta=1.0)).double().train()
    check(made, [made.backbone], excerpt(properties.sequences(0, (9, 4))))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_hidden_words(name, monkeypatch):
    monkeypatch.setattr(torch, "rand_like", lambda given: torch.full_like(given, 0.5))
    made = learner(name, rate=0.3).double()
    bodies = {id(body): body for body in (made.backbone, made.reader)}
    check(made, bodies.values(), hidden_parts(made)[0])


@pytest.mark.parametrize("lm", [0.0, 0.5])
@pytest.mark.parametrize("task", tasks.VALUES)
def test_tasks(task, lm):
    made = tasks.learner(task, "gpt", lm=lm, dropout=0.0)
    rows, _ = made.encode(tasks.examples(task, 4, 0), tasks.WORDS, tasks.frame(made))
    check(made, [made.backbone], batch_of(rows))


def test_translation():
    made = Translate(pairs.build("transformer"), Translate.Config()).double()
    check(made, [made.backbone.decoder], pairs.joined(pairs.texts(0)))


def test_a_planted_objective_that_forgets_it_is_noticed(monkeypatch):
    monkeypatch.setattr("seqloom.objectives.next_token.with_penalty", lambda loss, output: loss)
    with pytest.raises((AssertionError, KeyError)):
        test_next_tokens("lstm")
