import pytest
import torch
import torch.nn.functional as F
from torch import nn

from seqloom.batch import IGNORE
from seqloom.blocks import softmax
from seqloom.blocks.softmax import ChunkedLoss, Softmax


def problem(rows=13, dim=5, vocab=7):
    torch.manual_seed(0)
    tensors = [
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((rows, dim), (vocab, dim), (vocab,))
    ]
    targets = torch.randint(0, vocab, (rows,))
    targets[3] = targets[-1] = IGNORE
    return tensors, targets


def chunked_is_plain(smoothing=0.0):
    (hidden, weight, bias), targets = problem()
    for rows in (1, 4, 5, 13, 100):
        expected = F.cross_entropy(
            F.linear(hidden, weight, bias), targets, ignore_index=IGNORE, reduction="sum", label_smoothing=smoothing
        )
        total = ChunkedLoss.apply(hidden, weight, bias, targets, rows, smoothing)
        torch.testing.assert_close(total, expected)
        ours = torch.autograd.grad(2.5 * total, (hidden, weight, bias))
        theirs = torch.autograd.grad(2.5 * expected, (hidden, weight, bias))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_chunked_loss_equals_the_plain_one(smoothing):
    chunked_is_plain(smoothing)


def test_planted_smoothing_of_wrong_targets_is_noticed(monkeypatch):
    """The share that is spread comes off the target's own."""
    monkeypatch.setattr(softmax, "slope", lambda *given, true=softmax.slope: true(*given[:4], 0.5 * given[4]))
    with pytest.raises(AssertionError):
        chunked_is_plain(0.1)


def test_planted_wrong_ignore_id_is_noticed(monkeypatch):
    monkeypatch.setattr(softmax, "IGNORE", -1)
    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        chunked_is_plain()


def with_spare_rows(weight, hidden):
    """As on a GPU, where the weight has rows up to a whole block, and columns up to a multiple of 8."""
    return F.pad(weight.detach(), (0, 3, 0, 9))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_spare_rows_of_the_weight_change_nothing(monkeypatch, smoothing):
    monkeypatch.setattr(softmax, "for_products", with_spare_rows)
    chunked_is_plain(smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_planted_spare_rows_that_count_as_words_are_noticed(monkeypatch, smoothing):
    monkeypatch.setattr(softmax, "for_products", with_spare_rows)
    monkeypatch.setattr(softmax, "slope", lambda *given, true=softmax.slope: true(given[0], None, *given[2:6]))
    with pytest.raises(AssertionError):
        chunked_is_plain(smoothing)


def test_gradcheck():
    tensors, targets = problem(rows=6)
    assert torch.autograd.gradcheck(lambda h, w, b: 3 * ChunkedLoss.apply(h, w, b, targets[:6], 4, 0.2), tensors)
    assert torch.autograd.gradcheck(lambda h, w: ChunkedLoss.apply(h, w, None, targets[:6], 4, 0.0), tensors[:2])


def test_large_scores_stay_finite():
    hidden = torch.tensor([[300.0], [-300.0]], requires_grad=True)
    weight = torch.tensor([[10.0], [-10.0]], requires_grad=True)
    total = ChunkedLoss.apply(hidden, weight, None, torch.tensor([1, 1]), 256, 0.0)
    total.backward()
    assert total.item() == 6000.0
    assert torch.isfinite(hidden.grad).all()


def test_each_loss_sums_to_the_total_in_any_chunks(monkeypatch):
    layer = Softmax(5, 7, bias=True).double()
    layer.init_weights(1.0, tied=False)
    hidden, targets = torch.randn(600, 5, dtype=torch.float64), torch.randint(0, 7, (600,))
    one = layer(hidden, targets, each=True)
    torch.testing.assert_close(one.sum(), layer(hidden, targets))
    monkeypatch.setitem(softmax.CHUNK_BYTES, "cpu", 1)
    torch.testing.assert_close(layer(hidden, targets, each=True), one)
    torch.testing.assert_close(one, F.cross_entropy(layer(hidden), targets, reduction="none"))


def test_tied_weight_is_the_embedding():
    table = nn.Embedding(7, 5)
    layer = Softmax(5, 7, table)
    assert layer.weight is table.weight
    layer(torch.randn(3, 5), torch.tensor([0, 1, 2])).backward()
    assert table.weight.grad is not None
