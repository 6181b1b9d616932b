"""generate and score: text from a trained model, and the log-probability of given text."""

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
from seqloom.cli.options import RECURRENT_MODELS, Device, Json, Language, Plugin, require

GENERATE_EXAMPLES = """Examples:

seqloom generate runs/gpt --prompt "Once upon a time"

seqloom generate runs/lstm --temperature 0.8 --top-p 0.9 --n 3 --seed 7 --json

seqloom generate runs/gpt --prompt "Once upon a time" --beam 5 --n 3 --no-repeat 3

seqloom generate runs/music --prompt song.mid --out new.mid --max-new 1000

seqloom generate runs/gpt --prompt "Once upon a time" --beam 2 --max-new 8 --tree tree.html
"""


@app.command(epilog=GENERATE_EXAMPLES)
def generate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    prompt: Annotated[
        str, typer.Option(help="Text to continue, or a song (.mid). Default: the start of a document.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.mid", help="Runs trained on songs: write the song, with its prompt, as a MIDI file."
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Sampling temperature; 0 always takes the most likely token.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample from the smallest set of tokens whose probabilities sum to p (nucleus sampling)."),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beam size: search for the most likely texts instead of sampling.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(help="With --beam: rank texts by log P / length^A. Default: 1, the mean; 0 is the sum."),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="With --beam: write the tree of the search, with every hypothesis and its numbers.",
        ),
    ] = None,
    max_new: Annotated[int, typer.Option(help="Maximum number of new tokens.")] = 200,
    min_new: Annotated[int, typer.Option(help="Minimum number of new tokens.")] = 0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: make tokens less likely that are in the text already.")
    ] = 1.0,
    no_repeat: Annotated[int, typer.Option(help="Allow no n-gram of this many tokens twice; 0: no limit.")] = 0,
    n: Annotated[int, typer.Option("--n", help="Number of samples, or of the best texts that --beam finds.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed for sampling; the same seed gives the same text.")] = 0,
    device: Device = "auto",
    plugin: Plugin = None,
    as_json: Json = False,
) -> None:
    """Generate text that continues a prompt."""
    require([run])
    from seqloom.runs.load import load_language_model

    if out is not None:
        check_song(out, n, as_json)
    if tree is not None:
        tree = check_new(tree)
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    options: dict[str, Any] = {
        "max_new": max_new, "min_new": min_new, "repetition_penalty": repetition_penalty, "no_repeat": no_repeat,
        **options_of_search(beam, length_penalty, tree, sampling),
    }  # fmt: skip
    loaded = load_language_model(run, device, plugin)
    prompt = text_of_prompt(loaded, prompt, out)
    if beam is not None:
        texts = search_texts(loaded, prompt, n, tree, options)
    elif n == 1 and not as_json and out is None:
        stream_text(loaded, prompt, seed, options)
        return
    else:
        texts = sample_texts(loaded, prompt, n, seed, options)
        options = {"seed": seed, **options}
    if out is not None:
        save_song(loaded, texts[0]["text"], out)
    elif as_json:
        print(json.dumps({"samples": texts, **options}))
    else:
        print_texts([each["text"] for each in texts])


def options_of_search(
    beam: int | None, length_penalty: float | None, tree: Path | None, sampling: dict[str, Any]
) -> dict[str, Any]:
    """Those of a search with --beam, and else those of sampling. Raises UsageError where the others were given, too."""
    from seqloom.errors import UsageError

    if beam is None:
        if tree is not None:
            raise UsageError("--tree shows a beam search: add --beam K")
        if length_penalty is not None:
            raise UsageError("--length-penalty works with --beam only: add --beam K")
        return sampling
    if sampling != {"temperature": 1.0, "top_k": None, "top_p": None}:
        raise UsageError(
            "--beam searches, but --temperature, --top-k and --top-p are for sampling: use one or the other"
        )
    return {"beam": beam, "length_penalty": 1.0 if length_penalty is None else length_penalty}


def search_texts(loaded: Any, prompt: str, n: int, tree: Path | None, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The n best texts, as --json prints them. tree: where to write the tree of the search."""
    if tree is not None:
        loaded.beam_tree(prompt, n=n, **options).save(tree)
    return [each._asdict() for each in loaded.search(prompt, n=n, **options)]


def sample_texts(loaded: Any, prompt: str, n: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """n samples, as --json prints them."""
    return [
        {"text": s.text, "tokens": s.tokens, "log_prob": sum(s.log_probs), "log_probs": s.log_probs}
        for s in loaded.generate(prompt, n=n, seed=seed, **options)
    ]


def stream_text(loaded: Any, prompt: str, seed: int, options: dict[str, Any]) -> None:
    """Print a sample while it is drawn."""
    shown: list[str] = []

    def show(piece: str) -> None:
        """The prompt with the first piece: until then something may be wrong."""
        write(piece if shown else prompt + piece)
        shown.append(piece)

    loaded.generate(prompt, seed=seed, on_text=show, **options)
    print("" if shown else prompt)


def check_song(out: Path, n: int, as_json: bool) -> None:
    """Raise UsageError where a song cannot be written; asked before the run is loaded."""
    from seqloom.errors import UsageError
    from seqloom.files import new_file

    new_file(out, "--out", ".mid", ".midi")
    if n != 1 or as_json:
        raise UsageError("--out writes one song: leave out --n and --json")


def text_of_prompt(loaded: Any, prompt: str, out: Path | None) -> str:
    """The prompt as a text, which a song is made into. out: where a song is to be written, which the run must be able to."""
    from seqloom.runs.music import check_reads_music, is_song, read_song

    if out is not None:
        check_reads_music(loaded, f"--out {out}")
    return read_song(loaded, prompt) if is_song(prompt) else prompt


def save_song(loaded: Any, text: str, out: Path) -> None:
    from seqloom.runs.music import write_song

    notes = write_song(loaded, text, out)
    print(f"{out}: {len(notes):,} notes, {max((note.end for note in notes), default=0):.1f} s")


def check_new(tree: Path) -> Path:
    from seqloom.analyse.finding import check_ending
    from seqloom.files import new_file

    return new_file(check_ending(tree, "--tree"), "--tree")


def print_texts(texts: list[str]) -> None:
    for number, text in enumerate(texts, 1):
        print(f"--- {number}\n{text}" if len(texts) > 1 else text)


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


MAX_IN_MEMORY = 1 << 26  # bytes of a JSON object that are kept in memory before it is printed; more go to a file

SCORE_EXAMPLES = """Examples:

seqloom score runs/gpt sentences.txt

echo "The keys to the cabinet are here." | seqloom score runs/lstm --json

seqloom score runs/lstm sentences.txt --cells cells.npz

seqloom score runs/bert sentences.txt --pll plain

seqloom score runs/xlm sentences.de.txt --language de
"""


@app.command(epilog=SCORE_EXAMPLES)
def score(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[Path | None, typer.Argument(help="File with one text per line. Default: standard input.")] = None,
    language: Language = None,
    device: Device = "auto",
    plugin: Plugin = None,
    cells: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.npz",
            help="Write every gate and state at every token to this file.",
            rich_help_panel=RECURRENT_MODELS,
        ),
    ] = None,
    pll: Annotated[
        str | None,
        typer.Option(
            help="Pseudo-log-likelihood of masked models: within-word (the default, masks the rest of the word, too) or plain."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every token.")] = False,
) -> None:
    """Print the log-probability of each line: the sum over its tokens, in nats, without the end of the text.

    For masked models it is the pseudo-log-likelihood, for ELECTRA the sum of log(1 − p(replaced)): --json says which.
    """
    require([run], lines=file)
    from seqloom.runs.load import load_language_model

    loaded = load_language_model(run, device, plugin, language)
    definition = loaded.definition(pll)
    if cells is not None:
        dump_cells(loaded, file, cells)
    if as_json:
        print_scores(loaded, definition, numbered_batches(file), pll)
        return
    for texts, names in numbered_batches(file):
        for scored in loaded.score(texts, pll, names):
            print(f"{sum(scored.log_probs):.4f}")


def print_scores(loaded: Any, definition: str, batches: Iterator[tuple[list[str], list[str]]], pll: str | None) -> None:
    """Print one JSON object, after the last line has been scored: an error in a line leaves no incomplete output. A large object
    is collected in a temporary file."""
    total, count, between = 0.0, 0, ""
    with SpooledTemporaryFile(MAX_IN_MEMORY, "w+", encoding="utf-8") as whole:
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
        raise UsageError("--cells reads the text twice, which standard input does not allow: give a file")
    count = write_cells(loaded.learner.backbone, loaded.tokenizer, lambda: read_lines(file), out, loaded.device)
    say(f"{out}: gates and states at {count:,} tokens")


def batches(lines: Iterator[str]) -> Iterator[list[str]]:
    while texts := list(islice(lines, 256)):
        yield texts


def numbered_batches(file: Path | None) -> Iterator[tuple[list[str], list[str]]]:
    """Batches of lines, each line with its place, file:line."""
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
                raise DataError(
                    f"{name}:{number}: not valid UTF-8 ({error.reason}): convert the file to UTF-8"
                ) from error
