"""Where everything is in the folder of a comparison: the one place that knows its names.

plan.json       what the plan resolved to        data/       the prepared text of each vocabulary
runs/           a run folder for each row and seed           results/    what was measured of each
search/         the results of trials, where settings are searched for
tasks/          a run folder for each task, row and seed     pairs-N.jsonl   minimal pairs from held-out text
logs/           the output of jobs, where several run at a time, and why they failed
report.html  table.csv  table-long.csv  comparison.json  *.svg

Rows and tasks have a `place` there: their names, as folders can be named (`slug`).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from seqloom.batches.prepare import PREPARED_FILES
from seqloom.batches.store import MANIFEST
from seqloom.files import FolderKind, contents, files_below, is_known, read_json
from seqloom.runs.folder import RUN_FILES

FOLDERS = ("data", "runs", "results", "logs", "tasks", "search")


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "row"


def plan_path(out: Path) -> Path:
    return out / "plan.json"


def comparison_path(out: Path) -> Path:
    return out / "comparison.json"


def table_path(out: Path) -> Path:
    return out / "table.csv"


def long_table_path(out: Path) -> Path:
    return out / "table-long.csv"


def report_path(out: Path) -> Path:
    return out / "report.html"


def picture_path(out: Path, name: str) -> Path:
    return out / f"{name}.svg"


def pairs_path(out: Path, count: int) -> Path:
    """Another number of pairs is another suite."""
    return out / f"pairs-{count}.jsonl"


def shared_path(ladder: Path) -> Path:
    return ladder / "shared"


def built_in_path(out: Path) -> Path:
    return out / "data" / "built-in.jsonl"


def data_path(out: Path, tokenizer: str, vocab_size: int | None) -> Path:
    return out / "data" / (tokenizer if vocab_size is None else f"{tokenizer}-{vocab_size}")


def subset_path(out: Path, whole: Path, words: float) -> Path:
    """Of so many words of a prepared text."""
    return out / "data" / f"{whole.name}.{words:.0f}-words"


def prepared_paths(out: Path) -> list[Path]:
    """The prepared texts that are there."""
    return [path.parent for path in sorted((out / "data").glob(f"*/{MANIFEST}"))]


def run_path(out: Path, place: str, seed: int) -> Path:
    return out / "runs" / place / f"seed-{seed}"


def task_path(out: Path, task: str) -> Path:
    return out / "tasks" / task


def transfer_path(out: Path, task: str, place: str, seed: int) -> Path:
    return task_path(out, task) / place / f"seed-{seed}"


def trial_path(out: Path, place: str, trial: str) -> Path:
    """The result of a trial; without its suffix the run folder, which is there while it runs."""
    return out / "search" / place / f"{trial}.json"


def result_path(out: Path, place: str, seed: int) -> Path:
    return out / "results" / place / f"seed-{seed}.json"


def items_path(result: Path) -> Path:
    """The scores of single items, beside the result that they belong to."""
    return result.with_suffix(".npz")


def sets_path(out: Path, suite: str) -> Path:
    """The number of the set of each item of a suite, in an archive (`archive`)."""
    return out / "sets" / f"{suite}.npy"


def result_paths(out: Path) -> Iterator[Path]:
    """The results that are there."""
    return (out / "results").glob("*/*.json")


def log_path(out: Path, place: str, job: int | str) -> Path:
    """job: the seed, or the name of a trial."""
    return out / "logs" / f"{place}-{job}.log"


def device_log_path(out: Path) -> Path:
    """Of this machine, where jobs run on several. SEQLOOM_DEVICE_LOG: of all comparisons that share its device."""
    if shared := os.environ.get("SEQLOOM_DEVICE_LOG"):
        return Path(shared)
    node = os.environ.get("SEQLOOM_NODE", "")
    return out / "logs" / (f"device-{slug(node)}.log" if node else "device.log")


def relative_to_folder(out: Path, path: str) -> str:
    """A path inside the folder as seen from there, so that the comparison can be called from elsewhere, or moved."""
    whole = Path(path).resolve()
    return str(whole.relative_to(out.resolve()) if whole.is_relative_to(out.resolve()) else whole)


def earlier_pictures(out: Path) -> set[str]:
    """The names of the pictures of an earlier call, and of no others that somebody has put beside them."""
    path = comparison_path(out)
    try:
        names = read_json(path)["pictures"] if path.exists() else []
        return {Path(name).name for name in names if Path(name).suffix == ".svg"}
    except (ValueError, LookupError, TypeError, RecursionError):  # it is written again
        return set()


def comparison_folder(out: Path, runs: bool = True) -> FolderKind:
    """What a comparison writes. Its pictures are those that it lists: a folder may hold a user's own beside them. runs: whether
    the contents of its run folders belong to it."""
    files = [
        r"(plan|comparison)\.json|table(-long)?\.csv|report\.html|pairs-\d+\.jsonl|logs/[^/]+\.log|results/[^/]+/seed-\d+\.(json|npz)",
        r"search/[^/]+/trial-[^/]+\.json",
        rf"data/(built-in\.jsonl|[^/]+/(lock|{PREPARED_FILES}))",
        *([rf"((runs|tasks/[^/]+)/[^/]+/seed-\d+|search/[^/]+/trial-[^/]+)/({RUN_FILES})"] if runs else []),
        *(re.escape(name) for name in sorted(earlier_pictures(out))),
    ]
    return FolderKind("a comparison", re.compile("|".join(files)), FOLDERS, is_comparison, "plan.json")


def is_comparison(out: Path) -> bool:
    return not contents(out, comparison_folder(out)) or plan_path(out).exists() or is_begun(out)


def is_begun(out: Path) -> bool:
    """Whether it was killed while the text was prepared, before there was a plan.json."""
    kind = comparison_folder(out)
    return (out / "data").is_dir() and all(is_known(path, kind) for path in files_below(out))
