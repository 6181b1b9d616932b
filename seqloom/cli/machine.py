"""doctor: what this machine offers, and what would be slow on it."""

import json
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli import app


@app.command(epilog="Examples:\n\nseqloom doctor\n\nseqloom doctor --json")
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Check this machine: versions, devices, kernels, disk, and what would be slow and why."""
    facts, remarks = examine()
    if as_json:
        print(json.dumps({**facts, "remarks": remarks}))
        return
    for name, value in facts.items():
        print(f"{name:18} {value}")
    for remark in remarks:
        print(f"! {remark}")


SLOW_DISK = 50  # MB a second: a checkpoint of a model with 10 million parameters takes longer than two seconds


def examine_device() -> tuple[dict[str, Any], list[str]]:
    """The device that `--device auto` chooses, the number format there, and what is slow about it."""
    import torch

    from seqloom.training.precision import choose_precision

    if torch.cuda.is_available():
        device = torch.device("cuda")
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    else:
        device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
        names = ["Apple GPU (mps)" if device.type == "mps" else "cpu"]
    precision, remarks = choose_precision("auto", device), []
    if device.type == "cpu":
        remarks.append("slow: no GPU: training runs on the CPU in fp32; choose tiny recipes")
        if torch.backends.cuda.is_built():
            remarks.append("this torch is built for CUDA, but no GPU is usable: see whether nvidia-smi finds one")
    elif device.type == "mps":
        remarks.append(
            "slow: on Apple GPUs training runs in fp32, and operations that they do not have are computed on the CPU"
        )
    elif precision == "fp16":
        remarks.append("slow: this GPU has no bf16 (torch would emulate it): training runs in fp16 with a scaled loss")
    elif precision == "fp32":
        remarks.append("slow: this GPU has no tensor cores: training runs in fp32")
    return {"devices": names, "precision": precision}, remarks


def disk_speed(folder: Path, size: int = 1 << 24) -> float:
    """MB a second that reach the disk, by a file of 16 MB that is removed again; 0 where nothing can be written."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            block, started = os.urandom(1 << 20), time.perf_counter()
            for _ in range(size >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return size / 1e6 / max(time.perf_counter() - started, 1e-9)
    except OSError:
        return 0.0


def examine() -> tuple[dict[str, Any], list[str]]:
    import importlib.metadata
    import importlib.util

    import torch

    from seqloom import __version__
    from seqloom.blocks.kernels import HAS_VARLEN

    remarks = []
    facts: dict[str, Any] = {"seqloom": __version__, "python": platform.python_version(), "torch": torch.__version__}
    for package in ("numpy", "tokenizers", "safetensors", "pydantic", "pyarrow", "zstandard"):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = "missing"
    if "missing" in (facts["pyarrow"], facts["zstandard"]):
        remarks.append('.parquet and .zst files cannot be read: pip install "seqloom[data]"')
    facts["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts["threads"] = torch.get_num_threads()
    if facts["threads"] > facts["cores"]:
        remarks.append(
            f"torch uses {facts['threads']} threads on {facts['cores']} cores: set OMP_NUM_THREADS={facts['cores']}"
        )
    elif facts["threads"] < facts["cores"]:
        remarks.append(
            f"slow: torch uses {facts['threads']} of {facts['cores']} cores: unset OMP_NUM_THREADS, or set it to {facts['cores']}"
        )
    if facts["cores"] <= 2:
        remarks.append(f"slow: {facts['cores']} cores: without a GPU choose tiny recipes and --jobs 1 or 2")
    device_facts, device_remarks = examine_device()
    facts |= device_facts
    remarks += device_remarks
    facts["kernels"] = ["reference", "padded"] + (["varlen"] if torch.cuda.is_available() and HAS_VARLEN else [])
    facts["compiler"] = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), "missing")
    if facts["compiler"] == "missing":
        remarks.append(
            "no C++ compiler: torch.compile does not work on the CPU here (train.compile = false is the default)"
        )
    facts["disk_free_gb"] = round(shutil.disk_usage(".").free / 1e9, 1)
    facts["disk_write_mb_s"] = round(disk_speed(Path()))
    if 0 < facts["disk_write_mb_s"] < SLOW_DISK:
        remarks.append(
            f"slow: this disk writes {facts['disk_write_mb_s']} MB a second: write runs to another one, or save checkpoints "
            "more rarely (--set train.save_every=1000)"
        )
    if facts["disk_free_gb"] < 5:
        remarks.append(f"only {facts['disk_free_gb']} GB of disk space are free here: checkpoints may not fit")
    return facts, remarks
