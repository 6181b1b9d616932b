"""Imports point one way, starting is cheap, and no file is a drawer for odds and ends."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release import tool

PACKAGE = Path(__file__).parent.parent / "seqloom"
# each may import what stands before it
ORDER = [
    "errors",
    "files",
    "migrations",
    "progress",
    "charts",
    "config",
    "randomness",
    "vocabulary",
    "state",
    "batch",
    "weights",
    "plugins",
    "text",
    "tokens",
    "batches",
    "blocks",
    "models",
    "objectives",
    "decode",
    "metrics",
    "tasks",
    "cost",
    "training",
    "evaluate",
    "analyse",
    "recipes",
    "runs",
    "convert",
    "comparison",
    "serve",
    "cli",
]
OUTSIDE = ("__init__", "__main__")  # they stand above the order
HEAVY = ("torch", "tokenizers", "numpy", "safetensors", "pyarrow", "pandas")


def imported(source: str, package: list[str]) -> Iterator[str]:
    """Full names of everything that a source imports, wherever in it; `package` resolves relative imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            parts = base + (node.module.split(".") if node.module else [])
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def wrong_imports(source: str, path: Path) -> list[str]:
    """What a file at `path` (relative to the package) imports from its right."""
    own = path.with_suffix("").parts[0]
    if own in OUTSIDE:
        return []
    found = []
    for name in imported(source, ["seqloom", *path.parent.parts]):
        parts = name.split(".")
        if parts[0] != "seqloom" or len(parts) < 2 or parts[1].startswith("__version__"):
            continue
        if not {own, parts[1]} <= set(ORDER) or ORDER.index(parts[1]) > ORDER.index(own):
            found.append(f"{path} imports {name}")
    return found


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_every_module_has_its_place() -> None:
    names = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in sources()}
    assert names - set(OUTSIDE) == set(ORDER)


def test_imports_point_one_way() -> None:
    wrong = [w for path in sources() for w in wrong_imports(path.read_text("utf-8"), path.relative_to(PACKAGE))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "import seqloom.training.loop",
        "from seqloom import runs",
        "from seqloom.recipes.schema import Recipe",
        "from ..train import loop",
        "from .. import cli",
        "from seqloom import drawer",
        "def late():\n    from seqloom.models import MODELS",
        "if TYPE_CHECKING:\n    from seqloom.evaluate.perplexity import perplexity",
        "class A:\n    def b(self):\n        import os, seqloom.objectives",
    ],
)
def test_a_planted_wrong_import_is_noticed(line: str) -> None:
    path = Path("blocks/kernels.py")
    source = (PACKAGE / path).read_text("utf-8")
    assert wrong_imports(source, path) == []
    assert len(wrong_imports(f"{source}\n{line}\n", path)) == 1
    assert wrong_imports(f"{source}\nfrom ..batch import Ragged\nfrom . import grid\nimport torch\n", path) == []


def modules_after(code: str, **environment: str) -> set[str]:
    """The modules of a new process that has run `code`."""
    script = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "print('\\n' + '\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"], ["pretrain", "--help"], ["models", "--help"]])
def test_help_and_version_are_light(arguments: list[str]) -> None:
    code = f"sys.argv = ['seqloom', *{arguments!r}]; from seqloom.cli import main; main()"
    modules = modules_after(code)
    assert "seqloom.cli.training" in modules
    assert not modules & set(HEAVY)


def test_importing_seqloom_is_light() -> None:
    assert not modules_after("import seqloom") & {*HEAVY, "pydantic", "typer"}
    assert "torch" in modules_after("import seqloom; seqloom.load")


def test_no_file_is_a_drawer() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    parts = {part for path in sources() for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert "runs" in parts and not parts & drawers


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text("utf-8").splitlines()) for path in sources()}
    assert lengths["runs/language_model.py"] > 100
    assert not {name: length for name, length in lengths.items() if length > 600}


def test_no_function_is_more_complex_than_20() -> None:
    """Branches, loops and conditions, as `python tools/walks.py` counts them."""
    walks = tool("walks")
    found = {
        f"{path.relative_to(PACKAGE)}{name}": walks.complexity(node)
        for path, tree in walks.parsed(PACKAGE)
        for name, node in walks.functions(tree)
    }
    assert found["runs/training.py.train_run"] > 10
    assert not {name: number for name, number in found.items() if number > 20}
