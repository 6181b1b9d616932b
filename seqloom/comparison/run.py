"""A comparison from its plan to its page: text prepared, rows resolved, jobs run side by side, results put together.

OUT/plan.json   what the plan resolved to        OUT/data/       the prepared text of each vocabulary
OUT/runs/       a run folder for each row and seed          OUT/results/    what was measured of each
OUT/logs/       what jobs said, where several ran at a time, and why they failed
OUT/report.html  table.csv  comparison.json  *.svg

Called again it goes on: what is finished stays, what was killed is resumed. Rows, seeds, suites and tasks may be added to a plan
later, or left out for a while; one that has changed since it was begun is refused, and so are milestones that are switched on or
off: weights are kept while a row is trained, or never.
"""

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from seqloom import __version__, errors, progress
from seqloom.batches.prepare import PREPARED_FILES, is_prepared_whole, prepare
from seqloom.batches.store import Store
from seqloom.comparison.job import FAILED, device_log, log_of, result_of
from seqloom.comparison.pairs import write_pairs
from seqloom.comparison.plan import PARTS, PlanConfig, check, check_files, resolve, slug, task_name, tokens_of
from seqloom.comparison.plans import find_plan
from seqloom.comparison.report import drawn_before, write_report
from seqloom.comparison.resume import check_same, check_text, content, plan_before
from seqloom.comparison.table import Comparison, collect
from seqloom.cost import DeviceLog, cores
from seqloom.errors import DataError, Interrupted, SeqloomError, UsageError
from seqloom.files import (
    FolderKind,
    clear_folder,
    contents,
    files_below,
    is_known,
    remove_leftovers,
    sole_owner,
    write_json,
)
from seqloom.migrations import COMPARISON
from seqloom.progress import Progress, clock, say
from seqloom.runs.folder import RUN_FILES, git_commit, plain
from seqloom.text.built_in import write_built_in_text
from seqloom.text.survey import Request
from seqloom.training.interrupt import Interruption
from seqloom.training.precision import choose_device
from seqloom.training.threads import wait_briefly

BUSY = 8  # the exit code of a run folder that another process has
PATIENCE = 30.0  # seconds for which a killed job may still hold its folder
GRACE = 25.0  # seconds that jobs have to save their state


class Job(NamedTuple):
    row: str
    place: str
    seed: int

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"


def compare(
    plan: str | Path | PlanConfig,
    out: str | Path,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
) -> Comparison:
    """Runs a plan, or goes on with it, and returns what was found; the page is OUT/report.html. minutes: after which it stops, to
    go on when it is called again."""
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least one")
    choose_device(device)  # refuses one that is not there
    if isinstance(plan, PlanConfig):
        check(plan, plan.name)
    else:
        plan = find_plan(str(plan))
    check_files(plan)
    folder = Path(out)
    with sole_owner(folder):
        begin(folder, overwrite)
        record = settled(plan, folder, device, deterministic)
        failures = run_jobs(folder, record, jobs, until)
        found = collect(folder, record, failures)
        write_report(found, folder)
    if failures:
        first, (code, reason) = next(iter(failures.items()))
        raise JobsFailed(
            f"{len(failures)} of {len(record['rows']) * len(record['seeds'])} jobs failed, the first ({first}) with: {reason}; "
            f"{folder / 'report.html'} has the others",
            code,
        )
    return found


class JobsFailed(SeqloomError):
    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def begin(folder: Path, overwrite: bool) -> None:
    """Nothing but a comparison is gone on with, or deleted."""
    if not is_comparison(folder):
        raise UsageError(f"{folder} is not empty and holds no comparison: choose another --out")
    if overwrite:
        clear_folder(folder, comparison_folder(folder))
    remove_leftovers(
        folder, comparison_folder(folder, runs=False)
    )  # a run may still be its job's, and cleans up itself


def is_comparison(folder: Path) -> bool:
    return not contents(folder, comparison_folder(folder)) or (folder / "plan.json").exists() or is_begun(folder)


def comparison_folder(folder: Path, runs: bool = True) -> FolderKind:
    """What a comparison has written. Its pictures are those that it lists: a folder may hold a user's own beside them. runs:
    whether what is in its run folders belongs to it."""
    files = [
        r"(plan|comparison)\.json|table\.csv|report\.html|pairs-\d+\.jsonl|logs/[^/]+\.log|results/[^/]+/seed-\d+\.(json|npz)",
        rf"data/(built-in\.jsonl|[^/]+/(lock|{PREPARED_FILES}))",
        *([rf"(runs|tasks/[^/]+)/[^/]+/seed-\d+/({RUN_FILES})"] if runs else []),
        *(re.escape(name) for name in sorted(drawn_before(folder))),
    ]
    folders = ("data", "runs", "results", "logs", "tasks")
    return FolderKind("a comparison", re.compile("|".join(files)), folders, is_comparison, "plan.json")


def is_begun(folder: Path) -> bool:
    """It was killed while the text was prepared, before there was a plan.json."""
    kind = comparison_folder(folder)
    return (folder / "data").is_dir() and all(is_known(path, kind) for path in files_below(folder))


def settled(plan: PlanConfig, folder: Path, device: str, deterministic: bool) -> dict[str, Any]:
    """plan.json: rows with whole recipes, and where everything is. A plan that was begun goes on as it was."""
    together = plan_before(folder)["widths_together"]
    folders = prepared(plan, folder)
    rows = resolve(plan, folders, together)
    suites = [
        {"name": name, "suite": name, "data": located(folder, data), "content": content(Path(data))}
        for name, data in plan.suites.items()
    ]
    pairs = folder / f"pairs-{plan.pairs}.jsonl"  # another number of them is another suite
    if plan.pairs:
        suites.append({"name": "pairs", "suite": "blimp", "data": pairs.name, "content": f"{plan.pairs} of each kind"})
    text = plan.text.model_dump(mode="json") | {"files": [located(folder, name) for name in plan.text.files]}
    record: dict[str, Any] = {
        **COMPARISON.stamp(),
        "name": plan.name,
        "text": text | {"prepared": plan.text.prepared and located(folder, plan.text.prepared)},
        "rows": [row._asdict() | {"place": row.place, "data": located(folder, row.data)} for row in rows],
        "seeds": plan.chosen_seeds(),
        "budget": plan.budget.model_dump(exclude_none=True),
        "parameters": plan.parameters,
        "widths_together": together,
        "settings": list(plan.settings),
        "suites": suites,
        "milestones": plan.milestone_suites(),
        "tasks": [
            task.model_dump(mode="json")
            | {"name": task_name(task), "place": slug(task_name(task))}
            | {part: [located(folder, name) for name in getattr(task, part)] for part in PARTS}
            | {"content": {part: [content(Path(name)) for name in getattr(task, part)] for part in PARTS}}
            for task in plan.tasks
        ],
        "questions": questions_of(plan, folder),
        "price": plan.price and plan.price.model_dump(),
        "prompt": plan.prompt,
        "device": device,
        "deterministic": deterministic,
        "versions": {"seqloom": __version__, "git": git_commit()},
    }
    record = plain(record)
    check_same(folder, record)
    if plan.pairs and not pairs.exists():
        write_pairs(Path(plan.text.prepared) if plan.text.prepared else request_of(plan, folder), pairs, plan.pairs)
    write_json(folder / "plan.json", record)
    return record


def questions_of(plan: PlanConfig, folder: Path) -> list[dict[str, Any]]:
    """late: there were results when it was asked first. Who has seen a table asks about what stands out in it."""
    known = {frozenset(question["rows"]): question["late"] for question in plan_before(folder)["questions"]}
    seen = any((folder / "results").glob("*/*.json"))
    return [each.model_dump() | {"late": known.get(frozenset(each.rows), seen)} for each in plan.questions]


def located(folder: Path, path: str) -> str:
    """As seen from the comparison's folder, if it lies in there: that may be called from elsewhere, or moved."""
    whole = Path(path).resolve()
    return str(whole.relative_to(folder.resolve()) if whole.is_relative_to(folder.resolve()) else whole)


def prepared(plan: PlanConfig, folder: Path) -> dict[tuple[str, int | None], Path]:
    """The text in every vocabulary that rows ask for."""
    kinds = list(dict.fromkeys(tokens_of(plan, row) for row in plan.rows))
    if plan.text.prepared is not None:
        held_out(Path(plan.text.prepared))
        return dict.fromkeys(kinds, Path(plan.text.prepared))
    (folder / "data").mkdir(exist_ok=True)
    if plan.text.built_in and not built_in(folder).exists():
        write_built_in_text(built_in(folder))
    request = request_of(plan, folder)
    files = list(request.train)
    found = {(kind, size): folder / "data" / f"{kind}{'' if size is None else f'-{size}'}" for kind, size in kinds}
    options: dict[str, Any] = {"lowercase": plan.text.lowercase, "split_field": request.split_field}
    if request.split_field is None:
        options |= {"valid": request.valid, "test": request.test}
    check_text(folder, files, options)
    for (kind, size), place in found.items():
        if not is_prepared_whole(place):
            prepare(files, place, tokenizer=kind, vocab_size=size, **options)
        held_out(place)
    return found


def built_in(folder: Path) -> Path:
    return folder / "data" / "built-in.jsonl"


def request_of(plan: PlanConfig, folder: Path) -> Request:
    """The files of a plan, and how they are split."""
    files = (built_in(folder),) if plan.text.built_in else tuple(map(Path, plan.text.files))
    if plan.text.split_field is not None:
        return Request(files, split_field=plan.text.split_field)
    return Request(files, plan.text.valid, plan.text.test)


def held_out(place: Path) -> None:
    splits = Store.open(place).manifest.splits
    if "valid" not in splits and "test" not in splits:
        raise DataError(f"{place} holds nothing out to measure on: prepare it with --valid or --test")


def run_jobs(folder: Path, record: dict[str, Any], most: int, until: float) -> dict[str, tuple[int, str]]:
    """All that have no result yet, seed after seed, so that every row has one soon. Returns those that failed, with their
    exit codes and what they said."""
    todo = [Job(row["name"], row["place"], seed) for seed in record["seeds"] for row in record["rows"]]
    left = [job for job in todo if not result_of(folder, job.place, job.seed).exists()]
    if len(left) < len(todo):
        say(f"{len(todo) - len(left)} of {len(todo)} jobs are done")
    return Jobs(folder, most).run(left, until) if left else {}


def launch(call: list[str], output: BinaryIO | None, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(call, stdout=output, stderr=output, env=environment)


class Jobs:
    """So many processes at a time; a bar over all of them, where they do not show their own."""

    def __init__(self, folder: Path, most: int):
        self.folder, self.most = folder, most
        self.running: dict[Job, subprocess.Popen[bytes]] = {}
        self.begun: dict[Job, float] = {}  # when each was started first
        self.failed: dict[str, tuple[int, str]] = {}
        self.environment = dict(os.environ)
        wait_briefly(self.environment)
        self.environment.setdefault("OMP_NUM_THREADS", str(max(cores() // most, 1)))
        (folder / "logs").mkdir(exist_ok=True)
        device_log(folder).unlink(missing_ok=True)  # of processes that are gone

    def run(self, left: Sequence[Job], until: float) -> dict[str, tuple[int, str]]:
        waiting, done = list(left), 0
        with Interruption() as asked, Progress("compare", float(len(left))) as bar:
            while waiting or self.running:
                while waiting and len(self.running) < self.most:
                    self.start(waiting.pop(0))
                time.sleep(0.1)
                for job in self.ended():
                    done += 1
                    if self.most > 1:
                        bar.advance(1, note=f"{done} of {len(left)} jobs, the last: {job}")
                    else:
                        say(f"{done} of {len(left)} jobs done")
                if asked.asked or time.monotonic() > until:
                    self.stop()
                    raise Interrupted(f"stopped, {done} of {len(left)} jobs done: call it again and it goes on")
        return self.failed

    def start(self, job: Job) -> None:
        call = [sys.executable, "-m", "seqloom.comparison.job", str(self.folder), job.place, str(job.seed)]
        call += ["--quiet"] * progress.QUIET + ["--debug"] * errors.DEBUG
        path = log_of(self.folder, job.place, job.seed)
        path.unlink(missing_ok=True)
        with path.open("ab") as log:  # its last line is written by the job itself
            # one at a time it speaks for itself; what it says is kept only where several would speak at once
            target = None if self.most == 1 and not progress.QUIET else log
            if self.most == 1:
                say(f"{job}")
            self.running[job] = launch(call, target, self.environment)
        self.begun.setdefault(job, time.monotonic())

    def ended(self) -> list[Job]:
        found = []
        for job, process in list(self.running.items()):
            code, seconds = process.poll(), time.monotonic() - self.begun[job]
            if code is None:
                continue
            del self.running[job]
            DeviceLog(device_log(self.folder)).note(process.pid, "end")  # one that was killed could not
            if code == BUSY and seconds < PATIENCE:  # a killed comparison's job is about to leave
                time.sleep(1.0)
                self.start(job)
                continue
            found.append(job)
            if code:
                self.failed[str(job)] = failure = (code if 0 < code < 128 else 1), self.reason(job, code)
                say("{} failed with exit code {}: {}".format(job, *failure))
            elif self.most > 1:
                say(f"{job}: done in {clock(seconds)}")
        return found

    def reason(self, job: Job, code: int) -> str:
        """Why it failed, as its log has it; one that was killed could not say."""
        lines = log_of(self.folder, job.place, job.seed).read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
        if said:
            return said[-1]
        if code == -signal.SIGKILL:
            return "it was killed, as happens where memory is short: choose a smaller batch or model, or fewer --jobs"
        return f"it ended without a word ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"

    def stop(self) -> None:
        until = time.monotonic() + GRACE
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
