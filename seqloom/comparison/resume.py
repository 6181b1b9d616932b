"""Resuming a comparison: it continues only from what still agrees with the plan.

The earlier plan.json is not enough to tell, because rows may have left the plan and come back: prepared text is known by its
manifest, a run by its config.json, a result by what it was measured by. Only unfinished transfers are looked up in the earlier
plan. Files are known by their contents: a comparison may have been moved.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

from seqloom import migrations
from seqloom.batches.store import Store
from seqloom.comparison.folder import items_path, plan_path, prepared_paths, result_path, run_path, task_path
from seqloom.comparison.measurement import asked
from seqloom.comparison.records import (
    NO_EARLIER_PLAN,
    Described,
    EarlierPlan,
    JobResult,
    MeasuredBy,
    ResolvedPlan,
    Row,
    parse,
    read_items,
)
from seqloom.comparison.tuning import changes_of_trial, is_searched, tried, tuned
from seqloom.errors import ModelError, UsageError
from seqloom.files import digest_of, read_record, sha256
from seqloom.progress import say
from seqloom.recipes.schema import fill_defaults
from seqloom.runs.folder import plain

REMEDY = "choose another --out, or start over with --overwrite"
DAMAGE = (ModelError, LookupError, TypeError, ValueError, OSError, EOFError, BadZipFile, zlib.error)
SHOWN = 3  # changed settings to name: with another recipe all of them may have changed


def hash_content(path: Path) -> str:
    """Of a file, or of the files in a folder."""
    if not path.is_dir():
        return sha256(path)
    held = {file.name: sha256(file) for file in sorted(path.iterdir()) if file.is_file()}
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()


def check_text(out: Path, files: Sequence[Path], options: Mapping[str, object]) -> None:
    """Text that was prepared earlier must come from these files, by these options: rows of one comparison learn from one text."""
    there = [Store.open(path).manifest for path in prepared_paths(out)]
    now = [sha256(file) for file in files] if there else []
    for manifest in there:
        before = manifest.options
        changed = [f"{name} = {before[name]}, now {value}" for name, value in options.items() if before[name] != value]
        if [source.sha256 for source in manifest.sources] != now:
            changed.append(f"the content of {', '.join(source.name for source in manifest.sources)} was different")
        if changed:
            raise UsageError(f"{out} holds a comparison with another text ({'; '.join(changed)}): {REMEDY}")


def check_same(out: Path, plan: ResolvedPlan, earlier: EarlierPlan) -> None:
    """Rows, seeds, suites and tasks may have been added; nothing that was begun may have changed."""
    now = MeasuredBy.of(plan)
    begun = [task for task in earlier.tasks if task_path(out, task.place).exists()]
    changed = describe_changes("task", begun, now.tasks)  # a transfer may have been stopped before there was a result
    incomplete = []
    for row in plan.rows:
        trials = changes_of_trials(out, plan, row)
        changed += trials
        chosen = None if trials else tuned(out, plan, row)
        for seed in plan.seeds:
            if chosen is not None:  # else its settings are not known yet
                changed += changes_of_run(run_path(out, row.place, seed), chosen)
            result = result_path(out, row.place, seed)
            if result.exists():
                before = measured_by(result)
                if before is not None:
                    changed += describe_changes("suite", before.suites, now.suites)
                    changed += describe_changes("task", before.tasks, now.tasks)
                    if before.joint != MeasuredBy.of(plan, joint=row.joint).joint:
                        changed.append(
                            f"row {row.name!r} learnt its tasks {'together' if before.joint else 'one by one'}"
                        )
                if before is None or before.lacks(MeasuredBy.of(plan, asked(row, plan.rows))):
                    incomplete.append(result)
    if changed:
        shown = "; ".join(dict.fromkeys(changed))  # every seed of a row says the same
        raise UsageError(f"{out} holds a comparison in which {shown}: {REMEDY}")
    for result in incomplete:  # its run stays, and is measured again
        result.unlink()


def changes_of_trials(out: Path, plan: ResolvedPlan, row: Row) -> list[str]:
    if plan.search is None or not is_searched(plan, row):
        return []
    found = [changes_of_trial(plan.search, row, *each) for each in tried(out, plan.search, row)[0]]
    return [each for each in found if each][:1]


def changes_of_run(folder: Path, row: Row) -> list[str]:
    """What a run that was begun has in its config.json, against the row of the plan."""
    config = folder / "config.json"
    if not config.exists():
        return []
    remedy = "restore it, or remove the folder that it is in"
    try:
        run = migrations.RUN.migrate(read_record(config, remedy), config)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{config} is damaged ({error}): {remedy}") from error
    if not isinstance(run.get("recipe"), dict) or not isinstance(run.get("data"), dict):
        raise ModelError(f"{config} is damaged: {remedy}")
    size = run.get("vocab_size")
    stored = fill_defaults(run["recipe"], size)
    before = Described.model_validate({"name": row.name, "recipe": stored, "text": run["data"].get("fingerprint")})
    recipe = fill_defaults(plain(row.recipe.model_dump()), size)
    now = Described.model_validate({"name": row.name, "recipe": recipe, "text": row.fingerprint})
    return describe_changes("row", [before], [now])


def read_earlier_plan(out: Path) -> EarlierPlan:
    """A damaged one is replaced, with a warning."""
    path = plan_path(out)
    if not path.exists():
        return NO_EARLIER_PLAN
    try:
        return parse(EarlierPlan, migrations.COMPARISON.migrate(read_record(path, "it is written again"), path))
    except migrations.NewerFormat:
        raise
    except (ModelError, LookupError, TypeError, ValueError, AttributeError) as error:
        say(f"warning: {path} is damaged ({shorten(error)}); it is written again from the plan")
        return NO_EARLIER_PLAN


def measured_by(path: Path) -> MeasuredBy | None:
    """The suites and tasks of a result; None if it or its items are damaged: then the run is measured again."""
    try:
        return check_result(path).by
    except migrations.NewerFormat:
        raise
    except DAMAGE as error:
        say(f"warning: {path} or its .npz is damaged ({shorten(error)}): its run is measured again")
        return None


def check_result(path: Path) -> JobResult:
    """A result with its items, by the hashes in it. One that is damaged raises an error of `DAMAGE`."""
    values = read_record(path, "")
    migrations.RESULT.number_of(values, path)
    if "whole" in values or "items" in values:  # older ones have no hashes
        whole = values.pop("whole")
        if whole != digest_of(values) or values["items"] != sha256(items_path(path)):
            raise ValueError("its SHA-256 is not the recorded one")
    read_items(path)
    return parse(JobResult, migrations.RESULT.migrate(values, path))


def describe_changes(kind: str, before: Iterable[Described], now: Iterable[Described]) -> list[str]:
    """Those that are not what they were under the same name, each in words."""
    known = {each.name: each.flat_settings() for each in before}
    found = []
    for each in now:
        new = each.flat_settings()
        old = known.get(each.name, new)
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if names:
            shown = ", ".join(
                f"{name} = {shorten(old.get(name), 40)}, now {shorten(new.get(name), 40)}" for name in names[:SHOWN]
            )
            found.append(f"{kind} {each.name!r} was different ({shown}{', …' if names[SHOWN:] else ''})")
    return found


def shorten(value: object, longest: int = 200) -> str:
    text = f"{type(value).__name__}: {value}" if isinstance(value, Exception) else f"{value}"
    return text if len(text) <= longest else text[: longest - 1] + "…"
