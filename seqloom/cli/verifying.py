"""verify: whether a packed comparison can be believed, and whether one of its rows comes out again."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json

VERIFY_EXAMPLES = """Examples:

seqloom verify results.zip

seqloom verify results.zip --row LSTM --seed 0 --text corpus.jsonl

seqloom verify results.zip --row LSTM --seed 0 --data data --files blimp --device cuda

seqloom verify ladder.zip --budget 500000-words --row LSTM --seed 0 --text corpus.jsonl
"""


@app.command(epilog=VERIFY_EXAMPLES)
def verify(
    archive: Annotated[Path, typer.Argument(metavar="FILE.zip", help="File that compare --pack has written.")],
    row: Annotated[str | None, typer.Option(metavar="NAME", help="Row to train again.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of that row.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a ladder: the budget of that row, such as 500000-words.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Prepared text of the row, if it is not in the archive.")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Text file of the comparison, if it is not in the archive; repeatable."),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Folder to look for the files of suites and tasks in; repeatable."),
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Check a packed comparison; with --row and --seed, train that row again and compare its scores with the archived ones.

    Checks hashes, whether runs follow the plan, and whether the table follows from the results. Exit code 0: all scores lie
    inside their tolerance; 1: some lie outside; 3: the archive was changed or is damaged."""
    import json

    from seqloom.comparison.ladder_archive import is_ladder_archive, open_ladder_archive
    from seqloom.comparison.unpack import open_archive
    from seqloom.comparison.verify import Given, as_text
    from seqloom.comparison.verify import verify as repeat
    from seqloom.errors import SeqloomError
    from seqloom.progress import say
    from seqloom.training.precision import choose_device

    check_options(row, seed, budget, data, text, files)
    choose_device(device)  # rejects one that is not there
    with open_ladder_archive(archive) if is_ladder_archive(archive) else open_archive(archive) as opened:
        checked = f"{archive}: checked, {len(opened.manifest.files):,} files, and the table follows from the results"
        found = None
        if row is not None and seed is not None:
            one = opened.at(budget)
            say(checked)
            found = repeat(one, row, seed, Given(data, text or (), files or ()), device)
        about = {
            "archive": str(archive),
            "name": opened.found.name,
            "files": len(opened.manifest.files),
            "notes": opened.notes,
        }
        if as_json:
            print(json.dumps(about | (found.record() if found is not None else {}), ensure_ascii=False))
        else:
            print("\n".join([checked, *(f"note: {note}" for note in opened.notes), ""]))
            print(opened.as_text() if found is None else as_text(found))
    if found is not None and not found.inside:
        wrong = [score.name for score in found.scores if not score.inside]
        raise SeqloomError(
            f"{row}, seed {seed}: {', '.join(wrong)} outside the tolerance: this archive was not reproduced here"
        )


def check_options(
    row: str | None,
    seed: int | None,
    budget: str | None,
    data: Path | None,
    text: list[Path] | None,
    files: list[Path] | None,
) -> None:
    """Raises UsageError for options that do not go together."""
    from seqloom.errors import UsageError

    if (row is None) != (seed is None):
        raise UsageError("give --row and --seed together, or neither to check the archive alone")
    if row is None and (data or text or files or budget is not None):
        raise UsageError("--budget, --data, --text and --files are for training a row again: give --row and --seed")
    if data is not None and text:
        raise UsageError("give --data or --text, not both")
