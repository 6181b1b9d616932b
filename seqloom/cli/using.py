"""generate and score: what a trained model says, and what it thinks of what you say."""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json, Language, Plugin

GENERATE_EXAMPLES = """Examples:

seqloom generate runs/gpt --prompt "Once upon a time"

seqloom generate runs/lstm --temperature 0.8 --top-p 0.9 --n 3 --seed 7 --json

seqloom generate runs/gpt --prompt "Once upon a time" --beam 5 --n 3 --no-repeat 3
"""


@app.command(epilog=GENERATE_EXAMPLES)
def generate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    prompt: Annotated[str, typer.Option(help="The text to go on from; none: the start of a document.")] = "",
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the fewest tokens that have this share together.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Draw nothing: search the best texts with a beam of this many.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(help="Of --beam: log P / length^A ranks texts; 1 (the default) is their mean, 0 the sum."),
    ] = None,
    max_new: Annotated[int, typer.Option(help="The most new tokens.")] = 200,
    min_new: Annotated[int, typer.Option(help="The fewest; the text cannot end before.")] = 0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: what was said becomes less likely.")] = 1.0,
    no_repeat: Annotated[int, typer.Option(help="No run of this many tokens twice; 0: no such rule.")] = 0,
    n: Annotated[int, typer.Option("--n", help="How many samples, or how many of the best that --beam finds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same text.")] = 0,
    device: Device = "auto",
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Continue a text."""
    from seqloom.errors import UsageError
    from seqloom.runs.load import load_language_model

    options: dict[str, Any] = {
        "max_new": max_new,
        "min_new": min_new,
        "repetition_penalty": repetition_penalty,
        "no_repeat": no_repeat,
    }
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if beam is not None:
        if drawing != {"temperature": 1.0, "top_k": None, "top_p": None}:
            raise UsageError("--beam searches, --temperature, --top-k and --top-p draw: use one or the other")
        options |= {"beam": beam, "length_penalty": 1.0 if length_penalty is None else length_penalty}
        found = load_language_model(run, device, plugin).search(prompt, n=n, **options)
        if as_json:
            print(json.dumps({"samples": [each._asdict() for each in found], **options}))
        else:
            show([each.text for each in found])
        return
    if length_penalty is not None:
        raise UsageError("--length-penalty belongs to --beam: give that, too")
    options |= drawing
    loaded = load_language_model(run, device, plugin)
    live = n == 1 and not as_json
    if live:
        write(prompt)
    samples = loaded.generate(prompt, n=n, seed=seed, on_text=write if live else None, **options)
    if live:
        print()
    elif as_json:
        rows = [
            {"text": s.text, "tokens": s.tokens, "log_prob": sum(s.log_probs), "log_probs": s.log_probs}
            for s in samples
        ]
        print(json.dumps({"samples": rows, "seed": seed, **options}))
    else:
        show([each.text for each in samples])


def show(texts: list[str]) -> None:
    for number, text in enumerate(texts, 1):
        print(f"--- {number}\n{text}" if len(texts) > 1 else text)


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


IN_MEMORY = 1 << 26  # bytes of an object before it is printed; more go to a file

SCORE_EXAMPLES = """Examples:

seqloom score runs/gpt sentences.txt

echo "The keys to the cabinet are here." | seqloom score runs/lstm --json

seqloom score runs/lstm sentences.txt --cells cells.npz

seqloom score runs/bert sentences.txt --pll plain

seqloom score runs/xlm sentences.de.txt --language de
"""


@app.command(epilog=SCORE_EXAMPLES)
def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[Path | None, typer.Argument(help="One text a line; none: standard input.")] = None,
    language: Language = None,
    device: Device = "auto",
    plugin: Plugin = None,
    cells: Annotated[
        Path | None,
        typer.Option(metavar="OUT.npz", help="Of recurrent models: every gate and state at every token, to this file."),
    ] = None,
    pll: Annotated[
        str | None,
        typer.Option(help="Of masked models: within-word (the default: the rest of a word is hidden, too) or plain."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with every token.")] = False,
) -> None:
    """The log-probability of each line: the sum over its tokens, in nats; the end of the text is not counted.

    Of masked models it is the pseudo-log-likelihood, of ELECTRA the sum of log(1 − p(replaced)): --json says which.
    """
    from seqloom.runs.load import load_language_model

    loaded = load_language_model(run, device, plugin, language)
    definition = loaded.definition(pll)
    if cells is not None:
        dump_cells(loaded, file, cells)
    if as_json:
        print_scores(loaded, definition, named(file), pll)
        return
    for texts, names in named(file):
        for scored in loaded.score(texts, pll, names):
            print(f"{sum(scored.log_probs):.4f}")


def print_scores(loaded: Any, definition: str, batches: Iterator[tuple[list[str], list[str]]], pll: str | None) -> None:
    """One JSON object. It is put together in a file, where it is large, and printed once the last line has been scored: a line
    that is refused leaves no half of it."""
    total, count, between = 0.0, 0, ""
    with SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8") as whole:
        whole.write(f'{{"definition": {json.dumps(definition)}, "lines": [')
        for texts, names in batches:
            for text, scored in zip(texts, loaded.score(texts, pll, names), strict=True):
                line = sum(scored.log_probs)
                total, count = total + line, count + len(scored.log_probs)
                row: dict[str, Any] = {
                    "text": text,
                    "log_prob": line,
                    **({} if scored.end is None else {"end": scored.end}),
                    "tokens": [loaded.tokenizer.token(i) for i in loaded.tokenizer.encode(text)],
                    "log_probs": scored.log_probs,
                }
                whole.write(between + json.dumps(row))
                between = ",\n"
        whole.seek(0)
        copyfileobj(whole, sys.stdout)
    print(f'], "log_prob": {json.dumps(total)}, "tokens": {count}}}')


def dump_cells(loaded: Any, file: Path | None, out: Path) -> None:
    from seqloom.analyse.cells import write_cells
    from seqloom.errors import UsageError
    from seqloom.progress import say

    if file is None:
        raise UsageError("--cells reads its text twice: name a file, standard input comes but once")
    count = write_cells(loaded.learner.backbone, loaded.tokenizer, lambda: read_lines(file), out, loaded.device)
    say(f"{out}: the units at {count:,} tokens")


def batches(lines: Iterator[str]) -> Iterator[list[str]]:
    while texts := list(islice(lines, 256)):
        yield texts


def named(file: Path | None) -> Iterator[tuple[list[str], list[str]]]:
    """Batches, and where each line of them stands."""
    number = 1
    for texts in batches(read_lines(file)):
        yield texts, [f"{file or 'standard input'}:{number + i}" for i in range(len(texts))]
        number += len(texts)


def read_lines(file: Path | None) -> Iterator[str]:
    from seqloom.errors import DataError
    from seqloom.files import explained

    name = "standard input" if file is None else str(file)
    with explained(file or Path("standard input")):
        stream = sys.stdin.buffer if file is None else open(file, "rb")  # noqa: SIM115 - read to its end below
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise DataError(f"{name}:{number}: no valid UTF-8 ({error.reason}): convert the file first") from error
