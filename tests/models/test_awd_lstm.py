"""AWD-LSTM in its published sizes, and what its recipes hold."""

import pytest
import torch

from seqloom.models.awd_lstm import AwdLstm
from seqloom.recipes.library import find_recipe


@pytest.mark.parametrize(("name", "vocab_size", "millions"), [("ptb", 10_000, 24), ("wt2", 33_278, 33)])
def test_published_sizes(name, vocab_size, millions):
    """As many parameters as the paper's tables say."""
    with torch.device("meta"):
        learner = find_recipe(f"awd-lstm-{name}").learner(vocab_size)
    assert learner.size() // 1_000_000 == millions
    assert learner.softmax.weight is learner.backbone.table.weight
    cells = [layer.cell.kernel for layer in learner.backbone.stack.layers]
    assert [(cell.input_size, cell.hidden_size) for cell in cells] == [(400, 1150), (1150, 1150), (1150, 400)]


@pytest.mark.parametrize(("name", "inputs", "layers", "streams"), [("ptb", 0.4, 0.3, 20), ("wt2", 0.65, 0.2, 80)])
def test_every_rate_is_where_it_belongs(name, inputs, layers, streams):
    recipe = find_recipe(f"awd-lstm-{name}")
    with torch.device("meta"):
        learner = recipe.learner(100)
    backbone = learner.backbone
    assert [layer.dropout.p for layer in backbone.stack.layers] == [inputs, layers, layers]
    assert (backbone.dropout.p, backbone.embedding.word_dropout) == (0.4, 0.1)
    assert {layer.cell.weight_drop for layer in backbone.stack.layers} == {0.5}
    assert (learner.alpha, learner.beta) == (2.0, 1.0)
    optim = recipe.train.optim
    assert (optim.name, optim.lr, optim.clip, optim.weight_decay) == ("sgd", 30.0, 0.25, 1.2e-6)
    assert (optim.average, optim.nonmono, recipe.batches.streams) == ("nonmono", 5, streams)
    assert recipe.batches.length == 70 and recipe.batches.vary and not recipe.batches.reset


def test_first_values():
    model = AwdLstm(AwdLstm.Config(vocab_size=500, embedding_dim=16, dim=64))
    assert 0.09 < model.table.weight.abs().max() <= 0.1
    for layer in model.stack.layers:
        bound = layer.cell.kernel.hidden_size**-0.5
        assert all(0.8 * bound < weight.abs().max() <= bound for weight in layer.cell.kernel.parameters())
