"""Ranks on a GPU: one under torchrun is what a process alone is, two may share one, and shards work there, too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from seqloom.training.launch import free_port
from tests.training.material import prepared

pytestmark = pytest.mark.gpu
SETTINGS = [
    "model.dim=64", "model.num_heads=2", "model.num_layers=2", "batches.budget=256", "batches.length=64", "train.accumulate=2",
    "train.eval_every=6", "train.save_every=6", "train.schedule.warmup=100", "train.precision=fp32", "budget={steps=12}",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("ranks") / "data", 600)


def train(data, out, *more, settings=(), torchrun=0):
    options = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    call = ["-m", "seqloom", "pretrain", "gpt2-tiny", "--data", str(data), "--out", str(out), "--device", "cuda"]
    if torchrun:
        ranks = ["--nproc-per-node", str(torchrun), "--master-port", str(free_port())]
        call = ["-m", "torch.distributed.run", *ranks, *call]
    repository = str(Path(__file__).parents[2])
    one = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]  # however many there are
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([repository, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
        "CUDA_VISIBLE_DEVICES": one,
    }
    done = subprocess.run(
        [sys.executable, *call, *options, *more], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def weights(out):
    return load_file(out / "checkpoints" / "step-12" / "model.safetensors")


def largest_difference(out, other):
    a, b = weights(out), weights(other)
    return max(float((a[key] - b[key]).abs().max()) for key in a)


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "out"
    train(data, out)
    return out


def test_one_rank_under_torchrun_is_a_process_alone(data, alone, tmp_path):
    train(data, tmp_path / "out", torchrun=1)
    assert largest_difference(alone, tmp_path / "out") <= 1e-6


def test_two_ranks_on_one_gpu(data, alone, tmp_path):
    """They talk over the host, and say so."""
    said = train(data, tmp_path / "out", "--ranks", "2")
    assert "2 ranks share 1 GPU(s), which NCCL refuses: they talk over the host (gloo)" in said
    assert largest_difference(alone, tmp_path / "out") <= 1e-6


def test_the_same_bits_on_one_and_two_ranks(data, tmp_path):
    for ranks in ("1", "2"):
        train(data, tmp_path / ranks, "--ranks", ranks, "--deterministic")
    assert largest_difference(tmp_path / "1", tmp_path / "2") == 0.0
    losses = [
        [
            json.loads(line)["valid"]
            for line in (tmp_path / ranks / "metrics.jsonl").read_text().splitlines()
            if "valid" in line
        ]
        for ranks in ("1", "2")
    ]
    assert losses[0] == losses[1]


def test_a_sharded_rank(data, alone, tmp_path):
    """And its checkpoint is resumed by a process alone."""
    said = train(data, tmp_path / "out", settings=["train.shard=true"], torchrun=1)
    assert "sharded" in said and largest_difference(alone, tmp_path / "out") <= 1e-5
    (tmp_path / "out" / "card.md").unlink()
    train(data, tmp_path / "out", "--resume")
