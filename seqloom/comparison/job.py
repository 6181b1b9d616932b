"""A job: one row trained with one seed, measured and transferred, in a process of its own, so that jobs neither wait for nor harm
each other.

Called as `python -m seqloom.comparison.job OUT ROW SEED|TRIAL [--quiet] [--debug]`; everything else is in OUT/plan.json. Rerun
after a kill, it resumes. If it fails, the reason is the last line of its log: the comparison reports it, once for all jobs.
The result is written last, as OUT/results/ROW/seed-N.json, with the scores of single items beside it. It names the suites and
tasks by which the row was measured, so that a plan with other ones does not take it for its own.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seqloom import cost, errors, progress
from seqloom.batches.store import held_back
from seqloom.comparison.environment import current_environment
from seqloom.comparison.folder import (
    device_log_path,
    items_path,
    log_path,
    result_path,
    run_path,
    transfer_path,
    trial_path,
)
from seqloom.comparison.measurement import asked, common_options, own_options
from seqloom.comparison.plan import BESIDE, beside_recipe
from seqloom.comparison.records import (
    COMMON,
    DOCUMENTS,
    CommonScores,
    HeldOutScores,
    JobResult,
    MeasuredBy,
    MilestoneScores,
    ResolvedPlan,
    Row,
    RunMetrics,
    SuiteRecord,
    SuiteScores,
    TaskRecord,
    TaskScores,
    TrialCosts,
    TrialResult,
    parse,
    read_as,
    read_plan_record,
)
from seqloom.comparison.search import Trial
from seqloom.comparison.tuning import chosen_row, trial_recipe, trial_settings
from seqloom.errors import NumbersError, UsageError
from seqloom.evaluate.suites import write_arrays
from seqloom.files import clear_folder, digest_of, files_below, read_record, sha256, write_json
from seqloom.migrations import RESULT, TRIAL
from seqloom.models import model_class
from seqloom.runs.folder import RUN, plain
from seqloom.runs.joint import TasksPlan, finetune_tasks
from seqloom.runs.language_model import Run
from seqloom.runs.load import load_language_model
from seqloom.runs.options import RunOptions
from seqloom.runs.training import finetune, pretrain, train
from seqloom.tasks import task_class
from seqloom.text.music import is_music
from seqloom.text.survey import SPLITS
from seqloom.training.interrupt import stop_with
from seqloom.training.precision import choose_device
from seqloom.training.process import keep_freed_memory

SAMPLE_TOKENS = 80
REDO = "remove it and card.md beside it, and rerun: they are written again"
FAILED = "failed: "  # what the last line of a log begins with

H = TypeVar("H", bound=HeldOutScores)
Items = dict[str, np.ndarray]  # scores of single items, by suite


def run_job(out: Path, place: str, seed: int) -> None:
    plan = read_plan_record(out)
    row = chosen_row(out, plan, next(each for each in plan.rows if each.place == place))
    folder = run_path(out, place, seed)
    run = pretrain(
        row.recipe,
        out / row.data,
        folder,
        seed=seed,
        resume=(folder / "config.json").exists(),
        device=plan.device,
        deterministic=plan.deterministic,
        shared=None if plan.shared is None else out / plan.shared,
    )
    items: Items = {}
    common = common_options(row, plan.rows)
    result = JobResult(
        metrics=read_as(RunMetrics, folder / "metrics.json", REDO),
        held_out=measure_text(HeldOutScores, run, out / row.data, own_options(row, plan.rows), items, DOCUMENTS),
        common=common and measure_text(CommonScores, run, out / row.data, common, items, COMMON),
        definition=run.definition(),
        sample=sample_text(run, plan.prompt),
        suites={suite.name: measure_suite(run, suite, out, items) for suite in plan.suites},
        milestones=measure_milestones(folder, plan, out),
        tasks=transfer_all(out, row, seed, plan),
        by=MeasuredBy.of(plan, asked(row, plan.rows), row.joint),
        environment=current_environment(plan.device, row.recipe.train.precision),
    )
    path = result_path(out, place, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(items_path(path), items)
    record = RESULT.stamp() | result.record() | {"items": sha256(items_path(path))}
    write_json(path, record | {"whole": digest_of(record)})


def run_trial(out: Path, place: str, name: str) -> None:
    """Trains a row with the settings of a trial and keeps the validation loss. No test split can be opened meanwhile. A training
    that breaks off is a result too: these settings are no good. The run folder is removed at the end."""
    plan = read_plan_record(out)
    row = next(each for each in plan.rows if each.place == place)
    assert plan.search is not None
    trial = Trial.parse(name)
    recipe, path = trial_recipe(plan.search, row, trial), trial_path(out, place, trial.name)
    folder, started = path.with_suffix(""), time.monotonic()
    found: dict[str, Any] = {}
    try:
        with held_back("test"):
            pretrain(
                recipe,
                out / row.data,
                folder,
                seed=trial.seed,
                resume=(folder / "config.json").exists(),
                device=plan.device,
                deterministic=plan.deterministic,
            )
        found = read_record(folder / "metrics.json", REDO)
        costs = TrialCosts.model_validate(found)
    except NumbersError as error:
        costs = TrialCosts(seconds=round(time.monotonic() - started, 3))
        found = {"valid_loss": None, "failed": str(error)}
    result = TrialResult(
        settings=trial_settings(plan.search, row, trial),
        valid_loss=found["valid_loss"],
        failed=found.get("failed", ""),
        metrics=costs,
        recipe=plain(recipe.model_dump()),
        fingerprint=row.fingerprint,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    record = TRIAL.stamp() | plain(result.model_dump(exclude={"whole"}))
    write_json(path, record | {"whole": digest_of(record)})
    remove_run(folder)


def remove_run(folder: Path) -> None:
    """Of a trial that has a result. A kill may leave empty folders, which are removed as well."""
    if any(name != "lock" for name in files_below(folder)):
        clear_folder(folder, RUN)
    (folder / "lock").unlink(missing_ok=True)
    for place, _, _ in os.walk(folder, topdown=False):
        os.rmdir(place)


def measure_text(cls: type[H], run: Run, data: Path, options: dict[str, Any], items: Items, name: str) -> H:
    """Scores of held-out text. items: where those of single documents are put, by this name."""
    found = run.evaluate(data, items=True, **options)
    items |= {f"{name}.{key}": values for key, values in found.pop("items", {}).items()}
    return parse(cls, plain(found) | {"tokens_of_context": options.get("max_len")})


def measure_suite(run: Run, suite: SuiteRecord, out: Path, items: Items | None = None) -> SuiteScores:
    """Its scores, or why there are none. items: where the scores of its items are put."""
    why = run.lacks(suite.suite)
    if why:
        return SuiteScores(refused=f"it {why}")
    scores = run.evaluate_suite(suite.suite, out / suite.data, items=True)
    outcomes = scores.pop("items", None)
    if items is not None and outcomes is not None:
        items[suite.name] = np.asarray(outcomes, np.float32)
    return SuiteScores.model_validate(plain(scores))


def measure_milestones(folder: Path, plan: ResolvedPlan, out: Path) -> tuple[MilestoneScores, ...]:
    suites = [suite for suite in plan.suites if suite.name in plan.milestones]
    found = []
    for path in sorted((folder / "milestones").glob("*/milestone.json"), key=lambda each: int(each.parent.name)):
        run = load_language_model(path.parent, plan.device)
        scores = {suite.name: measure_suite(run, suite, out).main for suite in suites}
        found.append(parse(MilestoneScores, read_record(path, f"remove {path.parent}") | {"suites": scores}))
    return tuple(found)


def transfer(out: Path, row: Row, seed: int, task: TaskRecord, plan: ResolvedPlan) -> TaskScores:
    """Its scores, or that the task does not fit the model. Anything else that goes wrong is an error, which must not pass for a
    result."""
    model = row.recipe.model["name"]
    if row.is_count_based or (task.how != BESIDE and not task_class(task.task).fits(model_class(model))):
        return TaskScores(refused=f"{task.task} is not for the model {model}")
    folder, run = transfer_path(out, task.place, row.place, seed), run_path(out, row.place, seed)
    files: dict[str, Any] = {split: [out / name for name in getattr(task, split)] for split in SPLITS}
    options = RunOptions(
        seed=seed,
        resume=(folder / "config.json").exists(),
        device=plan.device,
        deterministic=plan.deterministic,
    )
    if task.how == BESIDE:
        train(beside_recipe(task), task.task, out=folder, beside=[run], options=options, **files)
    else:
        finetune(run, task.task, out=folder, how=task.how, settings=list(task.settings), options=options, **files)
    metrics = read_record(folder / "metrics.json", REDO)
    costs = {"seconds": metrics["seconds"], "flops": metrics["flops"]}
    return TaskScores.model_validate({**metrics["test_scores"], **costs})


def transfer_all(out: Path, row: Row, seed: int, plan: ResolvedPlan) -> dict[str, TaskScores]:
    """The scores of all tasks: each learnt in a run of its own, or all in one."""
    if row.joint is None or row.is_count_based:
        return {task.name: transfer(out, row, seed, task, plan) for task in plan.tasks}
    model = model_class(row.recipe.model["name"])
    if unfit := [task.task for task in plan.tasks if not task_class(task.task).fits(model)]:
        refused = f"{unfit[0]} is not for the model {row.recipe.model['name']}, and all tasks are learnt together"
        return {task.name: TaskScores(refused=refused) for task in plan.tasks}
    main, weights = plan.tasks[0], row.joint.weights
    folder = transfer_path(out, main.place, row.place, seed)
    tasks = [
        {
            "task": task.task,
            "name": task.place,
            **{split: [str(out / name) for name in getattr(task, split)] for split in SPLITS},
            "weight": weights.get(task.name, 1.0),
            "settings": [each for each in task.settings if each.startswith("task.")],
        }
        for task in plan.tasks
    ]
    finetune_tasks(
        run_path(out, row.place, seed),
        TasksPlan.model_validate({"tasks": tasks, "smoothing": row.joint.smoothing}),
        folder,
        how=main.how,
        settings=[each for each in main.settings if not each.startswith("task.")],
        seed=seed,
        resume=(folder / "config.json").exists(),
        device=plan.device,
        deterministic=plan.deterministic,
    )
    metrics = read_record(folder / "metrics.json", REDO)
    scores = metrics["test_scores"]
    others = scores.pop("tasks", {})
    costs = {"seconds": metrics["seconds"], "flops": metrics["flops"]}  # of one run, and so of the first task alone
    found = {main.name: TaskScores.model_validate({**scores, **costs})}
    for task in plan.tasks[1:]:
        left_out = TaskScores(refused="it has the weight 0 here and was not learnt")
        found[task.name] = TaskScores.model_validate(others[task.place]) if task.place in others else left_out
    return found


def sample_text(run: Run, prompt: str) -> str:
    """A continuation of the prompt, or the words that fill a gap after it; nothing of a model that can do neither, or reads
    songs."""
    if is_music(run.tokenizer.kind):
        return ""
    if run.learner.fills_gaps:
        try:
            (gap,) = run.fill(f"{prompt.strip()} [MASK]", top=5)
        except UsageError as error:
            return f"({error})"
        return f"{prompt.strip()} [{' | '.join(each.text.removeprefix(prompt.strip()).strip() for each in gap)}]"
    if not run.learner.has_next_word:
        return ""
    return run.generate(prompt, max_new=SAMPLE_TOKENS, temperature=0.8, seed=0)[0].text


@contextlib.contextmanager
def on_device(out: Path) -> Iterator[None]:
    """Register with the other jobs on the device: what it uses is shared between them."""
    cost.SHARED = cost.DeviceLog(device_log_path(out))
    meter = cost.EnergyMeter(cuda=choose_device(read_plan_record(out).device).type == "cuda")
    cost.SHARED.note(os.getpid(), "begin", meter.counter())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a full disk
            cost.SHARED.note(os.getpid(), "end", meter.counter())
        cost.SHARED = None


def main() -> int:
    out, place, which = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    stop_with(os.getppid())
    keep_freed_memory(os.environ)  # what the comparison has decided otherwise is in the environment
    progress.QUIET, errors.DEBUG = "--quiet" in sys.argv, "--debug" in sys.argv
    try:
        with on_device(out):
            if which.isdecimal():
                run_job(out, place, int(which))
            else:
                run_trial(out, place, which)
    except BaseException as error:
        if not errors.can_explain(error):
            raise
        errors.show_traceback(error)
        reason, code = errors.explain(error)
        with contextlib.suppress(OSError), log_path(out, place, which).open("a", encoding="utf-8") as log:  # full
            log.write(f"{FAILED}{reason}\n")
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
