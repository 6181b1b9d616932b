"""train, translate and metric: tasks from labelled examples, without pre-training."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import (
    Batch,
    Beside,
    Country,
    Deterministic,
    Device,
    Encoding,
    Epochs,
    Flops,
    IdColumn,
    Json,
    LabelColumn,
    Milestones,
    Minutes,
    Overwrite,
    PairColumn,
    Ranks,
    Rate,
    Resume,
    Seed,
    Seeds,
    Settings,
    Tasks,
    TextColumn,
    check_one_or_several,
    launch_ranks,
    name_columns,
    named_runs,
    reject_unused,
    require,
    with_batch,
    with_options,
)
from seqloom.cli.training import print_result
from seqloom.models.index import check_recipe_name
from seqloom.progress import in_one_line

if TYPE_CHECKING:
    from seqloom.runs.options import RunOptions

TRAIN_EXAMPLES = """Examples:

seqloom train transformer-small --task translate --train train.en train.de --valid val.en val.de --out runs/en-de

seqloom train bahdanau-tiny --task translate --train pairs.tsv --valid dev.tsv --out runs/small --vocab-size 2000

seqloom train seq2seq-small --task translate --train train.en train.de --out runs/two --vocab-size 8000 --source-vocab-size 16000

seqloom train transformer-small --task translate --train train.en train.de --valid val.en val.de --out runs/en-de --resume

seqloom train bilstm-cnn-small --task tag --train train.conll --valid dev.conll --out runs/ner --tokenizer word

seqloom train bilstm-cnn-small --task tag --train train.conll --valid dev.conll --out runs/lm --tokenizer word --beside runs/elmo

seqloom train bilstm-cnn-small --tasks tasks.toml --out runs/several --tokenizer word

seqloom train text-cnn-tiny --task classify --train train.csv --valid valid.csv --out runs/cnn --epochs 30 --lr 2e-3 --batch 64
"""


@app.command(epilog=TRAIN_EXAMPLES)
def train(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe ('seqloom recipes' lists them) or a TOML file.")],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    task: Annotated[
        str | None,
        typer.Option(
            help="Task to train: classify, regress, pair, choose, tag, span, translate, caption, translation-lm or entity-lm."
        ),
    ] = None,
    train_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--train",
            metavar="FILE [FILE]",
            help="Training examples in the task's format; for pairs two aligned files, a .tsv, or a .jsonl with source and "
            "target; for captions a .jsonl or .tsv, or a folder with one.",
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
        list[Path] | None,
        typer.Option("--test", metavar="FILE [FILE]", help="Test examples, scored once at the end."),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="Tokenizer to learn, shared by both sides of pairs: bpe, wordpiece, unigram, word, char or byte."
        ),
    ] = "bpe",
    vocab_size: Annotated[
        int | None, typer.Option(help="Size of the vocabulary, shared by both sides of pairs.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Convert all text to lower case.")] = False,
    from_tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this tokenizer.json instead of learning one.")
    ] = None,
    source_tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Give the sources of pairs a vocabulary of their own, of this kind; --tokenizer is that of the targets then."
        ),
    ] = None,
    source_vocab_size: Annotated[
        int | None, typer.Option(help="Size of the sources' own vocabulary; --vocab-size is that of the targets then.")
    ] = None,
    from_source_tokenizer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this tokenizer.json for the sources alone.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Initialise the embeddings with these vectors, in the text format of word2vec or GloVe.",
        ),
    ] = None,
    vit: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Initialise the encoder of captioner with this Vision Transformer, in the layout of transformers.",
        ),
    ] = None,
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
    tokens: Annotated[float | None, typer.Option(help="Stop after this many target tokens.")] = None,
    flops: Flops = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    ranks: Ranks = 1,
    country: Country = "world",
) -> None:
    """Train a task from labelled examples, without pre-training."""
    check_recipe_name(recipe)
    one = {
        "--task": task, "--train": train_files, "--valid": valid, "--test": test, "--beside": beside, "--encoding": encoding,
        "--text-column": text_column, "--label-column": label_column, "--pair-column": pair_column, "--id-column": id_column,
        "--vit": vit,
    }  # fmt: skip
    check_one_or_several(tasks, one)
    given = (*example_files(task, train_files, valid, test), from_tokenizer, from_source_tokenizer, vectors, tasks)
    files = () if seeds is not None else given
    require(named_runs(beside), files, task=task)  # with --seeds the task is asked first
    from seqloom.recipes.library import find_recipe
    from seqloom.runs.joint import OpenedPlan, train_tasks
    from seqloom.runs.options import RunOptions
    from seqloom.runs.report import write_translation_report
    from seqloom.runs.training import train as run_train
    from seqloom.runs.translator import Translator

    if launch_ranks(ranks, seeds=seeds):
        return
    plan = None if tasks is None else OpenedPlan.read(tasks)
    main = task or (plan and plan.plan.main.task) or ""
    if seeds is not None:
        check_repeatable(main)
    overrides = with_batch(
        with_options(settings, lr, milestones, epochs=epochs, tokens=tokens, flops=flops, minutes=minutes),
        settings,
        batch,
        lambda changes: find_recipe(recipe, changes, task=main),
    )
    common: dict[str, Any] = {
        "tokenizer": tokenizer, "vocab_size": vocab_size, "lowercase": lowercase, "from_tokenizer": from_tokenizer,
        "source_tokenizer": source_tokenizer, "source_vocab_size": source_vocab_size,
        "from_source_tokenizer": from_source_tokenizer, "vectors": vectors, "settings": overrides,
    }  # fmt: skip
    if plan is not None:
        train = partial(train_tasks, recipe, plan, **common)
    else:
        columns = name_columns(main, True, text_column, label_column, pair_column, id_column)
        train = partial(
            run_train, recipe, main, train_files or (), valid=valid or (), test=test or (), beside=named_runs(beside),
            columns=columns, encoding=encoding, vit=vit, **common,
        )  # fmt: skip
    options = RunOptions(seed, resume, overwrite, device, deterministic, country)
    run = train_and_print(train, out, options, seeds)
    if isinstance(run, Translator):
        print(f"report: {write_translation_report(run, valid or train_files or ())}")


def example_files(task: str | None, *splits: list[Path] | None) -> list[Path]:
    """The files of all splits, but for folders with captions, which are looked into later."""
    given = [file for files in splits for file in files or ()]
    return [file for file in given if task != "caption" or not file.is_dir()]


def check_repeatable(task: str) -> None:
    """Raises UsageError for a task that --seeds does not work with."""
    from seqloom.errors import UsageError
    from seqloom.tasks import task_class

    if task_class(task).reads != "labelled":
        raise UsageError(
            f"--seeds does not work with --task {task}: run the command once for each --seed, with its own --out"
        )


def train_and_print(train: Callable[..., Any], out: Path, options: "RunOptions", seeds: int | None) -> Any:
    """Train one run and return it, or train several with other seeds; and print their scores."""
    from seqloom.runs.predictor import Predictor
    from seqloom.runs.seeds import over_seeds, summarize
    from seqloom.training.ranks import is_first

    if seeds is None:
        run = train(out=out, options=options)
        if not is_first():
            return run
        print(summary_line(run.folder))
        if isinstance(run, Predictor):
            print(f"report: {run.folder / 'report.html'}")
        return run
    found = over_seeds(train, out, range(options.seed, options.seed + seeds), options)
    print("\n".join(summarize(found, seeds)))
    return None


def summary_line(folder: Path) -> str:
    """One line about a finished run."""
    from seqloom.runs.card import SCORES

    metrics = json.loads((folder / "metrics.json").read_text())
    names = {
        "bleu": "BLEU",
        "cider": "CIDEr-D",
        "pointing": "pointing",
        "retrieval_accuracy": "retrieval",
        "masked_perplexity": "masked perplexity",
    } | SCORES
    scores = [
        f", {split} {shown} {metrics[f'{split}_scores'][key]:.4g}"
        for split in ("valid", "test")
        for key, shown in names.items()
        if key in metrics.get(f"{split}_scores", {})
    ]
    return f"{folder}: {metrics['step']:,} steps, {metrics['tokens']:,} tokens, {metrics['seconds']:.0f} s{''.join(scores)}"


TRANSLATE_EXAMPLES = """Examples:

seqloom translate runs/en-de news.en > news.de

echo "A man rides a bicycle." | seqloom translate runs/en-de --beam 5 --n-best 3

seqloom translate runs/seed0 runs/seed1 runs/seed2 news.en --length-penalty 0.6 --length-form gnmt

seqloom translate runs/en-de news.en --align > alignments.jsonl
"""


@app.command(epilog=TRANSLATE_EXAMPLES)
def translate(
    runs: Annotated[
        list[Path], typer.Argument(help="A run folder, or several for an ensemble; then a file with one text per line.")
    ],
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy search.")] = 4,
    tree: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the tree of the first line's search, with every hypothesis."),
    ] = None,
    length_penalty: Annotated[
        float, typer.Option(help="Exponent A of the length normalisation; 0: none. Higher values favour longer texts.")
    ] = 1.0,
    length_form: Annotated[
        str, typer.Option(help="Length normalisation: mean divides by |Y|^A, gnmt by ((5 + |Y|) / 6)^A.")
    ] = "mean",
    coverage_penalty: Annotated[
        float, typer.Option(help="Weight of GNMT's coverage penalty for source words without attention; 0: none.")
    ] = 0.0,
    n_best: Annotated[
        int, typer.Option(help="Number of translations of each line; more than 1: print number ||| text ||| score.")
    ] = 1,
    groups: Annotated[int, typer.Option(help="Number of groups of a diverse beam search.")] = 1,
    diversity: Annotated[float, typer.Option(help="Strength of the diversity penalty between --groups.")] = 0.5,
    min_new: Annotated[int, typer.Option(help="Minimum number of tokens in a translation.")] = 0,
    max_new: Annotated[
        int | None, typer.Option(help="Maximum number of tokens. Default: twice the source's and some.")
    ] = None,
    no_repeat: Annotated[int, typer.Option(help="Allow no n-gram of this many tokens twice; 0: no limit.")] = 0,
    prefix: Annotated[
        Path | None, typer.Option(help="File with the required beginning of each translation, one per line.")
    ] = None,
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Replace unknown words with the source word that has most attention.")
    ] = False,
    align: Annotated[
        bool, typer.Option("--align", help="Print JSON lines with the tokens and their attention to the source tokens.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Translate the lines of a file or of standard input."""
    *folders, file = runs if len(runs) > 1 and not runs[-1].is_dir() else [*runs, None]
    require(folders, lines=file)
    from seqloom.analyse.finding import check_ending
    from seqloom.cli.using import batches, read_lines
    from seqloom.errors import DataError
    from seqloom.files import new_file
    from seqloom.runs.load import load_translator

    models = [load_translator(folder, device) for folder in folders if folder is not None]
    options: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "length_form": length_form, "n_best": n_best,
        "coverage_penalty": coverage_penalty, "groups": groups, "diversity": diversity, "min_new": min_new,
        "max_new": max_new, "no_repeat": no_repeat,
    }  # fmt: skip
    if tree is not None:
        new_file(check_ending(tree, "--tree"), "--tree")
    prefix_lines: Iterator[str] | None = None if prefix is None else read_lines(prefix)
    number = 0
    for texts in batches(read_lines(file)):
        if tree is not None and (text := next(filter(str.strip, texts), None)) is not None:
            models[0].beam_tree(text, **options).save(tree)
            tree = None
        prefixes = None if prefix_lines is None else list(islice(prefix_lines, len(texts)))
        if prefixes is not None and len(prefixes) < len(texts):
            raise DataError(
                f"{prefix} has fewer lines than the text to translate: give one line for each, empty or not"
            )
        found = models[0].translate(
            texts, others=models[1:], align=align, copy_unknown=copy_unknown, prefixes=prefixes, **options
        )
        for text, best in zip(texts, found, strict=True):
            if align:
                print(json.dumps(alignment_record(models[0], text, best[0]), ensure_ascii=False))
            elif n_best == 1:
                print(in_one_line(best[0].text))
            else:
                for each in best:
                    print(f"{number} ||| {in_one_line(each.text)} ||| {each.score:.4f}")
            number += 1
        sys.stdout.flush()


def alignment_record(model: Any, text: str, best: Any) -> dict[str, Any]:
    tokenizer, reads = model.tokenizer, model.source_tokenizer
    return {
        "source": text,
        "target": best.text,
        "source_tokens": [*(reads.token(i) for i in reads.encode(text)), "</s>"],
        "target_tokens": [tokenizer.token(i) for i in best.tokens],
        "alignment": [[round(float(value), 5) for value in row] for row in best.alignment],
        "log_prob": best.log_prob,
    }


METRIC_EXAMPLES = """Examples:

seqloom metric translate test.de translated.de

seqloom metric translate test.ja translated.ja --tokenize char --json

seqloom metric tag test.conll predicted.conll --strict

seqloom metric classify test.jsonl predicted.jsonl

seqloom metric regress test.tsv predicted.txt --json

seqloom metric span dev-v2.0.json predictions.json
"""


@app.command(epilog=METRIC_EXAMPLES)
def metric(
    task: Annotated[str, typer.Argument(help="Task: translate, tag, span, classify or regress.")],
    gold: Annotated[Path, typer.Argument(help="Gold file: references, tagged text, SQuAD's JSON, or labelled rows.")],
    predicted: Annotated[
        Path, typer.Argument(help="Predictions: rows in the same order; for span {id: answer}; or one label per line.")
    ],
    tokenize: Annotated[
        str | None,
        typer.Option(help="Tokenization for BLEU (translate): 13a (the default), char, intl, zh or none."),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case (translate).")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Count only well-formed entities, as seqeval does (tag); default: as conlleval."),
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(help="Predict no answer above this probability of none (span). Default: 1."),
    ] = None,
    label_column: LabelColumn = None,
    as_json: Json = False,
) -> None:
    """Score the predictions of any program by the official rules of a task."""
    require((), [gold, predicted])
    from seqloom.config import unknown_name
    from seqloom.errors import UsageError
    from seqloom.evaluate import files

    scores: dict[str, Callable[[], dict[str, Any]]] = {
        "translate": lambda: files.translation_files(
            gold, predicted, "13a" if tokenize is None else tokenize, lowercase
        ),
        "tag": lambda: files.tag_files(gold, predicted, strict),
        "span": lambda: files.span_files(gold, predicted, threshold),
        "classify": lambda: files.label_files(gold, predicted, label_column),
        "regress": lambda: files.number_files(gold, predicted, label_column),
    }
    if task not in scores:
        raise UsageError(unknown_name("metric", task, task, list(scores)))
    options = {
        "--tokenize": (tokenize, ["translate"]), "--lowercase": (lowercase, ["translate"]),
        "--strict": (strict, ["tag"]), "--threshold": (threshold, ["span"]),
        "--label-column": (label_column, ["classify", "regress"]),
    }  # fmt: skip
    reject_unused(task, options)
    print_result(scores[task](), as_json)
