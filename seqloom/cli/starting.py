"""new: a recipe and a plan for a text and a machine."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device

NEW_EXAMPLES = """Examples:

seqloom new corpus.txt

seqloom new books/*.txt --out books-gpt --minutes 240
"""


@app.command(epilog=NEW_EXAMPLES)
def new(
    texts: Annotated[list[Path], typer.Argument(metavar="TEXT...", help="Text files: .txt, .jsonl or .parquet.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for recipe.toml and plan.toml. Default: the name of the first text.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.01, max=1e6, help="Time that training may take on this machine.")
    ] = 30.0,
    device: Device = "auto",
) -> None:
    """Write a commented recipe and plan for a text and this machine, with estimates of size, duration and memory."""
    from seqloom.errors import DataError

    for path in texts:
        if not path.is_file():
            raise DataError(f"{path}: no such file: check the name")
    from seqloom.comparison.propose import measure_text, prepare_command, propose_for, shell, write_proposal
    from seqloom.progress import human

    folder = Path(texts[0].name.partition(".")[0] or "new") if out is None else out
    found = propose_for(measure_text(texts), device, minutes)
    recipe, plan = write_proposal(found, folder)
    print(f"text       {human(found.text.words)} words")
    machine = found.machine
    basis = f"by {machine.steps} training steps of a model of width {machine.size[0]}"
    print(f"machine    {machine.device}, {human(machine.flops)}FLOP/s ({machine.precision}), {basis}")
    print(f"model      GPT-2, {human(found.parameters)} parameters, a vocabulary of up to {found.vocab_size:,}")
    cost = f"about {found.hours * 60:.1f} minutes, {found.steps:,} steps, {found.memory_mb:,.0f} MB"
    print(f"training   {cost} (estimates: {recipe} says how they were made)")
    print(f"prepare    {prepare_command(found, folder)}")
    print(f"train      seqloom pretrain {shell(recipe)} --data {shell(folder / 'data')} --out {shell(folder / 'run')}")
    print(f"compare    seqloom compare {shell(plan)} --out {shell(folder / 'compared')} --jobs 2")
