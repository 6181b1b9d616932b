"""GloVe's objective: loss, gradient and AdaGrad by hand, and bugs that must be noticed."""

import math

import pytest
import torch

from seqloom.objectives.glove import LogCounts
from seqloom.training.optim import OptimConfig, build_optimizer, step
from tests.contract import static
from tests.contract.test_planted import noticed

RATE = 0.05


def by_hand(learner, example) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss, and its gradients, cell by cell in plain numbers."""
    inside, outside = learner.backbone.token.weight.detach(), learner.backbone.context.weight.detach()
    rows, columns = learner.row_bias.weight.detach(), learner.column_bias.weight.detach()
    found = {"in": torch.zeros_like(inside), "out": torch.zeros_like(outside)}
    found |= {"row": torch.zeros_like(rows), "column": torch.zeros_like(columns)}
    total = 0.0
    for i, j, x in zip(example.rows.tolist(), example.columns.tolist(), example.values.tolist(), strict=True):
        if not x:
            continue
        weight = min(x / learner.x_max, 1.0) ** learner.alpha
        error = float(inside[i] @ outside[j] + rows[i] + columns[j]) - math.log(x)
        total += weight * error**2 / 2
        found["in"][i] += weight * error * outside[j]
        found["out"][j] += weight * error * inside[i]
        found["row"][i] += weight * error
        found["column"][j] += weight * error
    return total, found


def tables_of(learner) -> dict[str, torch.nn.Embedding]:
    backbone = learner.backbone
    return {
        "in": backbone.token, "out": backbone.context, "row": learner.row_bias, "column": learner.column_bias,
    }  # fmt: skip


def equals_by_hand() -> None:
    learner = static.learner_of("glove", "glove")
    with torch.no_grad():
        for table in tables_of(learner).values():
            table.weight.normal_()
    # one direction more often than the other: with both it would not matter which of them is the row
    example = static.example_of(learner, 0)
    example = example._replace(values=example.values.where(torch.arange(len(example.values)) % 3 > 0, 0.0))
    loss = learner(example)
    loss.total.backward()
    total, wanted = by_hand(learner, example)
    assert loss.count.item() == int((example.values > 0).sum()) > 100
    assert (example.values > learner.x_max).any() and (example.values < learner.x_max).any()
    assert abs(loss.total.item() - total) < 1e-5 * total
    for name, table in tables_of(learner).items():
        assert (table.weight.grad - wanted[name]).abs().max() < 1e-5 * wanted[name].abs().max()


def steps_by_hand(few_rows: bool) -> None:
    """AdaGrad on the sum of the gradients, from sums of squares of 1."""
    learner = static.learner_of("glove", "glove")
    before = {name: table.weight.detach().clone() for name, table in tables_of(learner).items()}
    config = OptimConfig(name="adagrad", lr=RATE, clip=0.0, accumulator=1.0, gradient="sum")
    optimizer = build_optimizer(config, learner, few_rows=few_rows)
    example = static.example_of(learner, 0)
    loss = learner(example)
    _, wanted = by_hand(learner, example)
    loss.total.backward()
    step(optimizer, loss.count, config.clip, mean=config.gradient == "mean")
    for name, table in tables_of(learner).items():
        assert table.sparse == few_rows
        moved = before[name] - RATE * wanted[name] / (1 + wanted[name] ** 2).sqrt()
        assert (table.weight - moved).abs().max() < 1e-7, name


def test_loss_and_gradient_by_hand():
    equals_by_hand()


@pytest.mark.parametrize("few_rows", [False, True])
def test_adagrad_by_hand(few_rows):
    steps_by_hand(few_rows)


def test_a_word_is_the_sum_of_its_rows():
    learner = static.learner_of("glove", "glove")
    backbone = learner.backbone
    assert torch.equal(learner.vectors("in"), backbone.token.weight + backbone.context.weight)
    assert torch.equal(backbone.embed(torch.arange(5)), learner.vectors("in")[:5])
    assert learner.vectors("out") is None and not learner.vectors("in")[0].any()


def test_planted_bugs(monkeypatch):
    true = LogCounts.errors
    with monkeypatch.context() as patch:
        patch.setattr(LogCounts, "errors", lambda self, c: true(self, c._replace(rows=c.columns, columns=c.rows)))
        noticed(equals_by_hand)  # rows for columns
        patch.setattr(LogCounts, "errors", lambda self, c: (true(self, c)[0], (c.values > 0).double()))
        noticed(equals_by_hand)  # no weights
    with monkeypatch.context() as patch:
        patch.setattr("tests.objectives.test_glove.OptimConfig", lambda **k: OptimConfig(**(k | {"gradient": "mean"})))
        noticed(steps_by_hand, True)
        patch.setattr("tests.objectives.test_glove.OptimConfig", lambda **k: OptimConfig(**(k | {"accumulator": 0.0})))
        noticed(steps_by_hand, True)
