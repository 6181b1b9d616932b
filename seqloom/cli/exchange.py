"""import and export: models from and for other projects."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import require
from seqloom.errors import UsageError

IMPORT_EXAMPLES = """Examples:

seqloom import models/bert-base-uncased --out runs/bert

seqloom import google-bert/bert-base-uncased --out runs/bert

seqloom import models/bert-tuned --out runs/tuned && seqloom predict runs/tuned texts.jsonl

seqloom import models/elmo --out runs/elmo && seqloom embed runs/elmo texts.txt --out vectors.npz --layers mix

seqloom import models/gpt2 --out runs/gpt2 && seqloom generate runs/gpt2 --prompt "Once upon a time"

seqloom import glove.6B.100d.txt --out runs/glove && seqloom neighbours runs/glove king - man + woman
"""


@app.command(name="import", epilog=IMPORT_EXAMPLES)
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="Hugging Face folder with config.json, weights and tokenizer.json; a model of the hub, as OWNER/NAME or "
            "hub:NAME, which is downloaded; ELMo's folder with options.json and an hdf5 file; or a file of word vectors: "
            "word2vec's .bin, or text as word2vec, GloVe and fastText write it.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    task: Annotated[
        str | None, typer.Option(help="Task of a fine-tuned sequence classifier: classify (the default) or pair.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is in --out.")] = False,
) -> None:
    """Import a Hugging Face model (BERT, RoBERTa, XLM-R, ALBERT, ELECTRA, ERNIE, GPT, GPT-2, Marian), a published ELMo, or word
    vectors (word2vec, GloVe, fastText)."""
    if Path(source).is_file():
        import_file(Path(source), out, task, overwrite)
        return
    from seqloom.convert.download import download, hub_name
    from seqloom.convert.elmo import import_elmo, is_elmo
    from seqloom.convert.huggingface import import_folder
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


def import_file(source: Path, out: Path, task: str | None, overwrite: bool) -> None:
    from seqloom.convert.vectors import import_vectors
    from seqloom.progress import say

    if task is not None:
        raise UsageError(f"--task {task}: {source} is a file of word vectors, which learnt no task: leave it out")
    import_vectors(source, out, overwrite)
    say(f"{out}: imported from {source}")


def export_file(run: Path, out: Path, vectors: str | None, overwrite: bool, of_folders: bool) -> None:
    """of_folders: options were given that are for folders only."""
    from seqloom.convert.vectors import export_vectors
    from seqloom.progress import say

    if of_folders:
        raise UsageError(
            f"--milestones, --license and --language are for folders, and --out {out} is a file: leave them out"
        )
    found = export_vectors(run, out, vectors or "in", overwrite)
    say(f"{out}: {len(found.words):,} words of {found.vectors.shape[1]} numbers from {run}")


EXPORT_EXAMPLES = """Examples:

seqloom export runs/bert --out models/my-bert

seqloom export runs/gpt2 --out models/my-gpt2 --license mit --language en --overwrite

seqloom export runs/gpt2 --out models/over-time --milestones

seqloom export runs/word2vec --out vectors.bin
"""


@app.command(epilog=EXPORT_EXAMPLES)
def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write; or a file of word vectors: .bin (word2vec), .vec (text with a header), .txt (text without, as "
            "GloVe has it)."
        ),
    ],
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
    vectors: Annotated[
        str | None, typer.Option(help="Table that is written to a file of word vectors: in (the default), out or mean.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete what is in --out.")] = False,
) -> None:
    """Export a run as a folder that AutoModel and AutoTokenizer of transformers load, with a README.md for model hubs; or the
    vectors of its words as a file."""
    require([run])
    if out.suffix in (".bin", ".vec", ".txt") and not out.is_dir():
        export_file(run, out, vectors, overwrite, milestones or bool(license_ or language))
        return
    if vectors is not None:
        raise UsageError(
            f"--vectors {vectors} is for files of word vectors: name an --out that ends in .bin, .vec or .txt"
        )
    from seqloom.convert.huggingface import export_folder, export_milestones
    from seqloom.convert.model_card import CardOptions
    from seqloom.progress import say

    card = CardOptions(license_, tuple(language or ()))
    made = export_milestones(run, out, overwrite, card) if milestones else [export_folder(run, out, overwrite, card)]
    for folder in made:
        say(f"{folder}: exported from {run}")
