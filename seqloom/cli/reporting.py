"""report: the results of a comparison or ladder as a page, a table for a paper, lines for programs, or one file to check."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Pack, WithText

REPORT_EXAMPLES = """Examples:

seqloom report runs/classroom

seqloom report runs/classroom --latex > table.tex

seqloom report runs/classroom --latex --baseline LSTM

seqloom report runs/classroom --csv --items > scores.csv

seqloom report runs/classroom --methods

seqloom report runs/classroom --pack classroom.zip --with-text
"""


@app.command(epilog=REPORT_EXAMPLES)
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a comparison, finished or not, or of a ladder.")
    ],
    latex: Annotated[
        bool, typer.Option("--latex", help="Print the table in LaTeX, with daggers for significant differences.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the score of every row and seed, one a line.")] = False,
    methods: Annotated[
        bool, typer.Option("--methods", help="Print how the comparison was made, in sentences for a paper.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="ROW", help="With --latex: mark differences from this row instead of the best one."),
    ] = None,
    items: Annotated[bool, typer.Option("--items", help="With --csv: print the scores of single items.")] = False,
    pack: Pack = None,
    with_text: WithText = False,
) -> None:
    """Rewrite the report page of a comparison, print its results for a paper or another program, or pack them."""
    from seqloom.comparison.archive import check_pack
    from seqloom.comparison.archive import pack as write_archive
    from seqloom.comparison.ladder_archive import pack_ladder
    from seqloom.comparison.ladder_report import ladder_csv, write_ladder_report
    from seqloom.comparison.latex import latex_table
    from seqloom.comparison.laws import is_ladder, read_ladder
    from seqloom.comparison.methods import methods_sentences
    from seqloom.comparison.report import as_long_csv, read_comparison, write_report
    from seqloom.errors import UsageError
    from seqloom.files import sole_owner
    from seqloom.progress import say

    if latex + csv + methods + (pack is not None) > 1:
        raise UsageError("give one of --latex, --csv, --methods and --pack")
    check_pack(pack, with_text)
    if baseline is not None and not latex:
        raise UsageError("--baseline needs --latex")
    if items and not csv:
        raise UsageError("--items needs --csv")
    if is_ladder(folder):
        if latex or methods or items:
            option = "--latex" if latex else "--methods" if methods else "--items"
            raise UsageError(
                f"{option}: {folder} is a ladder: give the comparison of one budget, a folder in {folder / 'budgets'}"
            )
        if pack is not None:
            print(f"archive: {pack_ladder(folder, pack, with_text)}")
        elif csv:
            print(ladder_csv(read_ladder(folder)), end="")
        else:
            with sole_owner(folder):
                write_ladder_report(read_ladder(folder), folder)
                print(f"report: {folder / 'report.html'}")
        return
    if pack is not None:
        print(f"archive: {write_archive(folder, pack, with_text)}")
        return
    found = read_comparison(folder)
    if found.unfinished:
        say(f"warning: the comparison is not finished: no result of {'; '.join(found.unfinished)}")
    if latex:
        print(latex_table(found, baseline), end="")
    elif csv:
        print(as_long_csv(found, items), end="")
    elif methods:
        print(" ".join(methods_sentences(found)))
    else:
        with sole_owner(folder):
            print(f"report: {write_report(found, folder)}")
