"""import and export: models from and for other projects."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import require

IMPORT_EXAMPLES = """Examples:

seqloom import models/bert-base-uncased --out runs/bert

seqloom import google-bert/bert-base-uncased --out runs/bert

seqloom import models/bert-tuned --out runs/tuned && seqloom predict runs/tuned texts.jsonl

seqloom import models/elmo --out runs/elmo && seqloom embed runs/elmo texts.txt --out vectors.npz --layers mix

seqloom import models/gpt2 --out runs/gpt2 && seqloom generate runs/gpt2 --prompt "Once upon a time"
"""


@app.command(name="import", epilog=IMPORT_EXAMPLES)
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="Hugging Face folder with config.json, weights and tokenizer.json; a model of the hub, as OWNER/NAME or "
            "hub:NAME, which is downloaded; or ELMo's folder with options.json and an hdf5 file.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    task: Annotated[
        str | None, typer.Option(help="Task of a fine-tuned sequence classifier: classify (the default) or pair.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is in --out.")] = False,
) -> None:
    """Import a Hugging Face model (BERT, RoBERTa, XLM-R, ALBERT, ELECTRA, ERNIE, GPT, GPT-2, Marian) or a published ELMo."""
    from seqloom.convert.download import download, hub_name
    from seqloom.convert.elmo import import_elmo, is_elmo
    from seqloom.convert.huggingface import import_folder
    from seqloom.errors import UsageError
    from seqloom.progress import say

    name = hub_name(source)
    folder = Path(source) if name is None else download(name)
    if is_elmo(folder):
        if task is not None:
            raise UsageError(f"--task {task}: {folder} is an ELMo, which was trained for no task: leave it out")
        import_elmo(folder, out, overwrite)
    else:
        import_folder(folder, out, overwrite, task)
    say(f"{out}: imported from {source}")


EXPORT_EXAMPLES = """Examples:

seqloom export runs/bert --out models/my-bert

seqloom export runs/gpt2 --out models/my-gpt2 --license mit --language en --overwrite

seqloom export runs/gpt2 --out models/over-time --milestones
"""


@app.command(epilog=EXPORT_EXAMPLES)
def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    milestones: Annotated[
        bool,
        typer.Option("--milestones", help="Export all milestones, too: OUT/words-1000000, … and OUT/final."),
    ] = False,
    license_: Annotated[
        str | None,
        typer.Option(
            "--license", metavar="NAME", help="Licence of the model, as README.md says it: mit, apache-2.0, …"
        ),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option("--language", metavar="CODE", help="Language of the model for README.md: en, de, …; repeatable."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is in --out.")] = False,
) -> None:
    """Export a run as a folder that AutoModel and AutoTokenizer of transformers load, with a README.md for model hubs."""
    require([run])
    from seqloom.convert.huggingface import export_folder, export_milestones
    from seqloom.convert.model_card import CardOptions
    from seqloom.progress import say

    card = CardOptions(license_, tuple(language or ()))
    made = export_milestones(run, out, overwrite, card) if milestones else [export_folder(run, out, overwrite, card)]
    for folder in made:
        say(f"{folder}: exported from {run}")
