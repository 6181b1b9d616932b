"""Options that several commands share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

# what an option applies to, as headings in --help
LANGUAGE_MODELS = "Language models"
RECURRENT_MODELS = "Recurrent models"
TRANSLATORS = "Translators"
SUITES = "Suites"


def checked(run: Path | None) -> Path | None:
    """A run folder, looked at before torch is imported: a mistyped path answers at once."""
    from seqloom.files import check_run_folder

    if run is not None:
        check_run_folder(run)
    return run


RunFolder = Annotated[Path, typer.Argument(help="Run folder.", callback=checked)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the recipe; repeatable."),
]
Flops = Annotated[float | None, typer.Option(help="Stop after this many floating-point operations.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after this many minutes of training.")]
Rate = Annotated[
    float | None, typer.Option("--lr", help="Highest learning rate, in place of the recipe's (train.optim.lr).")
]
Epochs = Annotated[float | None, typer.Option(help="Stop after this many passes over the training text.")]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        metavar="N",
        help="Sequences of full length in a batch; sets batches.streams, budget or examples, as the recipe counts.",
    ),
]
Milestones = Annotated[
    bool,
    typer.Option(
        "--milestones",
        help="Keep the weights after 1, 2, … 10, 20, … million words in OUT/milestones (train.milestones).",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed for initialisation, data order and dropout.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="K",
        help="Train K runs in OUT/seed-N, with seeds from --seed upwards, and report means and confidence intervals.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint, bit for bit.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete the run that is in --out and start again.")]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda or mps (Apple GPUs).")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Use kernels that give the same bits every time on a GPU; slower.")
]
Ranks = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Train one model in N processes on this machine, which share the batches of a step (train.accumulate) or the rows "
        "of streams (train.parts). Over several machines: torchrun … -m seqloom pretrain ….",
    ),
]
Country = Annotated[str, typer.Option(help="Country whose electricity mix is used to estimate CO2: world, DE, FR, …")]
Plugin = Annotated[
    Path | None,
    typer.Option("--plugin", metavar="FILE.py", help="Python file with your own code; see docs/plugins.md."),
]
Language = Annotated[
    str | None,
    typer.Option(
        help="Language of the texts, for models with language embeddings (XLM): the name of its folder in training."
    ),
]
Pack = Annotated[
    Path | None,
    typer.Option(
        "--pack", metavar="FILE.zip", help="Write the results into one file that others can check: see seqloom verify."
    ),
]
WithText = Annotated[
    bool,
    typer.Option(
        "--with-text",
        help="With --pack: pack the text and the files of suites and tasks too, so that verify needs no others.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def launch_ranks(ranks: int) -> bool:
    """Whether the command was run in several processes instead of this one; then it exits with their code if they failed."""
    import os

    if ranks == 1 or "WORLD_SIZE" in os.environ:
        return False
    from seqloom import cli
    from seqloom.training.launch import launch, without_option

    code = launch(ranks, without_option(cli.ARGUMENTS, "--ranks"))
    if code:
        raise typer.Exit(code)
    return True


def reject_unused(mode: str, options: Mapping[str, tuple[object, Sequence[str]]]) -> None:
    """Raise UsageError if an option was given that has no effect in this mode. options: the value of each (None or False: not
    given), and the modes that it works with."""
    from seqloom.errors import UsageError

    for name, (value, modes) in options.items():
        if value is not None and value is not False and mode not in modes:
            raise UsageError(f"{name} works with {' and '.join(modes)}, not with {mode}: leave it out")


def with_budget(settings: list[str] | None, **budgets: float | None) -> list[str]:
    """The settings, with the budget given on the command line in place of the recipe's."""
    given = {name: value for name, value in budgets.items() if value is not None}
    for name, value in given.items():
        check_set_once(settings, f"--{name} {value:g}", f"budget.{name}")
    limits = ", ".join(f"{name}={value}" for name, value in given.items())
    return (settings or []) + ([f"budget={{{limits}}}"] if given else [])


def with_options(
    settings: list[str] | None, lr: float | None = None, milestones: bool = False, **budgets: float | None
) -> list[str]:
    """The settings, with those that have an option of their own on the command line."""
    given = {"train.optim.lr": ("--lr", lr), "train.milestones": ("--milestones", milestones or None)}
    named = []
    for path, (option, value) in given.items():
        if value is not None:
            spelled = "true" if value is True else f"{value:g}"
            check_set_once(settings, option if value is True else f"{option} {spelled}", path)
            named.append(f"{path}={spelled}")
    return [*with_budget(settings, **budgets), *named]


def check_set_once(settings: list[str] | None, option: str, path: str) -> None:
    """Raise UsageError if --set changes a value of the recipe that an option sets, too."""
    from seqloom.errors import UsageError

    for found, value in spelled_out(settings):
        if found == path:
            raise UsageError(f"{option} and --set {path}={value} set the same value: leave one of them out")


def spelled_out(settings: list[str] | None) -> list[tuple[str, object]]:
    """The single values that settings change, by their dotted paths, such as budget.steps of `budget={steps=3}`."""
    from seqloom.config import flatten, override

    found: list[tuple[str, object]] = []
    for assignment in settings or []:
        values: dict[str, object] = {}
        override(values, assignment)
        found += flatten(values).items()
    return found
