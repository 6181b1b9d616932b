"""What is learnt from plain text. Adding an objective is one file here and one line in OBJECTIVES."""

import importlib
from typing import TYPE_CHECKING

from seqloom.config import unknown_name
from seqloom.errors import UsageError

if TYPE_CHECKING:
    from seqloom.batch import Objective

OBJECTIVES = {"next-token": "next_token:NextToken", "counts": "counted:Counted"}


def objective_class(name: str) -> "type[Objective]":
    if name not in OBJECTIVES:
        raise UsageError(unknown_name("objective", name, name, list(OBJECTIVES)))
    module, _, cls = OBJECTIVES[name].partition(":")
    return getattr(importlib.import_module(f"seqloom.objectives.{module}"), cls)
