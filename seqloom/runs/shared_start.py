"""Runs that differ in nothing but their budget share their start.

With a trapezoid schedule the rate is constant until the last part of a run: until then a longer run takes the same steps. A run
whose rate is about to fall leaves a copy of its folder; a longer one goes on from there, and ends with the same bits as if it had
begun at the beginning. Its costs are those of a run of its own.

    SHARED/HASH-STEP/      the folder of a run at that step; HASH: of everything that decides a run but its budget
"""

import re
import shutil
from pathlib import Path
from typing import Any

from seqloom.batch import Learner
from seqloom.files import digest_of, explained, sync
from seqloom.recipes.schema import Recipe
from seqloom.runs.folder import plain
from seqloom.training import checkpoint as checkpoints
from seqloom.training.state import Budget, train_state_of

OWN = ("config.json", "tokenizer.json", "source-tokenizer.json", "lock")  # of each run


def can_share(recipe: Recipe, learner: Learner) -> bool:
    """Whether its first steps do not depend on the budget."""
    train = recipe.train
    depends = recipe.batches.short or train.milestones or train.unfreeze or train.average_last or train.patience
    advances = type(learner).advance is not Learner.advance
    return train.schedule.name == "trapezoid" and not recipe.count_based and not depends and not advances


def identity(config: dict[str, Any]) -> str:
    """Of a run, by its config.json: equal where nothing but the budget differs."""
    known = {name: plain(config[name]) for name in ("recipe", "vocab_size", "tokenizer", "seed")}
    known["recipe"] = {name: value for name, value in known["recipe"].items() if name != "budget"}
    start = plain({name: config[name] for name in ("from", "plugin", "source_tokenizer") if name in config})
    return digest_of(known | start | {"text": config["data"]["fingerprint"]})[:16]


def keep_start(folder: Path, shared: Path, config: dict[str, Any], step: int) -> None:
    """Copies a run that was just saved at this step."""
    target = shared / f"{identity(config)}-{step}"
    if target.exists():
        return
    half = shared / f"{target.name}.{config['seed']}.half"
    with explained(target):
        shared.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(half, ignore_errors=True)
        others = [f"step-{other}" for other in checkpoints.steps(folder / "checkpoints") if other != step]
        shutil.copytree(folder, half, ignore=lambda _, names: [name for name in names if name in (*OWN, *others)])
        half.rename(target)
        sync(shared)


def take_start(folder: Path, shared: Path, config: dict[str, Any], budget: Budget, fall: float) -> bool:
    """Fills the folder of a run that has no checkpoint yet with the longest start that is its own, if there is one."""
    if checkpoints.steps(folder / "checkpoints") or not shared.is_dir():
        return False
    names = re.compile(rf"{identity(config)}-(\d+)")
    found = sorted((int(match[1]), path) for path in shared.iterdir() if (match := names.fullmatch(path.name)))
    for step, path in reversed(found):
        state = train_state_of(checkpoints.load(path / "checkpoints" / f"step-{step}"))
        if state.spent(budget) > 1 - fall:
            continue
        with explained(folder):
            for each in path.iterdir():  # weights and logs first: a folder with a checkpoint is complete
                if each.is_file():
                    shutil.copy2(each, folder / each.name)
            half = folder / "checkpoints" / f"step-{step}"
            shutil.copytree(path / "checkpoints" / half.name, half, ignore=lambda _, names: ["manifest.json"])
            shutil.copy2(path / "checkpoints" / half.name / "manifest.json", half / "manifest.json")
            sync(half)
        return True
    return False
