"""Weights that ranks share out: what is learnt, stored and measured is as if every rank had all of them."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seqloom.errors import UsageError
from seqloom.runs.training import pretrain
from seqloom.training import checkpoint as checkpoints
from seqloom.training.launch import free_port
from seqloom.training.ranks import Ranks
from seqloom.training.shard import Weights, check_shards
from tests.training.material import prepared
from tests.training.test_ranks import OFTEN, SMALL, call, fingerprint, run, start, wait_for_step

SLOWLY = ["train.schedule.warmup=100"]  # rates as recipes have them after so few steps
SHARDED = ["train.shard=true"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("shard") / "data", 600)


def largest_difference(out, other, step=12):
    """Of weights and of what the optimizer remembers."""
    worst = 0.0
    for part in ("model", "optimizer"):
        a, b = (load_file(each / "checkpoints" / f"step-{step}" / f"{part}.safetensors") for each in (out, other))
        assert a.keys() == b.keys() and all(a[key].shape == b[key].shape for key in a)
        worst = max([worst, *(float((a[key].double() - b[key].double()).abs().max()) for key in a)])
    return worst


def valid_losses(out):
    return [json.loads(line)["valid"] for line in (out / "metrics.jsonl").read_text().splitlines() if "valid" in line]


def forget_the_end(out, step):
    """As if the run had been killed after this step was saved."""
    shutil.rmtree(out / "checkpoints" / "step-12")
    (out / "checkpoints" / "latest").write_text(f"step-{step}\n")
    for name in ("metrics.json", "card.md"):
        (out / name).unlink()


@pytest.fixture
def one_rank(monkeypatch):
    """This process as torchrun starts a single one, which has all shards."""
    given = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    yield
    torch.distributed.destroy_process_group()


def test_shards_of_one_rank(data, tmp_path, one_rank):
    """All that is done with shards, but for what is sent: trained, measured, saved and read again."""
    plain, sharded = tmp_path / "plain", tmp_path / "sharded"
    settings = [*SMALL["gpt2-tiny"], *OFTEN, *SLOWLY, "budget={steps=12}"]
    pretrain("gpt2-tiny", data, plain, settings=settings, device="cpu")
    assert not torch.distributed.is_initialized()
    for resume in (False, True):
        pretrain("gpt2-tiny", data, sharded, settings=[*settings, *SHARDED], device="cpu", resume=resume)
        assert largest_difference(plain, sharded) <= 1e-5
        assert valid_losses(sharded) == pytest.approx(valid_losses(plain), abs=1e-5)
        forget_the_end(sharded, 8)


@pytest.mark.long
def test_a_process_alone_goes_on_with_shards(data, tmp_path):
    """Two sharded ranks are what one process is, and their checkpoint is one as any other."""
    alone = {"settings": [*SMALL["gpt2-tiny"], *OFTEN, *SLOWLY, "budget={steps=12}"], "device": "cpu"}
    plain, sharded = tmp_path / "plain", tmp_path / "sharded"
    pretrain("gpt2-tiny", data, plain, **alone)
    run(*call("gpt2-tiny", data, sharded, "--ranks", "2", settings=[*SLOWLY, *SHARDED]))
    assert largest_difference(plain, sharded) <= 1e-5
    forget_the_end(sharded, 8)
    pretrain("gpt2-tiny", data, sharded, **alone, resume=True)
    assert largest_difference(plain, sharded) <= 1e-5
    assert valid_losses(sharded) == pytest.approx(valid_losses(plain), abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_sharded_is_plain(name, data, tmp_path):
    for out, more in (("plain", []), ("sharded", ["--ranks", "2"])):
        settings = [*SLOWLY, *(SHARDED if more else [])]
        run(*call(name, data, tmp_path / out, *more, settings=settings))
    assert largest_difference(tmp_path / "plain", tmp_path / "sharded") <= 1e-5
    assert valid_losses(tmp_path / "plain") == pytest.approx(valid_losses(tmp_path / "sharded"), abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt2-tiny", "bert-tiny", "lstm-tiny"])
def test_shards_whole_and_shards_again(name, data, tmp_path):
    """Stopped by SIGTERM and by kill -9 in between."""
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    slowly = ["train.schedule.warmup=2000"]
    run(*call(name, data, plain, steps=240, settings=slowly))
    sharded = call(name, data, broken, "--resume", "--ranks", "2", steps=240, settings=[*slowly, *SHARDED])
    process = start(*sharded)
    wait_for_step(broken, 20)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75 and "continue it with --resume" in said
    process = start(*call(name, data, broken, "--resume", steps=240, settings=slowly))
    wait_for_step(broken, 80)
    process.kill()
    process.communicate(timeout=60)
    run(*sharded)
    assert largest_difference(plain, broken, 240) <= 1e-5
    assert valid_losses(broken) == pytest.approx(valid_losses(plain), abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "average", "bf16"])
def test_other_optimizers_work_on_shards(optimizer, data, tmp_path):
    settings = {
        "sgd": ["train.optim.name=sgd", "train.optim.momentum=0.9"],
        "adagrad": ["train.optim.name=adagrad"],
        "average": ["train.optim.average=start", "train.average_last=2"],
        "bf16": ["train.precision=bf16"],
    }[optimizer]
    run(*call("gpt2-tiny", data, tmp_path / "plain", settings=[*SLOWLY, *settings]))
    run(*call("gpt2-tiny", data, tmp_path / "sharded", "--ranks", "2", settings=[*SLOWLY, *settings, *SHARDED]))
    assert largest_difference(tmp_path / "plain", tmp_path / "sharded") <= 1e-5


@pytest.mark.long
def test_a_broken_step_is_skipped_by_all_shards(data, tmp_path):
    """The gradient of one part on one rank is no number: no rank moves, and the run goes on."""
    fault = (
        "import os, builtins\n"
        "def spoil():\n"
        "    from seqloom.training import gradient\n"
        "    plain, calls = gradient.Gradient.plain, []\n"
        "    def broken(self, example, carry):\n"
        "        calls.append(1)\n"
        "        if os.environ.get('RANK') == '1' and len(calls) == 5:\n"
        "            self.scaler = type('Nan', (), {'scale': float('nan')})()\n"
        "        try:\n"
        "            return plain(self, example, carry)\n"
        "        finally:\n"
        "            self.scaler = None\n"
        "    gradient.Gradient.plain = broken\n"
        "if os.environ.get('RANK'):\n"
        "    spoil()\n"
    )
    (tmp_path / "sitecustomize.py").write_text(fault)
    more = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    run(*call("gpt2-tiny", data, tmp_path / "out", "--ranks", "2", settings=[*SLOWLY, *SHARDED]), **more)
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["skipped"] for line in lines if "skipped" in line][-1] == 1
    assert all(value.isfinite().all() for value in load_file(tmp_path / "out" / "backbone.safetensors").values())


@pytest.mark.long
def test_planted_means_in_place_of_sums_are_noticed(data, tmp_path):
    """FSDP2 divides by the number of ranks unless it is told not to. Adam hides that in the weights, not in what it remembers."""
    fault = (
        "import os\n"
        "if os.environ.get('RANK'):\n"
        "    from torch.distributed.fsdp import FSDPModule\n"
        "    FSDPModule.set_gradient_divide_factor = lambda self, factor: None\n"
        "    FSDPModule.set_force_sum_reduction_for_comms = lambda self, asked: None\n"
    )
    (tmp_path / "sitecustomize.py").write_text(fault)
    more = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    run(*call("gpt2-tiny", data, tmp_path / "plain", settings=SLOWLY))
    run(*call("gpt2-tiny", data, tmp_path / "sharded", "--ranks", "2", settings=[*SLOWLY, *SHARDED]), **more)
    assert largest_difference(tmp_path / "plain", tmp_path / "sharded") > 1e-5


def test_what_cannot_be_sharded():
    def refused(message, ordered=False, static=True, parts=4, compiled=False, shares=False, scalar=False):
        learner = torch.nn.Linear(2, 2)
        learner.static = static
        if scalar:
            learner.gamma = torch.nn.Parameter(torch.ones(()))
        ranks = Ranks(ordered)
        ranks.world, ranks.shares_device = 2, shares
        with pytest.raises(UsageError, match=message):
            check_shards(learner, ranks, parts, compiled)

    refused("--deterministic adds gradients up in one fixed tree, and train.shard", ordered=True)
    refused("the data decides what is computed", static=False)
    refused("not compiled", compiled=True)
    refused("a single number", scalar=True)
    refused("3 parts a step cannot be shared equally by 2 ranks", parts=3)
    refused("a GPU of its own", shares=True)


def test_what_is_saved_is_a_copy(data, tmp_path, monkeypatch):
    """The next steps change weights while the last ones are written."""
    settings = [*SMALL["gpt2-tiny"], "train.save_every=1", "train.keep=9", "train.eval_every=100", "budget={steps=3}"]

    def slowly(path, tensors):
        time.sleep(0.05)
        return save_tensors(path, tensors)

    save_tensors = checkpoints.save_tensors
    pretrain("gpt2-tiny", data, tmp_path / "right", settings=settings, device="cpu")
    right = fingerprint(tmp_path / "right")
    monkeypatch.setattr(checkpoints, "save_tensors", slowly)
    pretrain("gpt2-tiny", data, tmp_path / "slow", settings=settings, device="cpu")
    assert fingerprint(tmp_path / "slow") == right
    monkeypatch.setattr(Weights, "copy", Weights.gather)  # planted: the weights themselves
    pretrain("gpt2-tiny", data, tmp_path / "wrong", settings=settings, device="cpu")
    assert fingerprint(tmp_path / "wrong") != right
