"""Names of plans, read without torch."""

from pathlib import Path

from seqloom.config import unknown_name
from seqloom.errors import UsageError

PLAN_NAMES = ["classroom"]


def check_plan_name(name: str) -> None:
    """Raises UsageError for a name that is neither a built-in plan nor a file."""
    if name.endswith(".toml") and not Path(name).exists():
        raise UsageError(f"{name}: no such plan: 'seqloom compare classroom --toml > {name}' writes one to edit")
    if name not in PLAN_NAMES and not Path(name).is_file():
        raise UsageError(unknown_name("plan", name, name, PLAN_NAMES) + "; or give a TOML file")
