"""inspect: a look inside trained models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Plugin, require

if TYPE_CHECKING:
    from seqloom.runs.language_model import Run

INSPECT_EXAMPLES = """Examples:

seqloom inspect runs/rnn --text corpus.txt --out flow.html

seqloom inspect runs/rnn runs/lstm runs/gru --text corpus.txt --back 100 --out flow.html

seqloom inspect runs/lstm runs/gpt2 runs/transformer-xl --text books.jsonl --context 512 --out context.html
"""


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders of recurrent models; with --context of any that write.")
    ],
    text: Annotated[Path, typer.Option(help="Text file; its first windows are read. With --context: documents.")],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    back: Annotated[int, typer.Option(min=1, max=10_000, help="Number of steps back from the last word.")] = 50,
    windows: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="Number of windows to average over: 32 unless given; 1,000 words with --context."
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(min=2, max=1_000_000, help="Measure the effective context instead, up to so many tokens."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="With --context: tokens of a step; a sixteenth of it unless given."),
    ] = None,
    documents: Annotated[
        str, typer.Option(help="With --context: how a .txt is split into documents: auto, line, blank or file.")
    ] = "auto",
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Measure gradients through time: how much of a word's loss reaches the earlier states, and the eigenvalues behind it. With
    --context measure how many tokens before a word lower its loss, for models of every kind on one page."""
    require(runs, lines=text)
    from seqloom.cli.using import read_lines
    from seqloom.errors import UsageError
    from seqloom.files import new_file
    from seqloom.runs.load import load_language_model

    if context is None and (step is not None or documents != "auto"):
        raise UsageError("--step and --documents are for --context N: give it, or leave them out")
    if context is not None and step is not None and step >= context:
        raise UsageError(f"--step {step} must be smaller than --context {context}: two contexts are compared")
    new_file(out, "--out")
    names = [str(run) for run in runs] if len({run.name for run in runs}) < len(runs) else [run.name for run in runs]
    loaded = (load_language_model(folder, device, plugin) for folder in runs)
    if context is not None:
        measure_context(names, list(loaded), text, out, (context, step), windows or 1000, documents)
        return
    from seqloom.analyse.flow import cut_windows, gradient_flow, report
    from seqloom.files import write_bytes

    flows = []
    for name, run in zip(names, loaded, strict=True):
        tokens = (run.tokenizer.encode(line) for line in read_lines(text))
        chosen = cut_windows(tokens, run.tokenizer.end_id, back + 2, windows or 32).to(run.device)
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
