"""Models of the Hugging Face hub, downloaded into the cache of huggingface_hub. Only a name of the hub leads there, never a path
that was mistyped."""

import re
from pathlib import Path

from seqloom.errors import ModelError

PREFIX = "hub:"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
FILES = ["*.json", "*.txt", "*.model", "*.spm", "model.safetensors", "model-*.safetensors"]
PICKLES = ["pytorch_model.bin", "pytorch_model-*.bin"]


def hub_name(source: str) -> str | None:
    """The name of a model of the hub: after "hub:", or OWNER/NAME where there is no folder OWNER; None: it is a folder here."""
    if source.startswith(PREFIX):
        return source.removeprefix(PREFIX)
    is_name = NAME.fullmatch(source) is not None
    return source if is_name and not Path(source.partition("/")[0]).exists() else None


def download(name: str) -> Path:
    """The folder of a model of the hub, here; what was downloaded before is not downloaded again."""
    try:
        import huggingface_hub
    except ImportError:
        raise ModelError(f"{PREFIX}{name}: the hub needs 'huggingface_hub': pip install \"seqloom[hub]\"") from None
    try:
        folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=FILES))
        if not list(folder.glob("*.safetensors")):
            folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=FILES + PICKLES))
    except Exception as error:  # of the library, of its HTTP client, of the disk: all kinds
        said = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{PREFIX}{name} cannot be downloaded ({type(error).__name__}: {said}): check the name and the network; offline, "
            "give a folder that was downloaded before"
        ) from error
    return folder
