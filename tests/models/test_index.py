"""The index of models, presets and parameter counts, which is read without torch, is true."""

import subprocess
import sys
from functools import cache

import pytest

from seqloom.models import MODELS, model_class
from seqloom.models.index import LINEAGE, PARAMETERS, recipe_names, split_name
from seqloom.recipes import find_recipe
from seqloom.recipes.library import describe_model
from tests.without_torch import answers
from tools.make_index import counted

count_all = cache(counted)  # it takes seconds


def test_it_is_what_the_models_say():
    assert list(PARAMETERS) == list(MODELS)
    assert {model: list(presets) for model, presets in PARAMETERS.items()} == {
        model: list(model_class(model).presets) for model in MODELS
    }
    assert count_all() == PARAMETERS, "run python tools/make_index.py"
    assert {model: describe_model(model) for model in MODELS} == LINEAGE, "run python tools/make_index.py"


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


MISTYPED = [
    ("predict nosuch a.csv", 4),
    ("predict . a.csv", 4),
    ("finetune nosuch --task classify --train a.csv --out o", 4),
    ("train lstm-tiny --task clasify --train a.csv --out o", 2),
    ("train lstm-tiny --task classify --train nosuch.csv --out o", 3),
    ("evaluate nosuch --test a.csv", 4),
    ("check nosuch.csv --task classify", 3),
    ("pretrain lstm-tiny --data nosuch --out o", 3),
    ("generate nosuch", 4),
    ("score nosuch", 4),
    ("embed nosuch --out a.npz", 4),
    ("translate nosuch", 4),
    ("compare nosuch.toml --out o", 2),
    ("compare clasroom --out o", 2),
    ("metric classify nosuch.csv nosuch.csv", 3),
    ("models lstn", 2),
    ("models", 0),
]


def test_a_mistyped_path_is_answered_without_torch(tmp_path):
    """All in one process: what one of them imports, the others after it have, too."""
    commands = [command.split() for command, _ in MISTYPED]
    for (command, expected), (code, heavy, err) in zip(MISTYPED, answers(commands, tmp_path), strict=True):
        assert code == expected, (command, err)
        assert len(err.splitlines()) == (expected > 0), (command, err)
        assert not heavy, f"{command}: torch was loaded"


def test_one_recipe_imports_one_model():
    code = (
        "import sys; from seqloom.recipes import find_recipe; find_recipe('lstm-tiny'); "
        "print(sorted(name for name in sys.modules if name.startswith('seqloom.models.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "seqloom.models.lstm" in done.stdout and "bert" not in done.stdout and "gpt" not in done.stdout
