"""Masks that last: over a sequence, a call, a word. Their rates, and that nothing is dropped outside training."""

import math

import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import pack
from seqloom.blocks import dropout
from seqloom.blocks.cells import LstmCell, TorchCell
from seqloom.blocks.dropout import DroppedEmbedding, LockedDropout, WeightDroppedLstm
from seqloom.blocks.recurrent import RecurrentStack, fused, scan
from tests.contract.properties import build, close, sequences

SHAPES = {"equal": [[0] * 7] * 5, "ragged": [[0] * 5, [0], [0] * 8, [], [0] * 3]}


def locked(texts) -> None:
    """The mask of a sequence is the same at every step, and another one than its neighbours have."""
    torch.manual_seed(0)
    batch = pack(texts)
    seen = LockedDropout(0.4)(torch.ones(len(batch.ids), 64), batch)
    masks = []
    for part in seen.split([len(text) for text in texts]):
        assert (part == part[:1]).all(), "it changes within the sequence"
        masks += [tuple(row) for row in part[:1].tolist()]
    assert len(set(masks)) == len(masks), "two sequences share a mask"
    assert {value for mask in masks for value in mask} == {0.0, torch.tensor(1 / 0.6).item()}


@pytest.mark.parametrize("texts", SHAPES.values(), ids=SHAPES)
def test_locked(texts):
    locked(texts)


@pytest.mark.parametrize("texts", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("bug", ["every step", "every batch", "unscaled"])
def test_planted_wrong_masks_are_noticed(texts, bug, monkeypatch):
    def wrong(layer, x, batch):
        if bug == "every step":
            return F.dropout(x, layer.p)
        if bug == "every batch":
            return x * F.dropout(x.new_ones(1, x.shape[1]), layer.p)
        return x * (F.dropout(x.new_ones(batch.num_sequences, x.shape[1]), layer.p) > 0)[batch.owner]

    monkeypatch.setattr(LockedDropout, "forward", wrong)
    with pytest.raises(AssertionError):
        locked(texts)


def within_four_sigma(dropped: int, of: int, rate: float) -> None:
    assert abs(dropped - of * rate) < 4 * math.sqrt(of * rate * (1 - rate)), f"{dropped / of:.3f} instead of {rate}"


def rates(scale: float = 1.0) -> None:
    torch.manual_seed(1)
    batch = pack([[0] * 3] * 400)
    seen = LockedDropout(0.3 * scale)(torch.ones(1200, 50), batch)
    within_four_sigma(int((seen[::3] == 0).sum()), 400 * 50, 0.3)
    weights = WeightDroppedLstm(5, 60, 0.5 * scale).drawn().hidden_weight
    within_four_sigma(int((weights == 0).sum()), weights.numel(), 0.5)
    words = DroppedEmbedding(5000, 2, 0.1 * scale)(pack([list(range(5000))]))
    within_four_sigma(int((words == 0).all(1).sum()), 5000, 0.1)


def test_rates():
    rates()


def test_planted_wrong_rate_is_noticed():
    with pytest.raises(AssertionError):
        rates(1.2)


def whole_words() -> None:
    torch.manual_seed(2)
    table = DroppedEmbedding(50, 4, 0.5)
    batch = pack([[3, 3, 7], [7, 3, *range(50)]])
    seen, plain = table(batch), table.token(batch.ids)
    factors = {}
    for word, row, full in zip(batch.ids.tolist(), seen, plain, strict=True):
        assert torch.equal(row, full * 0) or torch.allclose(row, full * 2)
        factors.setdefault(word, set()).add(bool(row.any()))
    assert all(len(kept) == 1 for kept in factors.values()), "a word is dropped here and kept there"
    assert len({kept for both in factors.values() for kept in both}) == 2


def test_whole_words():
    whole_words()


def test_planted_dropout_of_places_is_noticed(monkeypatch):
    def places(table, batch):
        x = table.token(batch.ids)
        return x * F.dropout(x.new_ones(len(x), 1), table.word_dropout)

    monkeypatch.setattr(DroppedEmbedding, "forward", places)
    with pytest.raises(AssertionError):
        whole_words()


def kernel_and_loop(texts) -> None:
    """With the same draw the kernel and the loop compute the same, forward and backward; with another draw not."""
    torch.manual_seed(3)
    cell, batch = WeightDroppedLstm(6, 8, 0.5).double(), pack(texts)
    x = torch.randn(len(batch.ids), 6, dtype=torch.float64)
    found = []
    for run in (lambda: fused([cell], x, batch, [None])[0], lambda: scan(cell, x, batch)[0]):
        torch.manual_seed(4)
        hidden = run()
        hidden.square().sum().backward()
        found.append((hidden.detach(), *(p.grad.clone() for p in cell.parameters())))
        cell.zero_grad()
    for kernel, loop in zip(*found, strict=True):
        close(kernel, loop, 1e-12)
    assert not torch.allclose(scan(cell, x, batch)[0], found[0][0]), "the mask is not drawn anew"


@pytest.mark.parametrize("texts", SHAPES.values(), ids=SHAPES)
def test_weight_dropped_kernel_equals_loop(texts):
    kernel_and_loop(texts)


@pytest.mark.parametrize("bug", ["a mask a step", "no mask in the loop", "no mask at all"])
def test_planted_other_weights_are_noticed(bug, monkeypatch):
    if bug == "a mask a step":
        monkeypatch.setattr(
            WeightDroppedLstm,
            "recurrent",
            lambda cell, h: F.linear(h, F.dropout(cell.kernel.weight_hh_l0, 0.5), cell.kernel.bias_hh_l0),
        )
    elif bug == "no mask in the loop":
        monkeypatch.setattr(WeightDroppedLstm, "hidden_weight", TorchCell.hidden_weight)
    else:
        monkeypatch.setattr(WeightDroppedLstm, "drawn", TorchCell.drawn)
    if bug == "no mask in the loop":  # the kernel still has one
        monkeypatch.setattr(
            WeightDroppedLstm,
            "weights",
            lambda cell: [w if i != 1 else cell.__dict__["matrix"] for i, w in enumerate(LstmCell.weights(cell))],
        )
    with pytest.raises(AssertionError):
        kernel_and_loop(SHAPES["ragged"])


def test_a_draw_leaves_nothing_on_the_cell():
    cell = WeightDroppedLstm(4, 4, 0.5)
    names = set(cell.state_dict())
    one = cell.drawn()
    assert set(cell.state_dict()) == names and "matrix" not in cell.__dict__
    assert one.kernel is cell.kernel and cell.hidden_weight is cell.kernel.weight_hh_l0


def plain_when_evaluated(training: bool = False) -> None:
    """Outside training the model is a stack of plain LSTMs with the same weights."""
    model = build("awd-lstm-dropped").train(training)
    batch = pack(sequences(0))
    plain = torch.nn.ModuleList()
    for layer in model.stack.layers:
        cell = LstmCell(layer.cell.kernel.input_size, layer.cell.kernel.hidden_size).double()
        cell.load_state_dict(layer.cell.state_dict())
        plain.append(dropout.RecurrentLayer(cell))
    close(model(batch).hidden, RecurrentStack(plain)(model.table(batch.ids), batch).hidden, 1e-12)


def test_evaluated_it_is_a_plain_lstm():
    plain_when_evaluated()


def test_planted_dropout_in_evaluation_is_noticed():
    with pytest.raises(AssertionError):
        plain_when_evaluated(training=True)
