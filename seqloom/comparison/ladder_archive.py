"""A ladder as one file that others can check: the archives of its comparisons, and what follows from them.

manifest.json      the SHA-256 of every other file, who packed it
budgets/NAME.zip   the comparison of a budget, as `archive` packs it, without its text
ladder.json        laws, crossings and predictions          predictions.json    as they were written before what they predict
data/  files/      the text and the files of suites and tasks, once for all budgets, where they were packed as well

Reading it believes nothing either: every comparison is checked as one that comes alone, and the laws are computed again.
"""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from seqloom.comparison.archive import (
    MEMBERS,
    NAME,
    Manifest,
    check_names,
    check_pack,
    data_files,
    list_members,
    pack,
    program,
    write_zip,
)
from seqloom.comparison.ladder_report import as_text
from seqloom.comparison.laws import (
    LADDER,
    PREDICTIONS,
    Ladder,
    budget_path,
    called,
    ladder_of,
    make_predictions,
    read_ladder,
    summarise,
)
from seqloom.comparison.plan import LadderConfig, Rung
from seqloom.comparison.records import ResolvedPlan, read_plan_record
from seqloom.comparison.table import Comparison
from seqloom.comparison.unpack import (
    Archive,
    Refused,
    check_archive,
    check_members,
    check_table,
    checked,
    differences,
    extract,
    read_manifest_of,
    room_for,
)
from seqloom.config import unknown_name
from seqloom.errors import UsageError
from seqloom.files import read_json, read_record, replace_file, write_json
from seqloom.migrations import ARCHIVE
from seqloom.runs.folder import plain

LADDER_MEMBERS = re.compile(
    rf"manifest\.json|{re.escape(LADDER)}|{re.escape(PREDICTIONS)}|budgets/{NAME}\.zip|{MEMBERS.pattern}"
)
TEXT = ("data/", "files/")
# parts of ladder.json that another version of seqloom may compute or word otherwise from the same results
STATISTICS = {
    "laws", "pairs", "predictions", "caveats", "worse_after", "law_of_the_logarithm",
}  # fmt: skip


class LadderArchive(NamedTuple):
    """A checked archive. budgets: the comparison of each, by its name; found: computed from them again."""

    path: Path
    folder: Path
    manifest: Manifest
    budgets: dict[str, Archive]
    found: Ladder
    notes: list[str]

    def at(self, budget: str | None) -> Archive:
        """The comparison of a budget, with the text that was packed for all of them."""
        if budget is None:
            raise UsageError(
                f"{self.path} has several budgets: give one of them by --budget: {', '.join(self.budgets)}"
            )
        if budget not in self.budgets:
            raise UsageError(unknown_name("budget", budget, budget, list(self.budgets)))
        chosen = self.budgets[budget]
        for name in self.manifest.files:
            if name.startswith(TEXT) and not (place := chosen.folder / name).exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / name, place)
        return chosen

    def as_text(self) -> str:
        """Its laws and crossings, for a terminal."""
        return as_text(self.found)


# ---- packing


def pack_ladder(folder: Path, file: Path, with_text: bool = False) -> Path:
    """Write the archive of a finished ladder. with_text: pack the text and the files of suites and tasks as well, once."""
    check_pack(file, with_text)
    found = read_ladder(folder)
    with tempfile.TemporaryDirectory(prefix="seqloom-") as place:
        staged = Path(place)
        (staged / "budgets").mkdir()
        text: dict[str, Path] = {}
        for rung in rungs(found):
            budget = budget_path(folder, found.unit, rung)
            pack(budget, staged / "budgets" / f"{budget.name}.zip")
            if with_text:
                text |= data_files(budget, read_plan_record(budget))
        if found.predicted:
            shutil.copyfile(folder / PREDICTIONS, staged / PREDICTIONS)
        write_json(staged / LADDER, found.record())
        members = {str(path.relative_to(staged)): path for path in staged.rglob("*") if path.is_file()} | text
        check_names(members, LADDER_MEMBERS)
        manifest = Manifest(**ARCHIVE.stamp(), name=found.name, packed_by=program(), files=list_members(members))
        write_json(staged / "manifest.json", plain(manifest.model_dump()))
        members["manifest.json"] = staged / "manifest.json"
        replace_file(file, lambda temporary: write_zip(temporary, members))
    return file


def rungs(found: Ladder) -> list[Rung]:
    return [Rung(*key) if isinstance(key, tuple) else Rung(key) for key in found.comparisons]


# ---- reading


def is_ladder_archive(path: Path) -> bool:
    """Asked before anything in it is checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            return LADDER in archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False  # whatever is wrong is said where it is read


@contextmanager
def open_ladder_archive(path: Path) -> Iterator[LadderArchive]:
    """The checked contents of an archive, in a folder that is removed afterwards."""
    with checked(path, check_ladder_archive) as found:
        yield found


def check_ladder_archive(path: Path, folder: Path) -> LadderArchive:
    extract(path, folder, LADDER_MEMBERS)
    manifest = read_manifest_of(Manifest, path, folder)
    check_members(path, folder, manifest, LADDER)
    name, ladder = ladder_of(stored := read_record(folder / LADDER, ""), folder / LADDER)
    budgets: dict[str, Archive] = {}
    comparisons: dict[Rung, Comparison] = {}
    notes: list[str] = []
    room = room_for(path) - size_of(folder)  # of all budgets together
    for rung in ladder.rungs((*ladder.budgets, *ladder.predict)):
        packed = budget_path(folder, ladder.unit, rung).with_name(f"{budget_path(folder, ladder.unit, rung).name}.zip")
        if not packed.exists():
            raise Refused(f"{path}: budgets/{packed.name} is missing, which {LADDER} has")
        inner = packed.with_suffix("")
        inner.mkdir()
        budgets[inner.name] = opened = check_archive(packed, inner, room)
        room -= size_of(inner)
        check_budget(path, packed.name, opened.plan, ladder, rung)
        comparisons[rung] = opened.found
        notes += [f"{inner.name}: {note}" for note in opened.notes]
    extra = sorted({each.stem for each in (folder / "budgets").glob("*.zip")} - budgets.keys())
    if extra:
        raise Refused(f"{path}: budgets/{extra[0]}.zip is of a budget that {LADDER} does not have")
    found = summarise(name, ladder, comparisons, folder)
    notes += check_table(path, LADDER, stored, plain(found.record()), manifest.packed_by, STATISTICS)
    if ladder.predict:
        fitted = {rung: each for rung, each in comparisons.items() if rung.budget not in ladder.predict}
        again = plain([each.record() for each in make_predictions(ladder, fitted)])
        if any(differences(read_json(folder / PREDICTIONS)["predictions"], again)):
            notes.append(
                f"{PREDICTIONS} is not what this version computes from the smaller budgets: whether it was written before the "
                "predicted budgets were run cannot be seen from the archive"
            )
    return LadderArchive(path, folder, manifest, budgets, found, notes)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check_budget(path: Path, name: str, plan: ResolvedPlan, ladder: LadderConfig, rung: Rung) -> None:
    """The comparison must be of the budget that it stands for: laws follow from both."""
    expected = {ladder.unit: rung.budget} if rung.passes is None else {"epochs": rung.passes}
    words = plan.text.words if rung.passes is None else rung.budget
    if plan.budget != expected or plan.text.words != words:
        given = ", ".join(f"{value:,.6g} {unit}" for unit, value in plan.budget.items())
        part = (
            "" if rung.passes is None else f" of {plan.text.words:,.6g} words" if plan.text.words else " of all words"
        )
        raise Refused(
            f"{path}: budgets/{name} is a comparison with {given}{part}, which {LADDER} has as {called(rung, ladder.unit)}"
        )
