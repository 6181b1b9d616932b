"""train, translate and metric: what is learnt from labelled examples, used, and scored."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
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
    Minutes,
    Overwrite,
    Resume,
    Seed,
    Seeds,
    Settings,
    reject_unused,
    with_budget,
)
from seqloom.cli.training import show
from seqloom.models.index import check_recipe_name

TRAIN_EXAMPLES = """Examples:

seqloom train transformer-small --task translate --train train.en train.de --valid val.en val.de --out runs/en-de

seqloom train bahdanau-tiny --task translate --train pairs.tsv --valid dev.tsv --out runs/small --vocab-size 2000

seqloom train transformer-small --task translate --train train.en train.de --valid val.en val.de --out runs/en-de --resume

seqloom train bilstm-cnn-small --task tag --train train.conll --valid dev.conll --out runs/ner --tokenizer word
"""


@app.command(epilog=TRAIN_EXAMPLES)
def train(
    recipe: Annotated[str, typer.Argument(help="A built-in recipe ('seqloom recipes' lists them) or a TOML file.")],
    task: Annotated[
        str, typer.Option(help="classify, regress, pair, choose, tag, span, translate, translation-lm or entity-lm.")
    ],
    train_files: Annotated[
        list[Path],
        typer.Option(
            "--train",
            metavar="FILE [FILE]",
            help="As the task reads them; pairs: two aligned files, a .tsv, or a .jsonl with source and target.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    valid: Annotated[
        list[Path] | None,
        typer.Option(
            "--valid",
            metavar="FILE [FILE]",
            help="To choose the best weights by, in the same form; without it the last are kept.",
        ),
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option("--test", metavar="FILE [FILE]", help="Scored once, at the end."),
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="bpe, wordpiece, unigram, word, char or byte, for both sides.")
    ] = "bpe",
    vocab_size: Annotated[int | None, typer.Option(help="Entries of the one vocabulary of both sides.")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Read and write in lower case.")] = False,
    from_tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json to use instead of learning one.")
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Word vectors to begin with, in the text format of word2vec or GloVe."),
    ] = None,
    settings: Settings = None,
    tokens: Annotated[float | None, typer.Option(help="Stop after this many target tokens.")] = None,
    flops: Flops = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    country: Country = "world",
) -> None:
    """Train a task from its own examples, from scratch."""
    check_recipe_name(recipe)
    from seqloom.errors import UsageError
    from seqloom.runs.report import write_translation_report
    from seqloom.runs.training import train as run_train
    from seqloom.runs.translator import Translator
    from seqloom.tasks import task_class

    if seeds is not None and task_class(task).reads != "labelled":
        raise UsageError(f"--seeds: the task {task} is trained once a call; give another --seed and --out for each")
    train = partial(
        run_train, recipe, task, train_files, valid=valid or (), test=test or (), tokenizer=tokenizer,
        vocab_size=vocab_size, lowercase=lowercase, from_tokenizer=from_tokenizer, vectors=vectors,
        settings=with_budget(settings, tokens=tokens, flops=flops, minutes=minutes), device=device,
        deterministic=deterministic, country=country,
    )  # fmt: skip
    run = trained(train, out, seed, seeds, resume, overwrite)
    if isinstance(run, Translator):
        print(f"report: {write_translation_report(run, valid or train_files)}")


def trained(train: Callable[..., Any], out: Path, seed: int, seeds: int | None, resume: bool, overwrite: bool) -> Any:
    """One run, which is returned, or several of other seeds; and what is said of them at the end."""
    from seqloom.runs.predictor import Predictor
    from seqloom.runs.seeds import lines, over_seeds

    if seeds is None:
        run = train(out=out, seed=seed, resume=resume, overwrite=overwrite)
        print(ended(run.folder))
        if isinstance(run, Predictor):
            print(f"report: {run.folder / 'report.html'}")
        return run
    found = over_seeds(train, out, range(seed, seed + seeds), resume=resume, overwrite=overwrite)
    print("\n".join(lines(found, seeds)))
    return None


def ended(folder: Path) -> str:
    """One line about a run that is done."""
    from seqloom.runs.card import SCORES

    metrics = json.loads((folder / "metrics.json").read_text())
    names = {"bleu": "BLEU", "retrieval_accuracy": "retrieval", "masked_perplexity": "masked perplexity"} | SCORES
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
    runs: Annotated[list[Path], typer.Argument(help="A run folder, or several for an ensemble; then a file of lines.")],
    beam: Annotated[int, typer.Option(help="Hypotheses that are kept at each step; 1: greedy.")] = 4,
    length_penalty: Annotated[float, typer.Option(help="0: none; the higher, the longer.")] = 1.0,
    length_form: Annotated[str, typer.Option(help="mean: |Y|^A; gnmt: ((5 + |Y|) / 6)^A.")] = "mean",
    coverage_penalty: Annotated[
        float, typer.Option(help="Above 0: what was not looked at counts against (GNMT).")
    ] = 0.0,
    n_best: Annotated[
        int, typer.Option(help="Translations of each line: number, text and score, with ||| between.")
    ] = 1,
    groups: Annotated[int, typer.Option(help="Diverse beams: groups that avoid each other's words.")] = 1,
    diversity: Annotated[float, typer.Option(help="How much they do.")] = 0.5,
    min_new: Annotated[int, typer.Option(help="The fewest tokens of a translation.")] = 0,
    max_new: Annotated[int | None, typer.Option(help="The most; else twice the source's and some.")] = None,
    no_repeat: Annotated[int, typer.Option(help="No run of this many tokens twice; 0: no such rule.")] = 0,
    prefix: Annotated[Path | None, typer.Option(help="A file with what each translation must begin with.")] = None,
    copy_unknown: Annotated[
        bool, typer.Option("--copy-unknown", help="Unknown words: the source word that is looked at most.")
    ] = False,
    align: Annotated[
        bool, typer.Option("--align", help="JSON lines with the tokens and how much each looks at each of the source.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Translate lines, from a file or from standard input."""
    from seqloom.cli.using import batches, read_lines
    from seqloom.errors import DataError
    from seqloom.runs.load import load_translator

    *folders, file = runs if len(runs) > 1 and not runs[-1].is_dir() else [*runs, None]
    models = [load_translator(folder, device) for folder in folders if folder is not None]
    options: dict[str, Any] = {
        "beam": beam, "length_penalty": length_penalty, "length_form": length_form, "n_best": n_best,
        "coverage_penalty": coverage_penalty, "groups": groups, "diversity": diversity, "min_new": min_new,
        "max_new": max_new, "no_repeat": no_repeat,
    }  # fmt: skip
    begun: Iterator[str] | None = None if prefix is None else read_lines(prefix)
    number = 0
    for texts in batches(read_lines(file)):
        starts = None if begun is None else list(islice(begun, len(texts)))
        if starts is not None and len(starts) < len(texts):
            raise DataError(f"{prefix} has fewer lines than there are to translate: give one for each, empty or not")
        found = models[0].translate(
            texts, others=models[1:], align=align, copy_unknown=copy_unknown, prefixes=starts, **options
        )
        for text, best in zip(texts, found, strict=True):
            if align:
                print(json.dumps(aligned(models[0], text, best[0]), ensure_ascii=False))
            elif n_best == 1:
                print(best[0].text)
            else:
                for each in best:
                    print(f"{number} ||| {each.text} ||| {each.score:.4f}")
            number += 1
        sys.stdout.flush()


def aligned(model: Any, text: str, best: Any) -> dict[str, Any]:
    tokenizer = model.tokenizer
    return {
        "source": text,
        "target": best.text,
        "source_tokens": [*(tokenizer.token(i) for i in tokenizer.encode(text)), "</s>"],
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
    task: Annotated[str, typer.Argument(help="translate, tag, span, classify or regress.")],
    gold: Annotated[
        Path, typer.Argument(help="What is right: references, tagged text, SQuAD's JSON, or labelled rows.")
    ],
    predicted: Annotated[
        Path, typer.Argument(help="What was predicted: the same rows; of questions {id: answer}; or a label a line.")
    ],
    tokenize: Annotated[
        str | None, typer.Option(help="Of translations: BLEU's tokens, 13a (unless given), char, intl, zh or none.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Of translations: case does not count.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Of tags: only well-formed entities count, as with seqeval; else conlleval."),
    ] = False,
    threshold: Annotated[
        float | None, typer.Option(help="Of questions: above this probability of no answer none is given (1).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score predictions, made anywhere, by the official rules."""
    from seqloom.config import unknown_name
    from seqloom.errors import UsageError
    from seqloom.evaluate import files

    scores: dict[str, Callable[[], dict[str, Any]]] = {
        "translate": lambda: files.translation_files(
            gold, predicted, "13a" if tokenize is None else tokenize, lowercase
        ),
        "tag": lambda: files.tag_files(gold, predicted, strict),
        "span": lambda: files.span_files(gold, predicted, threshold),
        "classify": lambda: files.label_files(gold, predicted),
        "regress": lambda: files.number_files(gold, predicted),
    }
    if task not in scores:
        raise UsageError(unknown_name("metric", task, task, list(scores)))
    options = {
        "--tokenize": (tokenize, ["translate"]), "--lowercase": (lowercase, ["translate"]),
        "--strict": (strict, ["tag"]), "--threshold": (threshold, ["span"]),
    }  # fmt: skip
    reject_unused(task, options)
    show(scores[task](), as_json)
