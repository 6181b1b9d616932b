"""Experts and windows on a GPU: its kernels against the loop and the reference in fp32."""

import pytest
import torch

from seqloom.batch import pack
from seqloom.blocks import kernels
from seqloom.blocks.experts import Experts, init_experts

pytestmark = pytest.mark.gpu


def made(count=5, chosen=2):
    torch.manual_seed(0)
    experts = Experts(32, 48, "gelu", count, chosen)
    init_experts(experts, torch.nn.init.xavier_uniform_)
    torch.nn.init.normal_(experts.gate.weight)
    return experts.eval()


@pytest.mark.parametrize("rows", [7, 3000])
def test_fp32_equals_the_cpu(rows):
    experts, x = made(), torch.randn(rows, 32)
    batch = pack([[0] * rows])
    expected = experts(x, batch)[0]
    found = experts.cuda()(x.cuda(), batch)[0].cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_the_grouped_product_and_its_gradients():
    """In bf16 against the loop in fp32, on the same choices."""
    experts, x = made().cuda(), torch.randn(600, 32, device="cuda").bfloat16().float()
    gates = experts.gates(x)
    if not experts.grouped(x.bfloat16()):
        pytest.fail("this GPU, or this torch, has no grouped product: experts run by the loop")
    order = gates.chosen.flatten().argsort(stable=True)
    counts = torch.bincount(gates.chosen.flatten(), minlength=5)
    found = []
    for half in (False, True):
        rows = x[order // 2].detach().requires_grad_()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            out = experts.run_grouped(rows, counts) if half else experts.run(rows, counts)
        out.float().square().sum().backward()
        found.append((out.detach().float(), rows.grad, experts.up.weight.grad.clone()))
        experts.zero_grad()
    for mine, right in zip(*reversed(found), strict=True):
        assert (mine - right).norm() / right.norm() < 0.02


@pytest.mark.parametrize("causal", [True, False])
def test_windows_by_blocks(causal):
    q, k, v = (torch.randn(300, 2, 16, device="cuda") for _ in range(3))
    batch = pack([[0] * 200, [0] * 100])._replace(max_len=200)
    batch = batch._replace(owner=batch.owner.cuda(), offsets=batch.offsets.cuda())
    mine = kernels.banded(q, k, v, batch, causal=causal, window=9)
    right, _ = kernels.reference(q, k, v, batch, causal=causal, window=9)
    torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-3)
