"""fill and embed: words for gaps, and texts as vectors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json, Language, Plugin

FILL_EXAMPLES = """Examples:

seqloom fill runs/bert "The capital of France is [MASK]."

seqloom fill runs/bert "New [MASK] and Los [MASK] are cities." --joint --top 3

seqloom fill runs/electra "The <mask> sleeps." --json

seqloom fill runs/xlm "Die [MASK] schläft." --language de
"""


@app.command(epilog=FILL_EXAMPLES)
def fill(
    run: Annotated[Path, typer.Argument(help="A run folder of a model that reads in both directions.")],
    text: Annotated[str, typer.Argument(help="A text with [MASK] (or <mask>) where words are to be found.")],
    top: Annotated[int, typer.Option(help="How many of the likeliest.")] = 5,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Several gaps together, from left to right: p(m1) · p(m2 | m1) · …, searched with --beam. "
            "Without it each gap is filled for itself.",
        ),
    ] = False,
    beam: Annotated[
        int, typer.Option(help="Of --joint: beginnings that are kept; exact with all V^(gaps − 1) of them.")
    ] = 64,
    language: Language = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill [MASK] in a text: the likeliest words with their probabilities. Of ELECTRA it is the generator that fills."""
    from seqloom.runs.load import load_language_model

    loaded = load_language_model(run, device, language=language)
    found = loaded.fill(text, top=top, joint=joint, beam=beam)

    def words(tokens: list[int]) -> list[str]:
        return [loaded.tokenizer.decode([token], specials=True).strip() for token in tokens]

    if as_json:
        gaps = [[each._asdict() | {"words": words(each.tokens)} for each in gap] for gap in found]
        print(json.dumps({"text": text, "joint": joint, "gaps": gaps}))
        return
    for number, gap in enumerate(found, 1):
        if len(found) > 1:
            print(f"--- {number}")
        for each in gap:
            print(f"{each.probability:.4f}  {' … '.join(words(each.tokens)):16}  {each.text}")


EMBED_EXAMPLES = """Examples:

seqloom embed runs/bert sentences.txt --out vectors.npz

seqloom embed runs/bert sentences.txt --layers concat4 --pool none --out tokens.npz

echo "The keys are here." | seqloom embed runs/lstm --pool last --out vectors.jsonl
"""


@app.command(epilog=EMBED_EXAMPLES)
def embed(
    run: Annotated[Path, typer.Argument(help="A run folder: any model with hidden states.")],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="An .npz ('embeddings'; with --pool none 'offsets', too) or a .jsonl."),
    ],
    file: Annotated[Path | None, typer.Argument(help="One text a line; none: standard input.")] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="embedding, last, second-to-last, sum (of all layers), sum4 or concat4 (of the last four), mix (the mean of "
            "all and the embedding), a number (0: the embedding), or all, side by side."
        ),
    ] = "last",
    pool: Annotated[
        str,
        typer.Option(
            help="mean, max or last of the text's own tokens; first: [CLS] where there is one; none: each token."
        ),
    ] = "mean",
    language: Language = None,
    device: Device = "auto",
    plugin: Plugin = None,
) -> None:
    """Texts as vectors: the hidden states of any model, one vector a line (or a token). An empty line is zeros."""
    from seqloom.cli.using import named
    from seqloom.evaluate.vectors import write_vectors
    from seqloom.progress import say
    from seqloom.runs.language import in_language
    from seqloom.runs.load import load

    loaded = in_language(load(run, device, plugin), language)
    written = write_vectors(
        lambda texts, names: loaded.encode(texts, layers, pool, names),
        loaded.tokenizer,
        named(file),
        out,
        pool == "none",
    )
    if written.empty:
        what = "no rows" if pool == "none" else "rows of zeros"
        say(f"texts without a token: {written.empty:,}, the first at {written.first_empty}; they have {what}")
    print(f"{out}: {' × '.join(f'{size:,}' for size in written.shape)}")
