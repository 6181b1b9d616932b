"""Every failure that a person can cause or meet, each with the exit code that scripts rely on.

A message names the value, the place and the remedy, in one line.
"""


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
    """SIGTERM or Ctrl-C; the state is saved and the same command with --resume goes on."""

    exit_code = 75
