"""finetune, predict and baseline: a pre-trained model put to a task, the task put to use, and what both must beat."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import (
    Country,
    Deterministic,
    Device,
    Flops,
    Json,
    Language,
    Minutes,
    Overwrite,
    Plugin,
    Resume,
    Seed,
    Seeds,
    Settings,
    with_budget,
)

FINETUNE_EXAMPLES = """Examples:

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/sentiment

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/five --seeds 5

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/curve --curve 10,30,100,300

seqloom finetune runs/lstm --task pair --how features --train train.tsv --valid dev.tsv --test test.tsv --out runs/paraphrase

seqloom finetune runs/gpt --task classify --train train.jsonl --valid valid.jsonl --out runs/gpt-sst --set task.lm=0.5

seqloom finetune runs/bert --task tag --train train.conll --valid dev.conll --out runs/ner --set task.crf=true

seqloom finetune runs/xlm --task classify --train en.jsonl --valid en-dev.jsonl --out runs/topics --language en
"""


@app.command(epilog=FINETUNE_EXAMPLES)
def finetune(
    start: Annotated[Path, typer.Argument(metavar="FROM", help="The run whose model and tokenizer are used.")],
    task: Annotated[str, typer.Option(help="classify, regress, pair, choose, tag or span.")],
    train_files: Annotated[
        list[Path],
        typer.Option(
            "--train",
            metavar="FILE",
            help="To learn from: .jsonl, .csv or .tsv; for tag columns of CoNLL, for span SQuAD's JSON, too.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    valid: Annotated[
        list[Path] | None,
        typer.Option("--valid", metavar="FILE", help="To choose the best weights by; without it the last are kept."),
    ] = None,
    test: Annotated[list[Path] | None, typer.Option("--test", metavar="FILE", help="Scored once, at the end.")] = None,
    how: Annotated[
        str,
        typer.Option(
            help="finetune: all weights learn; features: the model stays as it is; gradual: from the top down."
        ),
    ] = "finetune",
    settings: Settings = None,
    flops: Flops = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="10,30,100: from so many training examples, with FROM and from scratch, by 3 seeds unless --seeds.",
        ),
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    country: Country = "world",
    plugin: Plugin = None,
    language: Language = None,
) -> None:
    """Transfer: train a task with a model that was pre-trained."""
    from seqloom.cli.tasks import trained
    from seqloom.runs.learning_curve import learning_curve, shown
    from seqloom.runs.training import finetune as run_finetune

    options: dict[str, Any] = {
        "valid": valid or (), "test": test or (), "how": how, "device": device, "deterministic": deterministic,
        "settings": with_budget(settings, flops=flops, minutes=minutes), "country": country, "plugin": plugin,
        "language": language,
    }  # fmt: skip
    if curve is not None:
        several = range(seed, seed + (seeds or 3))
        found = learning_curve(
            start, task, train_files, out, sizes_of(curve), seeds=several, resume=resume, overwrite=overwrite, **options
        )
        print(shown(found, len(several)))
        print(f"chart: {out / 'curve.html'}")
        return
    train = partial(run_finetune, start, task, train_files, **options)
    trained(train, out, seed, seeds, resume, overwrite)


def sizes_of(text: str) -> list[int]:
    from seqloom.errors import UsageError

    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--curve {text}: give numbers of training examples with commas between, as 10,30,100")
    return [int(part) for part in parts]


PREDICT_EXAMPLES = """Examples:

seqloom predict runs/sentiment reviews.jsonl > told.jsonl

echo '{"text": "a film that nobody needs"}' | seqloom predict runs/sentiment

seqloom predict runs/forward reviews.jsonl --with runs/backward

seqloom predict runs/topics de.jsonl --language de
"""


@app.command(epilog=PREDICT_EXAMPLES)
def predict(
    run: Annotated[Path, typer.Argument(help="A run that has learnt a task.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Rows as the task was trained with, labels left out or not; else jsonl from standard input."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where answers go; else standard output.")] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="RUN", help="A further run of the same task: they answer together, by the mean."
        ),
    ] = None,
    language: Language = None,
    device: Device = "auto",
) -> None:
    """What a task tells about texts: a line of JSON for each, in their order; an error for a row that cannot be read."""
    from seqloom.errors import DataError
    from seqloom.files import new_file, write_bytes
    from seqloom.runs.load import load_predictor
    from seqloom.text.labelled import objects_of

    if out is not None:
        new_file(out, "--out")
    loaded, *others = [load_predictor(each, device, language) for each in (run, *(beside or ()))]
    rows = (
        loaded.examples_of(objects_of(((line, None) for line in sys.stdin), "line "))
        if file is None
        else loaded.learner.read([file], need_labels=False)
    )
    answers = loaded.answered(rows, others)
    wrong = done = 0

    def lines() -> Iterator[str]:
        nonlocal wrong, done
        for answer in answers:
            wrong, done = wrong + ("error" in answer), done + 1
            yield json.dumps(answer, ensure_ascii=False) + "\n"

    if out is None:
        for line in lines():
            sys.stdout.write(line)
    else:
        write_bytes(out, "".join(lines()).encode())
    if wrong:
        raise DataError(f"{wrong:,} of {done:,} rows could not be read: each is answered with its error")


BASELINE_EXAMPLES = """Examples:

seqloom baseline --task tag --train train.conll --valid dev.conll --test test.conll

seqloom baseline --task classify --train train.jsonl --valid valid.jsonl --features lexical --out baseline
"""


@app.command(epilog=BASELINE_EXAMPLES)
def baseline(
    task: Annotated[str, typer.Option(help="classify, pair or tag.")],
    train_files: Annotated[list[Path], typer.Option("--train", metavar="FILE", help="To learn from.")],
    valid: Annotated[list[Path], typer.Option("--valid", metavar="FILE", help="To choose the penalty by.")],
    test: Annotated[list[Path] | None, typer.Option("--test", metavar="FILE", help="Scored once, at the end.")] = None,
    features: Annotated[
        str, typer.Option(help="Of structural, lexical, probability; several with commas between them.")
    ] = "structural,lexical,probability",
    out: Annotated[Path | None, typer.Option(help="A new folder for baseline.json and the answers.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Hand-made features and a linear model: what a network has to beat."""
    from seqloom.cli.training import show
    from seqloom.errors import UsageError
    from seqloom.evaluate.baseline import baseline as run_baseline
    from seqloom.files import write_bytes, write_json

    if out is not None and out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UsageError(f"--out {out} is there already: choose another")
    groups = [group.strip() for group in features.split(",") if group.strip()]
    result, answers = run_baseline(task, train_files, valid, test or (), groups, seed)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for split, told in answers.items():
            lines = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in told)
            write_bytes(out / f"{split}.jsonl", lines.encode())
        write_json(out / "baseline.json", result)
    if as_json:
        print(json.dumps(result))
        return
    for split in answers:
        print(f"{split}:")
        show({key: value for key, value in result[f"{split}_scores"].items() if isinstance(value, int | float)}, False)
