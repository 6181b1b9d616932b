"""Connections between recurrent layers, against their formulas."""

import pytest
import torch

from seqloom.batch import pack
from seqloom.blocks.cells import GruCell
from seqloom.blocks.connections import Residual, recurrent_stack
from seqloom.blocks.recurrent import RecurrentLayer
from seqloom.models import model_class

D = 6


def by_hand(connection: str, stack: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    batch = pack([[0] * 5, [0] * 3])
    read, y = x, x
    for layer in stack.layers:
        inner = layer if isinstance(layer, RecurrentLayer) else layer.layer
        y, _, _ = inner(read, batch)
        if connection == "residual":
            read = read + y
        elif connection == "highway":
            gate = torch.sigmoid(layer.gate(read))
            read = gate * y + (1 - gate) * read
        elif connection == "dense":
            read = torch.cat((read, y), 1)
        else:
            read = y
    return y if connection == "dense" else read


@pytest.mark.parametrize("connection", ["none", "residual", "highway", "dense"])
@pytest.mark.parametrize("depth", [1, 4])
def test_equals_the_formula(connection, depth):
    torch.manual_seed(0)
    stack = recurrent_stack(lambda width: GruCell(width, D), D, depth, 0.0, connection).double()
    x = torch.randn(8, D, dtype=torch.float64)
    output = stack(x, pack([[0] * 5, [0] * 3]))
    assert output.hidden.shape == (8, D)
    torch.testing.assert_close(output.hidden, by_hand(connection, stack, x), rtol=0, atol=1e-12)


def test_a_planted_residual_without_its_skip_is_noticed(monkeypatch):
    monkeypatch.setattr(Residual, "join", lambda self, x, y: y)
    with pytest.raises(AssertionError):
        test_equals_the_formula("residual", 4)


@pytest.mark.parametrize("name", ["rnn", "irnn", "gru", "lstm"])
def test_every_recurrent_model_takes_them(name):
    cls = model_class(name)
    sizes = {}
    for connection in ("none", "residual", "highway", "dense"):
        config = cls.Config(vocab_size=9, dim=8, num_layers=3, connection=connection)
        model = cls(config)
        assert model(pack([[1, 2, 3]])).hidden.shape == (3, 8)
        sizes[connection] = sum(p.numel() for p in model.parameters())
    assert sizes["none"] == sizes["residual"] < sizes["highway"] and sizes["none"] < sizes["dense"]


def test_the_gate_of_a_highway_starts_half_closed():
    model = model_class("rnn")
    gate = model(model.Config(vocab_size=9, dim=8, connection="highway")).stack.layers[0].gate
    assert torch.equal(gate.bias, torch.full((8,), -1.0)) and gate.weight.any()
