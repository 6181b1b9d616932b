"""A comparison as one file that others can check. `pack` writes it, `unpack` reads it.

manifest.json     the SHA-256 of every other file, who packed it, where the results were made
plan.json         comparison.json         results/         search/        as in the folder of a comparison (`folder`)
runs/  tasks/     config.json, metrics.json and metrics.jsonl of every run; no weights
data/NAME/        manifest.json of the prepared text: its fingerprint, and hashes of the files that it was made from
sets/SUITE.npy    the set that each item of a suite belongs to
files/SHA256/     text and the files of suites and tasks, where they were packed as well

No path of the machine is in it: files are known by their names and hashes. Packing the same comparison again gives the same
bytes.
"""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from seqloom import __version__
from seqloom.batches.prepare import PREPARED_FILES
from seqloom.batches.store import MANIFEST, SENTENCES, read_manifest
from seqloom.comparison.environment import Environment
from seqloom.comparison.folder import (
    built_in_path,
    comparison_path,
    items_path,
    plan_path,
    result_path,
    run_path,
    sets_path,
    transfer_path,
)
from seqloom.comparison.records import (
    Open,
    ResolvedPlan,
    Row,
    read_plan_record,
)
from seqloom.comparison.report import read_comparison
from seqloom.comparison.resume import DAMAGE, check_result, hash_content
from seqloom.comparison.table import read_sets
from seqloom.comparison.tuning import is_searched
from seqloom.config import Config
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.files import (
    digest_of,
    explained,
    new_file,
    read_json,
    read_record,
    replace_file,
    sha256,
    write_json,
)
from seqloom.migrations import ARCHIVE, NewerFormat
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
BLOCK = 1 << 20
EPOCH = (1980, 1, 1, 0, 0, 0)  # the time of every member: the earliest that the format knows


class Member(Config):
    sha256: str
    bytes: int


class Manifest(Open):
    """packed_by: the program that made the table."""

    format: int
    needs: str
    name: str
    packed_by: dict[str, str | None]
    files: dict[str, Member]


class ArchiveManifest(Manifest):
    """pairs: the SHA-256 of the minimal pairs, which are made from the text."""

    environments: tuple[Environment, ...]
    pairs: str | None


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
        check_names(members, MEMBERS)
        manifest = ArchiveManifest(
            **ARCHIVE.stamp(),
            name=plan.name,
            packed_by=program(),
            environments=tuple(environments),
            pairs=pairs,
            files=list_members(members),
        )
        write_json(staged / "manifest.json", plain(manifest.model_dump()))
        members["manifest.json"] = staged / "manifest.json"
        replace_file(file, lambda temporary: write_zip(temporary, members))
    return file


def check_names(members: Mapping[str, Path], allowed: "re.Pattern[str]") -> None:
    """Raises DataError for a name that a reader of the archive would refuse."""
    strange = next((name for name in members if not allowed.fullmatch(name)), None)
    if strange is not None:
        raise DataError(f"{strange!r} cannot be packed under this name: rename the file")


def list_members(members: Mapping[str, Path]) -> dict[str, Member]:
    return {name: Member(sha256=sha256(path), bytes=path.stat().st_size) for name, path in sorted(members.items())}


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
        files = [path for path in files if not path.name.endswith(SENTENCES)]  # found again
        found |= {f"data/{prepared.name}/{path.name}": path for path in files}
    else:
        sources = read_manifest(folder / plan.rows[0].data / MANIFEST).sources
        built_in = (folder / plan.rows[0].data).parent / built_in_path(folder).name  # of a ladder all budgets share it
        files = [built_in] if plan.text.built_in else [folder / name for name in plan.text.files]
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
