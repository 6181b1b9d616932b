"""The index of models, presets and parameter counts, which is read without torch, is true."""

import subprocess
import sys

import pytest

from seqloom.models import MODELS, model_class
from seqloom.models.index import PARAMETERS, recipe_names, split_name
from seqloom.recipes import find_recipe
from tools.make_index import counted


def test_it_is_what_the_models_say():
    assert list(PARAMETERS) == list(MODELS)
    assert {model: list(presets) for model, presets in PARAMETERS.items()} == {
        model: list(model_class(model).presets) for model in MODELS
    }
    assert counted() == PARAMETERS, "run python tools/make_index.py"


def test_a_wrong_count_is_noticed(monkeypatch):
    monkeypatch.setitem(PARAMETERS["lstm"], "tiny", PARAMETERS["lstm"]["tiny"] + 1)
    with pytest.raises(AssertionError):
        test_it_is_what_the_models_say()


def test_names_come_apart():
    assert split_name("xlm-r-tiny") == ("xlm-r", "tiny") and split_name("gpt2-xl") == ("gpt2", "xl")
    assert all(find_recipe(name).name == name for name in recipe_names() if name.endswith("-tiny"))


@pytest.mark.parametrize(
    "command", ["pretrain gtp2-tiny --data d --out o", "train lstn-tiny --task tag --train f --out o"]
)
def test_a_mistyped_name_is_answered_without_torch(command):
    code = (
        "import sys; from seqloom.cli import run; code = run(sys.argv[1:]); "
        "assert 'torch' not in sys.modules, 'torch was loaded'; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command.split()], capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean" in done.stderr, done.stderr


def test_one_recipe_imports_one_model():
    code = (
        "import sys; from seqloom.recipes import find_recipe; find_recipe('lstm-tiny'); "
        "print(sorted(name for name in sys.modules if name.startswith('seqloom.models.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "seqloom.models.lstm" in done.stdout and "bert" not in done.stdout and "gpt" not in done.stdout
