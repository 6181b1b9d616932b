"""doctor: what this machine offers, and what would be slow on it."""

import json
import os
import platform
import shutil
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
    facts["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ["cpu"]
    if not torch.cuda.is_available():
        remarks.append("no CUDA device: training runs on the CPU in fp32; choose tiny recipes")
    elif not torch.cuda.is_bf16_supported():
        remarks.append("this GPU does not support bf16: training runs in fp32")
    facts["kernels"] = ["reference", "padded"] + (["varlen"] if torch.cuda.is_available() and HAS_VARLEN else [])
    facts["compiler"] = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), "missing")
    if facts["compiler"] == "missing":
        remarks.append(
            "no C++ compiler: torch.compile does not work on the CPU here (train.compile = false is the default)"
        )
    facts["disk_free_gb"] = round(shutil.disk_usage(".").free / 1e9, 1)
    if facts["disk_free_gb"] < 5:
        remarks.append(f"only {facts['disk_free_gb']} GB of disk space are free here: checkpoints may not fit")
    return facts, remarks
