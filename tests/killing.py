"""Work that is killed at any one of its file operations."""

import builtins
import os
import signal
from collections.abc import Callable

OPERATIONS = ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "chmod", "close", "ftruncate")


def die_at(fatal: int, work: Callable[[], None]) -> int:
    """Works in a process of its own that kills itself at its N-th call of a file function of the operating system. Returns how
    many calls there were, or -9."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        count = 0

        def counted(function):
            def call(*arguments, **options):
                nonlocal count
                count += 1
                if count == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        try:
            write = os.write
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads are not those of a forked process
            for name in OPERATIONS:
                setattr(os, name, counted(getattr(os, name)))
            builtins.open = counted(builtins.open)
            work()
            write(writer, str(count).encode())
        finally:
            os._exit(0)
    os.close(writer)
    _, status = os.waitpid(process, 0)
    with os.fdopen(reader) as pipe:
        return -9 if os.WIFSIGNALED(status) else int(pipe.read())
