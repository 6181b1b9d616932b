"""Load runs and serve them until somebody says stop."""

import asyncio
import gc
import ipaddress
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqloom import progress
from seqloom.errors import FileError, OutOfMemory, SeqloomError, UsageError, explain, is_out_of_memory
from seqloom.progress import say
from seqloom.runs.load import load
from seqloom.serve.app import LOCAL, Limits, Server
from seqloom.serve.messages import LONGEST_NAME

DRAIN_SECONDS = 30.0
OBJECTS = 10_000  # new ones until garbage is searched among them
WRITING_SECONDS, WRITING_TRIES = (
    3.0,
    10,
)  # how long weights that are being written are waited for, and how often they are tried


def named_runs(runs: Sequence[str]) -> dict[str, Path]:
    """Folders by name: NAME=RUN, or the name of the folder."""
    found: dict[str, Path] = {}
    for given in runs:
        name, separator, folder = given.partition("=")
        path = Path(folder if separator and not Path(given).exists() else given)
        name = name if path != Path(given) else path.resolve().name
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise UsageError(
                f"{name[:60]!r} is no name for a run that is served: give one of 1 to {LONGEST_NAME} characters, as my-run={path}"
            )
        if name in found:
            raise UsageError(
                f"two runs are called {name!r} ({found[name]} and {path}): name one of them, as other-{name}={path}"
            )
        found[name] = path
    return found


def load_runs(folders: dict[str, Path], device: str) -> dict[str, Any]:
    """Those that can be loaded; the others are said. Raises the error of the first if there is none."""
    found: dict[str, Any] = {}
    errors: list[Exception] = []
    for name, folder in folders.items():
        began = time.monotonic()
        try:
            check_memory(folder, device)
            run = load_complete(folder, device)
            if run.picture_size is not None:
                raise UsageError(
                    f"{folder} reads pictures, which the server does not take: use 'seqloom caption' or 'seqloom predict'"
                )
            found[name] = run
        except Exception as error:
            if is_out_of_memory(error):
                error = OutOfMemory(f"{folder} does not fit in memory: serve it alone, or on a larger machine")
            elif not isinstance(error, SeqloomError | OSError):
                raise
            errors.append(error)
            say(f"{name} is not served: {explain(error)[0]}")
            continue
        say(f"{name}: loaded {folder} in {time.monotonic() - began:.1f} s")
    if errors and not found:
        raise errors[0]
    return found


def load_complete(folder: Path, device: str) -> Any:
    """A run that is being trained has its last complete weights; while better ones are written, they are waited for."""
    for _ in range(WRITING_TRIES):
        try:
            return load(folder, device)
        except (SeqloomError, OSError):
            if not is_being_written(folder):
                raise
            time.sleep(WRITING_SECONDS / WRITING_TRIES)
    return load(folder, device)


def is_being_written(folder: Path) -> bool:
    """Whether weights have changed just now."""
    try:
        newest = max(path.stat().st_mtime for path in folder.glob("*.safetensors"))
    except (OSError, ValueError):
        return False
    return time.time() - newest < WRITING_SECONDS


def check_memory(folder: Path, device: str) -> None:
    """Raises OutOfMemory for weights that are larger than what is free here: the system would end the whole server instead. They
    are held twice while they are loaded."""
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    free = free_memory()
    if device != "cuda" and free is not None and 2 * size > free:
        raise OutOfMemory(
            f"{folder} does not fit in memory: its weights take {2 * size:,} bytes while they are loaded, and {free:,} are free: "
            f"serve it alone, or on a larger machine"
        )


def free_memory() -> int | None:
    """Bytes, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None


def is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(
    runs: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    allowed_hosts: Sequence[str] = (),
    device: str = "auto",
    limits: Limits = Limits(),
    watched: Path | None = None,
) -> None:
    """Serve runs over HTTP until SIGTERM or Ctrl-C.

    Args:
        runs: run folders, or NAME=FOLDER.
        host: the address to listen on; any but this machine's own needs a key.
        port: the port; 0 takes a free one.
        key: what callers must send as "Authorization: Bearer KEY".
        allowed_hosts: further names that the server is called by.
        device: "auto", "cpu" or "cuda".
        limits: of rows, waiting requests, tokens, seconds and bytes.
        watched: a folder whose runs are listed with their learning curves, as they are trained.
    """
    import uvicorn

    from seqloom.serve.protocol import DeadlineProtocol

    if not is_local(host) and key is None:
        raise UsageError(f"--host {host} can be reached from other machines: give a key with --key-file")
    if watched is None and not runs:
        raise UsageError("there is nothing to serve: name a run folder, or a folder of runs with --runs")
    if watched is not None and not watched.is_dir():
        raise FileError(f"--runs {watched}: there is no such folder: name one that holds runs")
    folders = named_runs(runs)
    listening = listen(host, port)
    # in a thread of its own: this one would keep OpenMP's threads, and those of the engines would sleep after every operation
    with ThreadPoolExecutor(1) as apart:
        loaded = apart.submit(load_runs, folders, device).result()
    quiet, progress.QUIET = progress.QUIET, True  # progress of single calls says nothing to anybody
    hosts = LOCAL | {name.lower() for name in allowed_hosts} | ({host} if host not in ("0.0.0.0", "::") else set())
    server = Server(loaded, limits, key, frozenset(hosts), watched)
    config = uvicorn.Config(
        server.app, http=DeadlineProtocol, lifespan="off", log_level="critical", access_log=False, server_header=False,
        timeout_keep_alive=15,
    )  # fmt: skip
    address = f"http://{host if ':' not in host else f'[{host}]'}:{listening.getsockname()[1]}"
    if not quiet:
        print(f"seqloom serves {', '.join(loaded) or watched} on {address} (Ctrl-C stops it)", flush=True)
    with without_long_collections():
        asyncio.run(run_until_stopped(uvicorn.Server(config), server, listening))


@contextmanager
def without_long_collections() -> Iterator[None]:
    """A search for garbage among all that was loaded would keep every answer waiting for a tenth of a second."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1024)
    except OSError as error:
        found.close()
        raise FileError(f"cannot listen on {host}:{port} ({error.strerror}): choose another --port") from None
    return found


async def run_until_stopped(web: Any, server: Server, listening: socket.socket) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)

    async def stop() -> None:
        await stopping.wait()
        await server.drain(DRAIN_SECONDS)
        web.should_exit = True

    closing = asyncio.ensure_future(stop())
    web.capture_signals = _no_signals  # they are ours
    await web.serve(sockets=[listening])
    closing.cancel()


class _no_signals:  # noqa: N801
    """A context in which uvicorn leaves signals alone."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass
