"""Text that every Python has: its manual (the topics of pydoc) and the docstrings of its library. Nothing is downloaded."""

import ast
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from seqloom.files import write_bytes
from seqloom.progress import Progress


def built_in_text() -> Iterator[str]:
    """Documents of English: pydoc's topics, then every module's docstrings."""
    from pydoc_data import topics

    yield from topics.topics.values()
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("**/*.py")):
        if {"site-packages", "test", "tests", "lib2to3", "idlelib", "pydoc_data"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        text = "\n\n".join(part for part in found if part)
        if len(text) > 200:
            yield text


def write_built_in_text(path: Path) -> int:
    """As .jsonl; returns the number of documents."""
    with Progress("collect", None, "documents") as bar:
        rows = []
        for document in built_in_text():
            rows.append(json.dumps({"text": document}, ensure_ascii=True))
            bar.advance(1)
    write_bytes(path, ("\n".join(rows) + "\n").encode())
    return len(rows)
