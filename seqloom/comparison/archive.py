"""A comparison as one file that others can check. `pack` writes it; `open_archive` believes nothing before it has checked it.

manifest.json     the SHA-256 of every other file, who packed it, where the results were made
plan.json         comparison.json         results/         search/        as in the folder of a comparison (`folder`)
runs/  tasks/     config.json, metrics.json and metrics.jsonl of every run; no weights
data/NAME/        manifest.json of the prepared text: its fingerprint, and hashes of the files that it was made from
sets/SUITE.npy    the set that each item of a suite belongs to
files/SHA256/     text and the files of suites and tasks, where they were packed as well

No path of the machine is in it: files are known by their names and hashes. Packing the same comparison again gives the same
bytes. Whatever is read is checked first: names, sizes, hashes, whether runs follow the plan, and whether the table follows from
the results.
"""

import math
import re
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from seqloom import __version__
from seqloom.batches.prepare import PREPARED_FILES
from seqloom.batches.store import MANIFEST, Manifest, read_manifest
from seqloom.comparison.environment import Environment
from seqloom.comparison.folder import (
    built_in_path,
    comparison_path,
    items_path,
    plan_path,
    result_path,
    run_path,
    sets_path,
    slug,
    transfer_path,
)
from seqloom.comparison.job import DOCUMENTS
from seqloom.comparison.records import (
    JobResult,
    Open,
    ResolvedPlan,
    Row,
    RunMetrics,
    TrialResult,
    parse,
    read_as,
    read_items,
    read_plan_record,
)
from seqloom.comparison.report import read_comparison
from seqloom.comparison.resume import DAMAGE, changes_of_run, changes_of_trials, check_result, hash_content
from seqloom.comparison.table import Comparison, read_sets
from seqloom.comparison.tuning import is_searched, tuned
from seqloom.config import Config
from seqloom.errors import DataError, ModelError, SeqloomError, UsageError
from seqloom.files import (
    digest_of,
    explained,
    new_file,
    parse_json,
    read_json,
    read_record,
    replace_file,
    sha256,
    write_json,
)
from seqloom.migrations import ARCHIVE, TRIAL, NewerFormat
from seqloom.runs.folder import git_commit, plain
from seqloom.text.survey import SPLITS

ENDING = ".zip"
RUN_RECORDS = ("config.json", "metrics.json", "metrics.jsonl")
NAME = r"(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f]{1,200}"
MEMBERS = re.compile(
    rf"(manifest|plan|comparison)\.json|results/{NAME}/seed-\d+\.(json|npz)|search/{NAME}/trial-{NAME}\.json"
    rf"|(runs|tasks/{NAME})/{NAME}/seed-\d+/(config\.json|metrics\.jsonl?)|data/{NAME}/({PREPARED_FILES})"
    rf"|sets/{NAME}\.npy|files/[0-9a-f]{{64}}/{NAME}(/{NAME})?"
)
MOST_MEMBERS = 100_000
MOST_JSON = 64 << 20  # bytes of a record
MOST_GROWTH = 100  # how many times its own size a file may unpack to, beyond
FREE_GROWTH = 64 << 20
BLOCK = 1 << 20
EPOCH = (1980, 1, 1, 0, 0, 0)  # the time of every member: the earliest that the format knows
# parts of comparison.json that another version of seqloom may compute or word otherwise, and still from the same numbers
STATISTICS = {
    "low", "high", "p", "p_adjusted", "better", "method", "by_item", "differences", "answers", "caveats", "held_fixed",
    "energy_methods", "expected_best", "at_the_edge", "missing", "deterministic", "not_significantly_different_from_best",
    "not_told_apart_from_the_best",
}  # fmt: skip
BROKEN = (*DAMAGE, ArithmeticError, AttributeError, AssertionError, RecursionError, NotImplementedError, RuntimeError)


class Member(Config):
    sha256: str
    bytes: int


class ArchiveManifest(Open):
    """packed_by: the program that made the table; pairs: the SHA-256 of the minimal pairs, which are made from the text."""

    format: int
    needs: str
    name: str
    packed_by: dict[str, str | None]
    environments: tuple[Environment, ...]
    pairs: str | None
    files: dict[str, Member]


class Archive(NamedTuple):
    """A checked archive. folder: its files; found: its results, computed from them again; notes: what a reader should know."""

    path: Path
    folder: Path
    manifest: ArchiveManifest
    plan: ResolvedPlan
    found: Comparison
    notes: list[str]


def program() -> dict[str, str | None]:
    return {"seqloom": __version__, "git": git_commit()}


# ---- packing


def check_pack(file: Path | None, with_text: bool) -> None:
    """Asked before anything is trained."""
    if file is not None:
        new_file(file, "--pack", ENDING)
    elif with_text:
        raise UsageError("--with-text needs --pack: give the file to write")


def pack(folder: Path, file: Path, with_text: bool = False) -> Path:
    """Write the archive of a comparison. with_text: pack the text and the files of suites and tasks as well."""
    check_pack(file, with_text)
    found = read_comparison(folder)  # whatever is wrong with the folder is said here
    if not found.rows:
        raise ModelError(f"{folder} has no results yet: run seqloom compare first")
    plan = read_plan_record(folder)
    with tempfile.TemporaryDirectory(prefix="seqloom-") as place:
        staged = Path(place)
        environments, pairs = stage(folder, plan, staged)
        write_json(comparison_path(staged), read_comparison(staged).record())
        members = {str(path.relative_to(staged)): path for path in staged.rglob("*") if path.is_file()}
        if with_text:
            members |= data_files(folder, plan)
        strange = next((name for name in members if not MEMBERS.fullmatch(name)), None)
        if strange is not None:
            raise DataError(f"{strange!r} cannot be packed under this name: rename the file")
        manifest = ArchiveManifest(
            **ARCHIVE.stamp(),
            name=plan.name,
            packed_by=program(),
            environments=tuple(environments),
            pairs=pairs,
            files={
                name: Member(sha256=sha256(path), bytes=path.stat().st_size) for name, path in sorted(members.items())
            },
        )
        write_json(staged / "manifest.json", plain(manifest.model_dump()))
        members["manifest.json"] = staged / "manifest.json"
        replace_file(file, lambda temporary: write_zip(temporary, members))
    return file


def write_zip(file: Path, members: Mapping[str, Path]) -> None:
    """The same bytes for the same members."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, path in sorted(members.items()):
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            info.file_size = path.stat().st_size  # decides whether 64 bits are needed
            with path.open("rb") as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target, BLOCK)


def stage(folder: Path, plan: ResolvedPlan, staged: Path) -> tuple[list[Environment], str | None]:
    """Copy everything but the table, without paths of this machine. Returns where results were made, and the hash of pairs."""
    environments: list[Environment] = []
    for row in plan.rows:
        for seed in plan.seeds:
            result = result_path(folder, row.place, seed)
            if not result.exists():
                continue
            try:
                made = check_result(result).environment
            except NewerFormat:
                raise
            except DAMAGE as error:
                line = f"{result} or its .npz is damaged ({error}): rerun the comparison, which measures the run again"
                raise ModelError(line) from error
            if made is not None and made not in environments:
                environments.append(made)
            target = result_path(staged, row.place, seed)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_json(target, portable_result(read_json(result)))
            shutil.copyfile(items_path(result), items_path(target))
            copy_run(run_path(folder, row.place, seed), run_path(staged, row.place, seed), row, seed)
            for task in plan.tasks:
                transferred = transfer_path(folder, task.place, row.place, seed)
                if (transferred / "metrics.json").exists():  # some tasks do not fit a model
                    copy_run(transferred, transfer_path(staged, task.place, row.place, seed), row, seed)
        if is_searched(plan, row):
            shutil.copytree(folder / "search" / row.place, staged / "search" / row.place, ignore=no_runs)
        target = staged / data_name(row) / MANIFEST
        if not target.exists():
            target.parent.mkdir(parents=True)
            shutil.copyfile(folder / row.data / MANIFEST, target)
    pairs = None
    for suite in plan.suites:
        sets = read_sets(folder, suite)
        if sets is not None:
            sets_path(staged, suite.name).parent.mkdir(exist_ok=True)
            np.save(sets_path(staged, suite.name), sets.astype("<i4"), allow_pickle=False)
        if suite.name == "pairs":
            pairs = sha256(folder / suite.data)
    write_json(plan_path(staged), portable_plan(plan).record())
    return environments, pairs


def no_runs(place: str, names: list[str]) -> list[str]:
    """Folders of trials that were killed, and their temporary files."""
    return [name for name in names if not name.endswith(".json")]


def copy_run(run: Path, target: Path, row: Row, seed: int) -> None:
    target.mkdir(parents=True)
    for name in RUN_RECORDS[1:]:
        with explained(run / name):
            shutil.copyfile(run / name, target / name)
    config = read_record(run / "config.json", "restore it, or remove the folder that it is in")
    data = config["data"]
    if "folder" in data:
        data = data | {"folder": data_name(row)}
    if "files" in data:
        data = data | {"files": {split: file_names(files) for split, files in data["files"].items()}}
    first = {"from": config["from"] | {"run": f"runs/{row.place}/seed-{seed}"}} if "from" in config else {}
    write_json(target / "config.json", config | {"data": data} | first)


def data_name(row: Row) -> str:
    return f"data/{Path(row.data).name}"


def file_names(files: Any) -> list[str]:
    return [Path(file).name for file in files]


def portable_plan(plan: ResolvedPlan) -> ResolvedPlan:
    """With the names of files in place of their paths; what they hold is known by hashes."""
    text = {
        "files": tuple(file_names(plan.text.files)),
        "prepared": plan.text.prepared and Path(plan.text.prepared).name,
    }
    tasks = [
        task.model_copy(update={split: tuple(file_names(getattr(task, split))) for split in SPLITS})
        for task in plan.tasks
    ]
    return plan.model_copy(
        update={
            "text": plan.text.model_copy(update=text),
            "rows": tuple(row.model_copy(update={"data": data_name(row)}) for row in plan.rows),
            "suites": tuple(suite.model_copy(update={"data": Path(suite.data).name}) for suite in plan.suites),
            "tasks": tuple(tasks),
        }
    )


def portable_result(record: dict[str, Any]) -> dict[str, Any]:
    """The paths in it are replaced by names, and it is hashed again. Results of earlier versions have neither."""
    if "by" not in record:
        return record
    by = record["by"]
    suites = [suite | {"data": Path(suite["data"]).name} for suite in by.get("suites", ())]
    tasks = [task | {split: file_names(task[split]) for split in SPLITS} for task in by.get("tasks", ())]
    record = record | {"by": by | {"suites": suites, "tasks": tasks}}
    whole = record.pop("whole", None)
    return record if whole is None else record | {"whole": digest_of(record)}


def data_files(folder: Path, plan: ResolvedPlan) -> dict[str, Path]:
    """The text, and the files of suites and tasks, by the names that they have in the archive."""
    found: dict[str, Path] = {}
    if plan.text.prepared is not None:
        prepared = folder / plan.text.prepared
        files = [path for path in prepared.iterdir() if re.fullmatch(PREPARED_FILES, path.name)]
        found |= {f"data/{prepared.name}/{path.name}": path for path in files}
    else:
        sources = read_manifest(folder / plan.rows[0].data / MANIFEST).sources
        files = [built_in_path(folder)] if plan.text.built_in else [folder / name for name in plan.text.files]
        known = [(path, source.sha256) for path, source in zip(files, sources, strict=True)]
        found |= packed_names(known)
    found |= packed_names([(folder / suite.data, suite.content) for suite in plan.suites if suite.name != "pairs"])
    for task in plan.tasks:
        for split in SPLITS:
            paths = [folder / name for name in getattr(task, split)]
            found |= packed_names(list(zip(paths, task.content[split], strict=True)))
    return found


def packed_names(files: list[tuple[Path, str]]) -> dict[str, Path]:
    """files: each with the hash that it had when it was used. Of a folder the files directly in it count."""
    found: dict[str, Path] = {}
    for path, digest in files:
        with explained(path):
            if hash_content(path) != digest:
                raise DataError(f"{path} has changed since it was used: restore it, or leave out --with-text")
        inner = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else []
        found |= {f"files/{digest}/{path.name}/{each.name}": each for each in inner}
        if not inner:
            found[f"files/{digest}/{path.name}"] = path
    return found


# ---- reading


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The checked contents of an archive, in a folder that is removed afterwards."""
    with explained(path), path.open("rb"):
        pass
    with tempfile.TemporaryDirectory(prefix="seqloom-") as place:
        folder = Path(place)
        try:
            with np.errstate(all="ignore"):
                found = check_archive(path, folder)
        except (NewerFormat, Refused) as error:
            raise type(error)(str(error).replace(f"{folder}/", f"{path}: ")) from error
        except BROKEN as error:
            said = str(error).replace(f"{folder}/", "")
            # our own messages end with what to do about it, which does not apply here
            ours = isinstance(error, SeqloomError)
            said = said.rpartition(": ")[0] or said if ours else f"{type(error).__name__}: {said}"
            raise Refused(f"{path} is damaged, or not an archive of seqloom compare --pack ({said[:300]})") from error
        yield found


class Refused(DataError):
    """What is wrong with an archive, in words that name the file within it."""


def check_archive(path: Path, folder: Path) -> Archive:
    extract(path, folder)
    manifest = read_archive_manifest(path, folder)
    check_members(path, folder, manifest)
    plan = read_plan_record(folder)
    check_names(path, plan, len(manifest.files))
    check_data(path, folder, plan)
    for row in plan.rows:
        check_row(path, folder, plan, row)
    check_sets(folder, plan)
    found = read_comparison(folder)
    notes = check_table(path, folder, manifest, found)
    return Archive(path, folder, manifest, plan, found, notes)


def extract(path: Path, folder: Path) -> None:
    """Only what may be in an archive, and not more than it says."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > MOST_MEMBERS:
            raise Refused(f"{path} has {len(members):,} files, more than {MOST_MEMBERS:,}: it is not unpacked")
        names = [each.filename for each in members]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise Refused(f"{path} has two files called {twice!r}: nobody can say which one is meant")
        strange = next((name for name in names if not MEMBERS.fullmatch(name)), None)
        if strange is not None:
            raise Refused(f"{path} has a file {strange!r}, which is no part of an archive: nothing is unpacked")
        room = FREE_GROWTH + MOST_GROWTH * path.stat().st_size
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
    return not name.startswith(("files/", "data/")) and not name.endswith(".npz")


def copy_bounded(source: Any, target: BinaryIO, size: int) -> None:
    while block := source.read(min(BLOCK, size + 1)):
        size -= len(block)
        if size < 0:
            raise ValueError("a file is longer than it says")
        target.write(block)


def read_archive_manifest(path: Path, folder: Path) -> ArchiveManifest:
    if not (folder / "manifest.json").exists():
        raise Refused(f"{path} has no manifest.json: it is not an archive of seqloom compare --pack")
    record = parse_json((folder / "manifest.json").read_bytes())
    return parse(ArchiveManifest, ARCHIVE.migrate(record, path))


def check_members(path: Path, folder: Path, manifest: ArchiveManifest) -> None:
    there = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()} - {"manifest.json"}
    missing, unlisted = sorted(manifest.files.keys() - there), sorted(there - manifest.files.keys())
    if missing:
        raise Refused(f"{path}: {missing[0]} is missing, which its manifest lists{and_more(missing)}")
    if unlisted:
        raise Refused(f"{path}: {unlisted[0]} is not listed in its manifest{and_more(unlisted)}")
    changed = [name for name, listed in manifest.files.items() if sha256(folder / name) != listed.sha256]
    if changed:
        raise Refused(f"{path}: {changed[0]} was changed: its SHA-256 is not the recorded one{and_more(changed)}")
    needed = [name for name in ("plan.json", "comparison.json") if name not in there]
    if needed:
        raise Refused(f"{path} has no {needed[0]}: it is not the archive of a comparison")


def and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1:,} more)" if len(names) > 1 else ""


def check_names(path: Path, plan: ResolvedPlan, files: int) -> None:
    """Names in a plan become paths: none may lead out of the archive."""
    places = [(row.name, row.place) for row in plan.rows] + [(task.name, task.place) for task in plan.tasks]
    wrong = next((place for name, place in places if place != slug(name)), None)
    data = [row.data.removeprefix("data/") for row in plan.rows]
    names = [*(suite.data for suite in plan.suites), *(suite.name for suite in plan.suites), *data]
    names += [*plan.text.files, *([plan.text.prepared] if plan.text.prepared is not None else [])]
    names += [name for task in plan.tasks for split in SPLITS for name in getattr(task, split)]
    wrong = wrong or next((name for name in names if not re.fullmatch(NAME, name)), None)
    if wrong is not None:
        raise Refused(f"{path}: plan.json has {wrong[:100]!r} where the name of a file is expected")
    if len({row.name for row in plan.rows}) < len(plan.rows) or len(set(plan.seeds)) < len(plan.seeds):
        raise Refused(f"{path}: plan.json has a row or a seed twice")
    if plan.search is not None and plan.search.trials > files:
        raise Refused(f"{path}: plan.json has {plan.search.trials:,} trials, of which most are missing")


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
    sizes = items.get(f"{DOCUMENTS}.bytes")
    if sizes is not None and result.held_out.bits_per_byte is not None:
        bits = float(items[f"{DOCUMENTS}.bits"].sum(dtype=float)) / float(sizes.sum(dtype=float))
        expected.append(("bits_per_byte", result.held_out.bits_per_byte, bits))
    for suite, scores in result.suites.items():
        if scores.refused is None and suite in items:
            expected.append((f"{suite} accuracy", scores.accuracy, float(items[suite].mean(dtype=float))))
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


def check_table(path: Path, folder: Path, manifest: ArchiveManifest, found: Comparison) -> list[str]:
    """comparison.json must follow from the results. Another version of seqloom may have computed other intervals from them."""
    stored, now = read_json(comparison_path(folder)), plain(found.record())
    different = list(differences(stored, now))
    same = manifest.packed_by == program()
    wrong = different if same else [each for each in different if not STATISTICS & set(each.keys) and not each.absent]
    if wrong:
        place, before, after = ".".join(wrong[0].keys), shorten(wrong[0].stored), shorten(wrong[0].now)
        raise Refused(
            f"{path}: the table does not follow from the results: comparison.json has {place} = {before}, but the results give "
            f"{after}{and_more([place] * len(wrong))}"
        )
    if not different:
        return []
    by = ", ".join(f"{name} {value}" for name, value in manifest.packed_by.items() if value)
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
