"""The library as it is called from Python: what the interface promises, and what people try first."""

import gc
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from typing import Unpack, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import seqloom
from seqloom.cli import run as command
from seqloom.errors import DataError, ModelError
from seqloom.runs.options import RunKeywords
from tests.convert.material import save
from tests.runs.test_training import QUICK, SIZES
from tests.tasks.labelled import examples, write
from tests.training.material import prepared


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    data = prepared(folder / "data", 120)
    settings = [
        *SIZES["bert"],
        "budget={steps=2}",
        "valid.limit=200",
        "objective={name='masked'}",
        "model.pooler=false",
    ]
    seqloom.pretrain("bert-tiny", data, folder / "bert", settings=settings, device="cpu")
    for task, ending in (("classify", "jsonl"), ("span", "json")):
        for seed, split in enumerate(("train", "valid")):
            write(folder / f"{task}.{split}.{ending}", task, examples(task, 24, seed))
    save("bert", folder / "theirs")
    return folder


@pytest.fixture(scope="module")
def told(place):
    return seqloom.finetune(
        seqloom.load(place / "bert", "cpu"), "classify", place / "classify.train.jsonl", place / "classify.valid.jsonl",
        place / "told", settings=QUICK, device="cpu",
    )  # fmt: skip


def test_finetune_takes_a_run_and_single_files(place, told):
    assert json.loads((place / "told/config.json").read_text())["from"]["run"] == str(place / "bert")
    assert told.evaluate(place / "classify.valid.jsonl")["examples"] == 24


def test_a_folder_of_transformers_is_loaded_and_learns_a_task(place, tmp_path):
    theirs = seqloom.load(place / "theirs", "cpu")
    folder = theirs.folder
    assert folder.exists() and theirs.encode("a text").shape[0] == 1
    files = place / "classify.train.jsonl", place / "classify.valid.jsonl"
    seqloom.finetune(theirs, "classify", *files, tmp_path / "run", settings=QUICK, device="cpu")
    del theirs
    gc.collect()
    assert not folder.exists(), "it lasts as long as the run"


def test_the_program_names_the_command_for_such_a_folder(place, capsys):
    assert command(["score", str(place / "theirs"), "--device", "cpu"]) == 4
    assert f"seqloom import {place / 'theirs'} --out RUN" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["5", "{", '["format"]', "null"])
def test_a_damaged_config_is_refused_in_words(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match="damaged"):
        seqloom.load(tmp_path, "cpu")


def test_a_string_is_one_text(place, told):
    run = seqloom.load(place / "bert", "cpu")
    assert len(run.score("the cat sees a dog")) == len(run.encode("the cat")) == 1
    assert told.predict("the film is good") == told.predict(["the film is good"])
    assert told.predict({"text": "the film is good"}) == told.predict(["the film is good"])


def test_rows_that_are_none_are_answered(told):
    answers = told.predict([{"text": "good"}, 5, None, {"id": 7, "text": ""}, {"id": "x", "text": "bad"}])
    assert ["error" in answer for answer in answers] == [False, True, True, True, False]
    assert answers[1]["error"].startswith("row 2: no row") and answers[3]["id"] == 7 and answers[4]["id"] == "x"


@pytest.mark.parametrize("kind", ["score", "fill", "encode"])
def test_half_a_character_is_refused_in_words(place, kind):
    run = seqloom.load(place / "bert", "cpu")
    with pytest.raises(DataError, match="lone surrogate"):
        getattr(run, kind)("the \ud800 [MASK]")


def test_weights_that_are_no_numbers_are_not_imported(place, tmp_path):
    theirs = tmp_path / "theirs"
    save("bert", theirs)
    tensors = load_file(theirs / "model.safetensors")
    tensors["bert.embeddings.LayerNorm.weight"][3] = torch.nan
    save_file(tensors, theirs / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"contains NaN or infinity"):
        seqloom.load(theirs, "cpu")
    assert command(["import", str(theirs), "--out", str(tmp_path / "run")]) == 4
    assert not (tmp_path / "run").exists()


def test_answers_have_a_score_and_what_stands_around(place, tmp_path):
    files = place / "span.train.json", place / "span.valid.json"
    run = seqloom.finetune(place / "bert", "span", *files, tmp_path / "run", settings=QUICK, device="cpu")
    paragraph = json.loads(files[1].read_text())["data"][0]["paragraphs"][0]
    (answer,) = run.predict([{"id": "q", "question": paragraph["qas"][0]["question"], "context": paragraph["context"]}])
    assert answer["answer"] in answer["context"] and answer["context"] in paragraph["context"]
    best = answer["no_answer"] if not answer["answer"] else answer["n_best"][0]["probability"]
    assert answer["score"] == best and np.isfinite(best)


def test_predict_overwrites_nothing(place, told, tmp_path, capsys):
    mine = tmp_path / "mine.jsonl"
    mine.write_bytes((place / "classify.valid.jsonl").read_bytes())
    before = mine.read_bytes()
    for out, code in ((mine, 2), (tmp_path, 2), (tmp_path / "nowhere/a.jsonl", 5)):
        assert command(["predict", str(told.folder), str(mine), "--out", str(out)]) == code
        assert str(out) in capsys.readouterr().err
    assert mine.read_bytes() == before and sorted(tmp_path.iterdir()) == [mine]
    assert command(["predict", str(told.folder), str(mine), "--out", str(tmp_path / "new.jsonl"), "-q"]) == 0


MODULES = "seqloom.training, seqloom.evaluate, seqloom.comparison, seqloom.runs, seqloom.convert, seqloom.cli"
TWICE = """
import importlib, pkgutil, seqloom
def look():
    assert set(seqloom.__all__) <= set(dir(seqloom)), set(seqloom.__all__) - set(dir(seqloom))
    found = {name: getattr(seqloom, name) for name in seqloom.__all__}
    for name, value in found.items():
        assert callable(value) or isinstance(value, str), (name, value)
        space = {}
        exec(f"from seqloom import {name}", space)
        assert space[name] is value, name
    return found
first = look()
for module in pkgutil.iter_modules(seqloom.__path__):
    if module.name != "__main__":
        importlib.import_module(f"seqloom.{module.name}")
second = look()
assert all(second[name] is first[name] for name in first)
space = {}
exec("from seqloom import *", space)
assert set(seqloom.__all__) <= set(space)
"""


@pytest.mark.parametrize("before", ["", f"import {MODULES}", "import seqloom.runs.training, seqloom.comparison.run"])
def test_public_names_stay_what_they_are(before):
    """In a fresh interpreter: shown by dir, importable, and the same object again after every module was imported."""
    done = subprocess.run([sys.executable, "-c", f"{before}\n{TWICE}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def hidden_names(modules):
    """The public names that a module of the package would hide once it is imported."""
    return sorted(set(seqloom.__all__) & set(modules))


def test_no_module_has_the_name_of_a_function():
    modules = [module.name for module in pkgutil.iter_modules(seqloom.__path__)]
    assert "training" in modules and hidden_names(modules) == []
    assert hidden_names([*modules, "train"]) == ["train"], "a planted one is noticed"


def test_completion_shows_public_names_and_no_inner_ones():
    program = "import seqloom, seqloom.training; print(*[name for name in dir(seqloom) if not name.startswith('__')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    public = {name for name in seqloom.__all__ if not name.startswith("__")}
    assert public <= set(done.stdout.split()) and "training" in done.stdout.split()
    assert not {"importlib", "Any", "TYPE_CHECKING", "PLACES"} & set(done.stdout.split())


def public_callables():
    """Every public function, and every public method of a public class."""
    for name in seqloom.__all__:
        found = getattr(seqloom, name)
        if inspect.isclass(found):
            for part, method in inspect.getmembers(found, inspect.isroutine):
                is_own = (method.__module__ or "").startswith("seqloom.") if hasattr(method, "__module__") else False
                if is_own and (part == "__call__" or not part.startswith("_")):
                    yield f"{name}.{part}", method
        elif callable(found):
            yield name, found


def undocumented(function):
    """The parameters that a docstring does not describe ("name: …", or "name, other: …"), or that have no type."""
    text = inspect.getdoc(function) or ""
    given = {name: each for name, each in inspect.signature(function).parameters.items() if name not in ("self", "cls")}
    bare = [name for name in given if not re.search(rf"(?<!\w){name}(, \w+)*:\s", text)]
    bare += [name for name, each in given.items() if each.annotation is inspect.Parameter.empty]
    for each in given.values():  # the fields of a TypedDict are parameters, too
        if get_origin(each.annotation) is Unpack:
            fields = get_type_hints(get_args(each.annotation)[0])
            bare += [name for name in fields if not re.search(rf"(?<!\w){name}(?!\w)", text)]
    return bare if text else ["no docstring", *bare]


CALLABLES = dict(public_callables())


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_documented_and_typed(name):
    assert undocumented(CALLABLES[name]) == []


def test_a_parameter_that_is_not_documented_is_noticed():
    def lacks(one: int, two: int, three, **more: Unpack[RunKeywords]) -> None:
        """Adds. one, three: numbers. more: see elsewhere."""

    assert {"Run.score", "Predictor.predict", "Translator.__call__", "pretrain", "train"} <= set(CALLABLES)
    assert undocumented(lacks) == ["two", "three", *get_type_hints(RunKeywords)]
    assert undocumented(lambda: None) == ["no docstring"]
