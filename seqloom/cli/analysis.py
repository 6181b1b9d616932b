"""inspect: a look inside trained models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import ATTENTION, GRADIENTS, RECURRENT_MODELS, SENSES, Device, Language, Plugin, require

if TYPE_CHECKING:
    from seqloom.runs.language_model import Run

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
OF_ONE_RUN = [
    name for name in SHOWN if name not in ("senses", "flow", "context")
]  # methods of a loaded run have these names
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

    if complexity:
        measure_layers(runs, text, out, lengths, device)
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

    given = {
        "layer": layer, "head": head, "token": token, "target": target, "label": label, "word": word, "unit": unit,
        "same": same or None, "line": line,
        "back": back, "windows": windows, "context": context, "step": step, "documents": documents,
    }  # fmt: skip
    if show is None and context is not None:
        show = "context"
    check_show(show, runs)
    if show is not None:
        check_for(given, show)
    if show == "context" and context is None:
        raise UsageError("--show context needs --context N: the most tokens before a word")
    if context is not None and step is not None and step >= context:
        raise UsageError(f"--step {step} must be smaller than --context {context}: two contexts are compared")
    new_file(out, "--out")
    loaded = [in_language(load(folder, device, plugin), language) for folder in runs]
    if show is None:
        show = "attention" if len(runs) == 1 and loaded[0].has_attention else "flow"
        check_for(given, show)
    if show in OF_ONE_RUN:
        check_ending(out)
        chosen = {name: value for name, value in given.items() if show in FOR[name] and name != "line"}
        show_finding(
            loaded[0], show, text, out, line, {name: value for name, value in chosen.items() if value is not None}
        )
        return
    names = [str(run) for run in runs] if len({run.name for run in runs}) < len(runs) else [run.name for run in runs]
    if show == "senses":
        check_ending(out)
        show_senses(loaded, existing(text), out, word, layer, same or [])
        return
    models = [as_language_model(run, show) for run in loaded]
    file = existing(text)
    if context is not None:
        measure_context(names, models, file, out, (context, step), windows or 1000, documents or "auto")
        return
    measure_flow(names, models, file, out, back or 50, windows or 32)


def measure_layers(runs: list[Path] | None, text: str | None, out: Path, lengths: str | None, device: str) -> None:
    from seqloom.analyse.finding import check_ending
    from seqloom.errors import UsageError
    from seqloom.files import new_file

    if runs or text is not None:
        raise UsageError("--complexity measures layers of no run: leave out the run folders and --text")
    check_ending(out)
    new_file(out, "--out")
    chosen = parse_lengths(lengths)
    from seqloom.analyse.complexity import LENGTHS, Shape, measure_complexity
    from seqloom.analyse.complexity_page import Complexity
    from seqloom.training.precision import choose_device

    where = choose_device(device)
    found = Complexity(Shape(), measure_complexity(Shape(), chosen or LENGTHS, where), where.type)
    found.save(out)
    for each in found.lines():
        print(each)


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
    if show in OF_ONE_RUN and len(runs) > 1:
        raise UsageError(f"--show {show} looks into one run, and {len(runs)} were given: name one")


def check_for(given: dict[str, Any], show: str) -> None:
    """Raises UsageError for an option that is about something else than what is shown."""
    from seqloom.errors import UsageError

    for name, value in given.items():
        if value is not None and show not in FOR[name]:
            raise UsageError(f"--{name} is for --show {' and '.join(FOR[name])}, not for {show}: leave it out")


def existing(text: str) -> Path:
    path = Path(text)
    require([], lines=path)
    return path


def as_language_model(run: Any, show: str) -> "Run":
    from seqloom.errors import UsageError
    from seqloom.runs.language_model import Run

    if not isinstance(run, Run):
        raise UsageError(
            f"--show {show}: {run.folder} is trained for {run.learns}, it is no language model: choose another"
        )
    return run


def show_finding(run: Any, show: str, text: str, out: Path, line: int | None, options: dict[str, Any]) -> None:
    from seqloom.analyse.read import pick_line, whole_text

    if show == "heads" and run.learner.reads in ("labelled", "pairs"):
        require([], files=[Path(text)])
        found = run.heads(file=text)
    elif show == "preference":
        found = run.preference(existing(text))
    elif show == "roll":
        found = run.roll(text, **options)
    elif show == "experts":
        found = show_experts(run, text)
    elif show == "cells":
        found = run.cells(whole_text(text), **options)
    else:
        one, texts = pick_line(text, line)
        found = getattr(run, show)(one, texts=texts, **options)
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


def show_senses(runs: list[Any], text: Path, out: Path, word: str | None, layer: int | None, same: list[Path]) -> None:
    from seqloom.errors import UsageError
    from seqloom.runs.sensing import senses

    require([], files=same)
    if len(same) not in (0, 2):
        raise UsageError(f"--same was given {len(same)} times: name two tables, the first for the threshold")
    found = senses(runs, text, word, layer=layer, same=same)
    found.save(out)
    for each in found.lines():
        print(each)


def measure_flow(names: list[str], runs: "list[Run]", text: Path, out: Path, back: int, windows: int) -> None:
    from seqloom.analyse.flow import cut_windows, gradient_flow, report
    from seqloom.cli.using import read_lines
    from seqloom.files import write_bytes

    flows = []
    for name, run in zip(names, runs, strict=True):
        tokens = (run.tokenizer.encode(line) for line in read_lines(text))
        chosen = cut_windows(tokens, run.tokenizer.end_id, back + 2, windows).to(run.device)
        clip = run.config["recipe"]["train"]["optim"]["clip"]
        flows.append(gradient_flow(name, run.learner, chosen, clip))  # type: ignore[arg-type]
    write_bytes(out, report(flows, text.name).encode())
    for flow in flows:
        for part, norms in flow.norms.items():
            print(f"{flow.name} {part}: {norms[1]:.3e} one step back, {norms[-1]:.3e} {back} steps back")


def measure_context(
    names: list[str],
    runs: "list[Run]",
    text: Path,
    out: Path,
    reach: tuple[int, int | None],
    count: int,
    documents: str,
) -> None:
    from seqloom.analyse.context import choose_words, context_losses, contexts_up_to, reaches, report
    from seqloom.errors import UsageError
    from seqloom.evaluate.score import Texts
    from seqloom.files import write_bytes
    from seqloom.objectives.next_token import as_left_to_right
    from seqloom.text.read import Reader

    first = runs[0]
    for run in runs:
        if not run.learner.has_next_word:
            raise UsageError(f"--context: {run.folder} {run.no_next_word} to measure")
        if run.config["tokenizer"] != first.config["tokenizer"]:
            raise UsageError(
                f"--context: {first.folder} and {run.folder} have different tokenizers: only losses of the same tokens can be "
                f"compared; give them one by one"
            )
    texts = Texts([first.tokenizer.encode(each.text) for each in Reader(text, documents)], first.tokenizer.end_id)
    contexts = contexts_up_to(*reach)
    words = choose_words(texts, contexts[-1], count)
    group = [
        context_losses(name, as_left_to_right(run.learner), texts, words, contexts, run.device)
        for name, run in zip(names, runs, strict=True)
    ]
    found = reaches(group)
    write_bytes(out, report(group, found, text.name).encode())
    for each, loss in zip(found, group, strict=True):
        ends = f"{loss.losses[0].mean():.4f} nats a token after {contexts[0]}, {loss.losses[-1].mean():.4f} after {contexts[-1]}"
        print(f"{each.name}: effective context {'at least ' if each.at_end else ''}{each.length} tokens; {ends}")
