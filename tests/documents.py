"""Runs what a page of the documentation tells a reader to do, in its order.

    ```sh       commands of seqloom, one a line (a line that ends with \\ goes on)
    ```python   executed as it stands
    any other   a file, where the line before says so: "Save this as `plan.toml`:"

Indented blocks and ```text are shown and not run.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from seqloom.cli import run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


class Block(NamedTuple):
    """A fenced block. file: the name to save it under."""

    language: str
    text: str
    file: str | None = None


def blocks(page: Path, language: str | None = None) -> list[Block]:
    found = []
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        before = text[: match.start()].rstrip().rpartition("\n\n")[2].replace("\n", " ")
        saved = re.search(r"\b[Ss]ave (?:this|it) as `([\w./-]+)`[^`]*:$", before)
        found.append(Block(match[1], match[2], saved and saved[1]))
    return [block for block in found if language in (None, block.language)]


def commands(block: Block) -> list[str]:
    return [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#"]


def call(command: str, capsys) -> int:
    """In this process: another one for each would take half of the time to start. Its exit code; what it says is in capsys."""
    words = shlex.split(command, comments=True)
    assert words[0] == "seqloom", command
    target = None
    if ">" in words:
        words, (target,) = words[: words.index(">")], words[words.index(">") + 1 :]
    capsys.readouterr()
    code = run(words[1:])
    if target is not None:
        Path(target).write_text(capsys.readouterr().out, encoding="utf-8")
    return code


def follow(page: Path, capsys, small: Mapping[str, str] | None = None) -> Iterator[str]:
    """Does what a page says, in the current folder, and yields each command when it is done. small: what is replaced in commands
    and files, because a test has less text and less time than a reader."""
    for block in blocks(page):
        text = shrink(block.text, small)
        if block.file is not None:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(text, f"{page.name}", "exec"), {"__name__": "__main__"})
        elif block.language == "sh":
            for command in commands(block._replace(text=text)):
                assert call(command, capsys) == 0, f"{page.name}: {command}\n{capsys.readouterr().err}"
                yield command


def shrink(text: str, small: Mapping[str, str] | None) -> str:
    for plain, changed in (small or {}).items():
        text = text.replace(plain, changed)
    return text
