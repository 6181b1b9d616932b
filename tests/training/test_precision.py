"""Number formats and devices: what is chosen where, and fp16 with a scaled loss."""

import json
from pathlib import Path

import pytest
import torch

from seqloom.errors import UsageError
from seqloom.runs.training import pretrain
from seqloom.training import checkpoint as checkpoints
from seqloom.training import precision
from seqloom.training.loop import Fit
from seqloom.training.optim import OptimConfig, build_optimizer, step
from seqloom.training.precision import LossScale, choose_device, choose_precision
from seqloom.training.process import fall_back_to_cpu
from tests.training.material import prepared

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("precision") / "data", 400)


def run(data, out, *settings, recipe="gpt2-tiny", **options):
    small = ["model.dim=24", "model.dropout=0.1", "train.log_every=2", "train.schedule.warmup=5", "valid.limit=500"]
    small += ["batches.length=32", "train.save_every=5", "train.precision=fp16"]
    small += ["model.num_heads=3", "batches.budget=256"] if recipe == "gpt2-tiny" else ["batches.streams=8"]
    return pretrain(recipe, data, out, settings=[*small, *settings], device="cpu", **options)


# ---- what is chosen


@pytest.mark.parametrize(
    ("capability", "has_bf16", "expected"),
    [
        ((9, 0), True, "bf16"),
        ((8, 0), True, "bf16"),
        ((7, 5), False, "fp16"),
        ((7, 0), False, "fp16"),
        ((6, 1), False, "fp32"),
    ],
)
def test_auto_takes_what_the_gpu_has(capability, has_bf16, expected, monkeypatch):
    def supported(including_emulation: bool = True) -> bool:
        return has_bf16 or including_emulation  # torch says yes where it emulates

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    assert choose_precision("auto", torch.device("cuda")) == expected
    assert choose_precision("bf16", torch.device("cuda")) == "bf16"
    assert choose_precision("auto", CPU) == "fp32"


def machine(monkeypatch, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_takes_the_fastest_device(cuda, mps, expected, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    machine(monkeypatch, cuda, mps)
    assert choose_device("auto").type == expected
    assert choose_precision("auto", torch.device("mps")) == "fp32"
    assert choose_device("cpu").type == "cpu"


def test_devices_that_are_not_there(monkeypatch):
    machine(monkeypatch, cuda=False, mps=False)
    for name in ("mps", "cuda"):
        with pytest.raises(UsageError, match=f"--device {name}: no .* is usable here; use --device cpu"):
            choose_device(name)
    with pytest.raises(UsageError, match="give auto, cpu, cuda or mps"):
        choose_device("tpu")


@pytest.mark.parametrize(("value", "part"), [("1", "computed on the CPU"), ("0", "will fail: set PYTORCH_ENABLE_MPS_")])
def test_what_apple_gpus_lack_is_said(value, part, monkeypatch, capsys):
    machine(monkeypatch, cuda=False, mps=True)
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", value)
    precision._say_once.cache_clear()
    assert choose_device("mps") == choose_device("auto") == torch.device("mps")
    assert capsys.readouterr().err.count(part) == 1


def test_the_command_line_lets_the_cpu_stand_in():
    environment: dict[str, str] = {}
    fall_back_to_cpu(environment)
    assert environment == {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}
    environment = {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}
    fall_back_to_cpu(environment)
    assert environment == {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}


def test_models_that_count_stay_off_apple_gpus(monkeypatch):
    machine(monkeypatch, cuda=False, mps=True)
    assert choose_device("auto", count_based=True) == choose_device("mps", count_based=True) == CPU


def test_no_fp64_where_a_gpu_may_have_none():
    """Apple GPUs have no fp64: what may lie on a device becomes fp64 by `exact` alone."""
    known = {
        "batch.py",
        "blocks/adaptive.py",
        "objectives/counted.py",
        "objectives/windows.py",
        "training/ranks.py",
    }  # `exact`, and what is on the host
    package = Path(precision.__file__).parents[1]
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if ".double()" in path.read_text("utf-8")}
    assert found == known


# ---- fp16


def test_the_scale_halves_on_overflow_and_doubles_after_good_steps(monkeypatch):
    monkeypatch.setattr(LossScale, "PATIENCE", 3)
    scaler, good, bad = LossScale(CPU), torch.tensor(0.0), torch.tensor(1.0)
    seen = []
    for overflow in (bad, bad, good, good, bad, good, good, good, good, good, good):
        scaler.update(overflow)
        seen.append(float(scaler.scale))
    assert seen == [4, 2, 2, 2, 1, 1, 1, 2, 2, 2, 4]
    scaler.scale = torch.tensor(LossScale.MOST)
    for _ in range(3):
        scaler.update(good)
    assert float(scaler.scale) == LossScale.MOST


@pytest.mark.parametrize("name", ["adamw", "sgd", "adagrad"])
def test_a_scaled_loss_makes_the_same_step(name):
    def stepped(scaled: bool) -> torch.Tensor:
        torch.manual_seed(0)
        learner, scaler = torch.nn.Linear(5, 3), LossScale(CPU) if scaled else None
        optimizer = build_optimizer(OptimConfig(name=name, lr=0.1, clip=0.5), learner)
        for _ in range(3):
            total = learner(torch.randn(4, 5)).square().sum()
            (total if scaler is None else total * scaler.scale).backward()
            step(optimizer, torch.tensor(4), 0.5, scaler)
        return learner.weight.detach()

    assert torch.equal(stepped(False), stepped(True))


def test_an_overflow_skips_the_step(data, tmp_path, monkeypatch):
    monkeypatch.setattr(LossScale, "MOST", 1e30)
    monkeypatch.setattr(LossScale, "FIRST", 2.0**18)  # more than the largest number of fp16
    run(data, tmp_path / "run", "budget={steps=30}")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "skipped" in line]
    assert 0 < steps[-1]["skipped"] < 15 and steps[-1]["loss"] < steps[0]["loss"]
    found = checkpoints.load_latest(tmp_path / "run" / "checkpoints")
    assert found is not None and found.tensors["scaler"]["scale"] == 2.0 ** (18 - steps[-1]["skipped"])


@pytest.mark.parametrize("recipe", ["gpt2-tiny", "lstm-tiny"])
def test_it_learns_in_fp16(recipe, data, tmp_path):
    run(data, tmp_path / "half", "budget={steps=60}", "train.optim.lr=1e-2", recipe=recipe)
    run(data, tmp_path / "single", "budget={steps=60}", "train.optim.lr=1e-2", "train.precision=fp32", recipe=recipe)
    losses = [json.loads((tmp_path / name / "metrics.json").read_text())["valid_loss"] for name in ("half", "single")]
    assert losses[0] < 3.3 and losses[0] == pytest.approx(losses[1], abs=0.15)
    assert losses[0] != losses[1]


def killed(data, out, monkeypatch):
    """A run of 20 steps that is killed at the 13th and resumed from its checkpoint."""
    one_step = Fit.one_step

    def fragile(fit, items):
        if fit.state.step == 12:
            raise ConnectionAbortedError("power cut")
        one_step(fit, items)

    with monkeypatch.context() as patch:
        patch.setattr(Fit, "one_step", fragile)
        with pytest.raises(ConnectionAbortedError):
            run(data, out, "budget={steps=20}")
    run(data, out, "budget={steps=20}", resume=True)


def tensors_of(folder):
    found = checkpoints.load_latest(folder / "checkpoints")
    assert found is not None
    return {f"{part}.{name}": tensor for part, names in found.tensors.items() for name, tensor in names.items()}


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_resumed_run_has_the_same_bits(forgetful, data, tmp_path, monkeypatch):
    monkeypatch.setattr(LossScale, "PATIENCE", 4)
    run(data, tmp_path / "whole", "budget={steps=20}")
    if forgetful:  # a planted bug
        monkeypatch.setattr(LossScale, "load", lambda self, tensors: None)
    killed(data, tmp_path / "broken", monkeypatch)
    whole, broken = tensors_of(tmp_path / "whole"), tensors_of(tmp_path / "broken")
    assert whole.keys() == broken.keys() and {"scaler.scale", "scaler.good"} <= whole.keys()
    assert all(torch.equal(tensor, broken[name]) for name, tensor in whole.items()) is not forgetful


def test_runs_without_fp16_have_no_scale(data, tmp_path):
    run(data, tmp_path / "run", "budget={steps=2}", "train.precision=fp32")
    assert not any(name.startswith("scaler") for name in tensors_of(tmp_path / "run"))
