"""Options that several commands have, in one wording."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the recipe; repeatable."),
]
Flops = Annotated[float | None, typer.Option(help="Stop after this many floating-point operations.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after this many minutes of training.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the first weights, the order of the data and dropout.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="K", help="Train so often, from --seed on, in OUT/seed-N; scores get a mean and an interval."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint, bit for bit.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete a run that is in --out already.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="The same bits on a GPU too; slower.")]
Country = Annotated[str, typer.Option(help="Whose electricity the CO2 is counted for: world, DE, FR, …")]
Plugin = Annotated[
    Path | None, typer.Option("--plugin", metavar="FILE.py", help="Code of your own; see docs/plugins.md.")
]
Language = Annotated[
    str | None,
    typer.Option(help="That the texts are in, for a model that was told languages in training (XLM): a folder's name."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def reject_unused(asked: str, options: Mapping[str, tuple[object, Sequence[str]]]) -> None:
    """UsageError where an option was given that what is asked for would leave aside. options: the value of each (None or False:
    not given), and what it belongs to."""
    from seqloom.errors import UsageError

    for name, (value, users) in options.items():
        if value is not None and value is not False and asked not in users:
            raise UsageError(f"{name} belongs to {' and '.join(users)}, not to {asked}: leave it out")


def with_budget(settings: list[str] | None, **budgets: float | None) -> list[str]:
    """A budget on the command line replaces the recipe's."""
    given = [f"{name}={value}" for name, value in budgets.items() if value is not None]
    return (settings or []) + (["budget={" + ", ".join(given) + "}"] if given else [])
