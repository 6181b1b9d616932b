"""Text that every Python has: its manual (the topics of pydoc) and the docstrings of its library. Nothing is downloaded."""

import ast
import json
import os
import sysconfig
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqloom.files import write_bytes
from seqloom.progress import Progress

# folders that are not the library, or not text
LEFT_OUT = {"site-packages", "test", "tests", "lib2to3", "idlelib", "pydoc_data"}


def built_in_text() -> Iterator[str]:
    """Documents of English: pydoc's topics, then every module's docstrings."""
    from pydoc_data import topics

    yield from topics.topics.values()
    for path in modules(Path(sysconfig.get_paths()["stdlib"])):
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        text = "\n\n".join(docstrings(tree))
        if len(text) > 200:
            yield text


def modules(library: Path) -> list[Path]:
    found = []
    for folder, inner, files in os.walk(library):
        inner[:] = [name for name in inner if name not in LEFT_OUT]  # other packages are much larger than the library
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    return sorted(found)


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The outermost first. Expressions, most of a tree, have none."""
    waiting: deque[Any] = deque([tree])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from filter(None, [ast.get_docstring(node)])
        for name in node._fields:
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                waiting += [each for each in inner if isinstance(each, ast.stmt | ast.excepthandler | ast.match_case)]


def write_built_in_text(path: Path) -> int:
    """As .jsonl; returns the number of documents."""
    with Progress("collect", None, "documents") as bar:
        rows = []
        for document in built_in_text():
            rows.append(json.dumps({"text": document}, ensure_ascii=True))
            bar.advance(1)
    write_bytes(path, ("\n".join(rows) + "\n").encode())
    return len(rows)
