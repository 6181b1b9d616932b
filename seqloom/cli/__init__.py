"""The command line: thin. It parses, calls and prints; torch is imported only by commands that compute."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated, Any, TextIO

import typer

from seqloom import __version__, errors, progress
from seqloom.training.threads import wait_briefly

app = typer.Typer(
    name="seqloom",
    help="Pre-train, evaluate and compare the sequence models from the n-gram to BERT, on your own text.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CTRL_C = 130  # what typer makes of KeyboardInterrupt

# what typer raises for unknown options and missing arguments; releases differ in which module it lives in
WrongCall: Any = typer.BadParameter.__mro__[2]


def _version(asked: bool) -> None:
    if asked:
        print(f"seqloom {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on standard error.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    errors.DEBUG = debug
    progress.QUIET = quiet


def main() -> None:
    wait_briefly(os.environ)
    sys.exit(run(sys.argv[1:]))


def register() -> None:
    """Commands register themselves on `app`; each module is light until its command runs."""
    from seqloom.cli import (  # noqa: F401
        analysis,
        comparing,
        data,
        encoders,
        exchange,
        lineage,
        machine,
        tasks,
        training,
        transfer,
        using,
    )


def spread(arguments: list[str]) -> list[str]:
    """`--train A B` as typer wants it, `--train A --train B`: options that take one file or two aligned ones; of pretrain
    `--data`, which takes any number where the recipe stands before it."""
    command = arguments[0] if arguments else ""
    most = {"train": 2, "evaluate": 2, "pretrain": len(arguments)}.get(command, 0)
    if not most or (command == "pretrain" and arguments[1:2] and arguments[1].startswith("-")):
        return arguments
    several = ("--data",) if command == "pretrain" else ("--train", "--valid", "--test")
    found: list[str] = []
    option, taken = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            option, taken = argument if argument in several else "", 0
        elif option:
            taken += 1
            found += [option] if taken >= 2 else []
            option = option if taken < most else ""
        found.append(argument)
    return found


class Terminal:
    """Standard output where a person reads it: text of files and models cannot give the terminal orders."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(errors.printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def safe_terminal(arguments: list[str]) -> Iterator[None]:
    """Results that go into a file or a pipe stay as they are; help, which is our own text, has its colours."""
    if not sys.stdout.isatty() or not {"--help", "-h"}.isdisjoint(arguments or ["-h"]):
        yield
        return
    with redirect_stdout(Terminal(sys.stdout)):
        yield


def run(arguments: list[str]) -> int:
    """Runs one command and returns its exit code: every failure is one line, with the code of its kind."""
    register()
    with safe_terminal(arguments):
        return run_command(arguments)


def run_command(arguments: list[str]) -> int:
    try:
        # --quiet and --debug belong to every command, so they may stand behind its name too
        everywhere = [argument for argument in arguments if argument in ("--quiet", "-q", "--debug")]
        rest = [argument for argument in arguments if argument not in everywhere]
        result = app(args=[*everywhere, *spread(rest)] or ["--help"], prog_name="seqloom", standalone_mode=False)
        sys.stdout.flush()
        if result == CTRL_C:
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except WrongCall as error:
        return fail(f"{error.format_message()} (see 'seqloom --help')", 2, error)
    except typer.Abort:
        return fail("stopped", 75)
    except (BrokenPipeError, SystemExit) as error:  # typer exits when it meets a broken pipe
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # the reader (head, less) has gone: nothing is wrong, and nothing more can be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BaseException as error:
        if not errors.can_explain(error):
            raise
        return fail(*errors.explain(error), error)


def fail(message: str, code: int, error: BaseException | None = None) -> int:
    if error is not None:
        errors.show_traceback(error)
    print(f"seqloom: error: {errors.one_line(message)}", file=sys.stderr, flush=True)
    return code
