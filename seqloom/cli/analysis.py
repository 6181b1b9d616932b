"""inspect: a look inside trained models."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import ATTENTION, GRADIENTS, RECURRENT_MODELS, SENSES, Device, Language, Plugin, require

if TYPE_CHECKING:
    from seqloom.analyse.finding import Finding

INSPECT_EXAMPLES = """Examples:

seqloom inspect runs/bert --text "The animal did not cross the street because it was too tired." --out attention.html

seqloom inspect runs/bert --text sentences.txt --line 3 --layer 5 --head 6 --token its --out attention.html

seqloom inspect runs/transformer --text "Ein Hund läuft." --target "A dog runs." --out attention.html

seqloom inspect runs/sentiment --text "A dull film with one good scene." --show saliency --out saliency.html

seqloom inspect runs/bert --text sentences.txt --show heads --out heads.html

seqloom inspect runs/elmo runs/bert --text senseval.jsonl --show senses --word line --out senses.html

seqloom inspect runs/experts --text tagged.conll --show experts --out experts.html

seqloom inspect runs/lstm --text source.c --show cells --unit layer1.cell.17 --out cells.html

seqloom inspect runs/translator --text pronouns.tsv --show preference --out preference.html

seqloom inspect runs/translator --text sources.txt --show garbled --out garbled.html

seqloom inspect runs/music --text song.mid --show roll --out roll.html

seqloom inspect runs/rnn runs/lstm runs/gru --text corpus.txt --back 100 --out flow.html

seqloom inspect --complexity --out complexity.html

seqloom inspect runs/lstm runs/gpt2 runs/transformer-xl --text books.jsonl --context 512 --out context.html
"""

SHOWN = {
    "attention": "what attention heads look at",
    "saliency": "which tokens an answer hangs on",
    "heads": "which heads and layers a model needs",
    "cells": "what units of recurrent models follow",
    "experts": "which experts words of each tag go through",
    "senses": "how the senses of a word are kept apart",
    "flow": "how much of a word's loss reaches earlier states",
    "context": "how many tokens before a word lower its loss",
    "preference": "which of two wordings a model prefers",
    "garbled": "what is written for repeated, shuffled and misspelt texts",
    "roll": "a song as a piano roll, with what attention heads look at",
}
# what each option is for
FOR = {
    "layer": ("attention", "senses", "roll"), "word": ("senses",), "unit": ("cells",), "same": ("senses",),
    "head": ("attention", "roll"),
    "token": ("attention", "saliency", "roll"),
    "target": ("attention", "saliency"), "line": ("attention", "saliency"), "label": ("saliency",),
    "back": ("flow",), "windows": ("flow", "context"), "context": ("context",), "step": ("context",),
    "documents": ("context",),
}  # fmt: skip


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(
    out: Annotated[
        Path,
        typer.Option(help="File to write: .html for the page, .json or .csv for the numbers, .svg for the picture."),
    ],
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders; several for senses, gradients and contexts; none with --complexity."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|FILE", help="A text in quotes, or a file with one text per line. With --context: documents."
        ),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="attention (what heads look at), saliency (which tokens an answer hangs on), heads (which "
            "heads and layers are needed), cells (what units follow), experts (by tags of words), senses (occurrences of a "
            "word), flow (gradients through time), context (how far back a model looks), preference (which of two "
            "wordings is likelier), garbled (what is written for garbled texts), roll (a song, with attention). "
            "Default: attention where there is such, else flow.",
        ),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Layer that is shown large, from 1.", rich_help_panel=ATTENTION)
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="Attention head that is shown large, from 1.", rich_help_panel=ATTENTION)
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            help="Token whose row is shown in all heads: itself, or its number from 1.", rich_help_panel=ATTENTION
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What a translator writes; its own translation unless given.", rich_help_panel=ATTENTION),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            help="Class, tag or word in the [MASK] whose probability is traced to tokens; the likeliest unless given.",
            rich_help_panel=ATTENTION,
        ),
    ] = None,
    word: Annotated[
        str | None, typer.Option(help="Word whose occurrences in the file are looked at.", rich_help_panel=SENSES)
    ] = None,
    same: Annotated[
        list[Path] | None,
        typer.Option(
            help="Tables of Word in Context, twice: the threshold is chosen on the first, measured on the second.",
            rich_help_panel=SENSES,
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Unit that is shown, as layer0.cell.17: layer, state and number.", rich_help_panel=RECURRENT_MODELS
        ),
    ] = None,
    line: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Line of the file that is drawn; statistics are over all. Default: the first.",
            rich_help_panel=ATTENTION,
        ),
    ] = None,
    back: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Steps back from the last word: 50 unless given.", rich_help_panel=GRADIENTS
        ),
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Number of windows to average over: 32 unless given; 1,000 words with --context.",
            rich_help_panel=GRADIENTS,
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(
            min=2, max=1_000_000, help="Measure the effective context, up to so many tokens.", rich_help_panel=GRADIENTS
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            help="With --context: tokens of a step; a sixteenth of it unless given.",
            rich_help_panel=GRADIENTS,
        ),
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            help="With --context: how a .txt is split into documents: auto (the default), line, blank or file.",
            rich_help_panel=GRADIENTS,
        ),
    ] = None,
    complexity: Annotated[
        bool,
        typer.Option(
            "--complexity",
            help="Measure what one layer of each kind costs (attention, recurrent, convolutional, restricted) as texts grow.",
        ),
    ] = False,
    lengths: Annotated[
        str | None,
        typer.Option(metavar="N,N,…", help="With --complexity: tokens of the texts. Default: 128, 256, … 8,192."),
    ] = None,
    language: Language = None,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Look inside a model. --show says at what: attention heads on a text, with statistics over a file; the tokens that an answer
    hangs on; the heads and layers that are needed; units of recurrent models; senses of a word; gradients through time and depth;
    with --context how many tokens before a word lower its loss; which of two wordings is preferred; what garbled texts do."""
    from seqloom.errors import UsageError

    given = {
        "layer": layer, "head": head, "token": token, "target": target, "label": label, "word": word, "unit": unit,
        "same": same or None, "line": line,
        "back": back, "windows": windows, "context": context, "step": step, "documents": documents,
    }  # fmt: skip
    if complexity:
        of_runs = {"text": text, "show": show, **given, "language": language, "plugin": plugin}
        measure_layers(runs, of_runs, out, lengths, device)
        return
    if lengths is not None:
        raise UsageError("--lengths is for --complexity: leave it out")
    if not runs or text is None:
        raise UsageError(f"inspect needs {'--text' if runs else 'a run folder'}: name one, or use --complexity")
    require(runs)
    from seqloom.analyse.finding import check_ending
    from seqloom.files import new_file
    from seqloom.runs.language import in_language
    from seqloom.runs.load import load

    if show is None and context is not None:
        show = "context"
    check_show(show, runs)
    if show is not None:
        check_for(given, show)
    check_ending(out)
    new_file(out, "--out")
    loaded = [in_language(load(folder, device, plugin), language) for folder in runs]
    if show is None:
        show = "attention" if len(runs) == 1 and loaded[0].has_attention else "flow"
        check_for(given, show)
    options = {name: value for name, value in given.items() if value is not None and name != "line"}
    if show in OF_SEVERAL_RUNS:
        found = OF_SEVERAL_RUNS[show](loaded, existing(text, show), **options)
    else:
        found = find_in_run(loaded[0], show, text, line, options)
    write_finding(found, out)


def measure_layers(
    runs: list[Path] | None, of_runs: dict[str, Any], out: Path, lengths: str | None, device: str
) -> None:
    """of_runs: options that are about runs, of which there are none."""
    from seqloom.analyse.finding import check_ending
    from seqloom.errors import UsageError
    from seqloom.files import new_file

    named = ["the run folders"] if runs else []
    named += [f"--{name}" for name, value in of_runs.items() if value is not None]
    if named:
        raise UsageError(f"--complexity measures layers of no run: leave out {', '.join(named)}")
    check_ending(out)
    new_file(out, "--out")
    chosen = parse_lengths(lengths)
    from seqloom.analyse.complexity import LENGTHS, Shape, measure_complexity
    from seqloom.analyse.complexity_page import Complexity
    from seqloom.training.precision import choose_device

    where = choose_device(device)
    write_finding(Complexity(Shape(), measure_complexity(Shape(), chosen or LENGTHS, where), where.type), out)


def parse_lengths(given: str | None) -> list[int]:
    """Raises UsageError for what are no lengths of texts."""
    from seqloom.errors import UsageError

    parts = [] if given is None else [part.strip() for part in given.split(",")]
    for part in parts:
        if not part.isdecimal() or not 2 <= int(part) <= 1_000_000:
            raise UsageError(f"--lengths {given}: {part!r} is no number of tokens from 2 to 1,000,000")
    return sorted({int(part) for part in parts})


def check_show(show: str | None, runs: list[Path]) -> None:
    from seqloom.config import unknown_name
    from seqloom.errors import UsageError

    if show is not None and show not in SHOWN:
        raise UsageError(unknown_name("--show", show, show, list(SHOWN)))
    if show is not None and show not in OF_SEVERAL_RUNS and len(runs) > 1:
        raise UsageError(f"--show {show} looks into one run, and {len(runs)} were given: name one")


def check_for(given: dict[str, Any], show: str) -> None:
    """Raises UsageError for an option that is about something else than what is shown, and for one that it needs."""
    from seqloom.errors import UsageError

    for name, value in given.items():
        if value is not None and show not in FOR[name]:
            raise UsageError(f"--{name} is for --show {' and '.join(FOR[name])}, not for {show}: leave it out")
    if show == "context" and given["context"] is None:
        raise UsageError("--show context needs --context N: the most tokens before a word")


def existing(text: str, show: str) -> Path:
    from seqloom.errors import UsageError

    path = Path(text)
    if len(text.split()) > 1 and not path.exists():
        raise UsageError(f"--show {show} reads a file, and there is none named {text[:40]!r}: save the text to a file")
    require([], lines=path)
    return path


def find_in_run(run: Any, show: str, text: str, line: int | None, options: dict[str, Any]) -> Any:
    """Calls the method of the run that has the name of what is shown."""
    from seqloom.analyse.read import pick_line, whole_text

    if show == "heads" and run.learner.reads in ("labelled", "pairs"):
        require([], files=[Path(text)])
        return run.heads(file=text)
    if show == "preference":
        return run.preference(existing(text, show))
    if show == "roll":
        return run.roll(text, **options)
    if show == "experts":
        return show_experts(run, text)
    if show == "cells":
        return run.cells(whole_text(text), **options)
    one, texts = pick_line(text, line)
    return getattr(run, show)(one, texts=texts, **options)


def write_finding(found: "Finding", out: Path) -> None:
    found.save(out)
    for each in found.lines():
        print(each)


def show_experts(run: Any, text: str) -> Any:
    """Of a file with tagged words by their tags, of other texts by what words look like."""
    from seqloom.analyse.read import text_or_lines
    from seqloom.text.tagged import has_columns

    lines, path = text_or_lines(text)
    tagged = path is not None and (path.suffix == ".jsonl" or has_columns(lines))
    return run.experts(file=path) if tagged else run.experts(texts=lines)


def show_senses(
    runs: list[Any], text: Path, word: str | None = None, layer: int | None = None, same: Sequence[Path] = ()
) -> Any:
    from seqloom.errors import UsageError
    from seqloom.runs.sensing import senses

    require([], files=same)
    if len(same) not in (0, 2):
        raise UsageError(f"--same was given {len(same)} times: name two tables, the first for the threshold")
    return senses(runs, text, word, layer=layer, same=same)


def show_flow(runs: list[Any], text: Path, back: int = 50, windows: int = 32) -> Any:
    from seqloom.runs.looking_back import gradient_flow

    return gradient_flow(runs, text, back=back, windows=windows)


def show_context(
    runs: list[Any], text: Path, context: int, step: int | None = None, windows: int = 1000, documents: str = ""
) -> Any:
    from seqloom.runs.looking_back import effective_context

    return effective_context(runs, text, context, step=step, words=windows, documents=documents or "auto")


# what is shown of several runs, and the functions that find it; what is shown of one is a method of it
OF_SEVERAL_RUNS: dict[str, Callable[..., Any]] = {"senses": show_senses, "flow": show_flow, "context": show_context}
