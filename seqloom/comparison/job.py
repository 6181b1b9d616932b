"""One row with one seed: trained, measured, transferred. A process of its own, so that rows neither wait for nor harm each other.

Called as `python -m seqloom.comparison.job OUT ROW SEED [--quiet] [--debug]`; everything else stands in OUT/plan.json. Killed, it
goes on. Why it failed is the last line of its log: who called it says that, once for all jobs.
What it finds is written last, as OUT/results/ROW/seed-N.json, with the outcomes of single items beside it. It says what it
was measured by: a plan that asks for something else must not take it for its own.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqloom import cost, errors, progress
from seqloom.comparison.plan import PARTS
from seqloom.errors import UsageError
from seqloom.evaluate.suites import write_arrays
from seqloom.files import digest_of, read_record, sha256, write_json
from seqloom.migrations import RESULT
from seqloom.models import model_class
from seqloom.objectives.masked import MaskedLM
from seqloom.recipes.schema import build_recipe
from seqloom.runs.folder import plain
from seqloom.runs.language_model import Run
from seqloom.runs.load import load_language_model
from seqloom.runs.training import finetune, pretrain
from seqloom.tasks import task_class
from seqloom.training.precision import choose_device

SAMPLE_TOKENS = 80
REPLAN = "call the comparison again, which writes it"
REDO = "remove it and card.md beside it: they are written anew"
FAILED = "failed: "  # what the last line of a log begins with
DOCUMENTS = "documents"  # the items of bits per byte; no suite is called so


def result_of(out: Path, place: str, seed: int) -> Path:
    return out / "results" / place / f"seed-{seed}.json"


def run_of(out: Path, place: str, seed: int) -> Path:
    return out / "runs" / place / f"seed-{seed}"


def log_of(out: Path, place: str, seed: int) -> Path:
    return out / "logs" / f"{place}-{seed}.log"


def device_log(out: Path) -> Path:
    return out / "logs" / "device.log"


def work(out: Path, place: str, seed: int) -> None:
    plan = read_record(out / "plan.json", REPLAN)
    row = next(each for each in plan["rows"] if each["place"] == place)
    folder = run_of(out, place, seed)
    run = pretrain(
        build_recipe(row["recipe"], row["name"]),
        out / row["data"],
        folder,
        seed=seed,
        resume=(folder / "config.json").exists(),
        device=plan["device"],
        deterministic=plan["deterministic"],
    )
    items: dict[str, np.ndarray] = {}
    found: dict[str, Any] = {
        **RESULT.stamp(),
        "metrics": read_record(folder / "metrics.json", REDO),
        "held_out": run.evaluate(out / row["data"], items=True),
        "definition": run.definition(),
        "suites": {},
        "milestones": [],
        "tasks": {},
        "sample": sample(run, plan["prompt"]),
        "by": {kind: plan[kind] for kind in ("suites", "tasks", "milestones")},
    }
    for name, values in found["held_out"].pop("items", {}).items():
        items[f"{DOCUMENTS}.{name}"] = values
    for suite in plan["suites"]:
        scores = measured(run, suite, out)
        outcomes = scores.pop("items", None)
        found["suites"][suite["name"]] = scores
        if outcomes is not None:
            items[suite["name"]] = np.asarray(outcomes, np.float32)
    for mark in sorted((folder / "milestones").glob("*/milestone.json"), key=lambda each: int(each.parent.name)):
        then = load_language_model(mark.parent, plan["device"])
        passed = {
            suite["name"]: measured(then, suite, out).get("accuracy")
            for suite in plan["suites"]
            if suite["name"] in plan["milestones"]
        }
        found["milestones"].append(read_record(mark, f"remove {mark.parent}") | {"suites": passed})
    for task in plan["tasks"]:
        found["tasks"][task["name"]] = transferred(out, row, seed, task, plan)
    path = result_of(out, place, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path.with_suffix(".npz"), items)
    found = plain(found | {"items": sha256(path.with_suffix(".npz"))})
    write_json(path, found | {"whole": digest_of(found)})


def measured(run: Run, suite: dict[str, str], out: Path) -> dict[str, Any]:
    """Its scores, or why there are none."""
    why = run.lacks(suite["suite"])
    return {"refused": f"it {why}"} if why else run.evaluate_suite(suite["suite"], out / suite["data"], items=True)


def transferred(
    out: Path, row: dict[str, Any], seed: int, task: dict[str, Any], plan: dict[str, Any]
) -> dict[str, Any]:
    """Its scores, or that the task is not for such a model. All else that goes wrong is a mistake, which must not pass for a
    result."""
    place, model = row["place"], row["recipe"]["model"]["name"]
    if not task_class(task["task"]).fits(model_class(model)):
        return {"refused": f"{task['task']} is not for the model {model}"}
    folder = out / "tasks" / task["place"] / place / f"seed-{seed}"
    train, valid, test = ([out / name for name in task[split]] for split in PARTS)
    finetune(
        run_of(out, place, seed),
        task["task"],
        train,
        valid,
        folder,
        test=test,
        how=task["how"],
        settings=task["settings"],
        seed=seed,
        resume=(folder / "config.json").exists(),
        device=plan["device"],
        deterministic=plan["deterministic"],
    )
    metrics = read_record(folder / "metrics.json", REDO)
    return {**metrics["test_scores"], "seconds": metrics["seconds"], "flops": metrics["flops"]}


def sample(run: Run, prompt: str) -> str:
    """What it goes on with, or puts into a gap."""
    if isinstance(run.learner, MaskedLM):
        try:
            (gap,) = run.fill(f"{prompt.strip()} [MASK]", top=5)
        except UsageError as error:
            return f"({error})"
        return f"{prompt.strip()} [{' | '.join(each.text.removeprefix(prompt.strip()).strip() for each in gap)}]"
    return run.generate(prompt, max_new=SAMPLE_TOKENS, temperature=0.8, seed=0)[0].text


@contextlib.contextmanager
def on_device(out: Path) -> Iterator[None]:
    """Jobs that run at the same time know of each other: what the device uses is shared between them."""
    cost.SHARED = cost.DeviceLog(device_log(out))
    plan = read_record(out / "plan.json", REPLAN)
    meter = cost.EnergyMeter(cuda=choose_device(plan["device"]).type == "cuda")
    cost.SHARED.note(os.getpid(), "begin", meter.counter())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a full disk
            cost.SHARED.note(os.getpid(), "end", meter.counter())
        cost.SHARED = None


def stop_with(parent: int) -> None:
    """Whoever started it may be killed without a word: then it saves its state and leaves."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    out, place, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    stop_with(os.getppid())
    progress.QUIET, errors.DEBUG = "--quiet" in sys.argv, "--debug" in sys.argv
    try:
        with on_device(out):
            work(out, place, seed)
    except BaseException as error:
        if not errors.can_explain(error):
            raise
        errors.show_traceback(error)
        reason, code = errors.explain(error)
        with contextlib.suppress(OSError), log_of(out, place, seed).open("a", encoding="utf-8") as log:  # a full disk
            log.write(f"{FAILED}{reason}\n")
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
