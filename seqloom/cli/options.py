"""Options that several commands share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seqloom.recipes.schema import Recipe

# what an option applies to, as headings in --help
LANGUAGE_MODELS = "Language models"
RECURRENT_MODELS = "Recurrent models"
TRANSLATORS = "Translators"
SUITES = "Suites"
COLUMNS = "Files with columns"
ATTENTION = "Attention and saliency"
SENSES = "Senses"
GRADIENTS = "Gradients and contexts"


Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the recipe; repeatable."),
]
Flops = Annotated[float | None, typer.Option(help="Stop after this many floating-point operations.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after this many minutes of training.")]
Rate = Annotated[
    float | None, typer.Option("--lr", help="Peak learning rate, in place of the recipe's (train.optim.lr).")
]
Epochs = Annotated[float | None, typer.Option(help="Stop after this many passes over the training data.")]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        metavar="N",
        help="Sequences of full length in a batch, or labelled examples; sets batches.streams, budget or examples, as the "
        "recipe counts.",
    ),
]
Milestones = Annotated[
    bool,
    typer.Option(
        "--milestones",
        help="Keep the weights after 1, 2, … 10, 20, … million words, or of a smaller unit in short runs, in OUT/milestones "
        "(train.milestones).",
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
Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--beside",
        metavar="RUN[,RUN]",
        help="Other runs whose features enter beside those of this model: language models, ELMo, a translator. They stay as "
        "they are. task.beside says where they enter and how they are read.",
    ),
]
BesideMoved = Annotated[
    list[str] | None,
    typer.Option(
        "--beside", metavar="RUN[,RUN]", help="Where the runs are that RUN was trained beside, if they were moved."
    ),
]
OneTask = Annotated[
    str | None,
    typer.Option(
        "--task", metavar="NAME", help="One of several tasks that RUN has learnt (--tasks). Default: the main one."
    ),
]
Tasks = Annotated[
    Path | None,
    typer.Option(
        "--tasks",
        metavar="PLAN.toml",
        help="Train several tasks on one model, in place of --task, --train, --valid and --test: the plan has [[tasks]] with "
        "these, the main one first, and the weight of each.",
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

TextColumn = Annotated[
    str | None,
    typer.Option(
        "--text-column",
        metavar="NAME",
        help="Column with the texts. Default: text, or the only one with a usual name such as review.",
        rich_help_panel=COLUMNS,
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        metavar="NAME",
        help="Column with the labels. Default: label, or the only one with a usual name such as category.",
        rich_help_panel=COLUMNS,
    ),
]
PairColumn = Annotated[
    str | None,
    typer.Option(
        "--pair-column",
        metavar="NAME",
        help="Column with the second texts (pair, regress), the choices (choose) or the contexts (span). Default: text2, "
        "choices, context.",
        rich_help_panel=COLUMNS,
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id-column", metavar="NAME", help="Column with an id for each row. Default: id.", rich_help_panel=COLUMNS
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Encoding of files that are not UTF-8, such as cp1252 or utf-16.",
        rich_help_panel=COLUMNS,
    ),
]

Threshold = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS=P",
        help="Predict CLASS where its probability is at least P, and the most likely of the others elsewhere. Default: the "
        "run's own threshold, if it has one.",
    ),
]
LongTexts = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Texts longer than the model reads: cut, or windows, which are averaged. Default: as the run was trained (cut).",
    ),
]


def require(
    runs: Iterable[Path | None] = (),
    files: Iterable[Path | None] = (),
    folders: Iterable[Path | None] = (),
    lines: Path | None = None,
    task: str | None = None,
) -> None:
    """Raise an error for a mistyped path or task, before the seconds that torch takes to load. runs: run folders; files: with
    data; folders: of prepared text; lines: a file that is read instead of standard input. What is None was not given."""
    from seqloom.files import check_prepared_folder, check_run_folder, explained
    from seqloom.text.stream import check_path

    if task is not None:
        from seqloom.tasks import TASKS

        if task not in TASKS:
            from seqloom.config import unknown_name
            from seqloom.errors import UsageError

            raise UsageError(unknown_name("task", task, task, list(TASKS)))
    for check, paths in ((check_run_folder, runs), (check_path, files), (check_prepared_folder, folders)):
        for path in paths:
            if path is not None:
                check(path)
    if lines is not None:
        with explained(lines):
            lines.stat()


def check_one_or_several(tasks: Path | None, one: Mapping[str, object]) -> None:
    """Raise UsageError unless either a plan of tasks was given or one task. one: the options of the latter, by their names."""
    from seqloom.errors import UsageError

    given = [name for name, value in one.items() if value]
    if tasks is not None and given:
        raise UsageError(
            f"--tasks {tasks} and {given[0]}: the plan has the tasks and all about their files: leave one of them out"
        )
    if tasks is None and (missing := [name for name in ("--task", "--train") if not one[name]]):
        raise UsageError(f"{missing[0]} is missing: name a task and its files, or several by --tasks PLAN.toml")


def named_runs(given: Sequence[str] | None) -> list[Path]:
    """The folders of an option that takes several, separated by commas."""
    from seqloom.errors import UsageError

    found = [Path(part.strip()) for each in given or () for part in each.split(",") if part.strip()]
    if given and not found:
        raise UsageError(f"{','.join(given)!r} names no run: name the folder of one, or of several with commas between")
    return found


def set_predictor(run: Any, threshold: str | None, long_texts: str | None) -> Any:
    """Gives a run of a task the options of its predictions."""
    from seqloom.errors import UsageError
    from seqloom.runs.predictor import Predictor

    if threshold is None and long_texts is None:
        return run
    if not isinstance(run, Predictor):
        raise UsageError(f"--threshold and --long-texts: {run.folder} does not predict labels: leave them out")
    if long_texts is not None:
        run.read_long_texts(long_texts)
    if threshold is not None:
        name, equals, number = threshold.rpartition("=")
        try:
            probability = float(number if equals else "")
        except ValueError:
            raise UsageError(f"--threshold {threshold}: write it as CLASS=P, such as spam=0.7") from None
        run.set_threshold(name, probability)
    return run


def name_columns(
    task: str, need_labels: bool, text: str | None, label: str | None, pair: str | None, id: str | None
) -> dict[str, str]:
    """The columns that were given, by the fields of a task's files."""
    given = {"text": text, "label": label, "pair": pair}
    found = {option: name for option, name in given.items() if name is not None}
    if found:
        from seqloom.errors import UsageError
        from seqloom.tasks import task_class

        cls: Any = task_class(task)
        fields = cls.column_fields(need_labels) if cls.reads == "labelled" else {}
        for option in found:
            if option not in fields:
                raise UsageError(f"--{option}-column: the files of the task {task} have no such column: leave it out")
        found = {fields[option]: name for option, name in found.items()}
    return found | ({} if id is None else {"id": id})


def launch_ranks(ranks: int, **several: object) -> bool:
    """Whether the command was run in several processes instead of this one; then it exits with their code if they failed.
    several: options that make more than one run, which ranks cannot share."""
    import os

    from seqloom.errors import UsageError

    if ranks == 1 or "WORLD_SIZE" in os.environ:
        return False
    for name, value in several.items():
        if value is not None:
            raise UsageError(f"--ranks is for one run, and --{name} makes several: leave one of them out")
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


def with_batch(
    overrides: list[str], settings: list[str] | None, batch: int | None, recipe: "Callable[[list[str]], Recipe]"
) -> list[str]:
    """The overrides, with a batch of so many sequences. settings: those of --set; recipe: makes the recipe, from overrides."""
    if batch is None:
        return overrides
    from seqloom.recipes.library import batch_setting

    path, value = batch_setting(recipe(overrides), batch)
    check_set_once(settings, f"--batch {batch}", path)
    return [*overrides, f"{path}={value}"]


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
