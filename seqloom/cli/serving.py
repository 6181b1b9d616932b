"""serve: runs over HTTP. page: the page of the server as a file."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device

EXAMPLES = """Examples:

seqloom serve runs/gpt runs/bert

seqloom serve small=runs/gpt-tiny large=runs/gpt-small --port 9000

seqloom serve runs/gpt --host 0.0.0.0 --key-file key.txt --allow-host models.example.org

seqloom serve --runs runs

curl http://127.0.0.1:8000/v1/completions -H "content-type: application/json" -d '{"model": "gpt", "prompt": "Once"}'
"""


@app.command(epilog=EXAMPLES)
def serve(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help="Run folders, or NAME=RUN.")] = None,
    watched: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", help="Folder whose runs the page lists with their learning curves."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that other machines reach needs --key-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the API key that callers must send (Authorization: Bearer KEY)."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Further host name that the server is called by; repeatable."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most new tokens of a completion.")] = 4096,
    rows: Annotated[int, typer.Option(min=1, max=4096, help="Texts that a model writes at the same time.")] = 32,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait for a model; further ones get 429.")] = 256,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds after which a request ends.")] = 120.0,
    device: Device = "auto",
) -> None:
    """Serve runs over HTTP, with a page to try them: completions, embeddings, scores, gaps, predictions and translations."""
    from seqloom.cli.options import require
    from seqloom.errors import ModelError, UsageError

    key = None
    if key_file is not None:
        require(files=[key_file])
        key = key_file.read_text(encoding="utf-8").strip()
        if len(key) < 16 or not key.isascii():
            raise UsageError(
                f"{key_file}: a key has 16 ASCII characters or more, such as the output of: openssl rand -hex 24"
            )
    try:
        from seqloom.serve.app import Limits
        from seqloom.serve.start import serve as run_server
    except ImportError as error:
        raise ModelError(f"this needs '{error.name}': pip install \"seqloom[serve]\"") from None
    limits = Limits(rows=rows, queue=queue, max_tokens=max_tokens, seconds=timeout)
    run_server(runs or (), host, port, key, allow_host or (), device, limits, watched)


PAGE_EXAMPLES = """Examples:

seqloom page runs/lstm runs/gpt --text "Once upon a time" --out page.html

seqloom page runs/gpt runs/bert runs/en-de --text sentences.txt --runs runs --out page.html
"""
MOST_TEXTS = 50


@app.command(epilog=PAGE_EXAMPLES)
def page(
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="File to write.")],
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help="Run folders, or NAME=RUN.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Text whose answers are saved, or a file with one per line; repeatable. [MASK] marks a gap."),
    ] = None,
    watched: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", help="Folder whose runs are listed with their learning curves."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Save the page of the server as one file that opens from disk, with what the runs answer to given texts."""
    from seqloom.analyse.read import text_or_lines
    from seqloom.errors import FileError, ModelError, UsageError
    from seqloom.files import new_file

    new_file(out, "--out", ".html")
    if watched is not None and not watched.is_dir():
        raise FileError(f"--runs {watched}: there is no such folder: name one that holds runs")
    if not runs and watched is None:
        raise UsageError("there is nothing to save: name a run folder, or a folder of runs with --runs")
    texts = list(dict.fromkeys(line for each in text or [] for line in text_or_lines(each)[0]))
    if runs and not texts:
        raise UsageError("a saved page answers nothing but what is saved in it: give a text with --text")
    if len(texts) > MOST_TEXTS:
        raise UsageError(f"--text: {len(texts):,} texts, and a page holds the answers to {MOST_TEXTS}: give fewer")
    try:
        from seqloom.serve.save import save_page
        from seqloom.serve.start import load_runs, named_runs
    except ImportError as error:
        raise ModelError(f"this needs '{error.name}': pip install \"seqloom[serve]\"") from None
    loaded = load_runs(named_runs(runs or []), device)
    count = save_page(loaded, texts, out, watched)
    print(f"{out}: {count:,} answers, {out.stat().st_size / 1e6:.1f} MB; open it in a browser")
