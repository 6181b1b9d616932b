"""compare and quickstart: models side by side at an equal budget."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Deterministic, Device, Pack, WithText
from seqloom.progress import say

COMPARE_EXAMPLES = """Examples:

seqloom compare classroom --out runs/classroom --jobs 2

seqloom compare classroom --toml > plan.toml

seqloom compare plan.toml --out runs/compared --jobs 4

seqloom compare plan.toml --out runs/compared --minutes 8

seqloom compare plan.toml --out runs/compared --pack results.zip

seqloom compare plan.toml --out /shared/compared --on ray --cpus 4 --gpus 0.5

seqloom compare plan.toml --out /shared/compared --on slurm --slurm partition=gpu --slurm time=4:00:00
"""


def terminal_width() -> int | None:
    """Of standard output; None where it is a file or a pipe, whose reader has lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@app.command(epilog=COMPARE_EXAMPLES)
def compare(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="TOML file, or the built-in plan: classroom.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; an unfinished comparison in it is resumed.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Number of runs at the same time. Default: 1 here, all of them on Ray and Slurm."
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="Where to run: local; ray, the cluster of RAY_ADDRESS; or slurm, by sbatch. --out must be a folder that all "
            "machines share.",
        ),
    ] = "local",
    cpus: Annotated[int | None, typer.Option(help="With --on ray or slurm: CPUs for each run. Default: 1.")] = None,
    gpus: Annotated[
        float | None, typer.Option(help="With --on ray or slurm: GPUs for each run; on Ray also a share, such as 0.5.")
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option("--slurm", metavar="KEY=VALUE", help="With --on slurm: an option of sbatch; repeatable."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Save and stop after this many minutes; rerun the same command to resume.")
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the plan, to edit it, and run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print comparison.json.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete the comparison that is in --out and start again.")
    ] = False,
    device: Device = "auto",
    deterministic: Deterministic = False,
    pack: Pack = None,
    with_text: WithText = False,
) -> None:
    """Train the models of a plan at an equal budget, evaluate them alike, and report which differences are significant.

    A plan with a [search] tunes every row alike; one with a [ladder] runs at several budgets and fits a law to each row."""
    from seqloom.comparison.plan_names import check_plan_name

    check_plan_name(plan)
    import json

    from seqloom.comparison.archive import check_pack
    from seqloom.comparison.archive import pack as write_archive
    from seqloom.comparison.engines import Where
    from seqloom.comparison.plans import find_plan
    from seqloom.comparison.report import as_text
    from seqloom.comparison.run import compare as run_plan
    from seqloom.config import to_toml
    from seqloom.errors import UsageError

    chosen = find_plan(plan)
    if toml:
        print(to_toml(chosen.model_dump(mode="json", exclude_defaults=True)), end="")
        return
    where = Where(on, jobs, cpus, gpus, tuple(slurm or ()))
    where.check()
    if out is None:
        raise UsageError("--out is missing: give the folder to write")
    check_pack(pack, with_text)
    if chosen.ladder is not None:
        from seqloom.comparison.ladder import compare_ladder
        from seqloom.comparison.ladder_archive import pack_ladder
        from seqloom.comparison.ladder_report import as_text as ladder_text

        ladder = compare_ladder(
            chosen, out, jobs=jobs, minutes=minutes, overwrite=overwrite, device=device, deterministic=deterministic,
            where=where,
        )  # fmt: skip
        if pack is not None:
            pack_ladder(out, pack, with_text)
        print(json.dumps(ladder.record(), ensure_ascii=False) if as_json else ladder_text(ladder))
        if not as_json:
            print(f"report: {out / 'report.html'}")
            if pack is not None:
                print(f"archive: {pack}")
        return
    found = run_plan(
        chosen, out, jobs=jobs, minutes=minutes, overwrite=overwrite, device=device, deterministic=deterministic,
        where=where,
    )  # fmt: skip
    if pack is not None:
        write_archive(out, pack, with_text)
    if as_json:
        print(json.dumps(found.record(), ensure_ascii=False))
        return
    print(as_text(found, terminal_width()))
    print(f"report: {out / 'report.html'}")
    if pack is not None:
        print(f"archive: {pack}")


QUICKSTART_EXAMPLES = """Examples:

seqloom quickstart

seqloom quickstart --out first --minutes 1
"""


@app.command(epilog=QUICKSTART_EXAMPLES)
def quickstart(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("runs/quickstart"),
    minutes: Annotated[float, typer.Option(min=0.01, max=600, help="Approximate duration on two cores.")] = 4.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed for initialisation, data order and dropout.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier quickstart in --out.")] = False,
) -> None:
    """Train an n-gram model, an LSTM, a GPT and a BERT on text that ships with Python, and compare them on one page."""
    say(f"an n-gram model, an LSTM, a GPT and a BERT, about {minutes:g} minutes on two cores")  # before torch is loaded
    from seqloom.comparison.plans import quick_plan
    from seqloom.comparison.report import as_text
    from seqloom.comparison.run import compare as run_plan

    found = run_plan(quick_plan(minutes, seed), out, jobs=2, overwrite=overwrite)
    print(as_text(found, terminal_width()))
    print(f"report: {out / 'report.html'}")
