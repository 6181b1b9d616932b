"""The IRNN's start: an identity, no biases, and so a state that adds up what it reads."""

import pytest
import torch

from seqloom.batch import Excerpt, pack
from seqloom.models.irnn import Irnn
from seqloom.objectives.next_token import NextToken


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_it_starts_as_a_sum(scale):
    torch.manual_seed(0)
    model = Irnn(Irnn.Config(vocab_size=9, dim=8, num_layers=1, scale=scale)).double()
    kernel = model.stack.layers[0].cell.kernel
    assert torch.equal(kernel.weight_hh_l0, scale * torch.eye(8).double())
    assert not kernel.bias_ih_l0.any() and not kernel.bias_hh_l0.any()
    text, state = [3, 1, 4, 1, 5], torch.zeros(8).double()
    for word in text:
        state = torch.relu(scale * state + kernel.weight_ih_l0 @ model.table.weight[word])
    torch.testing.assert_close(model(pack([text])).hidden[-1], state)


def first_loss(std: float | None = None) -> float:
    """Of a wide untrained model, in nats above a guess."""
    torch.manual_seed(0)
    learner = NextToken(Irnn(Irnn.Config(vocab_size=200, dim=800, num_layers=2, scale=0.9)), NextToken.Config())
    for name, weight in learner.named_parameters():
        if std is not None and name.endswith("weight_ih_l0"):
            torch.nn.init.normal_(weight, std=std)
    text = torch.randint(0, 200, (65,)).tolist()
    loss = learner(Excerpt(pack([text[:-1]]), torch.tensor(text[1:])))
    return (loss.total / loss.count).item() - learner.initial_loss()


def test_a_wide_one_starts_as_a_guess():
    assert first_loss() < 2
    assert first_loss(std=0.1) > 8, "inputs that do not shrink with the width should be noticed"
