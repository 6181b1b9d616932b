"""finetune, predict and baseline: tasks with a pre-trained model, and the linear models they have to beat."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import (
    Batch,
    Beside,
    BesideMoved,
    Country,
    Deterministic,
    Device,
    Encoding,
    Epochs,
    Flops,
    IdColumn,
    Json,
    LabelColumn,
    Language,
    LongTexts,
    Milestones,
    Minutes,
    OneTask,
    Overwrite,
    PairColumn,
    Plugin,
    Ranks,
    Rate,
    Resume,
    Seed,
    Seeds,
    Settings,
    Tasks,
    TextColumn,
    Threshold,
    check_one_or_several,
    launch_ranks,
    name_columns,
    named_runs,
    require,
    set_predictor,
    with_batch,
    with_options,
)

FINETUNE_EXAMPLES = """Examples:

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/sentiment

seqloom finetune runs/bert --task classify --train reviews.csv --text-column review --label-column sentiment --out runs/reviews

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/b --epochs 8 --lr 1e-4 --batch 16

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/five --seeds 5

seqloom finetune runs/bert --task classify --train train.jsonl --valid valid.jsonl --out runs/curve --curve 10,30,100,300

seqloom finetune runs/lstm --task pair --how features --train train.tsv --valid dev.tsv --test test.tsv --out runs/paraphrase

seqloom finetune runs/gpt --task classify --train train.jsonl --valid valid.jsonl --out runs/gpt-sst --set task.lm=0.5

seqloom finetune runs/bert --task tag --train train.conll --valid dev.conll --out runs/ner --set task.crf=true

seqloom finetune runs/bert --task tag --train train.conll --valid dev.conll --out runs/ner --beside runs/forward,runs/backward

seqloom finetune runs/bert --tasks tasks.toml --out runs/several

seqloom finetune runs/xlm --task classify --train en.jsonl --valid en-dev.jsonl --out runs/topics --language en
"""


@app.command(epilog=FINETUNE_EXAMPLES)
def finetune(
    start: Annotated[
        Path, typer.Argument(metavar="FROM", help="Run folder of the pre-trained model; its tokenizer is used, too.")
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    task: Annotated[
        str | None,
        typer.Option(
            help="Task to train: classify, regress, pair, choose, tag or span; translate, if FROM is a translator."
        ),
    ] = None,
    train_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--train",
            metavar="FILE [FILE]",
            help="Training examples: .jsonl, .csv or .tsv; CoNLL columns for tag, SQuAD's JSON for span.",
        ),
    ] = None,
    valid: Annotated[
        list[Path] | None,
        typer.Option(
            "--valid",
            metavar="FILE [FILE]",
            help="Validation examples, by which the best weights are chosen; without them the last weights are kept.",
        ),
    ] = None,
    test: Annotated[
        list[Path] | None, typer.Option("--test", metavar="FILE [FILE]", help="Test examples, scored once at the end.")
    ] = None,
    how: Annotated[
        str,
        typer.Option(
            help="What to train: finetune (all weights), features (the new layers only, the model is frozen) or gradual "
            "(unfreeze the layers one after the other, from the top)."
        ),
    ] = "finetune",
    tasks: Tasks = None,
    beside: Beside = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    pair_column: PairColumn = None,
    id_column: IdColumn = None,
    encoding: Encoding = None,
    settings: Settings = None,
    lr: Rate = None,
    batch: Batch = None,
    milestones: Milestones = False,
    epochs: Epochs = None,
    flops: Flops = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Draw a learning curve over numbers of training examples, such as 10,30,100: with FROM and from scratch, "
            "with 3 seeds unless --seeds is given.",
        ),
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    ranks: Ranks = 1,
    country: Country = "world",
    plugin: Plugin = None,
    language: Language = None,
) -> None:
    """Fine-tune a pre-trained model on a task."""
    one = {
        "--task": task, "--train": train_files, "--valid": valid, "--test": test, "--beside": beside, "--encoding": encoding,
        "--text-column": text_column, "--label-column": label_column, "--pair-column": pair_column, "--id-column": id_column,
        "--curve": curve,
    }  # fmt: skip
    check_one_or_several(tasks, one)
    require([start, *named_runs(beside)], (*(train_files or ()), *(valid or ()), *(test or ()), tasks), task=task)
    from seqloom.cli.tasks import train_and_print
    from seqloom.runs.joint import OpenedPlan, finetune_tasks
    from seqloom.runs.learning_curve import format_table, learning_curve
    from seqloom.runs.options import RunOptions
    from seqloom.runs.training import finetune as run_finetune
    from seqloom.runs.transfer_recipe import transfer_recipe

    if launch_ranks(ranks, seeds=seeds, curve=curve):
        return
    options = RunOptions(seed, resume, overwrite, device, deterministic, country)
    plan = None if tasks is None else OpenedPlan.read(tasks)
    main = task or (plan and plan.plan.main.task) or ""
    overrides = with_batch(
        with_options(settings, lr, milestones, epochs=epochs, flops=flops, minutes=minutes),
        settings,
        batch,
        lambda changes: transfer_recipe(start, main, how, changes),
    )
    if plan is not None:
        several = partial(finetune_tasks, start, plan, how=how, settings=overrides, plugin=plugin, language=language)
        train_and_print(several, out, options, seeds)
        return
    transfer: dict[str, Any] = {
        "how": how, "beside": named_runs(beside), "settings": overrides, "plugin": plugin, "language": language,
        "columns": name_columns(main, True, text_column, label_column, pair_column, id_column), "encoding": encoding,
    }  # fmt: skip
    files: dict[str, Any] = {"train": train_files or (), "valid": valid or (), "test": test or ()}
    if curve is None:
        train_and_print(partial(run_finetune, start, main, **files, **transfer), out, options, seeds)
        return
    several_seeds = range(seed, seed + (seeds or 3))
    sizes = learning_curve(
        start, main, files, out, parse_sizes(curve), seeds=several_seeds, options=options, **transfer
    )
    print(format_table(sizes, len(several_seeds)))
    print(f"chart: {out / 'curve.html'}")


def parse_sizes(text: str) -> list[int]:
    from seqloom.errors import UsageError

    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--curve {text}: give numbers of training examples separated by commas, such as 10,30,100")
    return [int(part) for part in parts]


PREDICT_EXAMPLES = """Examples:

seqloom predict runs/sentiment reviews.csv --text-column review --id-column number --out predictions.csv

seqloom predict runs/sentiment reviews.jsonl > predictions.jsonl

echo "a film that nobody needs" | seqloom predict runs/sentiment

seqloom predict runs/forward reviews.jsonl --with runs/backward

seqloom predict runs/several news.txt --task chunks

seqloom predict runs/ner news.txt --beside moved/forward,moved/backward

seqloom predict runs/topics de.jsonl --language de
"""


@app.command(epilog=PREDICT_EXAMPLES)
def predict(
    run: Annotated[Path, typer.Argument(help="Run folder of a trained task.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Rows to predict for: .csv, .tsv, .jsonl, .parquet, or one text per line; tagged text and SQuAD's JSON too. "
            "Default: jsonl, or one text per line, from standard input."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write, a .csv or .jsonl. Default: standard output, as csv for csv, otherwise as jsonl."
        ),
    ] = None,
    ensemble: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="RUN", help="Another run of the same task: average the predictions of all."),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    pair_column: PairColumn = None,
    id_column: IdColumn = None,
    encoding: Encoding = None,
    task: OneTask = None,
    beside: BesideMoved = None,
    threshold: Threshold = None,
    long_texts: LongTexts = None,
    language: Language = None,
    device: Device = "auto",
) -> None:
    """Predict labels for each row, in order. A csv keeps its columns and gets more. A row that cannot be read gets an error."""
    from seqloom.cli.memory import keep_memory_flat
    from seqloom.errors import DataError
    from seqloom.files import new_file

    require([run, *(ensemble or ()), *named_runs(beside)], [file])
    if out is not None:
        new_file(out, "--out")
    keep_memory_flat()  # every batch has another shape
    from seqloom.runs.load import load_predictor

    loaded = load_predictor(run, device, language, named_runs(beside), task)
    others = [load_predictor(each, device, language, task=task) for each in ensemble or ()]
    columns = name_columns(loaded.task, False, text_column, label_column, pair_column, id_column)
    for each in (loaded, *others):
        set_predictor(each, threshold, long_texts)
    if file is None:
        done, wrong = loaded.predict_lines(sys.stdin, out, others, **columns)
    else:
        done, wrong = loaded.predict_file(file, out, others, encoding=encoding, **columns)
    if wrong:
        raise DataError(f"{wrong:,} of {done:,} rows could not be read: each has its error in the output")


BASELINE_EXAMPLES = """Examples:

seqloom baseline --task tag --train train.conll --valid dev.conll --test test.conll

seqloom baseline --task classify --train train.jsonl --valid valid.jsonl --features lexical --out baseline
"""


@app.command(epilog=BASELINE_EXAMPLES)
def baseline(
    task: Annotated[str, typer.Option(help="Task: classify, pair or tag.")],
    train_files: Annotated[list[Path], typer.Option("--train", metavar="FILE", help="Training examples.")],
    valid: Annotated[
        list[Path], typer.Option("--valid", metavar="FILE", help="Validation examples, to choose the penalty.")
    ],
    test: Annotated[
        list[Path] | None, typer.Option("--test", metavar="FILE", help="Test examples, scored once at the end.")
    ] = None,
    features: Annotated[
        str, typer.Option(help="Groups of features, separated by commas: structural, lexical, probability.")
    ] = "structural,lexical,probability",
    model: Annotated[
        str, typer.Option(help="regression, or crf for tags: a conditional random field over the sentence.")
    ] = "regression",
    out: Annotated[Path | None, typer.Option(help="New folder for baseline.json and the predictions.")] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    pair_column: PairColumn = None,
    id_column: IdColumn = None,
    encoding: Encoding = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train a linear model on hand-made features, as a baseline for neural models."""
    require((), (*train_files, *valid, *(test or ())))
    from seqloom.cli.training import print_result
    from seqloom.errors import UsageError
    from seqloom.evaluate.baseline import baseline as run_baseline
    from seqloom.files import write_bytes, write_json

    if out is not None and out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UsageError(f"--out {out} exists already: choose another folder")
    groups = [group.strip() for group in features.split(",") if group.strip()]
    columns = name_columns(task, True, text_column, label_column, pair_column, id_column)
    result, predictions = run_baseline(task, train_files, valid, test or (), groups, seed, columns, encoding, model)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for split, rows in predictions.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            write_bytes(out / f"{split}.jsonl", lines.encode())
        write_json(out / "baseline.json", result)
    if as_json:
        print(json.dumps(result))
        return
    for split in predictions:
        print(f"{split}:")
        print_result(
            {key: value for key, value in result[f"{split}_scores"].items() if isinstance(value, int | float)}, False
        )
