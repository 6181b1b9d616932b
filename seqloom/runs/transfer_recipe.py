"""The recipe of a task for the model of another run: its model, the task's sections and the settings that are given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.batch import EncoderDecoder
from seqloom.config import override, unknown_name
from seqloom.errors import UsageError
from seqloom.models import model_class
from seqloom.objectives import objective_class
from seqloom.objectives.next_token import NextToken
from seqloom.recipes.library import pair_sections, task_sections
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.load import Trained, read_recipe
from seqloom.runs.vocabularies import check_view, model_of_encoder
from seqloom.tasks import task_class

HOWS = ("finetune", "features", "gradual")


def check_transfer(task: str, how: str) -> None:
    if how not in HOWS:
        raise UsageError(unknown_name("--how", how, how, list(HOWS)))
    reads = task_class(task).reads
    if reads in ("pairs", "pictures") and how != "finetune":
        raise UsageError(f"--how {how}: what writes texts is fine-tuned as a whole: leave it out")
    if reads not in ("labelled", "pairs", "pictures"):
        raise UsageError(f"finetune --task {task}: it is learnt from scratch, by 'seqloom train'")


def recipe_after(before: Trained, task: str, how: str, settings: list[str] | None) -> Recipe:
    """The recipe of a task for the model of another run. how: as in `task_sections`."""
    theirs = build_recipe(before.config["recipe"], str(before.folder))
    backward = getattr(before, "backward", False) or theirs.batches.backward
    return recipe_with(theirs, task, how, settings, f"{before.folder} for {task}", backward)


def transfer_recipe(start: Path, task: str, how: str, settings: list[str] | None) -> Recipe:
    """The recipe that `finetune` trains by, from the config.json of a run alone. start, task, how, settings: as there."""
    check_transfer(task, how)
    _, theirs = read_recipe(start)
    return recipe_with(theirs, task, how, settings, f"{start} for {task}", theirs.batches.backward)


def recipe_with(
    theirs: Recipe, task: str, how: str, settings: Sequence[str] | None, source: str, backward: bool
) -> Recipe:
    """The recipe of a task for the model of another recipe. source: for messages; backward: texts are read from their end."""
    values: dict[str, Any]
    if task_class(task).reads in ("pairs", "pictures"):
        model: Any = model_class(theirs.model["name"])
        if theirs.objective is not None and task_class(task).fits(model) and issubclass(model, EncoderDecoder):
            bias = bool(theirs.objective.get("bias", False))
            sections = pair_sections(task, theirs.model_dump()["model"], bias)
            values = {"name": f"{theirs.name}-{task}", "model": theirs.model_dump()["model"], **sections}
            return with_settings(values, settings, source)
        if theirs.task is None or theirs.learns != task:
            raise UsageError(
                f"{source}: only a run trained for {task}, or an encoder–decoder trained on plain text, can be fine-tuned for "
                f"it: train one with 'seqloom train'"
            )
        return with_settings(theirs.plain() | {"name": f"{theirs.name}-{task}"}, settings, source)
    values = {
        "name": f"{theirs.name}-{task}" + ("-scratch" if how == "scratch" else ""),
        "model": model_of_encoder(theirs),
        **task_sections(task, theirs.model, how),
    }
    if theirs.objective is not None and issubclass(objective_class(theirs.learns), NextToken):
        values["task"] |= {f"lm_{key}": theirs.objective[key] for key in ("tie", "bias") if key in theirs.objective}
    if backward:
        values["batches"]["backward"] = True
    recipe = with_settings(values, settings, source)
    check_task(recipe, task)
    check_view(theirs, recipe, source)
    return recipe


def with_settings(values: dict[str, Any], settings: Sequence[str] | None, source: str) -> Recipe:
    for assignment in settings or []:
        override(values, assignment)
    return build_recipe(values, source)


def check_task(recipe: Recipe, task: str) -> None:
    if recipe.task is None or recipe.task["name"] != task:
        raise UsageError(
            f"{recipe.name} is no recipe for the task {task}: 'seqloom models' lists what each model learns"
        )
