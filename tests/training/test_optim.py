"""One step equals the textbook: gradients of the mean, clipped, through plain AdamW or SGD; a broken one changes nothing."""

import pytest
import torch
from torch import nn

from seqloom.training import optim
from seqloom.training.optim import OptimConfig, build_optimizer, load_named_state, named_state, step


def problem(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    return model, torch.randn(10, 4, dtype=torch.float64), torch.randint(0, 3, (10,))


def summed(model, x, y):
    return nn.functional.cross_entropy(model(x), y, reduction="sum")


def textbook(config):
    model, x, y = problem()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    if config.name == "sgd":
        optimizer = torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov)
    elif config.name == "adagrad":
        optimizer = torch.optim.Adagrad(groups, lr=config.lr, eps=config.eps)
    else:
        optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)
    norms = []
    for _ in range(5):
        optimizer.zero_grad()
        (summed(model, x, y) / 10).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), config.clip or 1e9).item())
        optimizer.step()
    return [p.detach() for p in model.parameters()], norms


def ours(config):
    model, x, y = problem()
    optimizer = build_optimizer(config, model)
    norms = []
    for _ in range(5):
        for part in (slice(0, 3), slice(3, 10)):  # unequal micro-batches
            summed(model, x[part], y[part]).backward()
        norm, broken = step(optimizer, torch.tensor(10), config.clip)
        norms.append(norm.item())
        assert broken.item() == 0
    return [p.detach() for p in model.parameters()], norms


CONFIGS = [
    OptimConfig(lr=0.1, weight_decay=0.1, clip=0.05),
    OptimConfig(lr=0.1, clip=0.0),
    OptimConfig(name="sgd", lr=0.5, momentum=0.9, clip=0.05),
    OptimConfig(name="sgd", lr=0.5, weight_decay=0.01, clip=100.0),
    OptimConfig(name="sgd", lr=0.5, momentum=0.9, nesterov=True, clip=0.05),
    OptimConfig(name="adagrad", lr=0.1, weight_decay=0.01, clip=0.05),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_equals_the_textbook(config):
    (mine, norms), (theirs, expected) = ours(config), textbook(config)
    assert norms == pytest.approx(expected, rel=1e-5)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("few_rows", [False, True])
def test_rows_are_clipped_each_for_itself(few_rows):
    """A long one is shortened to the limit, after the division; a short one, and a vector, stay as they are."""
    config = OptimConfig(name="sgd", lr=1.0, clip=0.0, row_clip=0.5)
    model = nn.ModuleDict({"table": nn.Embedding(4, 2), "end": nn.Linear(2, 1)}).double()
    optimizer = build_optimizer(config, model, few_rows=few_rows)
    before = model["table"].weight.detach().clone()
    (model["table"](torch.tensor([0, 0, 2])) * torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.6, 0.8]])).sum().backward()
    model["end"].weight.grad, model["end"].bias.grad = torch.zeros(1, 2).double(), torch.full((1,), 20.0).double()
    norm, _ = step(optimizer, torch.tensor(10), config.clip, row_clip=config.row_clip)
    moved = before - model["table"].weight.detach()
    torch.testing.assert_close(moved, torch.tensor([[0.3, 0.4], [0, 0], [0.06, 0.08], [0, 0]], dtype=torch.float64))
    assert norm.item() == pytest.approx((0.5**2 + 0.1**2 + 2.0**2) ** 0.5)


@pytest.mark.parametrize("row_clip", [0.0, 1.0])
def test_a_broken_row_is_not_clipped_into_a_number(row_clip):
    model, x, y = problem()
    optimizer = build_optimizer(OptimConfig(name="sgd"), model)
    before = [p.detach().clone() for p in model.parameters()]
    summed(model, x, y).backward()
    next(model.parameters()).grad[0, 0] = float("inf")
    _, broken = step(optimizer, torch.tensor(10), 1.0, row_clip=row_clip)
    assert broken.item() == 1
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_planted_missing_division_is_noticed(monkeypatch):
    monkeypatch.setattr(optim.torch.nn.utils, "get_total_norm", lambda gradients: torch.tensor(0.0))
    (mine, _), (theirs, _) = ours(CONFIGS[0]), textbook(CONFIGS[0])
    assert not all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize(
    "config", [OptimConfig(weight_decay=0.1), OptimConfig(name="sgd", momentum=0.9), OptimConfig(name="adagrad")]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_gradient_changes_nothing(config, value):
    model, x, y = problem()
    optimizer = build_optimizer(config, model)
    summed(model, x, y).backward()
    step(optimizer, torch.tensor(10), 1.0)
    weights = [p.detach().clone() for p in model.parameters()]
    state = {name: value.clone() for name, value in named_state(optimizer, model).items()}
    summed(model, x, y).backward()
    next(model.parameters()).grad[0, 0] = value
    _, broken = step(optimizer, torch.tensor(10), 1.0)
    assert broken.item() == 1
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    after = named_state(optimizer, model)
    assert state.keys() == after.keys() and all(torch.equal(state[name], after[name]) for name in state)
    assert all(p.grad is None for p in model.parameters())


def test_state_by_name_there_and_back():
    model, x, y = problem()
    optimizer = build_optimizer(OptimConfig(), model)
    summed(model, x, y).backward()
    step(optimizer, torch.tensor(10), 1.0)
    saved = {name: value.clone() for name, value in named_state(optimizer, model).items()}
    assert {"0.weight:exp_avg", "0.weight:exp_avg_sq", "0.weight:step"} <= saved.keys()
    other, _, _ = problem(1)
    fresh = build_optimizer(OptimConfig(), other)
    load_named_state(fresh, other, saved)
    assert all(torch.equal(value, saved[name]) for name, value in named_state(fresh, other).items())
