import math

import pytest
import torch

from seqloom.batch import pack, ragged
from seqloom.blocks import kernels
from seqloom.blocks.grid import from_grid, to_grid
from seqloom.blocks.positions import LearnedPositions, SinusoidPositions

H, E = 3, 8


def inputs(lengths, seed=0):
    torch.manual_seed(seed)
    batch = pack([[0] * n for n in lengths])
    return [torch.randn(sum(lengths), H, E, dtype=torch.float64) for _ in range(3)], batch


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [(7,), (5, 5), (31, 32, 33), (1, 65, 2, 64, 63)])
def test_padded_equals_reference(lengths, causal):
    (q, k, v), batch = inputs(lengths)
    expected, weights = kernels.reference(q, k, v, batch, causal=causal)
    torch.testing.assert_close(kernels.padded(q, k, v, batch, causal=causal), expected, rtol=0, atol=1e-12)
    assert torch.isfinite(weights).all()


def test_zeros_behind_the_numbers_of_a_head_change_nothing(monkeypatch):
    """As on a GPU, whose kernels take multiples of 8."""
    (q, k, v), batch = inputs((31, 32, 33))
    monkeypatch.setattr(kernels, "whole_blocks", lambda *parts: [torch.nn.functional.pad(x, (0, 7)) for x in parts])
    expected, _ = kernels.reference(q, k, v, batch, causal=True)
    torch.testing.assert_close(kernels.padded(q, k, v, batch, causal=True), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_written_out_equals_reference(monkeypatch, causal, biased):
    """As in short texts under a compiler on a GPU, with and without empty cells."""
    monkeypatch.setattr(kernels, "is_short_for_a_compiler", lambda q, k: True)
    for counts in ((5, 5), (31, 32, 33)):
        (q, k, v), batch = inputs(counts)
        bias = torch.randn(1, H, max(counts), max(counts), dtype=q.dtype) if biased else None
        expected, _ = kernels.reference(q, k, v, batch, causal=causal, bias=bias)
        found = kernels.padded(q, k, v, batch, causal=causal, bias=bias)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_planted_mask_left_out_is_noticed(monkeypatch):
    monkeypatch.setattr(kernels, "is_short_for_a_compiler", lambda q, k: True)
    true = kernels.written_out
    monkeypatch.setattr(kernels, "written_out", lambda *qkv, **given: true(*qkv, **given | {"attn_mask": None}))
    (q, k, v), batch = inputs((31, 32, 33))
    expected, _ = kernels.reference(q, k, v, batch, causal=False)
    assert not torch.allclose(kernels.padded(q, k, v, batch, causal=False), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_reference_equals_the_formula(causal):
    """One token at a time, one head at a time, in plain Python."""
    (q, k, v), batch = inputs((4, 3))
    out, _ = kernels.reference(q, k, v, batch, causal=causal)
    for begin, end in ((0, 4), (4, 7)):
        for t in range(begin, end):
            for h in range(H):
                keys = range(begin, t + 1 if causal else end)
                scores = [float(q[t, h] @ k[j, h]) / math.sqrt(E) for j in keys]
                top = max(scores)
                parts = [math.exp(s - top) for s in scores]
                mixed = sum(p / sum(parts) * v[j, h] for p, j in zip(parts, keys, strict=True))
                torch.testing.assert_close(out[t, h], mixed)


@pytest.mark.parametrize("causal", [True, False])
def test_empty_sequences_stay_finite(causal):
    (q, k, v), batch = inputs((3, 2))
    batch = batch._replace(offsets=torch.tensor([0, 3, 5, 5, 5], dtype=torch.int32), max_len=4)
    for tensor in (q, k, v):
        tensor.requires_grad_()
    out = kernels.padded(q, k, v, batch, causal=causal)
    out.sum().backward()
    assert torch.isfinite(out).all() and all(torch.isfinite(x.grad).all() for x in (q, k, v))
    expected, weights = kernels.reference(q, k, v, batch, causal=causal)
    torch.testing.assert_close(out, expected)
    assert torch.isfinite(weights).all()


def test_grid_there_and_back():
    for lengths in ((4, 4), (4, 1, 3)):
        batch = pack([[0] * n for n in lengths])
        x = torch.randn(sum(lengths), 5)
        grid = to_grid(x, batch)
        assert grid.shape == (len(lengths), 4, 5)
        assert torch.equal(from_grid(grid, batch), x)
        for n, (length, row) in enumerate(zip(lengths, grid, strict=True)):
            assert torch.equal(row[:length], x[sum(lengths[:n]) : sum(lengths[: n + 1])])
            assert not row[length:].any()


def test_positions():
    batch = ragged(torch.zeros(5, dtype=torch.long), torch.tensor([2, 3]), start=torch.tensor([0, 4]))
    assert batch.positions.tolist() == [0, 1, 4, 5, 6]
    learned = LearnedPositions(8, 6)
    assert torch.equal(learned(batch)[2], learned.weight[4])
    fixed = SinusoidPositions(8, 6)(batch)
    for row, position in zip(fixed, (0, 1, 4, 5, 6), strict=True):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert row[i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert row[3 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)
