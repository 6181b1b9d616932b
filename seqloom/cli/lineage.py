"""models and recipes: what can be trained."""

import json
from typing import Annotated, Any

import typer

from seqloom.cli import app


@app.command(epilog="Examples:\n\nseqloom models\n\nseqloom models gpt2 --json")
def models(
    name: Annotated[str | None, typer.Argument(help="Name of one model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the models: paper, year, kind, objectives, tasks, presets and their parameter counts."""
    from seqloom.models import MODELS, model_class

    if name is not None:
        model_class(name)  # raises UsageError for an unknown name
    rows = {key: describe(key) for key in ([name] if name else MODELS)}
    if as_json:
        print(json.dumps(rows))
        return
    for key, row in rows.items():
        presets = ", ".join(
            f"{preset} {f'{count / 1e6:.1f}M' if count else 'by its data'}" for preset, count in row["presets"].items()
        )
        print(f"{key:6} {row['year']}  {row['kind']:12} {row['paper']}")
        learns = [f"{kind}: {', '.join(row[kind])}" for kind in ("objectives", "tasks") if row[kind]]
        print(f"{'':12} {'; '.join(learns)}; presets: {presets}")


def describe(name: str) -> dict[str, Any]:
    from seqloom.models import model_class
    from seqloom.models.index import PARAMETERS
    from seqloom.objectives import fitting_objectives
    from seqloom.tasks import fitting_tasks

    cls: Any = model_class(name)
    return {
        "paper": cls.lineage.paper,
        "year": cls.lineage.year,
        "kind": cls.lineage.kind or ("recurrent" if cls.recurrent else "transformer"),
        "causal": cls.causal,
        "objectives": fitting_objectives(cls),
        "tasks": fitting_tasks(cls),
        "presets": PARAMETERS[name],
        "config": cls.Config.model_json_schema()["properties"],
    }


@app.command(epilog="Examples:\n\nseqloom recipes\n\nseqloom recipes gpt2-tiny --toml > my.toml")
def recipes(
    name: Annotated[str | None, typer.Argument(help="Name of one recipe.")] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the whole recipe with every default, to edit.")] = False,
) -> None:
    """List the built-in recipes, or print one."""
    from seqloom.config import to_toml
    from seqloom.errors import UsageError
    from seqloom.models.index import check_recipe_name, recipe_names

    if name is not None:
        check_recipe_name(name)
    from seqloom.recipes.library import built_in, find_recipe

    if name is None:
        if toml:
            raise UsageError("--toml needs the name of a recipe: seqloom recipes gpt2-tiny --toml")
        for each in recipe_names():
            values = built_in(each)
            sizes = ", ".join(f"{key} {value}" for key, value in values["model"].items() if key != "name")
            print(f"{each:20} {sizes}")
        return
    recipe = find_recipe(name)
    print(to_toml(recipe.plain(exclude_defaults=not toml)), end="")
