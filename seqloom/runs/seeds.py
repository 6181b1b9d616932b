"""One training several times, each with another seed, and what can be concluded from all of them together."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqloom.errors import UsageError
from seqloom.files import FolderKind, contents, read_record, remove_leftovers, sole_owner, write_json
from seqloom.metrics.intervals import Interval, student
from seqloom.runs.card import SCORES

# beside the runs, each of which is its own folder
SEVERAL = FolderKind("several runs", re.compile(r"seeds\.json|curve\.(json|html)"), (), lambda folder: True)
NOTHING = "one seed: nothing can be concluded"


def over_seeds(
    train: Callable[..., Any], out: str | Path, seeds: Sequence[int], *, resume: bool = False, overwrite: bool = False
) -> dict[str, dict[str, Interval]]:
    """Runs in OUT/seed-N, and OUT/seeds.json: of every split every score's mean and interval. train(out=, seed=, resume=,
    overwrite=) makes one run; with resume it leaves one that is finished as it is."""
    folder = Path(out)
    with holding_runs(folder, resume, overwrite):
        places = [folder / f"seed-{seed}" for seed in seeds]
        for seed, place in zip(seeds, places, strict=True):
            train(out=place, seed=seed, resume=resume, overwrite=overwrite)
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
    """A folder of several runs: nobody else's meanwhile, and nothing in it is lost silently."""
    if (folder / "config.json").exists():
        raise UsageError(f"{folder} is a run itself, which cannot hold several: choose another --out")
    with sole_owner(folder):
        others = contents(folder, SEVERAL)
        if others and not resume and not overwrite:
            raise UsageError(
                f"{folder} holds {min(others)} already: go on with --resume, start anew with --overwrite, or choose "
                f"another --out"
            )
        remove_leftovers(folder, SEVERAL)
        yield


def scores_of(folder: Path) -> dict[str, dict[str, float]]:
    """Of each held-out split what a finished run is worth."""
    metrics = read_record(folder / "metrics.json", "remove it and card.md, and --resume the run")
    splits = {split: metrics.get(f"{split}_scores", {}) for split in ("valid", "test")}
    return {
        split: {name: scores[name] for name in SCORES if name in scores} for split, scores in splits.items() if scores
    }


def lines(found: Mapping[str, Mapping[str, Interval]], count: int) -> list[str]:
    """One a split, for people. count: of seeds."""
    if not found:
        return ["nothing was held out, so nothing was scored: give --valid or --test"]
    end = NOTHING if count == 1 else f"mean and 95% interval over {count} seeds"
    return [
        f"{split}: {', '.join(f'{SCORES[name]} {interval}' for name, interval in parts.items())}; {end}"
        for split, parts in found.items()
    ]
