"""The command line. Commands parse, call and print; only those that compute import torch."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand

from seqloom import __version__, errors, progress
from seqloom.training.process import prepare_process

app = typer.Typer(
    name="seqloom",
    help="Pre-train, evaluate and compare the sequence models from the n-gram to BERT, on your own text.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# `seqloom --help` lists the commands in this order, which is the order of a person's work
GROUPS = {
    "Start": ("quickstart", "new", "models", "recipes"),
    "Data": ("prepare", "check", "synthetic", "scenes"),
    "Train": ("pretrain", "train", "finetune", "track"),
    "Use": ("evaluate", "generate", "score", "fill", "embed", "neighbours"),
    "Tasks": ("predict", "translate", "caption", "metric", "baseline"),
    "Serve": ("serve", "page"),
    "Compare": ("compare", "report", "verify", "significance"),
    "Look inside": ("inspect", "probe", "prune"),
    "Exchange": ("import", "export"),
    "Machine": ("doctor",),
}

CTRL_C = 130  # the exit code with which typer answers KeyboardInterrupt

# what typer raises for unknown options and missing arguments; releases define it in different modules
ClickUsageError: Any = typer.BadParameter.__mro__[2]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"seqloom {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no progress and no remarks on standard error.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    errors.DEBUG = debug
    progress.QUIET = quiet


class PlainCommand(TyperCommand):
    """A command whose help says what its texts say: rich would take "[search]" for markup and leave it out."""

    def __init__(self, *positional: Any, **named: Any):
        super().__init__(*positional, **named)
        if self.rich_markup_mode == "rich":
            from rich.markup import escape

            for part in (self, *self.params):
                for name in ("help", "epilog"):
                    if getattr(part, name, None):
                        setattr(part, name, escape(getattr(part, name)))


def main() -> None:
    prepare_process(os.environ)
    if sys.platform == "win32":  # pipes and files have the code page of the country there, which lacks most characters
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


def register() -> None:
    """Import the modules of all commands, which register themselves on `app`, and put the commands into `GROUPS`. A module
    imports nothing heavy until its command runs."""
    from seqloom.cli import (  # noqa: F401
        analysis,
        comparing,
        data,
        encoders,
        exchange,
        lineage,
        machine,
        pictures,
        probing,
        reporting,
        serving,
        significance,
        starting,
        tasks,
        tracking,
        training,
        transfer,
        using,
        verifying,
        words,
    )

    panels = {name: panel for panel, names in GROUPS.items() for name in names}
    order = list(panels)
    app.registered_commands.sort(key=lambda command: order.index(command_name(command)))
    for command in app.registered_commands:
        command.cls = PlainCommand
        command.rich_help_panel = panels[command_name(command)]


def command_name(command: Any) -> str:
    return command.name or command.callback.__name__


def repeat_option_names(arguments: list[str]) -> list[str]:
    """Turn `--train A B` into `--train A --train B`, which typer can parse. This applies to options that take one file or two
    aligned files, and to `pretrain RECIPE --data`, which takes any number of folders."""
    command = arguments[0] if arguments else ""
    most = {"train": 2, "finetune": 2, "evaluate": 2, "pretrain": len(arguments)}.get(command, 0)
    first = command in ("pretrain", "finetune")  # what comes last without an option may be the recipe or the run
    if not most or (first and arguments[1:2] and arguments[1].startswith("-")):
        return arguments
    several = ("--data",) if command == "pretrain" else ("--train", "--valid", "--test")
    repeated: list[str] = []
    option, taken = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            option, taken = argument if argument in several else "", 0
        elif option:
            taken += 1
            repeated += [option] if taken >= 2 else []
            option = option if taken < most else ""
        repeated.append(argument)
    return repeated


class Terminal:
    """Standard output on a terminal: text from files and models cannot send it control sequences."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(errors.printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def safe_terminal(arguments: list[str]) -> Iterator[None]:
    """Escape control characters where standard output is a terminal. Files and pipes get the text unchanged, and help, which is
    our own text, keeps its colours."""
    if not sys.stdout.isatty() or not {"--help", "-h"}.isdisjoint(arguments or ["-h"]):
        yield
        return
    with redirect_stdout(Terminal(sys.stdout)):
        yield


ARGUMENTS: list[str] = []  # of the command that is running


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Every failure prints one line."""
    ARGUMENTS[:] = arguments
    register()
    with safe_terminal(arguments):
        return run_command(arguments)


def run_command(arguments: list[str]) -> int:
    try:
        # --quiet and --debug are options of the program; they are also accepted after the name of a command
        everywhere = [argument for argument in arguments if argument in ("--quiet", "-q", "--debug")]
        rest = [argument for argument in arguments if argument not in everywhere]
        result = app(
            args=[*everywhere, *repeat_option_names(rest)] or ["--help"], prog_name="seqloom", standalone_mode=False
        )
        sys.stdout.flush()
        if result == CTRL_C:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except ClickUsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "seqloom"
        return fail(f"{error.format_message()} (see '{command} --help')", 2, error)
    except typer.Abort:
        return fail("stopped", 75)
    except (BrokenPipeError, SystemExit) as error:  # typer exits when it meets a broken pipe
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # the reader (head, less) has closed the pipe: this is no error, and nothing more can be printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BaseException as error:
        if not errors.can_explain(error):
            raise
        if isinstance(error, errors.OtherRankFailed) and error.said:
            return error.exit_code
        return fail(*errors.explain(error), error)


def fail(message: str, code: int, error: BaseException | None = None) -> int:
    if error is not None:
        errors.show_traceback(error)
    print(f"seqloom: error: {errors.one_line(message)}", file=sys.stderr, flush=True)
    return code
