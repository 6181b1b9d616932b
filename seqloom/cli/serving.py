"""serve: runs over HTTP."""

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
