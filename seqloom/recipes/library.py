"""Finds recipes: built-in ones (each model's file has its own, as `recipe(preset)`), TOML files, functions of a plugin;
and has the default training of every task, for all models."""

from pathlib import Path
from typing import Any

from seqloom.batch import STATIC, Backbone, reads_pictures
from seqloom.config import override, read_toml
from seqloom.errors import UsageError
from seqloom.models import model_class
from seqloom.models.index import check_recipe_name, split_name
from seqloom.objectives import fitting_objectives
from seqloom.plugins import Plugin
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.tasks import fitting_tasks, task_class


def describe_model(name: str) -> dict[str, Any]:
    """A model in a few facts, as the index has them."""
    cls: Any = model_class(name)
    return {
        "paper": cls.lineage.paper,
        "year": cls.lineage.year,
        "kind": cls.lineage.kind or ("recurrent" if cls.recurrent else "transformer"),
        "causal": cls.causal,
        "objectives": fitting_objectives(cls),
        "tasks": fitting_tasks(cls),
    }


def built_in(name: str, task: str | None = None) -> dict[str, Any]:
    """A recipe by its name, `MODEL-PRESET`, as plain values. task: of a model that learns from labelled examples only."""
    model, preset = split_name(name)
    cls: Any = model_class(model)
    sizes = {key: value for key, value in cls.presets[preset].items() if key not in ("vocab_size", "source_vocab_size")}
    section, values = {"name": model, **sizes}, cls.recipe(preset)
    if issubclass(cls, Backbone) and cls.learns_from == "labels":
        rate = values["train"]["optim"]["lr"]
        values = task_sections(task or values["task"]["name"], section, "scratch")
        values["train"]["optim"]["lr"] = rate
    return {"name": name, "model": section, **values}


def for_task(values: dict[str, Any], task: str) -> dict[str, Any]:
    """Turns a recipe for plain text into one for a task: the same model and training, other examples."""
    about_pictures = reads_pictures(model_class(values["model"]["name"]))
    if "task" in values and not (about_pictures and task_class(task).reads == "labelled"):
        return values
    if task_class(task).reads == "labelled":
        model = values["model"]
        return {"name": values["name"], "model": model, **task_sections(task, model, "scratch")}
    kept = {key: value for key, value in values.get("batches", {}).items() if key in ("budget", "length")}
    changed = {key: value for key, value in values.items() if key != "objective"}
    return changed | {
        "task": {"name": task},
        "batches": {"kind": "pairs" if task_class(task).reads == "pairs" else "passages", **kept},
    }


def task_sections(task: str, model: dict[str, Any], how: str) -> dict[str, Any]:
    """Sections of a recipe for a task. how: "scratch"; "finetune", all of a backbone's weights; "features", it stays as
    it is; "gradual", from the top layer down at rates that fall with depth (ULMFiT, Howard & Ruder, 2018).

    Narrow models want higher rates: 5e-5, which BERT's authors recommend, at 768 numbers."""
    cls: Any = model_class(model["name"])
    field = cls.Config.model_fields.get("dim")
    dim = model.get("dim") or (256 if field is None else field.default)
    tuned = min(float(f"{0.04 / dim:.1g}"), 1e-3) * (4 if cls.recurrent else 1)
    attentive = "num_heads" in cls.Config.model_fields
    rate = {"scratch": 5e-4 if attentive else 1e-3, "finetune": tuned, "features": 2e-3, "gradual": 2 * tuned}[how]
    optim: dict[str, Any] = {"lr": rate, "weight_decay": 0.01, "beta2": 0.999}
    train: dict[str, Any] = {
        "optim": optim,
        "schedule": {"name": "slanted", "warmup": 0, "floor": 0.0},
        "eval_every": 0,
        "save_every": 1000,
        "watch": "auto",
    }
    section: dict[str, Any] = {"name": task}
    pictures = reads_pictures(cls)
    if getattr(cls, "usual_view", "encoder") != "encoder" and not (pictures and task == "classify"):
        section["view"] = cls.usual_view  # pictures are classified without a text
    if how == "features" and pictures:
        section |= {"frozen": True}
    elif how == "features":
        # embeddings of another width than the layers cannot be mixed with them, and static vectors have no layers
        uneven = "embedding_dim" in cls.Config.model_fields and not attentive
        alone = uneven or cls.learns_from in STATIC
        section |= {"frozen": True, "layers": "last" if alone else "mix"}
        if task in ("classify", "pair", "regress", "choose"):
            section["pool"] = "mean"
    if how == "gradual":
        train |= {"unfreeze": 1.0, "schedule": train["schedule"] | {"floor": 1 / 32}}
        optim |= {"layer_decay": 1 / 2.6}
    if cls.recurrent and how != "features" and task in ("classify", "pair", "regress", "choose"):
        section["pool"] = "concat"
    epochs = {"scratch": 15, "finetune": 5, "features": 15, "gradual": 10}[how]
    limit = model.get("max_len") or 256
    return {
        "task": section,
        "batches": {"kind": "labelled", "examples": 32, "length": min(limit, 512)},
        "train": train,
        "budget": {"epochs": epochs},
    }


def pair_sections(task: str, model: dict[str, Any], bias: bool) -> dict[str, Any]:
    """Sections of a recipe for pairs, of a model that was trained on plain text. bias: its output layer has one."""
    cls: Any = model_class(model["name"])
    config = cls.Config(**{key: value for key, value in model.items() if key != "name"})
    length = min(config.model_dump().get("max_len") or 256, 256)
    tied = getattr(config, "embedding_dim", None) in (None, config.dim)
    return {
        "task": {"name": task, "tie": tied, "bias": bias},
        "batches": {"kind": "pairs", "budget": 16 * length, "length": length},
        "train": {
            "optim": {"lr": min(float(f"{0.04 / config.dim:.1g}"), 1e-3), "weight_decay": 0.01, "clip": 1.0},
            "schedule": {"name": "linear", "warmup": 200, "floor": 0.0},
            "eval_every": 200,
        },
        "budget": {"epochs": 10},
    }


def find_recipe(
    name: str, settings: list[str] | None = None, plugin: Plugin | None = None, task: str | None = None
) -> Recipe:
    """Finds a recipe: a function of the plugin, a built-in name or a TOML file, with dotted overrides. task: to train with it."""
    values = None if plugin is None else plugin.recipe(name)
    if values is None:
        check_recipe_name(name)
        if name.endswith(".toml") or Path(name).is_file():
            values = read_toml(Path(name))
            values.setdefault("name", Path(name).stem)
        else:
            values = built_in(name, task)
    if task is not None:
        values = for_task(values, task)
    for assignment in settings or []:
        override(values, assignment)
    return build_recipe(values, name)


def batch_setting(recipe: Recipe, sequences: int) -> tuple[str, int]:
    """The path and the value of the setting that puts so many sequences of full length into a batch."""
    if recipe.batches.kind in ("pairs", "pictures"):
        raise UsageError(
            f"--batch {sequences}: batches of {recipe.name} are counted in tokens, because pairs differ in length: "
            f"use --set batches.budget={sequences * recipe.batches.length}"
        )
    if recipe.count_based:
        raise UsageError(f"--batch {sequences}: {recipe.name} counts all of the text at once: leave it out")
    counted = {"streams": "streams", "labelled": "examples"}.get(recipe.batches.kind, "budget")
    return f"batches.{counted}", sequences * (recipe.batches.length if counted == "budget" else 1)
