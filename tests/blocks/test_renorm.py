"""Batch renormalisation: the same in training and in use, and blind to what all rows have in common."""

import pytest
import torch
from torch import nn

from seqloom.blocks.renorm import EPS, MOVES, BatchRenorm

X = 3 + 2 * torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def settled(kind=BatchRenorm):
    """After enough batches for its running moments."""
    module = kind(5).double().train()
    for _ in range(60):
        module(X)
    return module


def same_in_training_and_use(module):
    trained = module(X)
    assert torch.allclose(trained, module.eval()(X), atol=1e-9)


def blind_to_what_is_common(module):
    x = X.clone().requires_grad_()
    (module(x) * X.sin()).sum().backward()
    assert x.grad.mean(0).abs().max() < 1e-9 and x.grad.abs().max() > 1e-3


def test_it_gives_the_same_in_training_and_use():
    same_in_training_and_use(settled())
    assert torch.allclose(settled()(X).std(0, correction=0), torch.ones(5, dtype=torch.float64), atol=0.02)


def test_what_rows_have_in_common_is_not_learnt_from():
    blind_to_what_is_common(settled())


def test_planted_norms_are_noticed():
    """Batch normalisation differs in use, a norm of each row learns from what is common."""
    with pytest.raises(AssertionError):
        same_in_training_and_use(nn.BatchNorm1d(5).double())
    with pytest.raises(AssertionError):
        blind_to_what_is_common(nn.LayerNorm(5).double())


def test_moments_move_and_are_kept():
    module = BatchRenorm(5).double().train()
    module(X)
    assert torch.allclose(module.mean, MOVES * X.mean(0))
    again = BatchRenorm(5).double().eval()
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(X), module.eval()(X))
    wanted = (X - module.mean) / (module.variance + EPS).sqrt()
    assert torch.allclose(again(X), wanted)


def test_a_row_alone():
    x = X[:1].clone().requires_grad_()
    settled()(x).sum().backward()
    assert x.grad.abs().max() == 0  # nothing to compare it with
    assert torch.isfinite(settled()(X[:1])).all()
