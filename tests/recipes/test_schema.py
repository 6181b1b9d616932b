"""Recipes: every built-in one builds, survives TOML, and every mistake in one is named."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seqloom.batch import reads_pictures
from seqloom.cli import lineage, run
from seqloom.errors import UsageError
from seqloom.models import MODELS, model_class
from seqloom.models.index import recipe_names as names
from seqloom.objectives import OBJECTIVES
from seqloom.recipes.library import built_in, find_recipe
from seqloom.recipes.schema import BudgetConfig, Recipe, build_recipe
from seqloom.training.state import Budget

assert lineage  # registers `recipes`

NAMES = names()


def refused(values: dict[str, Any]) -> str:
    with pytest.raises(UsageError) as caught:
        build_recipe(values, "my.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_model_has_tiny_and_small() -> None:
    assert {f"{model}-{size}" for model in MODELS for size in ("tiny", "small")} <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_recipe_builds(name: str) -> None:
    recipe = find_recipe(name)
    assert recipe.name == name
    assert name == f"{recipe.model['name']}-{name.removeprefix(recipe.model['name'] + '-')}"
    assert "vocab_size" not in recipe.model  # it is the tokenizer's
    with torch.device("meta"):
        learner = recipe.learner(8192)
    if recipe.learns == "counts":
        assert learner.initial_loss() == math.log(8192) and recipe.budget.epochs == 1
        return
    assert learner.backbone.vocab_size == 8192
    kind = (
        "pairs"
        if learner.reads == "pairs"
        else "packed"
        if learner.reads == "excerpts"
        else "cells"
        if learner.reads == "cells"
        else "passages"
    )
    if reads_pictures(type(learner.backbone)):
        kind = "pictures"
    elif learner.backbone.learns_from == "labels" and kind != "pairs":
        kind = "labelled"
    assert recipe.batches.kind == ("streams" if learner.backbone.carries else kind)
    assert learner.backbone.max_len is None or recipe.batches.length <= learner.backbone.max_len


@pytest.mark.parametrize("model", MODELS)
def test_tiny_has_at_most_a_million_parameters(model: str) -> None:
    words = 1000 if reads_pictures(model_class(model)) else 8192  # captions have few
    with torch.device("meta"):
        learner = find_recipe(f"{model}-tiny").learner(words)
    if model == "ngram":  # it has what it counts
        assert not list(learner.parameters())
        return
    assert 100_000 < sum(parameter.numel() for parameter in learner.parameters()) <= 1_000_000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [["--toml"], []])
def test_a_printed_recipe_is_the_same_when_read(
    name: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["recipes", name, *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    (tmp_path / "other.toml").write_text(out)
    assert find_recipe(str(tmp_path / "other.toml")) == find_recipe(name)


def test_a_printed_recipe_keeps_what_was_changed(tmp_path: Path) -> None:
    from seqloom.config import to_toml

    changes = ["model.dim=40", "train.optim.lr=3e-5", "objective.tie=false", "valid.stride=7", "train.compile=false"]
    recipe = find_recipe("lstm-tiny", changes)
    assert (recipe.model["dim"], recipe.train.optim.lr, recipe.valid.stride) == (40, 3e-5, 7)
    (tmp_path / "a.toml").write_text(to_toml(recipe.model_dump()))
    assert find_recipe(str(tmp_path / "a.toml")) == recipe
    assert find_recipe("lstm-tiny") != recipe


def test_a_recipe_file_without_a_name_is_called_after_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[model]\nname = "gru"\n[budget]\nsteps = 5\n')
    recipe = find_recipe(str(tmp_path / "mine.toml"))
    assert (recipe.name, recipe.objective["name"], recipe.budget.steps) == ("mine", "next-token", 5)
    (tmp_path / "no-ending").write_text('[model]\nname = "gru"\n[budget]\nsteps = 5\n')
    assert find_recipe(str(tmp_path / "no-ending")).name == "no-ending"


def test_overrides_leave_the_built_in_recipe_alone() -> None:
    before = built_in("gpt2-tiny")
    find_recipe("gpt2-tiny", ["model.dim=160", "budget={steps=3}", "batches.length=16"])
    assert built_in("gpt2-tiny") == before


def test_an_unknown_recipe_gets_a_hint() -> None:
    with pytest.raises(UsageError, match=r"unknown recipe 'gpt2-tinny' \(did you mean 'gpt2-tiny'\?\)"):
        find_recipe("gpt2-tinny")
    with pytest.raises(UsageError, match=r"none\.toml: no such recipe file"):
        find_recipe("none.toml")


def test_every_wrong_key_is_named_at_once() -> None:
    values = built_in("gpt2-tiny")
    values["model"] |= {"dims": 5, "num_heads": 0, "dropout": 1.5}
    values["objective"] = {"name": "next-token", "ties": True}
    values["batches"]["kid"] = "packed"
    values["train"] |= {"optim": {"lr": -1, "momentumm": 0.9}, "log_every": 0}
    values["budget"] = {"word": 5}
    values["extra"] = 1
    line = refused(values)
    for place in (
        "'model.dims' (did you mean 'dim'?)",
        "'model.num_heads' = 0",
        "'model.dropout' = 1.5",
        "'objective.ties' (did you mean 'tie'?)",
        "'batches.kid' (did you mean 'kind'?)",
        "'train.optim.lr' = -1",
        "'train.optim.momentumm' (did you mean 'momentum'?)",
        "'train.log_every' = 0",
        "'budget.word' (did you mean 'words'?)",
        "'extra'",
    ):
        assert place in line, place


@pytest.mark.parametrize("section", ["model", "objective"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (None, "name' is missing"),
        ("zzz", "(known: "),
        ("os.system", "unknown"),
        ("../../x", "unknown"),
        ([1], "unknown"),
        ({"a": 1}, "unknown"),
        (5, "unknown"),
        ("__class__", "unknown"),
    ],
)
def test_names_choose_from_a_closed_table(section: str, name: Any, words: str) -> None:
    values = built_in("gpt2-tiny") | {section: {} if name is None else {"name": name}}
    line = refused(values)
    assert words in line and f"{section}.name" in line
    known = MODELS if section == "model" else OBJECTIVES
    assert "(known: " not in line or all(each in line for each in known)


@pytest.mark.parametrize("value", [5, "gpt2", [], None])
def test_a_section_that_is_no_table_is_refused(value: Any) -> None:
    for section in ("model", "batches", "train", "budget"):
        assert f"'{section}'" in refused(built_in("gpt2-tiny") | {section: value})


def test_a_context_longer_than_the_models_is_refused() -> None:
    values = built_in("gpt2-tiny")
    values["batches"]["length"] = values["model"]["max_len"]
    build_recipe(values, "my.toml")
    values["batches"]["length"] += 1
    line = refused(values)
    assert "'batches.length' = 129" in line and "'model.max_len' = 128" in line


def test_streams_are_for_models_that_carry_a_state() -> None:
    assert "'batches.kind'" in refused(built_in("gpt2-tiny") | {"batches": {"kind": "streams"}})
    build_recipe(built_in("lstm-tiny") | {"batches": {"kind": "packed"}}, "my.toml")


def test_streams_begin_anew_with_documents_in_new_runs_alone() -> None:
    """Recipes that say nothing of it, as older run folders do, carry their state over; so do the published AWD-LSTMs."""
    for name, reset in {"lstm-tiny": True, "nnlm-small": True, "awd-lstm-small": True, "awd-lstm-ptb": False}.items():
        assert find_recipe(name).batches.reset is reset, name
    values = built_in("lstm-tiny")
    del values["batches"]["reset"]
    assert not build_recipe(values, "config.json").batches.reset
    values["batches"] |= {"kind": "packed", "reset": True}  # no state is carried at all
    build_recipe(values, "my.toml")
    assert "'batches.reset'" in refused(built_in("bert-tiny") | {"batches": {"kind": "passages", "reset": True}})


def test_a_model_that_cannot_be_is_refused() -> None:
    values = built_in("gpt2-tiny")
    values["model"]["num_heads"] = 7
    assert "multiple of num_heads 7" in refused(values)
    values["model"]["head_dim"] = 3
    assert build_recipe(values, "my.toml").learner(50).backbone.stack.layers[0].mixer.out.in_features == 21
    for name in ("head_dim", "window"):
        for value in (0, -1, 1.5, "all"):
            assert f"'model.{name}'" in refused(
                built_in("gpt2-tiny") | {"model": built_in("gpt2-tiny")["model"] | {name: value}}
            )


@pytest.mark.parametrize("value", [2**24 + 1, 2**63, 10**400])
def test_sizes_are_bounded(value: int) -> None:
    values = built_in("gpt2-tiny")
    values["model"] |= {"dim": value, "num_heads": 1}
    assert "'model.dim' is more than 16,777,216" in refused(values)


# ---- budgets

CORPUS = SimpleNamespace(num_tokens=1000, words=800)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"tokens": 50}, Budget(tokens=50)),
        ({"words": 400}, Budget(tokens=500)),
        ({"epochs": 2.5}, Budget(tokens=2500)),
        ({"minutes": 3}, Budget(minutes=3)),
        ({"steps": 7}, Budget(steps=7)),
        ({"tokens": 600, "words": 400, "epochs": 1}, Budget(tokens=500)),
        ({"tokens": 400, "words": 400, "minutes": 1, "steps": 9}, Budget(400, 1, 9)),
    ],
)
def test_budgets_resolve(budget: dict[str, float], expected: Budget) -> None:
    assert BudgetConfig(**budget).resolve(CORPUS) == expected  # type: ignore[arg-type]


def test_words_of_a_corpus_without_words() -> None:
    assert BudgetConfig(words=5).resolve(SimpleNamespace(num_tokens=10, words=0)) == Budget(tokens=50)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "budget",
    [{}, {"tokens": 0}, {"words": -1}, {"minutes": 0.0}, {"steps": 1.5}, {"epochs": float("inf")}, {"steps": 0}],
)
def test_a_budget_of_nothing_is_refused(budget: dict[str, float]) -> None:
    assert "'budget" in refused(built_in("lstm-tiny") | {"budget": budget})


def test_a_recipe_is_the_same_in_json() -> None:
    recipe = find_recipe("gpt2-tiny")
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe
    assert build_recipe(recipe.model_dump(), "config.json") == recipe


def test_a_changed_recipe_changes_no_other() -> None:
    for name in names():
        before = built_in(name)
        changed = built_in(name)
        for section in changed.values():
            if isinstance(section, dict):
                section["other"] = 1
        assert built_in(name) == before, name
