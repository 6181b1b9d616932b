"""pretrain and evaluate."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from seqloom.cli import app
from seqloom.cli.options import (
    LANGUAGE_MODELS,
    RECURRENT_MODELS,
    SUITES,
    TRANSLATORS,
    Batch,
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
    Settings,
    TextColumn,
    Threshold,
    launch_ranks,
    name_columns,
    named_runs,
    reject_unused,
    require,
    set_predictor,
    with_batch,
    with_options,
)
from seqloom.models.index import check_recipe_name

if TYPE_CHECKING:
    from seqloom.plugins import Plugin as PluginFile

PRETRAIN_EXAMPLES = """Examples:

seqloom prepare corpus.txt --out data --valid 0.05

seqloom pretrain lstm-tiny --data data --out runs/lstm

seqloom pretrain gpt2-tiny --data data --out runs/gpt --epochs 3 --lr 2e-3 --batch 32

seqloom pretrain gpt2-tiny --data data --out runs/gpt --minutes 5 --set model.dim=128 --set train.optim.weight_decay=0.1

seqloom pretrain gpt2-tiny --data data --out runs/gpt --resume

seqloom pretrain gpt2-tiny --data data --out runs/gpt --find-lr

seqloom pretrain gpt2-tiny --data data --out runs/four --ranks 4 --set train.accumulate=4 --set batches.budget=2048

seqloom pretrain lstm-tiny --data data --out runs/longer --from runs/lstm

seqloom pretrain xlm-r-tiny --data data/en data/de data/sw --out runs/three --set batches.smoothing=0.3

seqloom pretrain tiny --plugin examples/layernorm_lstm.py --data data --out runs/ln
"""


@app.command(epilog=PRETRAIN_EXAMPLES)
def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A built-in recipe ('seqloom recipes' lists them), a TOML file, or a function in the --plugin file."
        ),
    ],
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR [DIR...]",
            help="A folder made by 'seqloom prepare'; or one for each language, all with the same tokenizer.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    settings: Settings = None,
    lr: Rate = None,
    batch: Batch = None,
    milestones: Milestones = False,
    epochs: Epochs = None,
    words: Annotated[float | None, typer.Option(help="Stop after this many words of text.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Stop after this many tokens.")] = None,
    flops: Flops = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    ranks: Ranks = 1,
    plugin: Plugin = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN", help="Initialise with the weights of another run of the same model and tokenizer."
        ),
    ] = None,
    country: Country = "world",
    find_lr: Annotated[
        bool,
        typer.Option("--find-lr", help="Suggest a learning rate instead of training, and write its curve to --out."),
    ] = False,
) -> None:
    """Pre-train a model on prepared text."""
    if plugin is None:
        check_recipe_name(recipe)
    require([start], (), data)
    overrides = with_options(
        settings, lr, milestones, epochs=epochs, words=words, tokens=tokens, flops=flops, minutes=minutes
    )
    from seqloom.plugins import open_plugin

    own = open_plugin(plugin)
    from seqloom.recipes.library import find_recipe

    overrides = with_batch(overrides, settings, batch, lambda changes: find_recipe(recipe, changes, own))
    if find_lr:
        suggest_rate(recipe, data, out, overrides, seed, device, own)
        return
    if launch_ranks(ranks):
        return
    from seqloom.runs.options import RunOptions
    from seqloom.runs.training import pretrain as run_pretrain
    from seqloom.training.ranks import is_first

    options = RunOptions(seed, resume, overwrite, device, deterministic, country)
    run = run_pretrain(recipe, data, out, settings=overrides, plugin=own, start=start, options=options)
    if not is_first():
        return
    metrics = json.loads((run.folder / "metrics.json").read_text("utf-8"))
    valid = f", valid loss {metrics['valid_loss']:.4f}" if metrics["valid_loss"] is not None else ""
    steps = f"{metrics['step']:,} steps" if metrics["step"] else f"{metrics['parameters']:,} n-grams"
    print(f"{out}: {steps}, {metrics['tokens']:,} tokens, {metrics['seconds']:.0f} s{valid}")


def suggest_rate(
    recipe: str, data: list[Path], out: Path, settings: list[str], seed: int, device: str, plugin: "PluginFile | None"
) -> None:
    from seqloom.files import make_folder, write_bytes
    from seqloom.runs.folder import RATE_PAGE
    from seqloom.runs.report import rate_page
    from seqloom.runs.training import find_lr

    found = find_lr(recipe, data, settings=settings, seed=seed, device=device, plugin=plugin)
    make_folder(out)
    command = (
        f"seqloom pretrain {recipe} --data {' '.join(map(str, data))} --out {out} "
        f"--set train.optim.lr={found.suggestion:g}"
    )
    write_bytes(out / RATE_PAGE, rate_page(recipe, found, command).encode())
    print(f"suggested rate     {found.suggestion:g}")
    print(f"steepest descent   {found.steepest:.2g}")
    print(f"lowest loss / 10   {found.tenth:.2g}")
    print(f"curve              {out / RATE_PAGE}")
    print(f"train with it      {command}")


EVALUATE_EXAMPLES = """Examples:

seqloom evaluate runs/lstm --data data

seqloom evaluate runs/gpt --data data --split valid --stride 64 --json

seqloom evaluate runs/lstm --data data --mix runs/ngram

seqloom evaluate runs/lstm --data data --cache 500

seqloom evaluate runs/transformer-xl --data data --memory 640

seqloom evaluate runs/en-de --test test.en test.de

seqloom evaluate runs/bert --suite blimp --suite-data blimp/data --json

seqloom evaluate runs/lstm --suite agreement --suite-data colorless_english.tsv --items items.npz

seqloom evaluate runs/gpt --suite lambada --suite-data lambada/test.txt

seqloom evaluate runs/word2vec --suite analogies --suite-data questions-words.txt --vectors mean

seqloom evaluate runs/bert --suite similarity --suite-data word-similarity --contexts corpus.txt
"""


@app.command(epilog=EVALUATE_EXAMPLES)
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Evaluate a language model on this prepared folder, made with the run's tokenizer."),
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option(
            "--test",
            metavar="FILE [FILE]",
            help="Evaluate a task on labelled examples; a translator on two aligned files, a .tsv or a .jsonl.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Evaluate a language model on a test suite. blimp: is the grammatical sentence of two more likely? agreement: "
            "is the form of a word that agrees in number more likely? lambada: is the last word of a passage predicted "
            "(left-to-right models only)? copy: is the second half of 0w0w predicted (left-to-right models only)? analogies: is "
            "Athens to Greece as Oslo to Norway? similarity: does it agree with people's ratings?",
            rich_help_panel=SUITES,
        ),
    ] = None,
    suite_data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Published files of the suite: a folder or one file, compressed or not.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    pll: Annotated[
        str | None,
        typer.Option(
            help="Pseudo-log-likelihood of masked models: within-word (the default) or plain.", rich_help_panel=SUITES
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Vectors of words in analogies and similarity: rows of a table (in, out, mean), what the model makes of each "
            "word alone (alone), or the mean over contexts (contexts). Default: in for models without a context, else alone.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    contexts: Annotated[
        Path | None,
        typer.Option(
            metavar="TEXT",
            help="Text in which words are looked up for --vectors contexts, as 'prepare' reads it.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    num_contexts: Annotated[
        int | None,
        typer.Option(help="The most contexts of each word that are read. Default: 10.", rich_help_panel=SUITES),
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the score of each item (1, ½ or 0), in the order of the files, to an .npz ('items') or a .jsonl.",
            rich_help_panel=SUITES,
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beam size; 1 is greedy search. Default: 4.", rich_help_panel=TRANSLATORS)
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="Tokenization for BLEU: 13a (the default), char, intl, zh or none.", rich_help_panel=TRANSLATORS
        ),
    ] = None,
    mix: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Interpolate with a second run; the weights are chosen on the valid split.",
            rich_help_panel=LANGUAGE_MODELS,
        ),
    ] = None,
    cache: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            help="Add a continuous cache: words that followed similar hidden states among the last SIZE become more likely.",
            rich_help_panel=RECURRENT_MODELS,
        ),
    ] = None,
    cache_theta: Annotated[
        float | None,
        typer.Option(
            help="Flatness of the cache's distribution (theta); tuned on valid unless given.",
            rich_help_panel=RECURRENT_MODELS,
        ),
    ] = None,
    cache_lambda: Annotated[
        float | None,
        typer.Option(
            help="Interpolation weight of the cache (lambda); tuned on valid unless given.",
            rich_help_panel=RECURRENT_MODELS,
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split to evaluate: train, valid or test. Default: test, or valid if there is no test.",
            rich_help_panel=LANGUAGE_MODELS,
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            help="Tokens by which the window moves; a smaller stride gives more context and is slower. Default: half a window.",
            rich_help_panel=LANGUAGE_MODELS,
        ),
    ] = None,
    max_len: Annotated[
        int | None,
        typer.Option(
            help="Length of the window, also for recurrent models. Default: the model's context; recurrent models read whole "
            "documents.",
            rich_help_panel=LANGUAGE_MODELS,
        ),
    ] = None,
    carry: Annotated[
        bool,
        typer.Option(
            "--carry",
            help="Carry the hidden state from one document to the next.",
            rich_help_panel=RECURRENT_MODELS,
        ),
    ] = False,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            min=1,
            max=1_000_000,
            help="Tokens that each token of a model with a memory sees, itself included. Default: its recipe's.",
            rich_help_panel=RECURRENT_MODELS,
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens in a batch; changes speed and memory, but no result. Default: 16384."),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    pair_column: PairColumn = None,
    id_column: IdColumn = None,
    encoding: Encoding = None,
    threshold: Threshold = None,
    long_texts: LongTexts = None,
    task: OneTask = None,
    beside: BesideMoved = None,
    language: Language = None,
    device: Device = "auto",
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run: perplexity and bits per byte on text, BLEU of translations, a task's scores, or a test suite."""
    require([run, mix], test or (), [data])
    from seqloom.errors import UsageError
    from seqloom.runs.load import load, load_language_model

    if (data is not None) + bool(test) + (suite is not None) != 1:
        raise UsageError(
            "give --data DIR for a language model, --test FILE… for a translator or a task, or --suite blimp --suite-data PATH"
        )
    if (suite is None) != (suite_data is None):
        raise UsageError("--suite and --suite-data need each other: --suite blimp --suite-data PATH")
    reject_unused(
        "--suite" if suite is not None else "--test" if test else "--data",
        {
            "--pll": (pll, ["--suite"]), "--items": (items, ["--suite"]), "--vectors": (vectors, ["--suite"]),
            "--contexts": (contexts, ["--suite"]), "--num-contexts": (num_contexts, ["--suite"]),
            "--beam": (beam, ["--test"]), "--tokenize": (tokenize, ["--test"]),
            "--mix": (mix, ["--data"]), "--cache": (cache, ["--data"]), "--cache-theta": (cache_theta, ["--data"]),
            "--cache-lambda": (cache_lambda, ["--data"]), "--split": (split, ["--data"]),
            "--stride": (stride, ["--data"]), "--max-len": (max_len, ["--data"]), "--carry": (carry, ["--data"]),
            "--memory": (memory, ["--data"]),
            "--batch-tokens": (batch_tokens, ["--data", "--suite"]), "--language": (language, ["--suite", "--test"]),
            "--text-column": (text_column, ["--test"]), "--label-column": (label_column, ["--test"]),
            "--pair-column": (pair_column, ["--test"]), "--id-column": (id_column, ["--test"]),
            "--encoding": (encoding, ["--test"]), "--threshold": (threshold, ["--test"]),
            "--long-texts": (long_texts, ["--test"]), "--task": (task, ["--test"]), "--beside": (beside, ["--test"]),
        },
    )  # fmt: skip
    if suite is not None and suite_data is not None:
        load_run = partial(load_language_model, run, device, plugin, language)
        if num_contexts is not None and contexts is None:
            raise UsageError(f"--num-contexts {num_contexts} is for --contexts TEXT: leave it out, or name a text")
        words = {"vectors": vectors, "contexts": contexts, "num_contexts": 10 if num_contexts is None else num_contexts}
        result = evaluate_suite(load_run, suite, suite_data, pll, words, batch_tokens or BATCH_TOKENS, items)
    elif test:
        named = text_column, label_column, pair_column, id_column

        def load_test() -> Any:
            return set_predictor(load(run, device, plugin, named_runs(beside), task), threshold, long_texts)

        result = evaluate_test(load_test, run, test, language, tokenize, beam, named, encoding)
    else:
        assert data is not None
        windows = Windows(stride, max_len, batch_tokens, carry)
        check_mixtures(mix, Cache(cache, cache_theta, cache_lambda), windows)
        loaded = load_language_model(run, device, plugin, memory=memory)
        if cache is not None:
            result = loaded.evaluate_cached(data, cache, split, cache_theta, cache_lambda)
        elif mix is not None:
            result = loaded.mix(load_language_model(mix, device, plugin), data, split, **windows.options())
        else:
            check_windows(loaded, windows)
            result = loaded.evaluate(data, split, carry=carry, **windows.options())
    print_result(result, as_json)


BATCH_TOKENS = 16384


class Windows(NamedTuple):
    """How a language model reads held-out text."""

    stride: int | None
    max_len: int | None
    batch_tokens: int | None
    carry: bool

    def options(self) -> dict[str, Any]:
        at_once = BATCH_TOKENS if self.batch_tokens is None else self.batch_tokens
        return {"stride": self.stride, "max_len": self.max_len, "batch_tokens": at_once}


class Cache(NamedTuple):
    size: int | None
    theta: float | None
    weight: float | None


def check_mixtures(mix: Path | None, cache: Cache, windows: Windows) -> None:
    """Raise UsageError for options of --data that exclude each other."""
    from seqloom.errors import UsageError

    if cache.size is None and (cache.theta is not None or cache.weight is not None):
        raise UsageError("--cache-theta and --cache-lambda need a cache: add --cache SIZE")
    if cache.size is not None and mix is not None:
        raise UsageError("--cache and --mix cannot be combined: choose one of them")
    if cache.size is not None:  # it reads the text once, from start to end
        ignored = {
            "--stride": windows.stride, "--max-len": windows.max_len, "--batch-tokens": windows.batch_tokens,
        }  # fmt: skip
        reject_unused("--cache", {name: (value, ["windows"]) for name, value in ignored.items()})
    if windows.carry and (cache.size is not None or mix is not None):
        raise UsageError("--carry cannot be combined with --cache or --mix: leave one of them out")


def check_windows(run: Any, windows: Windows) -> None:
    """Raise UsageError for windows that a run does not read its text in."""
    from seqloom.errors import UsageError

    which, stride, max_len = f"{run.folder} ({run.config['recipe']['model']['name']})", windows.stride, windows.max_len
    if run.evaluator.reads == "passages" and (stride is not None or max_len is not None):
        option = f"--stride {stride}" if max_len is None else f"--max-len {max_len}"
        raise UsageError(
            f"{option} is for models that read from left to right, and {which} is evaluated as it was trained: leave it out"
        )
    if run.evaluator.reads == "documents" and stride is not None and max_len is None:
        raise UsageError(
            f"--stride {stride} is of windows, and {which} reads whole documents: add --max-len, or leave it out"
        )


def evaluate_suite(
    load_run: Callable[[], Any],
    suite: str,
    path: Path,
    pll: str | None,
    words: dict[str, Any],
    batch_tokens: int,
    items: Path | None,
) -> dict[str, Any]:
    """Scores on a test suite. The options are checked before the run is loaded. words: how they become vectors."""
    from seqloom.evaluate.suites import find_suite, write_items
    from seqloom.files import new_file

    _, read, _, sets = find_suite(suite)
    items = None if items is None else new_file(items, "--items", ".npz", ".jsonl")
    result = load_run().evaluate_suite(suite, path, pll, batch_tokens, items=True, **words)
    item_scores = result.pop("items")
    if items is not None:
        write_items(items, item_scores, None if sets is None else sets(read(path)))
    return result


def evaluate_test(
    load_run: Callable[[], Any],
    run: Path,
    files: list[Path],
    language: str | None,
    tokenize: str | None,
    beam: int | None,
    named: tuple[str | None, str | None, str | None, str | None],
    encoding: str | None,
) -> dict[str, Any]:
    """Scores of a task or a translator on labelled files. named: the columns of text, label, second text and id."""
    from seqloom.runs.captioner import Captioner
    from seqloom.runs.language import in_language
    from seqloom.runs.training import evaluate_files
    from seqloom.runs.translator import Translator

    loaded = in_language(load_run(), language)
    modes = {"translators": Translator, "captioners": Captioner}
    mode = next((name for name, kind in modes.items() if isinstance(loaded, kind)), str(run))
    reject_unused(mode, {"--beam": (beam, list(modes)), "--tokenize": (tokenize, ["translators"])})
    columns = name_columns(loaded.learns, True, *named)
    return evaluate_files(
        loaded, files, "13a" if tokenize is None else tokenize, 4 if beam is None else beam, encoding, **columns
    )


MAX_CONFUSION_LABELS = 12  # larger confusion matrices are only in --json


def print_result(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    parts, buckets = result.pop("parts", []), result.pop("by_length", [])
    groups = {name.removeprefix("by_"): result.pop(name) for name in list(result) if name.startswith("by_")}
    classes = result.pop("per_class", {}) | result.pop("per_kind", {})
    confusion = result.pop("confusion", {"labels": [], "counts": []})
    for name, value in result.items():
        print(f"{name:18} {format_value(value)}")
    for bucket in buckets:
        words = f"{bucket['shortest']}–{bucket['longest']} words"
        print(f"{words:18} BLEU {bucket['bleu']:.2f} ({bucket['lines']:,} lines)")
    for kind, rows in groups.items():
        for name, accuracy in rows.items():
            print(f"{kind:12} {name:58} {format_value(accuracy)}")
    for label, figures in classes.items():
        print(f"{label:18} " + "  ".join(f"{name} {format_value(value)}" for name, value in figures.items()))
    if 0 < len(confusion["labels"]) <= MAX_CONFUSION_LABELS:
        print(f"{'gold / predicted':18} " + " ".join(f"{label[:9]:>9}" for label in confusion["labels"]))
        for label, counts in zip(confusion["labels"], confusion["counts"], strict=True):
            print(f"{label:18} " + " ".join(f"{count:>9,}" for count in counts))
    for part in parts:
        figures = ("loss", "perplexity", "bits_per_word", "bits_per_byte")
        print(f"{part['run']}: " + ", ".join(f"{name} {format_value(part[name])}" for name in figures if name in part))


def format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
