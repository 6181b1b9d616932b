"""import and export: models of other projects, and ours for them."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app

IMPORT_EXAMPLES = """Examples:

seqloom import models/bert-base-uncased --out runs/bert

seqloom import models/bert-tuned --out runs/tuned && seqloom predict runs/tuned texts.jsonl

seqloom import models/gpt2 --out runs/gpt2 && seqloom generate runs/gpt2 --prompt "Once upon a time"
"""


@app.command(name="import", epilog=IMPORT_EXAMPLES)
def import_(
    folder: Annotated[Path, typer.Argument(help="A Hugging Face folder: config.json, weights, tokenizer.json.")],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    task: Annotated[
        str | None, typer.Option(help="Of a model that was fine-tuned for classes: classify (the default) or pair.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Throw away what is in --out.")] = False,
) -> None:
    """Read a model of another project: BERT, RoBERTa, XLM-R, ALBERT, ELECTRA, ERNIE, GPT, GPT-2 or Marian."""
    from seqloom.convert.huggingface import import_folder
    from seqloom.progress import say

    import_folder(folder, out, overwrite, task)
    say(f"{out}: imported from {folder}")


EXPORT_EXAMPLES = """Examples:

seqloom export runs/bert --out models/my-bert

seqloom export runs/gpt2 --out models/my-gpt2 --overwrite
"""


@app.command(epilog=EXPORT_EXAMPLES)
def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Throw away what is in --out.")] = False,
) -> None:
    """Write a folder that AutoModel and AutoTokenizer of transformers load."""
    from seqloom.convert.huggingface import export_folder
    from seqloom.progress import say

    export_folder(run, out, overwrite)
    say(f"{out}: exported from {run}")
