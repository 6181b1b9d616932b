"""Encoder–decoders on a GPU: the same numbers as on the CPU, compiled, recorded and in half precision."""

import copy
import json

import numpy as np
import pytest
import torch

from seqloom.batch import Context, pack, to_device
from seqloom.batches.pairs import PairBatches
from seqloom.blocks import kernels
from seqloom.runs.training import train
from seqloom.tasks.translate import Translate
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from tests.batches.test_pairs import some_pairs
from tests.contract import pairs as p
from tests.training.material import write_pairs

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.mark.parametrize("lengths", [((64, 64), (32, 32)), ((31, 1, 65), (2, 64, 33)), ((3, 5, 0), (7, 1, 0))])
def test_attention_across_batches_equals_the_reference(lengths):
    torch.manual_seed(0)
    targets, sources = (to_device(pack([[0] * n for n in sizes]), CUDA) for sizes in lengths)
    q = torch.randn(targets.ids.shape[0], 4, 16, device=CUDA, dtype=torch.bfloat16, requires_grad=True)
    k, v = (
        torch.randn(sources.ids.shape[0], 4, 16, device=CUDA, dtype=torch.bfloat16, requires_grad=True) for _ in "kv"
    )
    keys = Context(k, sources.owner, sources.offsets, sources.max_len)
    expected, _ = kernels.reference(
        *(x.detach().double().requires_grad_() for x in (q, k, v)), targets, causal=False, keys=keys
    )
    for kernel in (kernels.varlen, kernels.padded):
        found = kernel(q, k, v, targets, causal=False, keys=keys)
        torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-2)
        found.float().pow(2).sum().backward()
        assert all(torch.isfinite(x.grad).all() for x in (q, k, v))


def batches(shapes, count=4):
    pairs = some_pairs(60)
    for side in (pairs.source, pairs.target):
        side.ids[:] = np.random.default_rng(0).integers(1, p.VOCAB, len(side.ids))
    plan = PairBatches(pairs, 256, 40, shapes).plan(0, 0)
    return [to_device(plan.batch(i), CUDA) for i in range(count)]


def learner(name, **config):
    model = p.build(name, dtype=torch.float32)
    return Translate(model, Translate.Config(**({"tie": False, "label_smoothing": 0.1} | config))).to(CUDA).train()


@pytest.mark.parametrize("name", [*p.SMALL, "transformer-pre", "luong-parallel", "bahdanau-lstm"])
def test_the_gpu_equals_the_cpu(name):
    ours = learner(name)
    theirs = copy.deepcopy(ours).cpu()
    for batch in batches("free", 2):
        fast, plain = ours(batch), theirs(to_device_cpu(batch))
        torch.testing.assert_close(fast.total.cpu(), plain.total, rtol=1e-4, atol=1e-3)
        fast.total.backward()
        plain.total.backward()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert (a.grad.cpu() - b.grad).norm() <= 2e-3 * b.grad.norm() + 1e-4
        ours.zero_grad()
        theirs.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            half = ours(batch).total
        half.backward()
        torch.testing.assert_close(half.float().cpu(), plain.total, rtol=2e-2, atol=1.0)
        assert all(torch.isfinite(x.grad).all() for x in ours.parameters())
        ours.zero_grad()


def to_device_cpu(batch):
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), batch)


def shapes_for(ours):
    """Twice the same: a step is recorded when its shape comes again."""
    found = batches("row") if worth_compiling(ours, CUDA) else batches("grid")
    return [each for each in found for _ in range(3)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["transformer", "transformer-pre", "seq2seq", "bahdanau", "luong", "gnmt"])
def test_recorded_steps_equal_plain_ones(name, compiled):
    ours = learner(name)
    if compiled and not worth_compiling(ours, CUDA):
        compiled = False
    assert worth_recording(ours, CUDA)
    results = []
    for recorded in (False, True):
        each = copy.deepcopy(ours)
        differentiate = Gradient(each, "bf16", CUDA, compiled and recorded, recorded)
        seen = []
        for i, batch in enumerate(shapes_for(ours)):
            torch.manual_seed(i)
            each.zero_grad()
            loss = differentiate(batch, None)
            seen.append((float(loss.total), int(loss.count), [x.grad.clone() for x in each.parameters()]))
        results.append(seen)
    for (plain, count, gradients), (fast, same, others) in zip(*results, strict=True):
        assert fast == pytest.approx(plain, rel=1e-2) and count == same
        for a, b in zip(gradients, others, strict=True):
            assert (a - b).norm() <= 3e-2 * a.norm() + 1e-3


@pytest.mark.parametrize("recipe", ["transformer-tiny", "bahdanau-tiny", "luong-tiny", "seq2seq-tiny", "gnmt-tiny"])
def test_training_on_the_gpu_learns_and_translates(recipe, tmp_path):
    for name, count, seed in (("train", 1500, 0), ("valid", 40, 1)):
        write_pairs(tmp_path, count, seed, name)
    files = {name: [tmp_path / f"{name}.{side}" for side in ("en", "xx")] for name in ("train", "valid")}
    run = train(
        recipe, "translate", files["train"], tmp_path / "run", valid=files["valid"], tokenizer="word", device="cuda",
        settings=["budget={steps=250}", "train.eval_every=125", "batches.budget=1024", "train.compile=false"],
    )  # fmt: skip
    metrics = json.loads((run.folder / "metrics.json").read_text())
    print(recipe, metrics["valid_scores"]["bleu"], metrics["tokens_per_second"])
    assert metrics["valid_scores"]["bleu"] > (20 if recipe == "seq2seq-tiny" else 50)
