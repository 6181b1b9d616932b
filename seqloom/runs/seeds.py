"""Several runs that differ only in their seed, and the confidence intervals of their scores."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqloom.errors import UsageError
from seqloom.files import FolderKind, contents, read_record, remove_leftovers, sole_owner, write_json
from seqloom.metrics.intervals import Interval, student
from seqloom.runs.card import SCORES
from seqloom.runs.options import RunOptions

# beside the runs, each of which is its own folder
SEVERAL = FolderKind("several runs", re.compile(r"seeds\.json|curve\.(json|html)"), (), lambda folder: True)
NOTHING = "one seed: nothing can be concluded"


def over_seeds(
    train: Callable[..., Any], out: str | Path, seeds: Sequence[int], options: RunOptions
) -> dict[str, dict[str, Interval]]:
    """Train one run for each seed in OUT/seed-N, and write OUT/seeds.json: the mean and interval of every score of every split.
    train(out=, options=) makes one run; with options.resume it leaves a finished run unchanged."""
    folder = Path(out)
    with holding_runs(folder, options.resume, options.overwrite):
        places = [folder / f"seed-{seed}" for seed in seeds]
        for seed, place in zip(seeds, places, strict=True):
            train(out=place, options=replace(options, seed=seed))
        scores = [scores_of(place) for place in places]
        found = {
            split: {name: student([each[split][name] for each in scores]) for name in scores[0][split]}
            for split in scores[0]
        }
        record: dict[str, Any] = {"seeds": list(seeds), "runs": [place.name for place in places]}
        for split, parts in found.items():
            record[split] = {
                name: interval.record() | {"values": [each[split][name] for each in scores]}
                for name, interval in parts.items()
            }
        write_json(folder / "seeds.json", record)
    return found


@contextmanager
def holding_runs(folder: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Lock a folder of several runs. Nothing in it is lost silently."""
    if (folder / "config.json").exists():
        raise UsageError(f"{folder} is a run, which cannot contain several others: choose another --out")
    with sole_owner(folder):
        others = contents(folder, SEVERAL)
        if others and not resume and not overwrite:
            raise UsageError(
                f"{folder} contains {min(others)} already: resume it with --resume, replace it with --overwrite, or choose "
                f"another --out"
            )
        remove_leftovers(folder, SEVERAL)
        yield


def scores_of(folder: Path) -> dict[str, dict[str, float]]:
    """The scores of a finished run on each held-out split."""
    metrics = read_record(folder / "metrics.json", "remove it and card.md, and --resume the run")
    splits = {split: metrics.get(f"{split}_scores", {}) for split in ("valid", "test")}
    # the others of several tasks
    splits |= {f"{split} of {name}": each for split in splits for name, each in splits[split].get("tasks", {}).items()}
    return {
        split: {name: scores[name] for name in SCORES if name in scores} for split, scores in splits.items() if scores
    }


def summarize(found: Mapping[str, Mapping[str, Interval]], count: int) -> list[str]:
    """One line for each split. count: the number of seeds."""
    if not found:
        return ["no scores, because there are no held-out examples: give --valid or --test"]
    end = NOTHING if count == 1 else f"mean and 95% interval over {count} seeds"
    return [
        f"{split}: {', '.join(f'{SCORES[name]} {interval}' for name, interval in parts.items())}; {end}"
        for split, parts in found.items()
    ]
