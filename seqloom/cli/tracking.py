"""track: the metrics of runs in an experiment tracker."""

from pathlib import Path
from typing import Annotated

import typer

from seqloom.cli import app

TRACK_EXAMPLES = """Examples:

seqloom track runs/lstm

seqloom track runs/lstm runs/gpt --to tensorboard --out boards --follow

seqloom track comparison --to trackio --project lineage --follow

seqloom track runs/lstm --to wandb
"""


@app.command(epilog=TRACK_EXAMPLES)
def track(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or folders of runs: a comparison is shown as one group."),
    ],
    to: Annotated[
        str, typer.Option(help="Tracker to send the metrics to: tensorboard, trackio or wandb.")
    ] = "tensorboard",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until all runs are finished.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the tracker's files. Default: tensorboard/, or what trackio and wandb use themselves."
        ),
    ] = None,
    project: Annotated[str, typer.Option(help="Name under which trackio and wandb show the runs.")] = "seqloom",
) -> None:
    """Send the metrics of runs to TensorBoard, trackio or Weights & Biases.

    Reads metrics.jsonl in the run folders, in a process of its own: a tracker that fails or hangs cannot hurt a run. Rerun, it
    sends what is new; no step is sent twice, also after a run was killed and resumed. TensorBoard and trackio keep the metrics
    on this machine (unless you have set up trackio for a Space); wandb sends them to its server.
    """
    from seqloom.runs.track import track as send

    print(f"new lines sent to {to}: {send(runs, to, follow=follow, out=out, project=project):,}")
