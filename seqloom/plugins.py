"""The user's own code: one Python file, named on the command line and never taken from a run folder.

A run remembers the file's name and SHA-256, and is loaded only beside a file with that hash.
"""

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from seqloom.config import unknown_name
from seqloom.errors import ModelError, SeqloomError, UsageError
from seqloom.files import explained

OPENED: list["Plugin"] = []


class Plugin:
    def __init__(self, path: Path):
        self.path = path
        with explained(path):
            source = path.read_bytes()
        OPENED.append(self)
        self.sha256 = hashlib.sha256(source).hexdigest()
        self.module = ModuleType(f"seqloom_plugin_{self.sha256[:16]}")
        self.module.__file__ = str(path)
        sys.modules[self.module.__name__] = self.module  # where Python looks up names that its classes refer to
        with self.explain_errors():
            exec(compile(source, str(path), "exec"), self.module.__dict__)

    def find_class(self, name: str) -> Callable[..., Any]:
        found = getattr(self.module, name, None)
        if not inspect.isclass(found):
            known = [key for key, value in vars(self.module).items() if inspect.isclass(value)]
            raise UsageError(f"{self.path}: " + unknown_name("class", name, name, known))
        return found

    def recipe(self, name: str) -> dict[str, Any] | None:
        """What the function with this name returns; None if there is no such function."""
        function = getattr(self.module, name, None)
        if not inspect.isfunction(function):
            return None
        with self.explain_errors():
            values = function()
        if not isinstance(values, dict):
            raise UsageError(self.at(function, f"{name}() must return a dict of recipe values, not {values!r:.60}"))
        return {"name": name} | values

    def at(self, function: Callable[..., Any], message: str) -> str:
        """The message, after the place of a function."""
        code = getattr(inspect.unwrap(function), "__code__", None)
        where = f":{code.co_firstlineno}" if code is not None and code.co_filename == str(self.path) else ""
        return f"{self.path}{where}: {message}"

    @contextmanager
    def explain_errors(self, called: Callable[..., Any] | None = None) -> Iterator[None]:
        """Turn an error in the file, or in a wrong call of `called`, into one line with its place."""
        try:
            yield
        except SeqloomError:
            raise
        except (Exception, SystemExit) as error:
            line = self.explain(error)
            if line is None and called is not None:
                line = self.at(called, f"{type(error).__name__}: {error}")
            if line is None:
                raise
            raise UsageError(line) from error

    def explain(self, error: BaseException) -> str | None:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self.path)]
        line = own[-1].lineno if own else None
        if isinstance(error, SyntaxError) and error.filename == str(self.path):
            line = error.lineno
        return None if line is None else f"{self.path}:{line}: {type(error).__name__}: {error}"


def open_plugin(path: str | Path | Plugin | None) -> Plugin | None:
    return path if path is None or isinstance(path, Plugin) else Plugin(Path(path))


def record(plugin: Plugin) -> dict[str, str]:
    """What a run records about its plugin."""
    return {"file": plugin.path.name, "sha256": plugin.sha256}


def check_recorded(folder: Path, recorded: Any, plugin: Plugin | None) -> None:
    """Raise ModelError unless this is the plugin that the run was trained with."""
    known = recorded if isinstance(recorded, dict) else {}
    name = str(known.get("file", "(not recorded)"))
    if plugin is None:
        raise ModelError(
            f"{folder} uses your own code: give its file {name} with --plugin (a run folder contains no code)"
        )
    if plugin.sha256 != known.get("sha256"):
        raise ModelError(
            f"{plugin.path} is not the {name} that {folder} was trained with (their SHA-256 differ): restore the original file"
        )


def find_plugin_error(error: BaseException) -> str | None:
    """One line about an error in any opened plugin; None if it is not from one."""
    return next((line for plugin in OPENED if (line := plugin.explain(error)) is not None), None)
