"""Trials in the folder of a comparison: which are to be run, what they found, and the row with the settings that were chosen.

Nothing but the results of trials is kept: which trials come next and which settings are chosen follows from them, again
whenever somebody asks. A comparison that is killed therefore has nothing to lose.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

from seqloom import migrations
from seqloom.comparison.folder import trial_path
from seqloom.comparison.records import ResolvedPlan, Row, SearchRecord, TrialResult, parse
from seqloom.comparison.search import Rung, Trial, Value, draw, rungs, with_values
from seqloom.errors import ModelError, NumbersError
from seqloom.files import digest_of, read_record
from seqloom.metrics.best_of import best_of_curve
from seqloom.metrics.intervals import Interval
from seqloom.progress import say
from seqloom.recipes.schema import Recipe, fill_defaults
from seqloom.runs.folder import plain


class Tried(NamedTuple):
    """A trial with its result."""

    trial: Trial
    result: TrialResult


def is_searched(plan: ResolvedPlan, row: Row) -> bool:
    return plan.search is not None and bool(row.search)


def trial_settings(search: SearchRecord, row: Row, trial: Trial) -> dict[str, Value]:
    return draw(row.ranges, search.method, search.seed, trial.number, search.settings)


def rungs_of(search: SearchRecord) -> list[Rung]:
    return rungs(search.method, search.trials, search.budget, search.finalists)


def trial_recipe(search: SearchRecord, row: Row, trial: Trial) -> Recipe:
    """What a trial trains."""
    share = rungs_of(search)[trial.rung].share
    return with_values(row.recipe, trial_settings(search, row, trial), share, f"{row.name}, {trial}")


def read_trial(out: Path, search: SearchRecord, row: Row, trial: Trial) -> TrialResult | None:
    """None where there is no result, or a damaged one, which is removed: then the trial is run again."""
    path = trial_path(out, row.place, trial.name)
    if not path.exists():
        return None
    try:
        record = read_record(path, "")
        migrations.TRIAL.number_of(record, path)
        whole = record.pop("whole")
        if whole != digest_of(record):
            raise ValueError("its SHA-256 is not the recorded one")
        return parse(TrialResult, migrations.TRIAL.migrate(record, path))
    except migrations.NewerFormat:
        raise
    except (ModelError, LookupError, TypeError, ValueError, AttributeError) as error:
        say(f"warning: {path} is damaged ({type(error).__name__}: {str(error)[:200]}): the trial is run again")
        path.unlink()
        return None


def changes_of_trial(search: SearchRecord, row: Row, trial: Trial, found: TrialResult) -> str:
    """What was different when the trial was run, in words; empty where nothing was."""
    wanted = plain(trial_recipe(search, row, trial).model_dump())
    if found.fingerprint != row.fingerprint:
        return f"row {row.name!r}: {trial} was run on another text"
    if fill_defaults(found.recipe) != wanted:
        return f"row {row.name!r}: {trial} was run with another recipe or another range"
    return ""


def tried(out: Path, search: SearchRecord, row: Row) -> tuple[list[Tried], list[Trial]]:
    """The trials that have a result, and those that are to be run now: of the first rung that is not finished."""
    done: list[Tried] = []
    trials = [Trial(number) for number in range(search.trials)]
    for rung, (size, _) in enumerate(rungs_of(search)):
        if rung:
            best = sorted((each for each in done if each.trial.rung == rung - 1), key=rank)[:size]
            trials = [Trial(number, rung) for number in sorted(each.trial.number for each in best)]
        results = [(trial, read_trial(out, search, row, trial)) for trial in trials]
        done += [Tried(trial, result) for trial, result in results if result is not None]
        missing = [trial for trial, result in results if result is None]
        if missing:
            return done, missing
    return done, []


def rank(each: Tried) -> tuple[float, int]:
    return each.result.score, each.trial.number


def best_trial(done: list[Tried]) -> Tried:
    """Of those with the largest budget."""
    last = max(each.trial.rung for each in done)
    return min((each for each in done if each.trial.rung == last), key=rank)


def tuned(out: Path, plan: ResolvedPlan, row: Row) -> Row | None:
    """A row with the settings that were chosen; None while its trials are not finished, and if all of them broke off. One that is
    not searched is as it is."""
    if not is_searched(plan, row):
        return row
    assert plan.search is not None
    done, missing = tried(out, plan.search, row)
    if missing:
        return None
    best = best_trial(done)
    if best.result.valid_loss is None:
        return None
    recipe = with_values(row.recipe, trial_settings(plan.search, row, best.trial), 1.0, row.name)
    return row.model_copy(update={"recipe": recipe})


def chosen_row(out: Path, plan: ResolvedPlan, row: Row) -> Row:
    """`tuned` of a row whose trials are finished. Raises NumbersError if all of them broke off."""
    found = tuned(out, plan, row)
    if found is not None:
        return found
    assert plan.search is not None
    done, missing = tried(out, plan.search, row)
    assert not missing, "its trials are finished"
    reason = best_trial(done).result.failed
    raise NumbersError(f"every trial of {row.name} broke off ({reason}): search for lower rates")


def missing_trials(out: Path, plan: ResolvedPlan, row: Row) -> list[Trial]:
    """The trials of a row that can be run now; none where its settings are known."""
    return tried(out, plan.search, row)[1] if plan.search is not None and is_searched(plan, row) else []


def num_trials(search: SearchRecord) -> int:
    """Of one row, over all rungs."""
    return sum(rung.size for rung in rungs_of(search))


# ---- what a search has found


class RowSearch(NamedTuple):
    """The finished search of a row. curve: the expected best validation loss of 1, 2, … trials; empty where trials were not
    drawn at random. costs: of all trials together."""

    row: str
    trials: list[Tried]
    chosen: Tried | None  # None: all broke off
    edges: list[str]  # settings whose best value is the lowest or highest that was tried, in words
    curve: list[Interval]
    costs: dict[str, float]

    @property
    def first_losses(self) -> list[float]:
        """Of all trials with the same budget."""
        return first_losses(self.trials)

    @property
    def settings(self) -> list[str]:
        """The names of those that were searched for."""
        return list(self.trials[0].result.settings)

    def record(self) -> dict[str, Any]:
        best = self.chosen
        return {
            "chosen": None if best is None else {"trial": best.trial.name, "settings": best.result.settings},
            "trials": [
                {
                    "trial": each.trial.name,
                    "settings": each.result.settings,
                    "valid_loss": each.result.valid_loss,
                    **({"failed": each.result.failed} if each.result.failed else {}),
                }
                for each in self.trials
            ],
            "at_the_edge": self.edges,
            "expected_best": [each.record() if math.isfinite(each.value) else {} for each in self.curve],
            "costs": self.costs,
        }


def search_of(out: Path, plan: ResolvedPlan, row: Row) -> RowSearch | None:
    """None where a row is not searched, or not yet to the end."""
    if plan.search is None or not is_searched(plan, row):
        return None
    done, missing = tried(out, plan.search, row)
    if missing:
        return None
    best: Tried | None = best_trial(done)
    if best is not None and best.result.valid_loss is None:
        best = None
    costs = {
        name: float(sum(getattr(each.result.metrics, name) for each in done))
        for name in ("tokens", "flops", "seconds", "energy_kwh")
    }
    if plan.price is not None:
        shares = [each.result.metrics.device_seconds or each.result.metrics.seconds for each in done]
        costs["price"] = float(sum(shares)) / 3600 * plan.price.hour
    at_random = plan.search.method in ("random", "halving") and best is not None
    curve = best_of_curve(first_losses(done), lower=True) if at_random else []
    return RowSearch(row.name, done, best, [] if best is None else edges(row, best, done), curve, costs)


def first_losses(trials: list[Tried]) -> list[float]:
    return [each.result.score for each in trials if each.trial.rung == 0]


def edges(row: Row, best: Tried, done: list[Tried]) -> list[str]:
    found = []
    for name, each in row.ranges.items():
        value = best.result.settings[name]
        edge = each.edge(value, [other.result.settings[name] for other in done])
        if edge:
            found.append(f"{name} = {value} is the {edge} that was tried")
    return found
