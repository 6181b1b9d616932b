"""fill and embed: masked words, and texts as vectors."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json, Language, Plugin, require

FILL_EXAMPLES = """Examples:

seqloom fill runs/bert "The capital of France is [MASK]."

seqloom fill runs/bert "New [MASK] and Los [MASK] are cities." --joint --top 3

seqloom fill runs/electra "The <mask> sleeps." --json

seqloom fill runs/xlm "Die [MASK] schläft." --language de

seqloom fill runs/bart "She [MASK] the door." --longest 4

seqloom fill runs/xlnet "[MASK] [MASK] is a city." --joint
"""


@app.command(epilog=FILL_EXAMPLES)
def fill(
    run: Annotated[Path, typer.Argument(help="Run folder of a model that has learnt to fill gaps.")],
    text: Annotated[str, typer.Argument(help="Text with [MASK] (or <mask>) in place of the missing words.")],
    top: Annotated[int, typer.Option(help="Number of most likely words to print.")] = 5,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint",
            help="Fill several masks jointly, from left to right: p(m1) · p(m2 | m1) · …, searched with --beam. "
            "Default: fill each mask independently.",
        ),
    ] = False,
    beam: Annotated[
        int | None,
        typer.Option(
            help="Beam size of --joint, exact with V^(masks − 1), and of encoder–decoders. Default: 64.",
            show_default=False,
        ),
    ] = None,
    longest: Annotated[
        int | None,
        typer.Option(
            help="The most tokens for a mask, for encoder–decoders, which fill it with any number of them. Default: 16.",
            show_default=False,
        ),
    ] = None,
    language: Language = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Fill [MASK] in a text with the most likely words. With ELECTRA, the generator fills it; with BART, a mask may stand for any
    number of words."""
    require([run])
    from seqloom.decode.fill import Filled
    from seqloom.errors import UsageError
    from seqloom.runs.load import load_language_model

    loaded = load_language_model(run, device, language=language)
    if loaded.learner.fills_gaps and not loaded.learner.fills_any_length:
        if longest is not None:
            raise UsageError(f"--longest {longest}: {run} puts one token into each gap: leave it out")
        if beam is not None and not joint:
            raise UsageError(f"--beam {beam} is of a search for all gaps together: add --joint, or leave it out")
    given = {name: value for name, value in (("beam", beam), ("longest", longest)) if value is not None}
    found = loaded.fill(text, top=top, joint=joint, **given)

    def words(each: Filled) -> list[str]:
        return [loaded.tokenizer.decode(part, specials=True).strip() for part in each.parts]

    if as_json:
        gaps = [[each._asdict() | {"words": words(each)} for each in gap] for gap in found]
        print(json.dumps({"text": text, "joint": joint, "gaps": gaps}))
        return
    for number, gap in enumerate(found, 1):
        if len(found) > 1:
            print(f"--- {number}")
        for each in gap:
            print(f"{each.probability:.4f}  {' … '.join(words(each)):16}  {each.text}")


EMBED_EXAMPLES = """Examples:

seqloom embed runs/bert sentences.txt --out vectors.npz

seqloom embed runs/bert sentences.txt --layers concat4 --pool none --out tokens.npz

echo "The keys are here." | seqloom embed runs/lstm --pool last --out vectors.jsonl
"""


@app.command(epilog=EMBED_EXAMPLES)
def embed(
    run: Annotated[Path, typer.Argument(help="Run folder of any model with hidden states.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="File to write: .npz ('embeddings', and 'offsets' with --pool none) or .jsonl."
        ),
    ],
    file: Annotated[Path | None, typer.Argument(help="File with one text per line. Default: standard input.")] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="Layers to use: embedding, last, second-to-last, sum (of all layers), sum4 or concat4 (of the last four), mix "
            "(the mean of all and the embedding), a number (0: the embedding), or all (concatenated)."
        ),
    ] = "last",
    pool: Annotated[
        str,
        typer.Option(
            help="Pooling: mean, max or last over the text's own tokens; first ([CLS] where there is one); none (every token)."
        ),
    ] = "mean",
    language: Language = None,
    device: Device = "auto",
    plugin: Plugin = None,
) -> None:
    """Write the hidden states of texts as vectors, one for each line (or token). An empty line becomes zeros."""
    require([run])
    from seqloom.cli.using import numbered_batches
    from seqloom.evaluate.vectors import write_vectors
    from seqloom.progress import say
    from seqloom.runs.language import in_language
    from seqloom.runs.load import load

    loaded = in_language(load(run, device, plugin), language)
    written = write_vectors(
        lambda texts, names: loaded.encode(texts, layers, pool, names),
        loaded.source_tokenizer,
        numbered_batches(file),
        out,
        pool == "none",
    )
    if written.empty:
        what = "no rows" if pool == "none" else "rows of zeros"
        say(f"empty texts: {written.empty:,}, the first at {written.first_empty}: they have {what}")
    print(f"{out}: {' × '.join(f'{size:,}' for size in written.shape)}")
