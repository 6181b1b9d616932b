"""The IRNN's start: an identity, no biases, and so a state that adds up what it reads."""

import pytest
import torch

from seqloom.batch import pack
from seqloom.models.irnn import Irnn


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
