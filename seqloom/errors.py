"""Every failure that a person can cause or meet, each with the exit code that scripts rely on.

A message names the value, the place and the remedy, in one line.
"""

import re
import sys

DEBUG = False  # set once by the command line: tracebacks are shown
LONGEST = 1200  # characters of a message


class SeqloomError(Exception):
    """Failed while running."""

    exit_code = 1


class UsageError(SeqloomError):
    """A wrong call, recipe or config."""

    exit_code = 2


class DataError(SeqloomError):
    """Data that cannot be used as it is."""

    exit_code = 3


class ModelError(SeqloomError):
    """A missing or damaged model, checkpoint or optional package."""

    exit_code = 4


class FileError(SeqloomError):
    """The disk is full, a folder cannot be written, a file cannot be read."""

    exit_code = 5


class OutOfMemory(SeqloomError):
    exit_code = 6


class NumbersError(SeqloomError):
    """NaN, infinity or divergence stopped the run."""

    exit_code = 7


class BusyError(SeqloomError):
    """Another process works in this folder."""

    exit_code = 8


class Interrupted(SeqloomError):
    """SIGTERM or Ctrl-C; the state is saved, and --resume continues."""

    exit_code = 75


class OtherRankFailed(SeqloomError):
    """One of several processes that train together has failed. said: it has said so itself."""

    def __init__(self, message: str, exit_code: int, said: bool = False):
        super().__init__(message)
        self.exit_code, self.said = exit_code, said


def explain(error: BaseException) -> tuple[str, int]:
    """Any failure as one line, and its exit code."""
    if isinstance(error, SeqloomError):
        return one_line(str(error)), error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C", Interrupted.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return one_line(f"{where}{error.strerror or error}"), FileError.exit_code
    if is_out_of_memory(error):
        line = "out of memory: choose a smaller batch (--set batches.budget=…) or a smaller model"
        return line, OutOfMemory.exit_code
    if isinstance(error, UnicodeEncodeError):
        line = (
            f"{error.object[max(error.start - 20, 0) : error.end + 20]!r} contains a lone surrogate: give text in UTF-8"
        )
        return one_line(line), DataError.exit_code
    if is_panic(error):
        line = f"the tokenizer fails on this text ({error}): its tokenizer.json is damaged, or not made for it"
        return one_line(line), ModelError.exit_code
    if (
        "seqloom.plugins" in sys.modules
        and (line := sys.modules["seqloom.plugins"].find_plugin_error(error)) is not None
    ):
        return one_line(line), UsageError.exit_code
    # a bug of ours: also one line, and how to see more
    return one_line(f"{type(error).__name__}: {error} (this is a bug: --debug shows where)"), 1


def can_explain(error: BaseException) -> bool:
    """Whether it is an error, and not only an exit of the program, such as SystemExit."""
    return isinstance(error, Exception | KeyboardInterrupt) or is_panic(error)


def is_panic(error: BaseException) -> bool:
    """Whether it is a panic of a Rust library: not an Exception, and of a class that cannot be imported."""
    return type(error).__name__ == "PanicException"


def is_out_of_memory(error: BaseException) -> bool:
    """Compared by name, because torch may not have been imported."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )


# what a terminal executes instead of showing: control characters, changes of direction; and unpaired surrogates
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text from a file, safe to print: control characters are escaped (\\x1b); line ends and tabs stay."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(message: str) -> str:
    line = printable(" ".join(message.split()))
    if len(line) > LONGEST:  # it quotes a long text; what to do is at its end
        line = f"{line[: LONGEST - 300]} … {line[-300:]}"
    return line


def show_traceback(error: BaseException) -> None:
    if DEBUG:
        import traceback

        traceback.print_exception(error)
