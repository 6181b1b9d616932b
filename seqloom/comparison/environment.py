"""Where a result was made: the device, how it computes there, and the versions. Equal environments give equal numbers."""

import os
import platform
import re
from pathlib import Path

import torch
from pydantic import ConfigDict

from seqloom import __version__
from seqloom.config import Config
from seqloom.runs.folder import git_commit
from seqloom.training.precision import choose_device, choose_precision

# what rounding depends on
ROUNDING = ("device", "name", "precision", "threads", "torch", "seqloom", "isa")


class Environment(Config):
    """device: cpu or cuda; name: of the processor or the GPU; isa: the instruction set that the user has limited oneDNN to. Keys
    of later versions are kept."""

    model_config = ConfigDict(extra="allow")

    device: str
    name: str
    precision: str
    threads: int
    platform: str
    seqloom: str
    git: str | None
    torch: str
    python: str
    isa: str | None = None

    def differences(self, other: "Environment") -> list[str]:
        """What makes other results round otherwise, in words."""
        pairs = [(name, getattr(self, name), getattr(other, name)) for name in ROUNDING]
        return [f"{name} {theirs}, now {ours}" for name, theirs, ours in pairs if theirs != ours]

    def __str__(self) -> str:
        threads = f", {self.threads} thread{'s' if self.threads != 1 else ''}" if self.device == "cpu" else ""
        return f"{self.device} ({self.name}{threads}, {self.precision}, torch {self.torch}, seqloom {self.seqloom})"


def current_environment(device: str, precision: str) -> Environment:
    """device, precision: as they are chosen by a user, perhaps auto."""
    chosen = choose_device(device)
    return Environment(
        device=chosen.type,
        name=torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else processor_name(),
        precision=choose_precision(precision, chosen),
        threads=torch.get_num_threads(),
        platform=platform.platform(),
        seqloom=__version__,
        git=git_commit(),
        torch=torch.__version__,
        python=platform.python_version(),
        isa=os.environ.get("ONEDNN_MAX_CPU_ISA"),
    )


def processor_name() -> str:
    """As Linux calls it; elsewhere at least the kind."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except (OSError, ValueError):
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
