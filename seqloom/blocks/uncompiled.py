"""Functions that a compiler is to leave alone.

torch.compiler.disable says so, but loads the compiler in order to say it: half of the time that a command takes to start, and
most compile nothing. Here it is said as soon as somebody else loads the compiler, before it looks into anything.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch

COMPILER = "torch._dynamo"
WAITING: list[Callable[[], None]] = []

Given = ParamSpec("Given")
Found = TypeVar("Found")


def uncompiled(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """A decorator of functions and methods."""
    called = [function]

    def disable() -> None:
        called[0] = torch.compiler.disable(function)

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        return called[0](*args, **kwargs)

    if COMPILER in sys.modules:
        disable()
    else:
        WAITING.append(disable)
    return call


class Loading(MetaPathFinder):
    """Finds the compiler where it is, and adds to its loading what is waiting for that."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != COMPILER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def then_disable(module: ModuleType) -> None:
            execute(module)
            for disable in WAITING:
                disable()

        loader.exec_module = then_disable
        return spec


if COMPILER not in sys.modules:
    sys.meta_path.insert(0, Loading())
