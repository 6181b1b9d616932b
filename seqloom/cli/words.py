"""neighbours: the nearest words of a trained model."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json, require

NEIGHBOURS_EXAMPLES = """Examples:

seqloom neighbours runs/word2vec king

seqloom neighbours runs/word2vec king - man + woman --top 5

seqloom neighbours runs/word2vec paris --vectors mean --json

seqloom neighbours runs/bert river
"""


@app.command(epilog=NEIGHBOURS_EXAMPLES)
def neighbours(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    words: Annotated[
        list[str], typer.Argument(metavar="WORD [- WORD + WORD]", help="Word, or words with + and - between them.")
    ],
    top: Annotated[int, typer.Option(help="Number of neighbours.")] = 10,
    vectors: Annotated[
        str,
        typer.Option(
            help="Vectors of the words: rows of the input table (in), of the output table (out), the mean of both (mean), or "
            "what the model makes of each word alone (alone)."
        ),
    ] = "in",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Print the words whose vectors are nearest to that of a word, or to a sum of words, with the cosines."""
    require([run])
    from seqloom.runs.load import load_language_model

    found = load_language_model(run, device).neighbours(*words, top=top, vectors=vectors)
    if as_json:
        rows = [each._asdict() for each in found]
        print(json.dumps({"words": " ".join(words), "vectors": vectors, "neighbours": rows}))
        return
    for each in found:
        print(f"{each.similarity:7.4f}  {each.word}")
