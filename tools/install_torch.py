"""Install torch: the CPU build where no GPU is found, the build that fits the driver where there is one.

    python tools/install_torch.py 2.13.0 [--constraints FILE] [--python INTERPRETER]

On Linux a plain `pip install torch` downloads the CUDA build (4.8 GB on disk), GPU or not. uv knows the channels on which torch
publishes its builds and chooses by what it finds on the machine. In this order:

1. torch is installed in that version already: nothing is done.
2. pip is configured with sources of its own (a mirror, a folder of wheels): plain pip, which uses them; uv would not.
3. uv with --torch-backend=auto, installed into the same environment first.
4. uv cannot be had, or fails: plain pip.

Set SEQLOOM_TORCH to `pip` to skip uv, or to a backend of uv's (cpu, cu128, …) to choose the build.
"""

import argparse
import os
import subprocess
import sys

SOURCES = (
    "index-url",
    "extra-index-url",
    "find-links",
    "no-index",
)  # settings of pip that say where packages come from
SEARCH_SECONDS = 1800  # after which uv is given up: a network that answers nothing must not hold up the setup for ever


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Install the build of torch that fits this machine.")
    parser.add_argument("version")
    parser.add_argument("--constraints", help="pip's file of pinned versions")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install for")
    options = parser.parse_args(arguments)
    pinned = [f"torch=={options.version}"] + (["-c", options.constraints] if options.constraints else [])
    if installed(options.python) == options.version:
        return 0
    backend = os.environ.get("SEQLOOM_TORCH", "auto")
    if backend == "pip" or (backend == "auto" and has_own_sources(options.python)):
        return pip(options.python, *pinned)
    print(f"torch {options.version}: choosing the build for this machine (uv, backend {backend})", flush=True)
    if pip(options.python, "uv") == 0 and uv(options.python, backend, *pinned) == 0:
        return 0
    print("uv could not install it: taking pip's build, which on Linux is the one for CUDA", flush=True)
    return pip(options.python, *pinned)


def installed(python: str) -> str | None:
    """The version of torch without its build (2.13.0 of 2.13.0+cpu), None where there is none."""
    question = "from importlib.metadata import version; print(version('torch').partition('+')[0])"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else None


def has_own_sources(python: str) -> bool:
    listed = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    return any(line.partition("=")[0].rpartition(".")[2] in SOURCES for line in listed.splitlines())


def pip(python: str, *packages: str) -> int:
    return subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    ).returncode


def uv(python: str, backend: str, *packages: str) -> int:
    command = [python, "-m", "uv", "pip", "install", "--python", python, f"--torch-backend={backend}", *packages]
    try:
        return subprocess.run(command, timeout=SEARCH_SECONDS).returncode
    except subprocess.TimeoutExpired:
        return 1


if __name__ == "__main__":
    sys.exit(main())
