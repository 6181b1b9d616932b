"""Commands that must answer before torch is loaded, which takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import contextlib, io, json, sys
from seqloom.cli import run

found = []
for arguments in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run(arguments)
    found.append((code, "torch" in sys.modules, said.getvalue()))
print(json.dumps(found))
"""


def answers(commands: list[list[str]], folder: Path) -> list[tuple[int, bool, str]]:
    """Of each command, in one process of its own: the exit code, whether torch is imported by now, and what stderr got."""
    call = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    done = subprocess.run(call, capture_output=True, text=True, check=True, cwd=folder)
    return [tuple(each) for each in json.loads(done.stdout)]
