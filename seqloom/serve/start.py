"""Load runs and serve them until somebody says stop."""

import asyncio
import ipaddress
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom import progress
from seqloom.errors import FileError, SeqloomError, UsageError, explain
from seqloom.progress import say
from seqloom.runs.load import load
from seqloom.serve.app import LOCAL, Limits, Server

DRAIN_SECONDS = 30.0


def named_runs(runs: Sequence[str]) -> dict[str, Path]:
    """Folders by name: NAME=RUN, or the name of the folder."""
    found: dict[str, Path] = {}
    for given in runs:
        name, separator, folder = given.partition("=")
        path = Path(folder if separator and not Path(given).exists() else given)
        name = name if path != Path(given) else path.resolve().name
        if name in found:
            raise UsageError(
                f"two runs are called {name!r} ({found[name]} and {path}): name one of them, as other-{name}={path}"
            )
        found[name] = path
    return found


def load_runs(folders: dict[str, Path], device: str) -> dict[str, Any]:
    """Those that can be loaded; the others are said. Raises the error of the first if there is none."""
    found: dict[str, Any] = {}
    errors: list[SeqloomError] = []
    for name, folder in folders.items():
        began = time.monotonic()
        try:
            found[name] = load(folder, device)
        except SeqloomError as error:
            errors.append(error)
            say(f"{name} is not served: {explain(error)[0]}")
            continue
        say(f"{name}: loaded {folder} in {time.monotonic() - began:.1f} s")
    if errors and not found:
        raise errors[0]
    return found


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
    loaded = load_runs(folders, device)
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
    asyncio.run(run_until_stopped(uvicorn.Server(config), server, listening))


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
