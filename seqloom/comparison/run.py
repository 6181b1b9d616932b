"""A comparison from its plan to its page: prepare the text, resolve the rows, run the jobs side by side, collect the results.

What is in its folder: `folder`. Rerun, it resumes: what is finished stays, what was killed is continued. Rows, seeds, suites and
tasks may be added to a plan later, or left out for a while; those that have changed since they were begun are rejected, and so
are milestones that are switched on or off: weights are kept while a row is trained, or never.
"""

import itertools
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from seqloom import __version__, errors, progress
from seqloom.batches.prepare import is_prepared_whole, prepare
from seqloom.batches.store import Store
from seqloom.batches.subset import subset
from seqloom.comparison.engines import Engine, Process, Task, Where
from seqloom.comparison.folder import (
    built_in_path,
    comparison_folder,
    data_path,
    device_log_path,
    is_comparison,
    log_path,
    pairs_path,
    plan_path,
    relative_to_folder,
    report_path,
    result_path,
    result_paths,
    shared_path,
    slug,
    subset_path,
)
from seqloom.comparison.job import FAILED, remove_run
from seqloom.comparison.pairs import write_pairs
from seqloom.comparison.plan import PlanConfig, TaskConfig, check_files, task_name, tokens_of
from seqloom.comparison.plan_text import prepare_options, request_of
from seqloom.comparison.plans import open_plan
from seqloom.comparison.records import (
    NO_EARLIER_PLAN,
    EarlierPlan,
    QuestionRecord,
    ResolvedPlan,
    SearchRecord,
    SuiteRecord,
    TaskRecord,
)
from seqloom.comparison.report import write_report
from seqloom.comparison.resolve import resolve_rows
from seqloom.comparison.resume import check_same, check_text, hash_content, read_earlier_plan
from seqloom.comparison.search import Trial
from seqloom.comparison.table import Comparison, collect
from seqloom.comparison.tuning import is_searched, missing_trials, num_trials, tried
from seqloom.cost import DeviceLog, cores
from seqloom.errors import BusyError, DataError, Interrupted, SeqloomError, UsageError
from seqloom.files import clear_folder, remove_leftovers, sole_owner, write_json
from seqloom.metrics.power import plan_power
from seqloom.progress import Progress, clock, say
from seqloom.runs.folder import git_commit
from seqloom.text.built_in import write_built_in_text
from seqloom.text.music import is_music
from seqloom.text.survey import SPLITS
from seqloom.training.interrupt import Interruption
from seqloom.training.precision import choose_device
from seqloom.training.process import wait_briefly

BUSY = BusyError.exit_code  # of a run folder that another process has
PATIENCE = 30.0  # seconds for which a killed job may still hold its folder
GRACE = 25.0  # seconds that jobs have to save their state
LOOK = 1.0  # seconds between two looks at the logs of running jobs
TRAINING = 0.9  # of a job; the rest is measuring
TRAINED = re.compile(rb"^train +(\d+)%", re.MULTILINE)  # in the log of a job


class Job(NamedTuple):
    """A row with a seed, or a trial of its settings."""

    row: str
    place: str
    seed: int
    trial: Trial | None = None

    @property
    def label(self) -> int | str:
        return self.seed if self.trial is None else self.trial.name

    def __str__(self) -> str:
        return f"{self.row}, " + (f"seed {self.seed}" if self.trial is None else str(self.trial))


def compare(
    plan: str | Path | PlanConfig,
    out: str | Path,
    *,
    jobs: int | None = None,
    minutes: float | None = None,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    where: Where | None = None,
    ladder: Path | None = None,
) -> Comparison:
    """Run a plan, or resume it, and return the results; the page is OUT/report.html.

    Args:
        plan: a TOML file, the name of a built-in plan, or a PlanConfig.
        out: the folder of the comparison.
        jobs: how many jobs (a row with a seed) run side by side; one here unless given, on Ray and Slurm as many as there are.
        minutes: when to stop; rerun to resume.
        overwrite: delete the comparison that is in `out` and start again.
        device: "auto", "cpu" or "cuda".
        deterministic: use kernels that give the same bits every time on a GPU; slower.
        where: on which engine jobs run (local, ray, slurm), and what each of them asks for; `jobs` goes with it.
        ladder: the folder of a ladder that it is part of: its data/ has the text, and its shared/ the starts of runs.
    """
    until = math.inf if minutes is None else time.monotonic() + 60 * minutes
    engine = (where or Where())._replace(jobs=jobs).engine()
    if engine.here:
        choose_device(device)  # rejects one that is not there
    plan = open_plan(plan)
    if plan.ladder is not None:
        raise UsageError(
            f"{plan.name} has several budgets: it is run by seqloom.compare_ladder, or on the command line"
        )
    check_files(plan)
    folder = Path(out)
    with sole_owner(folder):
        begin(folder, overwrite)
        warn_of_few_seeds(plan)
        resolved = settle_plan(plan, folder, device, deterministic, ladder)
        failures = run_jobs(folder, resolved, engine, until)
        if resolved.search is not None:  # a trial that was lost and run again may have found something else
            check_same(folder, resolved, NO_EARLIER_PLAN)
            remove_trial_runs(folder)
        found = collect(folder, resolved, failures)
        write_report(found, folder)
    if failures:
        first, (code, reason) = next(iter(failures.items()))
        raise JobsFailed(
            f"{len(failures)} of {count_jobs(resolved)} jobs failed, the first ({first}) with: {reason}; "
            f"{report_path(folder)} has the others",
            code,
        )
    return found


def warn_of_few_seeds(plan: PlanConfig) -> None:
    """What a plan with so many seeds cannot find is said before it is run."""
    if len(plan.rows) < 2:
        return
    pairs = len(plan.questions) or math.comb(len(plan.rows), 2)
    power = plan_power(len(plan.chosen_seeds()), pairs, len(plan.rows))
    if not power.enough:
        luck = plan.search is not None and plan.search.method in ("random", "halving")
        say(f"note: {power.words}" + ("; the luck of a random search comes on top" if luck else ""))


def remove_trial_runs(folder: Path) -> None:
    """Those that have a result: a job may have been killed before it removed its run."""
    for path in (folder / "search").glob("*/*.json"):
        remove_run(path.with_suffix(""))


class JobsFailed(SeqloomError):
    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def begin(folder: Path, overwrite: bool) -> None:
    """Check that the folder is empty or holds a comparison: nothing else is resumed, or deleted."""
    if not is_comparison(folder):
        raise UsageError(f"{folder} is not empty and does not hold a comparison: choose another --out")
    if overwrite:
        clear_folder(folder, comparison_folder(folder))
    # a run folder may still belong to its job, and cleans up itself
    remove_leftovers(folder, comparison_folder(folder, runs=False))


def settle_plan(
    plan: PlanConfig, folder: Path, device: str, deterministic: bool, ladder: Path | None = None
) -> ResolvedPlan:
    """Resolve a plan and write plan.json. What was begun earlier is resumed, or the plan is rejected."""
    earlier, texts = read_earlier_plan(folder), ladder or folder
    folders = prepare_texts(plan, texts)
    together = earlier.widths_together is True
    rows = resolve_rows(plan, folders, together)
    pairs = pairs_path(folder, plan.pairs)
    text = {
        "files": tuple(relative_to_folder(folder, name) for name in plan.text.files),
        "prepared": plan.text.prepared and relative_to_folder(folder, plan.text.prepared),
    }
    resolved = ResolvedPlan(
        name=plan.name,
        text=plan.text.model_copy(update=text),
        rows=tuple(row.model_copy(update={"data": relative_to_folder(folder, row.data)}) for row in rows),
        seeds=tuple(plan.chosen_seeds()),
        budget=plan.budget.model_dump(exclude_none=True),
        parameters=plan.parameters,
        widths_together=together,
        settings=plan.settings,
        search=search_record(plan),
        suites=tuple(suite_records(plan, folder)),
        milestones=tuple(plan.milestone_suites()),
        tasks=tuple(task_record(task, folder) for task in plan.tasks),
        questions=tuple(question_records(plan, folder, earlier)),
        price=plan.price,
        prompt=plan.prompt,
        device=device,
        deterministic=deterministic,
        shared=None if ladder is None else relative_to_folder(folder, str(shared_path(ladder))),
        versions={"seqloom": __version__, "git": git_commit()},
    )
    check_same(folder, resolved, earlier)
    if plan.pairs and not pairs.exists():
        prepared = plan.text.prepared
        source = Path(prepared) if prepared else request_of(plan.text, text_files(plan, texts))
        write_pairs(source, pairs, plan.pairs)
    write_json(plan_path(folder), resolved.record())
    return resolved


def search_record(plan: PlanConfig) -> SearchRecord | None:
    search = plan.search
    if search is None:
        return None
    ranges = search.ranges()
    return SearchRecord(
        method=search.method,
        trials=search.num_trials(ranges),
        budget=search.budget,
        seed=search.seed,
        settings=tuple(ranges),
        finalists=search.finalists,
    )


def suite_records(plan: PlanConfig, folder: Path) -> Iterator[SuiteRecord]:
    for name, data in plan.suites.items():
        content = hash_content(Path(data))
        yield SuiteRecord(name=name, suite=name, data=relative_to_folder(folder, data), content=content)
    if plan.pairs:
        data, content = pairs_path(folder, plan.pairs).name, f"{plan.pairs} of each kind"
        yield SuiteRecord(name="pairs", suite="blimp", data=data, content=content)


def task_record(task: TaskConfig, folder: Path) -> TaskRecord:
    files = {part: [Path(name) for name in getattr(task, part)] for part in SPLITS}
    return TaskRecord(
        task=task.task,
        train=tuple(relative_to_folder(folder, name) for name in task.train),
        valid=tuple(relative_to_folder(folder, name) for name in task.valid),
        test=tuple(relative_to_folder(folder, name) for name in task.test),
        name=task_name(task),
        how=task.how,
        recipe=task.recipe,
        settings=task.settings,
        place=slug(task_name(task)),
        content={part: tuple(map(hash_content, paths)) for part, paths in files.items()},
    )


def question_records(plan: PlanConfig, folder: Path, earlier: EarlierPlan) -> Iterator[QuestionRecord]:
    """A question is late if there were results when it was first asked: a table suggests questions about what stands out."""
    known = {frozenset(question.rows): question.late for question in earlier.questions}
    seen = any(result_paths(folder))
    for each in plan.questions:
        yield QuestionRecord(name=each.name, rows=each.rows, late=known.get(frozenset(each.rows), seen))


def prepare_texts(plan: PlanConfig, folder: Path) -> dict[tuple[str, int | None], Path]:
    """The text in every vocabulary that rows ask for; with `words` so much of it."""
    found = prepare_whole_texts(plan, folder)
    for place in found.values():
        check_held_out(place, plan)
    words = plan.text.words
    if words is None:
        return found
    (folder / "data").mkdir(exist_ok=True)
    smaller = {place: subset_path(folder, place, words) for place in found.values()}
    for place, part in smaller.items():
        subset(place, words, part)
    return {kind: smaller[place] for kind, place in found.items()}


def prepare_whole_texts(plan: PlanConfig, folder: Path) -> dict[tuple[str, int | None], Path]:
    kinds = list(dict.fromkeys(tokens_of(plan, row) for row in plan.rows))
    if plan.text.prepared is not None:
        return dict.fromkeys(kinds, Path(plan.text.prepared))
    built_in = built_in_path(folder)
    built_in.parent.mkdir(exist_ok=True)
    if plan.text.built_in and not built_in.exists():
        write_built_in_text(built_in)
    files = text_files(plan, folder)
    found = {(kind, size): data_path(folder, kind, size) for kind, size in kinds}
    options = prepare_options(plan.text, files)
    check_text(folder, files, options)
    for (kind, size), place in found.items():
        if not is_prepared_whole(place):
            prepare(files, place, tokenizer=kind, vocab_size=size, **options)
    return found


def text_files(plan: PlanConfig, folder: Path) -> list[Path]:
    return [built_in_path(folder)] if plan.text.built_in else [Path(file) for file in plan.text.files]


def check_held_out(place: Path, plan: PlanConfig) -> None:
    manifest = Store.open(place).manifest
    splits = manifest.splits
    if "valid" not in splits and "test" not in splits:
        raise DataError(f"{place} has no held-out text to measure on: prepare it with --valid or --test")
    if is_music(str(manifest.options.get("tokenizer"))) and plan.suite_names():
        raise DataError(
            f"{place} has songs, and {', '.join(plan.suite_names())} asks about sentences: leave out [suites] and pairs"
        )


def run_jobs(folder: Path, plan: ResolvedPlan, engine: Engine, until: float) -> dict[str, tuple[int, str]]:
    """Run all jobs that have no result yet. Returns those that failed, with their exit codes and reasons."""
    total = count_jobs(plan)
    left = total - count_done(folder, plan)
    if left < total:
        say(f"{total - left} of {total} jobs already done")
    return Jobs(folder, engine).run(lambda: pending_jobs(folder, plan), total - left, left, until) if left else {}


def count_jobs(plan: ResolvedPlan) -> int:
    searched = sum(is_searched(plan, row) for row in plan.rows)
    trials = searched * num_trials(plan.search) if plan.search is not None else 0
    return len(plan.rows) * len(plan.seeds) + trials


def count_done(folder: Path, plan: ResolvedPlan) -> int:
    results = sum(result_path(folder, row.place, seed).exists() for row in plan.rows for seed in plan.seeds)
    if plan.search is None:
        return results
    return results + sum(len(tried(folder, plan.search, row)[0]) for row in plan.rows if is_searched(plan, row))


def pending_jobs(folder: Path, plan: ResolvedPlan) -> Iterator[Job]:
    """Those that can be run now: trials, then results of rows whose settings are known, seed by seed, so that every row has one
    soon."""
    missing = [missing_trials(folder, plan, row) for row in plan.rows]
    trials = [(trial.rung, trial.number, i) for i, each in enumerate(missing) for trial in each]
    for rung, number, i in sorted(trials):
        trial, row = Trial(number, rung), plan.rows[i]
        yield Job(row.name, row.place, trial.seed, trial)
    for seed in plan.seeds:
        for row, still in zip(plan.rows, missing, strict=True):
            if not still and not result_path(folder, row.place, seed).exists():
                yield Job(row.name, row.place, seed)


class Jobs:
    """Runs jobs on an engine; several at a time share one progress bar."""

    def __init__(self, folder: Path, engine: Engine):
        self.folder, self.engine, self.most = folder, engine, engine.most
        self.running: dict[Job, Process] = {}
        self.begun: dict[Job, float] = {}  # when each was first started
        self.failed: dict[str, tuple[int, str]] = {}
        self.looked = time.monotonic()
        self.environment = dict(os.environ)
        wait_briefly(self.environment)
        self.environment.setdefault("OMP_NUM_THREADS", str(max(cores() // self.most, 1)))
        (folder / "logs").mkdir(exist_ok=True)
        for path in (folder / "logs").glob("device*.log"):  # of processes that are gone
            path.unlink(missing_ok=True)
        engine.prepare(folder.resolve())

    def run(
        self, pending: Callable[[], Iterator[Job]], before: int, left: int, until: float
    ) -> dict[str, tuple[int, str]]:
        """pending: what can be run now, again and again, as trials decide what comes after them. before, left: how many are done
        and how many there will be."""
        done = 0
        with Interruption() as asked, Progress("compare", float(left)) as bar:
            while self.start_next(pending) or self.running:
                time.sleep(0.1)
                for _ in self.ended():
                    done += 1
                    if self.most == 1:
                        say(f"{before + done} of {before + left} jobs done")
                self.show(bar, done, left)
                if asked.asked or time.monotonic() > until:
                    self.stop()
                    raise Interrupted(
                        f"stopped, {before + done} of {before + left} jobs done: rerun the same command to resume"
                    )
        return self.failed

    def show(self, bar: Progress, done: int, left: int) -> None:
        """How far several jobs at a time are, by their logs; a single one shows that itself."""
        if self.most == 1 or (time.monotonic() - self.looked < LOOK and self.running):
            return
        self.looked = time.monotonic()
        shares = {job: self.trained(job) for job in self.running}
        bar.done = done + TRAINING * sum(shares.values())
        running = ", ".join(f"{job} {share:.0%}" for job, share in shares.items())
        bar.advance(note=f"{done} of {left} jobs" + (f"; {running}" if running else ""))

    def trained(self, job: Job) -> float:
        """The share of a job's training that is done."""
        path = log_path(self.folder, job.place, job.label)
        try:
            with path.open("rb") as log:
                log.seek(max(path.stat().st_size - 4096, 0))
                found = TRAINED.findall(log.read())
        except OSError:  # not there yet
            return 0.0
        return int(found[-1]) / 100 if found else 0.0

    def start_next(self, pending: Callable[[], Iterator[Job]]) -> bool:
        """Starts as many as there is room for. Returns whether any was started."""
        room = self.most - len(self.running)
        new = list(itertools.islice((job for job in pending() if job not in self.begun), room)) if room > 0 else []
        for job in new:
            self.start(job)
        return bool(new)

    def start(self, job: Job) -> None:
        folder = self.folder if self.engine.here else self.folder.resolve()
        call = [sys.executable, "-m", "seqloom.comparison.job", str(folder), job.place, str(job.label)]
        call += ["--quiet"] * progress.QUIET + ["--debug"] * errors.DEBUG
        path = log_path(folder, job.place, job.label)
        # a single job prints for itself; only the output of several at a time is kept in logs
        shown = self.engine.here and self.most == 1 and not progress.QUIET
        if job not in self.begun:
            path.unlink(missing_ok=True)
            if self.most == 1:
                say(f"{job}")
        self.running[job] = self.engine.start(Task(str(job), call, path, shown, self.environment))
        self.begun.setdefault(job, time.monotonic())

    def ended(self) -> list[Job]:
        found = []
        for job, process in list(self.running.items()):
            code, seconds = process.poll(), time.monotonic() - self.begun[job]
            if code is None:
                continue
            del self.running[job]
            if self.engine.here:  # a killed job could not write it
                DeviceLog(device_log_path(self.folder)).note(getattr(process, "pid", 0), "end")
            if code == BUSY and seconds < PATIENCE:  # a killed comparison's job is about to leave
                time.sleep(1.0)
                self.start(job)
                continue
            if code == Interrupted.exit_code and self.engine.restarts:  # it met a time limit, and saved its state
                say(f"{job}: stopped by the engine, and started again")
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
        """Why it failed, by its log; a killed job has none."""
        lines = log_path(self.folder, job.place, job.label).read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
        if said:
            return said[-1]
        if code == -getattr(signal, "SIGKILL", 9):  # which Windows does not have
            return "it was killed, perhaps because memory was short: choose a smaller batch or model, or fewer --jobs"
        return f"it ended without a message ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"

    def stop(self) -> None:
        until = time.monotonic() + GRACE
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
