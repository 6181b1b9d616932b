"""Makes this process as poor as one on Windows, for seqloom: `python tests/windows.py COMMAND…` runs a command that way.

Modules and functions that only Unix has are gone, folders cannot be opened, only files that were opened for writing are forced
to the disk, and locks are those of msvcrt (kept by fcntl, which seqloom itself cannot import).
"""

import builtins
import errno
import fcntl
import importlib
import os
import pkgutil
import signal
import sys
from types import ModuleType
from typing import Any

UNIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "posix", "syslog")
UNIX_FUNCTIONS = ("fork", "pread", "pwrite", "sched_getaffinity", "killpg", "setsid", "sysconf")


def hide_unix() -> None:
    real_import, real_open, real_sync = builtins.__import__, os.open, os.fsync

    def limited_import(name: str, names: Any = None, *rest: Any) -> Any:
        if (names or {}).get("__name__", "").startswith("seqloom") and name.partition(".")[0] in UNIX_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, names, *rest)

    def files_only(path: Any, *rest: Any, **named: Any) -> int:
        if sys._getframe(1).f_globals["__name__"].startswith("seqloom") and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real_open(path, *rest, **named)

    def written_only(descriptor: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real_sync(descriptor)

    def locking(descriptor: int, mode: int, count: int) -> None:
        assert mode == 2
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    builtins.__import__, os.open, os.fsync = limited_import, files_only, written_only  # type: ignore[assignment]
    sys.modules["msvcrt"] = windows = ModuleType("msvcrt")
    windows.locking, windows.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    for name in UNIX_FUNCTIONS:
        if hasattr(os, name):
            delattr(os, name)
    for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM"):
        delattr(signal, name)


def import_everything() -> int:
    import seqloom

    names = [module.name for module in pkgutil.walk_packages(seqloom.__path__, "seqloom.")]
    for name in names:
        if not name.endswith(("__main__", "decode_kernel")):  # the one runs the program, the other needs Triton
            importlib.import_module(name)
    print(len(names), "modules")
    return 0


if __name__ == "__main__":
    import torch  # noqa: F401  # a release for Windows is written for it; ours may ask for what is hidden below

    hide_unix()
    if sys.argv[1:] == ["import"]:
        sys.exit(import_everything())
    from seqloom.cli import run

    sys.exit(run(sys.argv[1:]))
