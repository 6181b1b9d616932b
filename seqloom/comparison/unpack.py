"""Reading an archive: nothing of it is believed before it was checked, and nothing in it is executed.

Checked are names, sizes and hashes of its files, runs against the plan, results against their items, and the table against the
results: an archive in which somebody has changed a number and hashed everything anew is refused, unless all of it fits together.
Then only training tells (`verify`).
"""

import errno
import math
import re
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, NamedTuple, TypeVar

import numpy as np

from seqloom.batches.store import MANIFEST, Manifest, read_manifest
from seqloom.comparison.archive import BLOCK, MEMBERS, NAME, ArchiveManifest, program
from seqloom.comparison.archive import Manifest as PackedManifest
from seqloom.comparison.folder import (
    comparison_path,
    items_path,
    result_path,
    run_path,
    sets_path,
    slug,
)
from seqloom.comparison.records import (
    JobResult,
    ResolvedPlan,
    Row,
    RunMetrics,
    TrialResult,
    parse,
    read_as,
    read_items,
    read_plan_record,
)
from seqloom.comparison.report import as_text, read_comparison
from seqloom.comparison.resume import DAMAGE, changes_of_run, changes_of_trials, check_result
from seqloom.comparison.table import Comparison
from seqloom.comparison.text_measure import text_measure
from seqloom.comparison.tuning import tuned
from seqloom.errors import DataError, SeqloomError, UsageError
from seqloom.files import (
    digest_of,
    explained,
    parse_json,
    read_json,
    read_record,
    sha256,
)
from seqloom.migrations import ARCHIVE, TRIAL, NewerFormat
from seqloom.runs.folder import plain
from seqloom.text.survey import SPLITS

MOST_MEMBERS = 100_000
MOST_JSON = 64 << 20  # bytes of a record
MOST_GROWTH = 100  # how many times its own size a file may unpack to, beyond
FREE_GROWTH = 64 << 20
# parts of comparison.json that another version of seqloom may compute or word otherwise, and still from the same numbers
STATISTICS = {
    "low", "high", "p", "p_adjusted", "better", "method", "by_item", "differences", "answers", "caveats", "held_fixed",
    "energy_methods", "expected_best", "at_the_edge", "missing", "deterministic", "not_significantly_different_from_best",
    "not_told_apart_from_the_best",
}  # fmt: skip
BROKEN = (
    *DAMAGE, SeqloomError, ArithmeticError, AttributeError, AssertionError, NotImplementedError, RuntimeError,
    SyntaxError, TokenError,  # numpy reads the headers of arrays as Python
)  # fmt: skip

Found = TypeVar("Found")
Kind = TypeVar("Kind", bound=PackedManifest)


class Archive(NamedTuple):
    """A checked archive. folder: its files; found: its results, computed from them again; notes: what a reader should know."""

    path: Path
    folder: Path
    manifest: ArchiveManifest
    plan: ResolvedPlan
    found: Comparison
    notes: list[str]

    def at(self, budget: str | None) -> "Archive":
        """Itself: it has one budget, which is not chosen."""
        if budget is not None:
            raise UsageError(f"--budget is for the archive of a ladder, and {self.path} is none: leave it out")
        return self

    def as_text(self) -> str:
        """Its table, for a terminal."""
        return as_text(self.found)


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The checked contents of an archive, in a folder that is removed afterwards."""
    with checked(path, check_archive) as found:
        yield found


@contextmanager
def checked(path: Path, check: Callable[[Path, Path], Found]) -> Iterator[Found]:
    """What `check` makes of an archive and a folder for its files. Whatever goes wrong in it is said in one line."""
    with explained(path), path.open("rb"):
        pass
    with tempfile.TemporaryDirectory(prefix="seqloom-") as place:
        folder = Path(place)
        try:
            with np.errstate(all="ignore"):
                found = check(path, folder)
        except (NewerFormat, Refused) as error:
            raise type(error)(str(error).replace(f"{folder}/", f"{path}: ")) from error
        except BROKEN as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            said = str(error).replace(f"{folder}/", "")
            # our own messages end with what to do about it, which does not apply here
            ours = isinstance(error, SeqloomError)
            said = said.rpartition(": ")[0] or said if ours else f"{type(error).__name__}: {said}"
            raise Refused(f"{path} is damaged, or not an archive of seqloom compare --pack ({said[:300]})") from error
        yield found


class Refused(DataError):
    """What is wrong with an archive, in words that name the file within it."""


def check_archive(path: Path, folder: Path, room: int | None = None) -> Archive:
    """room: bytes that it may unpack to, where it is a part of another archive."""
    extract(path, folder, room=room)
    manifest = read_manifest_of(ArchiveManifest, path, folder)
    check_members(path, folder, manifest, "plan.json", "comparison.json")
    plan = read_plan_record(folder)
    check_names(path, plan, len(manifest.files))
    check_data(path, folder, plan)
    for row in plan.rows:
        check_row(path, folder, plan, row)
    check_sets(folder, plan)
    found = read_comparison(folder)
    stored, now = read_json(comparison_path(folder)), plain(found.record())
    notes = check_table(path, comparison_path(folder).name, stored, now, manifest.packed_by, STATISTICS)
    return Archive(path, folder, manifest, plan, found, notes)


def room_for(path: Path) -> int:
    """Bytes that an archive of this size may unpack to."""
    return FREE_GROWTH + MOST_GROWTH * path.stat().st_size


def extract(path: Path, folder: Path, allowed: re.Pattern[str] = MEMBERS, room: int | None = None) -> None:
    """Only what may be in an archive, and not more than it says."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise Refused(f"{path} has {len(members):,} files, more than {MOST_MEMBERS:,}: it is not unpacked")
        names = [each.filename for each in members]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise Refused(f"{path} has two files called {twice!r}: nobody can say which one is meant")
        strange = next((name for name in names if not allowed.fullmatch(name)), None)
        if strange is not None:
            raise Refused(f"{path} has a file {strange!r}, which is no part of an archive: nothing is unpacked")
        room = room_for(path) if room is None else room
        if (total := sum(each.file_size for each in members)) > room:
            raise Refused(f"{path} would unpack to {total:,} bytes, more than {room:,}: it is not unpacked")
        for each in members:
            if is_record(each.filename) and each.file_size > MOST_JSON:
                raise Refused(f"{path}: {each.filename} has {each.file_size:,} bytes, more than {MOST_JSON:,}")
            target = folder / each.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(each) as source, target.open("xb") as opened:
                copy_bounded(source, opened, each.file_size)


def is_record(name: str) -> bool:
    return not name.startswith(("files/", "data/")) and not name.endswith((".npz", ".zip"))


def copy_bounded(source: Any, target: BinaryIO, size: int) -> None:
    while block := source.read(min(BLOCK, size + 1)):
        size -= len(block)
        if size < 0:
            raise ValueError("a file is longer than it says")
        target.write(block)


def read_manifest_of(kind: type[Kind], path: Path, folder: Path) -> Kind:
    if not (folder / "manifest.json").exists():
        raise Refused(f"{path} has no manifest.json: it is not an archive of seqloom compare --pack")
    record = parse_json((folder / "manifest.json").read_bytes())
    try:
        return parse(kind, ARCHIVE.migrate(record, path))
    except DataError as error:  # of a newer seqloom
        raise Refused(str(error)) from error


def check_members(path: Path, folder: Path, manifest: PackedManifest, *expected: str) -> None:
    """expected: files that every archive of this kind has."""
    there = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()} - {"manifest.json"}
    missing, unlisted = sorted(manifest.files.keys() - there), sorted(there - manifest.files.keys())
    if missing:
        raise Refused(f"{path}: {missing[0]} is missing, which its manifest lists{and_more(missing)}")
    if unlisted:
        raise Refused(f"{path}: {unlisted[0]} is not listed in its manifest{and_more(unlisted)}")
    changed = [name for name, listed in manifest.files.items() if sha256(folder / name) != listed.sha256]
    if changed:
        raise Refused(f"{path}: {changed[0]} was changed: its SHA-256 is not the recorded one{and_more(changed)}")
    needed = [name for name in expected if name not in there]
    if needed:
        raise Refused(f"{path} has no {needed[0]}: it is not an archive of seqloom compare --pack")


def and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""


def check_names(path: Path, plan: ResolvedPlan, files: int) -> None:
    """Names in a plan become paths: none may lead out of the archive."""
    places = [(row.name, row.place) for row in plan.rows] + [(task.name, task.place) for task in plan.tasks]
    wrong = next((place for name, place in places if place != slug(name)), None)
    wrong = wrong or next((name for name in list_names(plan) if not re.fullmatch(NAME, name)), None)
    if wrong is not None:
        raise Refused(f"{path}: plan.json has {wrong[:100]!r} where the name of a file is expected")
    if len({row.name for row in plan.rows}) < len(plan.rows) or len(set(plan.seeds)) < len(plan.seeds):
        raise Refused(f"{path}: plan.json has a row or a seed twice")
    if plan.search is not None and plan.search.trials > files:
        raise Refused(f"{path}: plan.json has {plan.search.trials:,} trials, of which most are missing")


def list_names(plan: ResolvedPlan) -> list[str]:
    """All that a plan says files and folders are called."""
    names = [*(suite.data for suite in plan.suites), *(suite.name for suite in plan.suites)]
    names += [row.data.removeprefix("data/") for row in plan.rows]
    names += [*plan.text.files, *([plan.text.prepared] if plan.text.prepared is not None else [])]
    return names + [name for task in plan.tasks for split in SPLITS for name in getattr(task, split)]


def check_data(path: Path, folder: Path, plan: ResolvedPlan) -> None:
    for row in plan.rows:
        if manifest_of(folder, row).fingerprint != row.fingerprint:
            raise Refused(f"{path}: {row.data}/{MANIFEST} is of another text than row {row.name!r} of plan.json")


def manifest_of(folder: Path, row: Row) -> Manifest:
    return read_manifest(folder / row.data / MANIFEST)


def check_row(path: Path, folder: Path, plan: ResolvedPlan, row: Row) -> None:
    """Its trials, runs and results, each by itself and against the plan."""
    for trial in (folder / "search" / row.place).glob("*.json"):
        record = read_record(trial, "")
        if record.pop("whole", None) != digest_of(record):
            raise Refused(f"{path}: {trial.relative_to(folder)} was changed: its SHA-256 is not the recorded one")
        parse(TrialResult, TRIAL.migrate(record, trial))
    changed = changes_of_trials(folder, plan, row)
    if changed:
        raise Refused(f"{path}: {changed[0]} than plan.json says")
    chosen = tuned(folder, plan, row)
    for seed in plan.seeds:
        result = result_path(folder, row.place, seed)
        if not result.exists():
            continue
        if chosen is None:
            raise Refused(f"{path}: row {row.name!r} has results, but trials of its search are missing")
        run = run_path(folder, row.place, seed)
        if not (run / "config.json").exists() or read_json(run / "config.json").get("seed") != seed:
            raise Refused(f"{path}: {run.relative_to(folder)} is missing, or of another seed")
        changed = changes_of_run(run, chosen)
        if changed:
            raise Refused(f"{path}: {run.relative_to(folder)} does not follow plan.json: {changed[0]}")
        check_arrays(items_path(result))
        try:
            found = check_result(result)
        except ValueError as error:
            raise Refused(f"{path}: {result.relative_to(folder)} was changed: {error}") from error
        if found.metrics != read_as(RunMetrics, run / "metrics.json", ""):
            raise Refused(f"{path}: {result.relative_to(folder)} has other metrics than its run")
        check_items(path, f"{result.relative_to(folder)}", found, read_items(result))


def check_arrays(path: Path) -> None:
    """Of an .npz: stored as they are, so that they cannot unpack to more, and plain numbers."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > path.stat().st_size:
                raise ValueError(f"{path.name}: {member.filename} is compressed")
            with archive.open(member) as file:
                check_array(file, member.file_size)
        if len(set(archive.namelist())) < len(archive.namelist()):
            raise ValueError(f"{path.name} has an array twice")


def check_array(file: Any, size: int) -> None:
    """The header must fit the size before any memory is asked for."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array has the unknown format {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.kind not in "biuf" or min(shape, default=0) < 0:
        raise ValueError(f"an array holds {dtype}, not plain numbers")
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError("an array has another size than it says")


def check_items(path: Path, name: str, result: JobResult, items: Mapping[str, np.ndarray]) -> None:
    """The scores of a result follow from those of its items."""
    if not all(np.isfinite(values).all() for values in items.values()):
        raise Refused(f"{path}: {name} has items that are not finite")
    expected: list[tuple[str, float | None, float]] = []
    for documents, scored in result.scores_by_items.items():
        measure = text_measure([scored])
        sizes, given = items.get(f"{documents}.{measure.size}"), measure.of(scored)
        if sizes is not None and given is not None:
            ratio = float(items[f"{documents}.{measure.total}"].sum(dtype=float)) / float(sizes.sum(dtype=float))
            expected.append((f"{measure.field} of {documents}", given, ratio))
    for suite, scores in result.suites.items():
        if scores.refused is None and suite in items:
            expected.append((f"{suite} score", scores.main, float(items[suite].mean(dtype=float))))
    for what, given, computed in expected:
        if given is None or not math.isclose(
            given, computed, rel_tol=1e-4, abs_tol=1e-6
        ):  # items have single precision
            raise Refused(f"{path}: {name} says {what} {given}, but its items give {computed:.6g}")


def check_sets(folder: Path, plan: ResolvedPlan) -> None:
    for suite in plan.suites:
        packed = sets_path(folder, suite.name)
        if packed.exists():
            with packed.open("rb") as file:
                check_array(file, packed.stat().st_size)


def check_table(
    path: Path, name: str, stored: object, now: object, packed_by: dict[str, str | None], statistics: set[str]
) -> list[str]:
    """A table must follow from the results. statistics: parts that another version of seqloom may compute otherwise from them."""
    different = list(differences(stored, now))
    same = packed_by == program()
    wrong = different if same else [each for each in different if not statistics & set(each.keys) and not each.absent]
    if wrong:
        place, before, after = ".".join(wrong[0].keys), shorten(wrong[0].stored), shorten(wrong[0].now)
        raise Refused(
            f"{path}: the table does not follow from the results: {name} has {place} = {before}, but the results give "
            f"{after}{and_more([place] * len(wrong))}"
        )
    if not different:
        return []
    by = ", ".join(f"{key} {value}" for key, value in packed_by.items() if value)
    return [
        f"intervals, p values or remarks of its table ({len(different):,} values, the first: {'.'.join(different[0].keys)}) are "
        f"not those that this version computes from the same results; it was packed by {by}"
    ]


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


class Disagreement(NamedTuple):
    keys: tuple[str, ...]
    stored: object
    now: object
    absent: bool = False  # one of the two does not have it at all


def differences(stored: object, now: object, keys: tuple[str, ...] = ()) -> Iterator[Disagreement]:
    """Of two JSON values; numbers may differ in the last digits. Lists of things with names are compared by name."""
    stored, now = by_name(stored), by_name(now)
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in {**stored, **now}:
            if key in stored and key in now:
                yield from differences(stored[key], now[key], (*keys, key))
            else:
                # rows and seeds decide what the table says; other keys come and go with versions
                absent = not keys or keys[-1] not in ("rows", "seeds", "costs", "values")
                yield Disagreement((*keys, key), stored.get(key), now.get(key), absent)
    elif isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        for i, (a, b) in enumerate(zip(stored, now, strict=True)):
            yield from differences(a, b, (*keys, str(i)))
    elif is_number(stored) and is_number(now):
        a, b = float(stored), float(now)  # type: ignore[arg-type]
        if not (math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))):
            yield Disagreement(keys, stored, now)
    elif stored != now or type(stored) is not type(now):
        yield Disagreement(keys, stored, now)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def by_name(value: object) -> object:
    if (
        isinstance(value, list)
        and value
        and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in value)
    ):
        named = {each["name"]: each for each in value}
        return named if len(named) == len(value) else value
    return value
