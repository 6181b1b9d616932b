"""What is handed to the kernels of decoding: they read memory as it lies, and know nothing of strides. What they compute is
tested on a GPU (tests/gpu)."""

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch

from seqloom.batch import pack
from seqloom.blocks import kernels
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import beam_search
from seqloom.decode.step import Stepper
from tests.decode.test_search import END, sharpened


class Launched:
    """In the place of the kernel: attention over the cache, with every argument read from its first place on, as it lies."""

    def __getitem__(self, grid):
        return self.run

    def run(self, qkv, past, positions, out, capacity, scale, **sizes):
        n, begin = len(qkv), 8 * positions.storage_offset()
        raw = positions.untyped_storage().tolist()[begin : begin + 8 * n]
        lying = torch.tensor(raw, dtype=torch.uint8).view(torch.int64)
        if len(lying) < n:
            raise IndexError("read beyond the end of a tensor")
        for i, last in enumerate(lying.tolist()):
            past[i, last] = qkv[i, 1:]
            keys, values = past[i, : last + 1].unbind(1)
            weights = (torch.einsum("he,lhe->hl", qkv[i, 0], keys) * scale).softmax(1)
            out[i] = torch.einsum("hl,lhe->he", weights, values)


@pytest.fixture
def one_token(monkeypatch):
    """Ours, with the kernel itself replaced."""
    language = SimpleNamespace(constexpr=int)
    fake = SimpleNamespace(jit=lambda function: function, language=language, next_power_of_2=lambda n: n)
    monkeypatch.setitem(sys.modules, "triton", fake)
    monkeypatch.setitem(sys.modules, "triton.language", language)
    monkeypatch.delitem(sys.modules, "seqloom.blocks.decode_kernel", raising=False)
    module = importlib.import_module("seqloom.blocks.decode_kernel")
    monkeypatch.setattr(module, "_one_token", Launched())
    yield module.one_token
    sys.modules.pop("seqloom.blocks.decode_kernel", None)


@pytest.mark.parametrize("sources", [1, 2, 3])
def test_beams_of_one_source_are_those_of_several(one_token, monkeypatch, sources):
    """All hypotheses of a single source stand at one position, which is one number in memory."""
    learner = sharpened("gpt2")
    prompts = [[END, 3, 4], [END, 5], [END, 2, 7, 1]][:sources]
    config = BeamConfig(beam=4, n_best=2, max_new=8)

    def found():
        stepper = Stepper(learner.backbone, learner.softmax)
        return [[h.tokens for h in each] for each in beam_search(stepper, prompts, config, END, [])]

    expected, plain = found(), kernels.cached

    def cached(qkv, batch, past, *rest):
        return (one_token(qkv, past, batch.positions), None) if batch.max_len == 1 else plain(qkv, batch, past, *rest)

    monkeypatch.setattr(kernels, "cached", cached)
    assert found() == expected


def test_positions_need_not_lie_one_behind_the_other(one_token):
    qkv, past = torch.randn(4, 3, 2, 8), torch.randn(4, 9, 2, 2, 8)
    positions = torch.tensor([5])[:, None].expand(-1, 4).flatten()
    assert not positions.is_contiguous()
    found = one_token(qkv, past.clone(), positions)
    torch.testing.assert_close(found, one_token(qkv, past.clone(), torch.full((4,), 5)))
    batch = pack([[0]] * 4)._replace(positions=torch.full((4,), 5))
    torch.testing.assert_close(found, kernels.cached(qkv, batch, past.clone())[0])
