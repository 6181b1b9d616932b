"""models and recipes: what can be trained."""

import json
from typing import Annotated, Any

import typer

from seqloom.cli import app


@app.command(epilog="Examples:\n\nseqloom models\n\nseqloom models gpt2 --json\n\nseqloom models gpt3 --cost")
def models(
    name: Annotated[str | None, typer.Argument(help="Name of one model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    cost: Annotated[
        bool, typer.Option("--cost", help="Print what training each size of a language model would take.")
    ] = False,
    tokens: Annotated[
        float | None, typer.Option(min=1, max=1e18, help="With --cost: tokens that it is trained on. Default: 3e11.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="With --cost: H200 (the default), H100, A100, L40S, L4 or RTX 4090.")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1, help="With --cost: share of the device's peak that training reaches. Default: 0.4."
        ),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0, help="With --cost: price of an hour of the device. Default: 2.5.")
    ] = None,
) -> None:
    """List the models: paper, year, kind, objectives, tasks, presets and their parameter counts."""
    asked = {"tokens": tokens, "device": device, "share": share, "price": price}
    given = {option: value for option, value in asked.items() if value is not None}
    if cost:
        print_cost(name, as_json, given)
        return
    if given:
        from seqloom.errors import UsageError

        raise UsageError(f"--{next(iter(given))} is for --cost: add it, or leave this out")
    from seqloom.models import MODELS, model_class
    from seqloom.models.index import LINEAGE, PARAMETERS

    if name is not None and name not in LINEAGE:
        model_class(name)  # raises UsageError for an unknown name
    chosen = [name] if name else list(MODELS)
    if as_json or not all(key in LINEAGE for key in chosen):
        rows = {key: describe(key) for key in chosen}
    else:  # without the seconds that torch takes to load
        rows = {key: LINEAGE[key] | {"presets": PARAMETERS[key]} for key in chosen}
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


def print_cost(name: str | None, as_json: bool, given: dict[str, Any]) -> None:
    from seqloom.errors import UsageError
    from seqloom.models import MODELS, model_class
    from seqloom.models.index import PARAMETERS
    from seqloom.runs.on_paper import describe as described
    from seqloom.runs.on_paper import on_paper

    if name is None:
        raise UsageError("--cost is of one model: name it, for example gpt3")
    if name not in MODELS:
        model_class(name)  # raises UsageError for an unknown name
    found = [on_paper(f"{name}-{preset}", **given) for preset in PARAMETERS[name]]
    if as_json:
        print(json.dumps({each.recipe: each._asdict() for each in found}))
        return
    for each in found:
        print(described(each))


def describe(name: str) -> dict[str, Any]:
    from seqloom.models import model_class
    from seqloom.models.index import PARAMETERS
    from seqloom.recipes.library import describe_model

    cls: Any = model_class(name)
    config = cls.Config.model_json_schema()["properties"]
    return describe_model(name) | {"presets": PARAMETERS[name], "config": config}


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
