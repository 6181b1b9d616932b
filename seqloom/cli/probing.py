"""probe: what the layers of trained models know."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json, require

PROBE_EXAMPLES = """Examples:

seqloom probe runs/bert --train pos.train.conll --test pos.test.conll --control --out probes

seqloom probe runs/word2vec runs/lstm runs/elmo runs/bert --train ner.train.conll --test ner.test.conll --out probes

seqloom probe runs/bert --train pos.conll --test pos.test.conll --train chunks.conll --test chunks.test.conll --code --out probes

seqloom probe runs/bert --train linzen_english.tsv.gz --test colorless_english.tsv --probe mlp --seeds 3 --out probes --json
"""


@app.command(epilog=PROBE_EXAMPLES)
def probe(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of models of any kind that has vectors.")],
    train: Annotated[
        list[Path],
        typer.Option(
            help="File with labels, one for each task: words (CoNLL columns, or jsonl words, tags), sentences (jsonl, csv, tsv: "
            "text, label), spans (jsonl: text, span or spans, label) or a table of number agreement."
        ),
    ],
    test: Annotated[list[Path], typer.Option(help="File of the same form that the probes are tested on; as many.")],
    out: Annotated[Path, typer.Option(help="Folder to write: probes.html, probes.csv, probes.json and pictures.")],
    layers: Annotated[str, typer.Option(help="all, or the number of one layer; 0 is the embedding.")] = "all",
    kind: Annotated[str, typer.Option("--probe", help="Classifier: linear, or mlp with a hidden layer.")] = "linear",
    control: Annotated[
        bool, typer.Option("--control", help="Probe for labels drawn at random for each word form, too: selectivity.")
    ] = False,
    code: Annotated[
        bool, typer.Option("--code", help="Measure the description length of the labels, too, by the online code.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Number of classifiers of each layer.")] = 1,
    most: Annotated[
        int | None,
        typer.Option(
            min=10, help="Labels to read of each file: 20,000 of training, 10,000 of test files unless given."
        ),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find out what the layers of models know: a small classifier on the frozen states of each layer, for words, spans, sentences
    or number agreement."""
    require(runs, files=[*train, *test])
    import json

    from seqloom.analyse.finding import check_new_folder
    from seqloom.runs.probing import TEST, TRAIN
    from seqloom.runs.probing import probe as measure

    check_new_folder(out)
    found = measure(
        runs, train, test, layers=layers, kind=kind, control=control, code=code, seeds=seeds,  # type: ignore[arg-type]
        most_train=most or TRAIN, most_test=most or TEST, device=device,
    )  # fmt: skip
    found.save_folder(out, "probes")
    if as_json:
        print(json.dumps(found.record()))
        return
    for line in found.lines():
        print(line)


PRUNE_EXAMPLES = """Examples:

seqloom prune runs/bert --keep 2 --text sentences.txt --out runs/bert-2-heads

seqloom prune runs/sentiment --keep 4 --text valid.jsonl --out runs/sentiment-4-heads

seqloom prune runs/bert --keep-layers 4 --text sentences.txt --out runs/bert-4-layers
"""


@app.command(epilog=PRUNE_EXAMPLES)
def prune(
    run: Annotated[Path, typer.Argument(help="Run folder of a model with attention heads.")],
    text: Annotated[
        Path, typer.Option(help="File that importance is measured on: one text per line; of tasks labelled examples.")
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    keep: Annotated[
        int | None, typer.Option(help="Attention heads of every layer to keep: the most important ones.")
    ] = None,
    keep_layers: Annotated[
        int | None, typer.Option(help="Layers to keep: those without which the loss grows most.")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Remove attention heads or layers for good: a smaller and faster run. Heads are chosen by the gradient of the loss, layers
    by what taking each away costs."""
    require([run], files=[text])
    import json

    from seqloom.analyse.finding import check_new_folder
    from seqloom.analyse.read import text_or_lines
    from seqloom.errors import UsageError
    from seqloom.runs.load import load
    from seqloom.runs.pruning import prune_heads, prune_layers

    if (keep is None) == (keep_layers is None):
        raise UsageError("prune needs either --keep N, for heads, or --keep-layers N: name one of them")
    check_new_folder(out)
    loaded = load(run, device)
    plain = loaded.learner.reads in ("excerpts", "passages")
    examples = (text_or_lines(str(text))[0] if plain else (), None if plain else text)
    if keep is not None:
        found, left = prune_heads(loaded, keep, out, *examples), f"heads a layer: {keep}"
    else:
        found = prune_layers(loaded, keep_layers or 0, out, *examples)
        left = f"layers: {', '.join(str(layer + 1) for layer in found['kept'])}"
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"{out}: {left}; {found['size_after']:,} of {found['size_before']:,} parameters, "
        f"{found['loss_before']:.4f} → {found['loss_after']:.4f} {found['unit']}"
    )
