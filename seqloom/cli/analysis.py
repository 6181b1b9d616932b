"""inspect: a look inside trained models."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Plugin, require

INSPECT_EXAMPLES = """Examples:

seqloom inspect runs/rnn --text corpus.txt --out flow.html

seqloom inspect runs/rnn runs/lstm runs/gru --text corpus.txt --back 100 --out flow.html
"""


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of recurrent models.")],
    text: Annotated[Path, typer.Option(help="Text file; its first windows are read.")],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    back: Annotated[int, typer.Option(min=1, max=10_000, help="Number of steps back from the last word.")] = 50,
    windows: Annotated[int, typer.Option(min=1, max=10_000, help="Number of windows to average over.")] = 32,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Measure gradients through time: how much of a word's loss reaches the earlier states, and the eigenvalues behind it."""
    require(runs, lines=text)
    from seqloom.analyse.flow import cut_windows, gradient_flow, report
    from seqloom.cli.using import read_lines
    from seqloom.files import new_file, write_bytes
    from seqloom.runs.load import load_language_model

    new_file(out, "--out")
    names = [str(run) for run in runs] if len({run.name for run in runs}) < len(runs) else [run.name for run in runs]
    flows = []
    for name, folder in zip(names, runs, strict=True):
        run = load_language_model(folder, device, plugin)
        tokens = (run.tokenizer.encode(line) for line in read_lines(text))
        chosen = cut_windows(tokens, run.tokenizer.end_id, back + 2, windows).to(run.device)
        clip = run.config["recipe"]["train"]["optim"]["clip"]
        flows.append(gradient_flow(name, run.learner, chosen, clip))  # type: ignore[arg-type]
    write_bytes(out, report(flows, text.name).encode())
    for flow in flows:
        for part, norms in flow.norms.items():
            print(f"{flow.name} {part}: {norms[1]:.3e} one step back, {norms[-1]:.3e} {back} steps back")
