"""significance: tests on the scores of single items that any program has written."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app
from seqloom.cli.options import Json

SIGNIFICANCE_EXAMPLES = """Examples:

seqloom significance lstm.jsonl gpt2.jsonl

seqloom significance LSTM=lstm-0.npz,lstm-1.npz,lstm-2.npz GPT=gpt-0.npz,gpt-1.npz,gpt-2.npz

seqloom significance 'A=a/seed-*.csv' 'B=b/seed-*.csv' 'C=c/seed-*.csv' --lower

seqloom significance OURS=harness/ours THEIRS=harness/theirs --metric acc --fixed

seqloom significance A=a.json.gz B=b.json.gz --gold evaluation_data/blimp_filtered --fixed
"""


@app.command(epilog=SIGNIFICANCE_EXAMPLES)
def significance(
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]PATH[,PATH…]",
            help="Systems to compare. One file is one seed, unless its rows have a seed; a folder holds the files of a system.",
        ),
    ],
    metric: Annotated[
        str | None,
        typer.Option(help="Column, metric or array to compare, where a file has several. Default: score."),
    ] = None,
    lower: Annotated[bool, typer.Option("--lower", help="Lower is better.")] = False,
    common: Annotated[bool, typer.Option("--common", help="Compare only the items that all systems have.")] = False,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Compare these very models: intervals are for other items, not other seeds.")
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            help="What groups of items are: sampled (intervals are for other groups, the default) or fixed (these are all, the "
            "default for tasks of the lm-evaluation-harness)."
        ),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Folder with the gold answers of predictions in BabyLM's format.")
    ] = None,
    filter: Annotated[str | None, typer.Option(help="Filter of the lm-evaluation-harness to compare.")] = None,
    as_json: Json = False,
) -> None:
    """Test which of several systems differ significantly, from scores of single items made by any program.

    Reads rows with id, score and optionally seed and group (.jsonl, .csv, .tsv), files of evaluate --items, samples_*.jsonl of
    the lm-evaluation-harness and predictions of BabyLM. Differences are paired by item, for other seeds and other items, and
    corrected for all pairs (Holm). Says how large a difference could have been found."""
    import json

    from seqloom.comparison.significance import significance as compare_systems
    from seqloom.errors import UsageError
    from seqloom.evaluate.item_scores import Choice, read_system

    if groups not in (None, "sampled", "fixed"):
        raise UsageError(f"--groups {groups}: give sampled or fixed")
    choice = Choice(metric, filter, gold)
    fixed_groups = None if groups is None else groups == "fixed"
    found = compare_systems([read_system(each, choice) for each in systems], lower, common, fixed, fixed_groups)
    print(json.dumps(found.record(), ensure_ascii=False, allow_nan=False) if as_json else found)
