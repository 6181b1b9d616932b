"""Every command and every line of Python in the README is run, in its order, as a reader would."""

import os
import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT, blocks, commands, follow, shrink
from tests.test_docs import SMALL, folder  # noqa: F401

README = ROOT / "README.md"


def test_commands_and_python(folder, capsys):  # noqa: F811
    done = list(follow(README, capsys, SMALL))
    assert len(done) > 8
    assert 0 < float(capsys.readouterr().out.splitlines()[-1]) < 8


def test_the_program_is_there(folder):  # noqa: F811
    """The others are called in the test's own process."""
    first = commands(blocks(README, "sh")[0])[0]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(shrink(first, SMALL), shell=True, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120
