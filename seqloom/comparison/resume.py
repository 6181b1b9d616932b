"""What is there of a comparison when it is called again: it goes on only with what the plan still says.

The plan before is no witness, for rows may have left it and come back: prepared text is known by its manifest, a run by its
config.json, a result by what it says it was measured by. Only of transfers that are not finished it is asked. Files are known by
what they hold: a comparison may have been taken to where they lie elsewhere.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from seqloom import migrations
from seqloom.batches.store import MANIFEST, Store
from seqloom.comparison.job import result_of, run_of
from seqloom.comparison.plan import PARTS
from seqloom.comparison.table import flat
from seqloom.errors import ModelError, UsageError
from seqloom.files import digest_of, read_record, sha256
from seqloom.progress import say

REMEDY = "choose another --out, or start anew with --overwrite"
NOTHING: dict[str, Any] = {"suites": [], "tasks": [], "milestones": []}  # what results said before they told it
RESULT = {"metrics", "held_out", "definition", "suites", "milestones", "tasks", "sample"}  # what each one has
PLACES = ("data", *PARTS)  # of the files of suites and tasks: they have a content beside
SHOWN = 3  # settings of something that has changed: all may have, where the recipe is another


def content(path: Path) -> str:
    """What a file holds, or the files of a folder."""
    if not path.is_dir():
        return sha256(path)
    held = {file.name: sha256(file) for file in sorted(path.iterdir()) if file.is_file()}
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def check_text(folder: Path, files: Sequence[Path], options: dict[str, Any]) -> None:
    """What was prepared before must be of these files, by these options: rows of one comparison learn from one text."""
    there = [Store.open(path.parent).manifest for path in sorted((folder / "data").glob(f"*/{MANIFEST}"))]
    now = [sha256(file) for file in files] if there else []
    for manifest in there:
        before = manifest.options
        changed = [f"{name} = {before[name]}, now {value}" for name, value in options.items() if before[name] != value]
        if [source.sha256 for source in manifest.sources] != now:
            changed.append(f"the content of {', '.join(source.name for source in manifest.sources)} was another")
        if changed:
            raise UsageError(f"{folder} holds a comparison with another text ({'; '.join(changed)}): {REMEDY}")


def check_same(folder: Path, plan: dict[str, Any]) -> None:
    """Rows, seeds, suites and tasks may have been added; of what was begun nothing may have changed. plan: what plan.json is to
    be."""
    changed = begun_tasks(folder, plan["tasks"])
    lacking = []
    for row in plan["rows"]:
        for seed in plan["seeds"]:
            config, result = run_of(folder, row["place"], seed) / "config.json", result_of(folder, row["place"], seed)
            if config.exists():
                run = read_record(config, "restore it, or remove the folder that it is in")
                try:
                    run = migrations.RUN.migrate(run, config)
                except (LookupError, TypeError, ValueError, AttributeError) as error:
                    remedy = "restore it, or remove the folder that it is in"
                    raise ModelError(f"{config} is damaged ({error}): {remedy}") from error
                if not isinstance(run.get("recipe"), dict) or not isinstance(run.get("data"), dict):
                    raise ModelError(f"{config} is damaged: restore it, or remove the folder that it is in")
                before = {"name": row["name"], "recipe": run["recipe"], "text": run["data"].get("fingerprint")}
                now = {"name": row["name"], "recipe": row["recipe"], "text": row["fingerprint"]}
                changed += differing("row", [before], [now])
            if result.exists():
                by = result_before(result)
                if by is None:
                    lacking.append(result)
                    continue
                changed += differing("suite", by["suites"], plan["suites"])
                changed += differing("task", by["tasks"], plan["tasks"])
                if asked(plan) - asked(by):
                    lacking.append(result)
    if changed:
        told = "; ".join(dict.fromkeys(changed))  # every seed of a row says the same
        raise UsageError(f"{folder} holds a comparison in which {told}: {REMEDY}")
    for result in lacking:  # its run stays; what is measured of it is measured again
        result.unlink()


def plan_before(folder: Path) -> dict[str, Any]:
    """Of plan.json what is asked for when the comparison is called again: its tasks and questions, and whether sizes were solved
    with all widths together (earlier versions grew dim alone, and their runs go on). A damaged one is written anew."""
    path, nothing = folder / "plan.json", dict[str, Any](tasks=[], questions=[], widths_together=True)
    if not path.exists():
        return nothing
    try:
        plan = migrations.COMPARISON.migrate(read_record(path, "it is written anew"), path)
        together = plan.get("widths_together") is True
        found = {"tasks": plan["tasks"], "questions": plan.get("questions", []), "widths_together": together}
        for task in found["tasks"]:
            (folder / "tasks" / task["place"], flat(task), {task["name"]})
        for question in found["questions"]:
            (frozenset(question["rows"]), bool(question["late"]))
    except migrations.NewerFormat:
        raise
    except (ModelError, LookupError, TypeError, ValueError, AttributeError) as error:
        say(
            f"warning: {path} is damaged ({type(error).__name__}: {str(error)[:200]}); it is written anew from the plan"
        )
        return nothing
    return found


def result_before(path: Path) -> dict[str, Any] | None:
    """What a result says it was measured by; None, and it is measured anew, if it or its items are damaged."""
    try:
        found = read_record(path, "")
        migrations.RESULT.number_of(found, path)
        if "whole" in found or "items" in found:  # older ones have no hashes
            whole, items = found.pop("whole"), found["items"]
            if whole != digest_of(found) or items != sha256(path.with_suffix(".npz")):
                raise ValueError("its SHA-256 is not the recorded one")
        found = migrations.RESULT.migrate(found, path)
        by = found.get("by", NOTHING)
        asked(by), [flat(each) for kind in ("suites", "tasks") for each in by[kind]]
        if not found.keys() >= RESULT:
            raise KeyError(f"no {min(RESULT - found.keys())}")
        with np.load(path.with_suffix(".npz")) as items:
            dict(items)
        return dict(by)
    except migrations.NewerFormat:
        raise
    except (
        ModelError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        EOFError,
        BadZipFile,
        zlib.error,
    ) as error:
        say(f"warning: {path} or its .npz is damaged ({type(error).__name__}: {str(error)[:200]}): it is measured anew")
        return None


def begun_tasks(folder: Path, tasks: Sequence[dict[str, Any]]) -> list[str]:
    """A transfer may have been stopped before there was a result. One that was refused has left nothing, and may be corrected."""
    before = plan_before(folder)["tasks"]
    return differing("task", [task for task in before if (folder / "tasks" / task["place"]).exists()], tasks)


def asked(given: dict[str, Any]) -> set[tuple[str, str]]:
    """What is to be measured by a plan, or was for a result: kinds and names."""
    found = {(kind, each["name"]) for kind in ("suites", "tasks") for each in given[kind]}
    return found | {("milestones", suite) for suite in given["milestones"]}


def differing(kind: str, before: Iterable[dict[str, Any]], now: Iterable[dict[str, Any]]) -> list[str]:
    """Those of one name that are not what they were, each in words."""

    def settled(each: dict[str, Any]) -> dict[str, Any]:
        return flat({key: value for key, value in each.items() if key not in PLACES})

    known = {each["name"]: settled(each) for each in before}
    found = []
    for each in now:
        new = settled(each)
        old = known.get(each["name"], new)
        settings = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if settings:
            told = ", ".join(f"{key} = {short(old.get(key))}, now {short(new.get(key))}" for key in settings[:SHOWN])
            found.append(f"{kind} {each['name']!r} was something else ({told}{', …' if settings[SHOWN:] else ''})")
    return found


def short(value: Any) -> str:
    return f"{value}" if len(f"{value}") <= 40 else f"{value}"[:39] + "…"
