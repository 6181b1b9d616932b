"""The compiler is loaded by who compiles, and then leaves alone what it is to leave alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from seqloom.blocks.uncompiled import uncompiled

ALONE = """
import sys, torch
from seqloom.blocks.uncompiled import uncompiled
from seqloom.models import MODELS, model_class
from seqloom.objectives import OBJECTIVES, objective_class
from seqloom.recipes.library import find_recipe
from seqloom.weights import shapes_only
[model_class(name) for name in MODELS], [objective_class(name) for name in OBJECTIVES]
with shapes_only():
    [find_recipe(f"{name}-tiny").learner(100) for name in ("nnlm", "irnn", "lstm", "gpt2", "bert", "electra")]
assert "torch._dynamo" not in sys.modules, "the compiler is loaded though nobody compiles"

def told(x):
    return x + 1 if torch.compiler.is_compiling() else x

class Both:
    @uncompiled
    def kept_out(self, x):
        "says so"
        return told(x)

    def looked_into(self, x):
        return told(x)

both, zero = Both(), torch.zeros(1)
assert float(both.kept_out(zero)) == 0 and both.kept_out.__doc__ == "says so"
found = [float(torch.compile(lambda x: step(x) * 2, backend="eager")(zero)) for step in (both.kept_out, both.looked_into)]
assert found == [0.0, 2.0], found
"""


def test_it_is_said_when_the_compiler_is_loaded():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kept_out", [True, False])
def test_it_is_said_where_the_compiler_is_there_already(kept_out):
    import torch._dynamo

    def told(x):
        return x + 1 if torch.compiler.is_compiling() else x

    step = uncompiled(told) if kept_out else told
    found = torch.compile(lambda x: step(x) * 2, backend="eager")(torch.zeros(1))
    assert float(found) == (0.0 if kept_out else 2.0)
