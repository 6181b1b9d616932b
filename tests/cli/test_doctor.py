"""doctor says what will be slow on a machine."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.cli import machine, run


def asked(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["doctor", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def slow(found: dict[str, Any]) -> str:
    return "\n".join(remark for remark in found["remarks"] if remark.startswith("slow: "))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which nothing is slow but for what a test changes."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i=0: "a GPU")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(machine, "disk_speed", lambda folder: 900.0)


def test_nothing_is_slow(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys)
    assert slow(found) == "" and found["precision"] == "bf16" and found["devices"] == ["a GPU"]


def test_no_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    found = asked(capsys)
    assert "no GPU" in slow(found) and found["devices"] == ["cpu"] and found["precision"] == "fp32"


def test_an_apple_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    found = asked(capsys)
    assert "computed on the CPU" in slow(found) and found["devices"] == ["Apple GPU (mps)"]


@pytest.mark.parametrize(
    ("capability", "precision", "part"), [((7, 5), "fp16", "would emulate it"), ((6, 1), "fp32", "no tensor cores")]
)
def test_a_gpu_without_bf16(
    capability: tuple[int, int],
    precision: str,
    part: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    found = asked(capsys)
    assert part in slow(found) and found["precision"] == precision


def test_few_threads_and_cores(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert "torch uses 2 of 16 cores" in slow(asked(capsys))
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: {0, 1})
    assert "2 cores" in slow(asked(capsys))


def test_a_slow_disk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "disk_speed", lambda folder: 12.0)
    assert "12 MB a second" in slow(asked(capsys))


def test_the_disk_is_measured_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert machine.disk_speed(tmp_path, 1 << 20) > 0 and not list(tmp_path.iterdir())
    assert machine.disk_speed(tmp_path / "nowhere") == 0
