"""compare and quickstart: models side by side at one budget."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Deterministic, Device

COMPARE_EXAMPLES = """Examples:

seqloom compare classroom --out runs/classroom --jobs 2

seqloom compare classroom --toml > plan.toml

seqloom compare plan.toml --out runs/compared --jobs 4

seqloom compare plan.toml --out runs/compared --minutes 8
"""


@app.command(epilog=COMPARE_EXAMPLES)
def compare(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A TOML file, or the built-in plan: classroom.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; a comparison that was stopped in it goes on.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Runs at a time.")] = 1,
    on: Annotated[str, typer.Option("--on", help="Where they run: local.")] = "local",
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes, states saved; the same call goes on.")
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the plan instead, to edit it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete a comparison that is in --out.")] = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
) -> None:
    """Trains the rows of a plan at one budget, measures them alike, and says what can be concluded."""
    import json

    from seqloom.comparison.plans import find_plan
    from seqloom.comparison.report import as_text
    from seqloom.comparison.run import compare as run_plan
    from seqloom.config import to_toml
    from seqloom.errors import UsageError

    chosen = find_plan(plan)
    if toml:
        print(to_toml(chosen.model_dump(mode="json", exclude_defaults=True)), end="")
        return
    if on != "local":
        raise UsageError(f"--on {on}: there is local; other engines come later")
    if out is None:
        raise UsageError("--out is missing: the folder to write")
    found = run_plan(
        chosen, out, jobs=jobs, minutes=minutes, overwrite=overwrite, device=device, deterministic=deterministic
    )
    if as_json:
        print(json.dumps(found.record(), ensure_ascii=False))
    else:
        print(as_text(found))
        print(f"report: {out / 'report.html'}")


QUICKSTART_EXAMPLES = """Examples:

seqloom quickstart

seqloom quickstart --out first --minutes 1
"""


@app.command(epilog=QUICKSTART_EXAMPLES)
def quickstart(
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/quickstart"),
    minutes: Annotated[float, typer.Option(min=0.01, max=600, help="About how long it may take on two cores.")] = 4.0,
    seed: Annotated[int, typer.Option(min=0, help="Of all models.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over an earlier quickstart in --out.")] = False,
) -> None:
    """Train an n-gram model, an LSTM, a GPT and a BERT on text that ships with Python, and compare them on one page."""
    from seqloom.comparison.plans import quick_plan
    from seqloom.comparison.report import as_text
    from seqloom.comparison.run import compare as run_plan

    print(as_text(run_plan(quick_plan(minutes, seed), out, jobs=2, overwrite=overwrite)))
    print(f"report: {out / 'report.html'}")
