"""pretrain and evaluate."""

import json
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
    Settings,
    reject_unused,
    with_budget,
)
from seqloom.models.index import check_recipe_name

PRETRAIN_EXAMPLES = """Examples:

seqloom prepare corpus.txt --out data --valid 0.05

seqloom pretrain lstm-tiny --data data --out runs/lstm

seqloom pretrain gpt2-tiny --data data --out runs/gpt --minutes 5 --set model.dim=128 --set train.optim.lr=2e-3

seqloom pretrain gpt2-tiny --data data --out runs/gpt --resume

seqloom pretrain gpt2-tiny --data data --out runs/gpt --find-lr

seqloom pretrain lstm-tiny --data data --out runs/longer --from runs/lstm

seqloom pretrain xlm-r-tiny --data data/en data/de data/sw --out runs/three --set batches.smoothing=0.3

seqloom pretrain tiny --plugin examples/layernorm_lstm.py --data data --out runs/ln
"""


@app.command(epilog=PRETRAIN_EXAMPLES)
def pretrain(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A built-in recipe ('seqloom recipes' lists them), a TOML file, or a function of --plugin."
        ),
    ],
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR [DIR...]",
            help="A folder made by 'seqloom prepare'; several of one tokenizer: a language each.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder to write.")],
    settings: Settings = None,
    words: Annotated[float | None, typer.Option(help="Stop after this many words of text.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Stop after this many tokens.")] = None,
    flops: Flops = None,
    minutes: Minutes = None,
    seed: Seed = 0,
    resume: Resume = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    plugin: Plugin = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="RUN", help="Begin with the weights of another run of the same model and tokenizer."
        ),
    ] = None,
    country: Country = "world",
    find_lr: Annotated[
        bool, typer.Option("--find-lr", help="Train nothing: suggest a learning rate, with its curve in --out.")
    ] = False,
) -> None:
    """Pre-train a model on prepared text."""
    if plugin is None:
        check_recipe_name(recipe)
    if find_lr:
        show_rate(recipe, data, out, settings, seed, device, plugin)
        return
    from seqloom.runs.training import pretrain as run_pretrain

    overrides = with_budget(settings, words=words, tokens=tokens, flops=flops, minutes=minutes)
    run = run_pretrain(
        recipe,
        data,
        out,
        settings=overrides,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        device=device,
        deterministic=deterministic,
        country=country,
        plugin=plugin,
        start=start,
    )
    metrics = json.loads((run.folder / "metrics.json").read_text())
    valid = f", valid loss {metrics['valid_loss']:.4f}" if metrics["valid_loss"] is not None else ""
    steps = f"{metrics['step']:,} steps" if metrics["step"] else f"{metrics['parameters']:,} n-grams"
    print(f"{out}: {steps}, {metrics['tokens']:,} tokens, {metrics['seconds']:.0f} s{valid}")


def show_rate(
    recipe: str, data: list[Path], out: Path, settings: list[str] | None, seed: int, device: str, plugin: Path | None
) -> None:
    from seqloom.files import make_folder, write_bytes
    from seqloom.runs.folder import RATE_PAGE
    from seqloom.runs.report import rate_page
    from seqloom.runs.training import find_lr

    found = find_lr(recipe, data, settings=settings, seed=seed, device=device, plugin=plugin)
    make_folder(out)
    again = f"seqloom pretrain {recipe} --data {' '.join(map(str, data))} --out {out} --set train.optim.lr={found.suggestion:g}"
    write_bytes(out / RATE_PAGE, rate_page(recipe, found, again).encode())
    print(f"suggested rate     {found.suggestion:g}")
    print(f"steepest fall      {found.steepest:.2g}")
    print(f"lowest loss / 10   {found.tenth:.2g}")
    print(f"curve              {out / RATE_PAGE}")
    print(f"go on with         {again}")


EVALUATE_EXAMPLES = """Examples:

seqloom evaluate runs/lstm --data data

seqloom evaluate runs/gpt --data data --split valid --stride 64 --json

seqloom evaluate runs/lstm --data data --mix runs/ngram

seqloom evaluate runs/lstm --data data --cache 500

seqloom evaluate runs/en-de --test test.en test.de

seqloom evaluate runs/bert --suite blimp --suite-data blimp/data --json

seqloom evaluate runs/lstm --suite agreement --suite-data colorless_english.tsv --items items.npz

seqloom evaluate runs/gpt --suite lambada --suite-data lambada/test.txt
"""


@app.command(epilog=EVALUATE_EXAMPLES)
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[
        Path | None, typer.Option(help="Of a language model: a prepared folder, made with the run's tokenizer.")
    ] = None,
    test: Annotated[
        list[Path] | None,
        typer.Option("--test", metavar="FILE [FILE]", help="Pairs: two aligned files, a .tsv or a .jsonl."),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="blimp: of two sentences, is the grammatical one likelier? agreement: of two forms of a word, the one whose "
            "number agrees? lambada: is the last word of a passage found (models that read from left to right)?"
        ),
    ] = None,
    suite_data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Of --suite: its published files, a folder or one of them, packed or not."),
    ] = None,
    pll: Annotated[
        str | None, typer.Option(help="Of --suite with masked models: within-word (the default) or plain.")
    ] = None,
    items: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Of --suite: write what each item counts (1, ½ or 0), in the order of the files, to an .npz ('items') or a "
            ".jsonl.",
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Of a translator: hypotheses that are kept (4 unless given); 1: greedy.")
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="Of a translator: BLEU's tokens, 13a (unless given), char, intl, zh or none.")
    ] = None,
    mix: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A second run: the two are one mixture, whose shares the valid split decides."
        ),
    ] = None,
    cache: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE", help="Recurrent models: give words a share that followed the last SIZE states like it."
        ),
    ] = None,
    cache_theta: Annotated[
        float | None, typer.Option(help="How much alike those states must be; tuned on valid if not given.")
    ] = None,
    cache_lambda: Annotated[float | None, typer.Option(help="The cache's share; tuned on valid if not given.")] = None,
    split: Annotated[
        str | None, typer.Option(help="train, valid or test; else test if there is one, or valid.")
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(help="Tokens that a window moves on; smaller: more context, slower. Default: half of it."),
    ] = None,
    max_len: Annotated[int | None, typer.Option(help="Length of a window; default: the model's context.")] = None,
    carry: Annotated[
        bool, typer.Option("--carry", help="Recurrent models: carry the state from document to document.")
    ] = False,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens computed at once (16384 unless given); changes no figure.")
    ] = None,
    language: Language = None,
    device: Device = "auto",
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Perplexity and bits per byte, character and word on held-out text; BLEU and chrF on held-out pairs; suites."""
    from seqloom.errors import UsageError
    from seqloom.runs.language import in_language
    from seqloom.runs.load import load, load_language_model
    from seqloom.runs.translator import Translator

    if (data is not None) + bool(test) + (suite is not None) != 1:
        raise UsageError(
            "give --data DIR for a language model, --test FILE… for a translator or a task, or --suite blimp --suite-data PATH"
        )
    if (suite is None) != (suite_data is None):
        raise UsageError("--suite and --suite-data belong together: --suite blimp --suite-data PATH")
    reject_unused(
        "--suite" if suite is not None else "--test" if test else "--data",
        {
            "--pll": (pll, ["--suite"]), "--items": (items, ["--suite"]),
            "--beam": (beam, ["--test"]), "--tokenize": (tokenize, ["--test"]),
            "--mix": (mix, ["--data"]), "--cache": (cache, ["--data"]), "--cache-theta": (cache_theta, ["--data"]),
            "--cache-lambda": (cache_lambda, ["--data"]), "--split": (split, ["--data"]),
            "--stride": (stride, ["--data"]), "--max-len": (max_len, ["--data"]), "--carry": (carry, ["--data"]),
            "--batch-tokens": (batch_tokens, ["--data", "--suite"]), "--language": (language, ["--suite", "--test"]),
        },
    )  # fmt: skip
    at_once = 16384 if batch_tokens is None else batch_tokens
    if suite is not None and suite_data is not None:
        from seqloom.evaluate.suites import find_suite, write_items
        from seqloom.files import new_file

        find_suite(suite)
        items = None if items is None else new_file(items, "--items", ".npz", ".jsonl")
        loaded = load_language_model(run, device, plugin, language)
        result = loaded.evaluate_suite(suite, suite_data, pll, at_once, items=True)
        counted = result.pop("items")
        if items is not None:
            write_items(items, counted)
        show(result, as_json)
        return
    if test:
        from seqloom.runs.training import evaluate_files

        found = in_language(load(run, device, plugin), language)
        who = "translators" if isinstance(found, Translator) else str(run)
        reject_unused(who, {"--beam": (beam, ["translators"]), "--tokenize": (tokenize, ["translators"])})
        show(evaluate_files(found, test, "13a" if tokenize is None else tokenize, 4 if beam is None else beam), as_json)
        return
    assert data is not None
    if cache is None and (cache_theta is not None or cache_lambda is not None):
        raise UsageError("--cache-theta and --cache-lambda belong to a cache: add --cache SIZE")
    if cache is not None and mix is not None:
        raise UsageError("--cache and --mix are two mixtures: choose one of them")
    if cache is not None:  # it reads the text once, from its start to its end
        windows = {"--stride": stride, "--max-len": max_len, "--batch-tokens": batch_tokens}
        reject_unused("--cache", {name: (value, ["windows"]) for name, value in windows.items()})
    if carry and (cache is not None or mix is not None):
        raise UsageError("--carry goes neither with --cache nor with --mix: leave one of them out")
    loaded = load_language_model(run, device, plugin)
    if cache is not None:
        show(loaded.evaluate_cached(data, cache, split, cache_theta, cache_lambda), as_json)
        return
    if mix is not None:
        options = {"stride": stride, "max_len": max_len, "batch_tokens": at_once}
        show(loaded.mix(load_language_model(mix, device, plugin), data, split, **options), as_json)
        return
    options = {"stride": stride, "max_len": max_len, "batch_tokens": at_once, "carry": carry}
    show(loaded.evaluate(data, split, **options), as_json)


WIDEST = 12  # labels of a confusion matrix that is printed; --json has it always


def show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    parts, buckets = result.pop("parts", []), result.pop("by_length", [])
    groups = {name.removeprefix("by_"): result.pop(name) for name in list(result) if name.startswith("by_")}
    classes = result.pop("per_class", {}) | result.pop("per_kind", {})
    confusion = result.pop("confusion", {"labels": [], "counts": []})
    for name, value in result.items():
        print(f"{name:18} {shown(value)}")
    for bucket in buckets:
        words = f"{bucket['shortest']}–{bucket['longest']} words"
        print(f"{words:18} BLEU {bucket['bleu']:.2f} ({bucket['lines']:,} lines)")
    for kind, rows in groups.items():
        for name, accuracy in rows.items():
            print(f"{kind:12} {name:58} {shown(accuracy)}")
    for label, figures in classes.items():
        print(f"{label:18} " + "  ".join(f"{name} {shown(value)}" for name, value in figures.items()))
    if 0 < len(confusion["labels"]) <= WIDEST:
        print(f"{'is / was called':18} " + " ".join(f"{label[:9]:>9}" for label in confusion["labels"]))
        for label, counts in zip(confusion["labels"], confusion["counts"], strict=True):
            print(f"{label:18} " + " ".join(f"{count:>9,}" for count in counts))
    for part in parts:
        figures = ("loss", "perplexity", "bits_per_word", "bits_per_byte")
        print(f"{part['run']}: " + ", ".join(f"{name} {shown(part[name])}" for name in figures if name in part))


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
