"""A ladder: one plan at several budgets, a power law fitted to every row, and budgets that are predicted before they are run.

Every budget is a comparison of its own, with its own search and schedules that end with it: a checkpoint of a longer run is not a
run of a smaller budget. With a trapezoid schedule a longer run goes on from where a shorter one began to lower its rate, see
`runs.shared_start`. What is in its folder:

data/            the prepared text, which all budgets share        predictions.json   written before what it predicts is run
budgets/         a comparison for each budget                      report.html  ladder.json  ladder.csv  ladder-*.svg
shared/          starts of runs, until the last budget is run

The budgets of a ladder in words are of new text. Repeated text is another thing: that is a ladder in epochs, or with `passes` one
in both, where every budget is a text of so many words, read once, three times, ten times. Laws are then of one number of passes.
"""

import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqloom.batches.prepare import PREPARED_FILES
from seqloom.batches.store import Store
from seqloom.comparison.engines import Where
from seqloom.comparison.folder import comparison_folder, shared_path
from seqloom.comparison.laws import (
    LADDER,
    PREDICTIONS,
    Ladder,
    budget_path,
    called,
    is_ladder,
    make_predictions,
    summarise,
)
from seqloom.comparison.plan import PlanConfig, Rung, check_files
from seqloom.comparison.plans import open_plan
from seqloom.comparison.run import compare, prepare_texts
from seqloom.comparison.table import Comparison
from seqloom.errors import DataError, UsageError
from seqloom.files import (
    FolderKind,
    check_clearable,
    clear_folder,
    contents,
    digest_of,
    remove_leftovers,
    sole_owner,
    write_json,
)
from seqloom.progress import say
from seqloom.recipes.schema import BudgetConfig
from seqloom.runs.folder import RUN_FILES
from seqloom.training.precision import choose_device

OWN_FILES = r"(ladder|predictions)\.json|ladder\.csv|report\.html|ladder-[^/]+\.svg"


# ---- running


def compare_ladder(
    plan: str | Path | PlanConfig,
    out: str | Path,
    *,
    jobs: int | None = None,
    minutes: float | None = None,
    overwrite: bool = False,
    device: str = "auto",
    deterministic: bool = False,
    where: Where | None = None,
) -> Ladder:
    """Run a plan at all budgets of its ladder, or resume it, and return what was found; the page is OUT/report.html.

    Args:
        plan: a TOML file, the name of a built-in plan, or a PlanConfig; with a [ladder].
        out: the folder of the ladder; the comparison of each budget is in OUT/budgets.
        jobs: how many jobs (a row with a seed) run side by side.
        minutes: when to stop; rerun to resume.
        overwrite: delete the ladder that is in `out` and start again.
        device: "auto", "cpu" or "cuda".
        deterministic: use kernels that give the same bits every time on a GPU; slower.
        where: on which engine jobs run (local, ray, slurm), and what each of them asks for; `jobs` goes with it.
    """
    from seqloom.comparison.ladder_report import write_ladder_report

    until = None if minutes is None else time.monotonic() + 60 * minutes
    choose_device(device)
    plan = open_plan(plan)
    if plan.ladder is None:
        raise UsageError(f"{plan.name} has a single budget: it has no ladder")
    check_files(plan)
    folder, ladder = Path(out), plan.ladder
    with sole_owner(folder):
        begin(folder, overwrite)
        check_new_text(plan, folder)
        (folder / "budgets").mkdir(exist_ok=True)
        found: dict[Rung, Comparison] = {}
        for rung in ladder.rungs((*ladder.budgets, *ladder.predict)):
            if rung.budget in ladder.predict:
                predict_once(folder, plan, found)
            say(called(rung, ladder.unit))
            left = None if until is None else max((until - time.monotonic()) / 60, 1e-3)
            found[rung] = compare(
                at_budget(plan, rung), budget_path(folder, ladder.unit, rung), jobs=jobs, minutes=left, device=device,
                deterministic=deterministic, where=where, ladder=folder,
            )  # fmt: skip
        whole = summarise(plan.name, ladder, found, folder)
        write_ladder_report(whole, folder)
        shutil.rmtree(shared_path(folder), ignore_errors=True)  # no longer run will come
    return whole


def at_budget(plan: PlanConfig, rung: Rung) -> PlanConfig:
    """The plan of one comparison."""
    assert plan.ladder is not None
    unit = plan.ladder.unit
    change: dict[str, Any] = {"ladder": None, "name": f"{plan.name}: {called(rung, unit)}"}
    if rung.passes is None:
        return plan.model_copy(update=change | {"budget": BudgetConfig(**{unit: rung.budget})})
    part = plan.text.model_copy(update={"words": rung.budget})
    return plan.model_copy(update=change | {"text": part, "budget": BudgetConfig(epochs=rung.passes)})


def ladder_folder(folder: Path) -> FolderKind:
    files = rf"{OWN_FILES}|data/(built-in\.jsonl|[^/]+/(lock|{PREPARED_FILES}))|budgets/[^/]+/lock"
    files += rf"|shared/[^/]+/({RUN_FILES})"
    return FolderKind("a ladder", re.compile(files), ("data", "budgets", "shared"), is_ladder, LADDER)


def begin(folder: Path, overwrite: bool) -> None:
    if contents(folder, ladder_folder(folder)) and not is_ladder(folder):
        raise UsageError(f"{folder} is not empty and does not hold a ladder of budgets: choose another --out")
    if overwrite:
        budgets = sorted((folder / "budgets").glob("*/"))
        for path in budgets:  # all are looked at before anything is removed
            check_clearable(path, comparison_folder(path))
        for path in budgets:
            clear_folder(path, comparison_folder(path))
        clear_folder(folder, ladder_folder(folder))
    remove_leftovers(folder, ladder_folder(folder))


def check_new_text(plan: PlanConfig, folder: Path) -> None:
    """Budgets in words are of new text: more than there is would be read again."""
    assert plan.ladder is not None
    largest = max((*plan.ladder.budgets, *plan.ladder.predict))
    for path in set(prepare_texts(plan, folder).values()):
        words = Store.open(path).split("train").words
        if plan.ladder.unit == "words" and largest > words:
            raise DataError(
                f"{path}: its training text has {words:,.0f} words, and a budget of {largest:,.0f} would read them again, which "
                f"is not the same as new text: lower the budget, or give the ladder in epochs"
            )


# ---- predictions


def predict_once(folder: Path, plan: PlanConfig, found: Mapping[Rung, Comparison]) -> None:
    """Written before the first predicted budget is run, and never again."""
    path = folder / PREDICTIONS
    assert plan.ladder is not None
    if path.exists():
        return
    later = plan.ladder.rungs(plan.ladder.predict)
    begun = [called(each, plan.ladder.unit) for each in later if budget_path(folder, plan.ladder.unit, each).exists()]
    if begun:
        raise UsageError(
            f"{folder}: {begun[0]} was run before it was predicted (there is no {PREDICTIONS}): choose "
            f"another --out, or start over with --overwrite"
        )
    record = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "from": list(plan.ladder.budgets),
        "predictions": [each.record() for each in make_predictions(plan.ladder, found)],
    }
    write_json(path, record | {"whole": digest_of(record)})
    say(
        f"{path} has the predictions for {', '.join(f'{each:,.6g}' for each in plan.ladder.predict)} {plan.ladder.unit}"
    )
