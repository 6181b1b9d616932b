"""Settings that are searched for: the same trials for every row, chosen by the valid split alone, killed without loss."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.store import Store, held_back
from seqloom.comparison import job
from seqloom.comparison.caveats import Findings, broken_settings
from seqloom.comparison.measured import read_rows
from seqloom.comparison.methods import methods_sentences
from seqloom.comparison.plan import PlanConfig
from seqloom.comparison.records import read_plan_record
from seqloom.comparison.run import JobsFailed, compare
from seqloom.comparison.search import FIRST_SEED, Trial, draw, parse_range
from seqloom.comparison.tuning import tuned
from seqloom.config import build, to_toml
from seqloom.errors import DataError, NumbersError, UsageError
from seqloom.files import digest_of
from seqloom.recipes.library import find_recipe
from tests.comparison.plans import BERT, GPT, LSTM, NGRAM, plan_of, values, write_text
from tests.comparison.test_run import hard
from tests.pages import check_page

RATE = {"train.optim.lr": [1e-4, 3e-2, "log"]}
SEARCH = {"settings": RATE, "trials": 3}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("search") / "text.txt")


@pytest.fixture(scope="module")
def searched(text):
    plan = plan_of(text, search=SEARCH, price={"hour": 1.0})
    return compare(plan, text.parent / "searched", jobs=2, device="cpu"), text.parent / "searched"


def test_every_row_has_the_same_trials_and_takes_the_best(searched):
    found, folder = searched
    assert list(found.searches) == ["LSTM", "GPT"], "an n-gram has nothing to train with"
    tried = [[each.result.settings for each in search.trials] for search in found.searches.values()]
    assert tried[0] == tried[1] and len(tried[0]) == 3
    plan = read_plan_record(folder)
    for name, search in found.searches.items():
        losses = [each.result.score for each in search.trials]
        assert search.chosen.result.score == min(losses)
        rate = search.chosen.result.settings["train.optim.lr"]
        config = json.loads((folder / "runs" / name / "seed-0" / "config.json").read_text())
        assert config["recipe"]["train"]["optim"]["lr"] == rate and config["seed"] == 0
        assert config["recipe"]["budget"]["tokens"] == 3000
        row = next(row for row in plan.rows if row.name == name)
        assert row.recipe.train.optim.lr != rate, "plan.json has what was searched for, not what was found"
        chosen = tuned(folder, plan, row)
        assert chosen is not None and chosen.recipe.train.optim.lr == rate


def test_trials_are_counted_and_leave_no_weights(searched):
    found, folder = searched
    record = json.loads((folder / "comparison.json").read_text())["search"]
    for name, search in found.searches.items():
        flops = sum(each.result.metrics.flops for each in search.trials)
        assert search.costs["flops"] == flops == record[name]["costs"]["flops"] > 0
        assert search.costs["tokens"] == pytest.approx(3 * 750, rel=0.1), "a quarter of the budget each"
        assert search.costs["price"] > 0 and len(search.curve) == 3
        assert search.curve[-1].value == pytest.approx(min(each.result.score for each in search.trials))
    assert sorted(path.name for path in (folder / "search" / "LSTM").iterdir()) == [f"trial-{i}.json" for i in range(3)]
    assert any("0.25 of the budget" in line for line in found.caveats)
    assert any(line.startswith("train.optim.lr was searched for each row") for line in found.caveats)


def test_a_plan_without_a_search_says_so(text, tmp_path):
    found = compare(plan_of(text, rows=[LSTM, GPT], seeds=1, pairs=0), tmp_path / "out", jobs=2, device="cpu")
    assert any("settings were not tuned" in line for line in found.caveats) and not found.searches


@pytest.mark.long
def test_a_row_mistuned_by_ten_stops_losing(text, tmp_path):
    """Two rows of one recipe, but for a rate that is a tenth of the other's."""
    recipe = mistuned_recipe(tmp_path)
    rows = [LSTM | {"settings": [*LSTM["settings"]], "name": "right"}, {"name": "mistuned", "recipe": recipe}]
    given = {"rows": rows, "seeds": 3, "pairs": 0, "budget": {"tokens": 6000}}
    bits = compare(plan_of(text, **given), tmp_path / "plain", jobs=2, device="cpu").metrics[0]
    assert bits.values["mistuned"].mean() > bits.values["right"].mean() + 0.3, "it loses"
    search = {"settings": {"train.optim.lr": [1e-3, 3e-1, "log"]}, "trials": 4, "budget": 1.0}
    bits = compare(plan_of(text, **given, search=search), tmp_path / "searched", jobs=2, device="cpu").metrics[0]
    assert bits.values["mistuned"].mean() == pytest.approx(bits.values["right"].mean(), abs=1e-9), (
        "they are one recipe now"
    )


def mistuned_recipe(folder: Path) -> str:
    rate = find_recipe("lstm-tiny").train.optim.lr / 10
    path = folder / "mistuned.toml"
    recipe = find_recipe("lstm-tiny", [*LSTM["settings"], f"train.optim.lr={rate}"])
    path.write_text(to_toml(recipe.plain()), encoding="utf-8")
    return str(path)


# ---- the test split


def test_a_trial_cannot_open_the_test_split(searched, monkeypatch):
    """Planted: a trial that measures itself on it fails."""
    _, folder = searched
    plan = read_plan_record(folder)
    data = folder / plan.rows[1].data
    with held_back("test"), pytest.raises(DataError, match="held back"):
        Store.open(data).split("test")
    Store.open(data).split("test")

    def peeking(recipe, data, out, **options):
        Store.open(data).split("test")

    monkeypatch.setattr(job, "pretrain", peeking)
    with pytest.raises(DataError, match="nothing may be chosen by it"):
        job.run_trial(folder, "LSTM", "trial-7")
    assert not (folder / "search" / "LSTM" / "trial-7.json").exists()


def test_the_choice_does_not_depend_on_the_test_split(searched, text, tmp_path):
    """The same comparison with every test token replaced: other results, the same trials."""
    _, folder = searched
    other = shutil.copytree(folder, tmp_path / "other")
    for name in ("results", "runs", "search"):
        shutil.rmtree(other / name)
    for path in other.glob("data/*/test-*.tokens.bin"):
        ids = np.fromfile(path, np.uint16)
        path.write_bytes(np.where(ids > 1, 2, ids).astype(np.uint16).tobytes())
    found = compare(plan_of(text, search=SEARCH, price={"hour": 1.0}), other, jobs=2, device="cpu")
    for path in folder.glob("search/*/*.json"):
        before, after = (json.loads((out / path.relative_to(folder)).read_text()) for out in (folder, other))
        assert before["valid_loss"] == after["valid_loss"]
    assert found.metrics[0].values["LSTM"].mean() != searched[0].metrics[0].values["LSTM"].mean()


# ---- kinds of search


def test_halving_goes_on_with_the_better_half(text, tmp_path):
    search = SEARCH | {"method": "halving", "trials": 4, "budget": 0.5}
    found = compare(
        plan_of(text, rows=[LSTM], seeds=1, pairs=0, search=search), tmp_path / "out", jobs=2, device="cpu"
    ).searches["LSTM"]
    first = {each.trial.number: each.result for each in found.trials if each.trial.rung == 0}
    last = {each.trial.number: each.result for each in found.trials if each.trial.rung == 1}
    assert len(first) == 4 and set(last) == set(sorted(first, key=lambda i: first[i].score)[:2])
    assert found.chosen.trial.rung == 1 and found.chosen.result.score == min(each.score for each in last.values())
    budgets = [each.recipe["budget"]["tokens"] for each in (*first.values(), *last.values())]
    assert budgets == [750] * 4 + [1500] * 2
    assert len(found.curve) == 4, "of trials with one budget"


def test_finalists_have_the_whole_budget_and_decide(text, tmp_path):
    search = SEARCH | {"trials": 4, "budget": 0.25, "finalists": 2}
    plan = plan_of(text, rows=[LSTM], seeds=1, pairs=0, search=search)
    made = compare(plan, tmp_path / "out", jobs=2, device="cpu")
    found = made.searches["LSTM"]
    first = {each.trial.number: each.result for each in found.trials if each.trial.rung == 0}
    last = {each.trial.number: each.result for each in found.trials if each.trial.rung == 1}
    assert len(first) == 4 and set(last) == set(sorted(first, key=lambda i: first[i].score)[:2])
    assert found.chosen.trial.rung == 1 and found.chosen.result.score == min(each.score for each in last.values())
    budgets = [each.recipe["budget"]["tokens"] for each in (*first.values(), *last.values())]
    assert budgets == [750] * 4 + [3000] * 2
    assert any("run again with all of it" in each for each in made.caveats)
    assert "the best 2 were run again at the whole budget" in " ".join(methods_sentences(made))


def test_runs_that_end_worse_than_their_trial_are_named(searched):
    """Planted: results of which one is worse by more than seeds differ."""
    made, folder = searched
    plan = made.plan
    rows = read_rows(folder, plan)
    row = next(each for each in rows if each.name in made.searches)
    before = made.searches[row.name].chosen.result.score
    for loss, named in ((before + 0.01, False), (before + 1.0, True), (None, False)):
        results = {
            seed: one.model_copy(update={"metrics": one.metrics.model_copy(update={"valid_loss": loss})})
            for seed, one in row.results.items()
        }
        found = Findings([row._replace(results=results)], plan, made.costs, {}, [], [], made.searches)
        assert bool(broken_settings(found)) == named


def test_a_grid_has_every_point_and_no_expected_best(text, tmp_path):
    settings = {"train.optim.lr": [1e-3, 1e-2], "model": {"dropout": [0.0, 0.2]}}
    search = {"settings": settings, "method": "grid"}
    found = compare(
        plan_of(text, rows=[LSTM], seeds=1, pairs=0, search=search), tmp_path / "out", jobs=2, device="cpu"
    ).searches["LSTM"]
    tried = [tuple(each.result.settings.values()) for each in found.trials]
    assert tried == [(1e-3, 0.0), (1e-3, 0.2), (1e-2, 0.0), (1e-2, 0.2)] and not found.curve


def test_a_training_that_breaks_off_is_a_bad_trial(searched, monkeypatch, text, tmp_path):
    _, folder = searched
    copy = shutil.copytree(folder, tmp_path / "copy")

    def broken(*given, **options):
        raise NumbersError("the validation loss is nan")

    monkeypatch.setattr(job, "pretrain", broken)
    for trial in range(2):
        (copy / "search" / "LSTM" / f"trial-{trial}.json").unlink()
        job.run_trial(copy, "LSTM", f"trial-{trial}")
    plan = read_plan_record(copy)
    row = next(row for row in plan.rows if row.name == "LSTM")
    chosen = tuned(copy, plan, row)
    assert chosen is not None and chosen.recipe.train.optim.lr == draw(row.ranges, "random", 0, 2)["train.optim.lr"]
    (copy / "search" / "LSTM" / "trial-2.json").unlink()
    job.run_trial(copy, "LSTM", "trial-2")
    assert tuned(copy, plan, row) is None
    with pytest.raises(NumbersError, match="every trial of LSTM broke off"):
        job.run_job(copy, "LSTM", 0)


def test_a_row_whose_trials_all_break_off_is_the_only_one_to_fail(searched, text, tmp_path):
    _, folder = searched
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in (copy / "search" / "LSTM").glob("*.json"):
        record = json.loads(path.read_text()) | {"valid_loss": None, "failed": "the validation loss is nan"}
        del record["whole"]
        path.write_text(json.dumps(record | {"whole": digest_of(record)}))
    for path in (copy / "results" / "LSTM").iterdir():
        path.unlink()
    with pytest.raises(JobsFailed, match="every trial of LSTM broke off"):
        compare(plan_of(text, search=SEARCH, price={"hour": 1.0}), copy, jobs=2, device="cpu")
    record = json.loads((copy / "comparison.json").read_text())
    assert set(record["metrics"][0]["rows"]) == {"n-gram", "GPT"} and record["search"]["LSTM"]["chosen"] is None
    assert any("LSTM, seed 0 failed: every trial of LSTM broke off" in line for line in record["caveats"])
    check_page((copy / "report.html").read_text(), frozenset(path.name for path in copy.iterdir()))


# ---- drawing


def test_draws_stay_in_their_range_and_do_not_depend_on_each_other():
    ranges = {"a": parse_range("a", [1e-5, 1e-1, "log"]), "b": parse_range("b", [1, 4, "whole"])}
    ranges["c"] = parse_range("c", ["x", "y"])
    drawn = [draw(ranges, "random", 0, i) for i in range(2000)]
    logs = np.log10([each["a"] for each in drawn])
    assert -5 <= logs.min() < -4.95 and -1.05 < logs.max() <= -1
    assert np.histogram(logs, 4, (-5, -1))[0] == pytest.approx(500, abs=80)
    counts = {value: sum(each["b"] == value for each in drawn) for value in (1, 2, 3, 4)}
    assert sum(counts.values()) == 2000 and min(counts.values()) > 420
    assert abs(np.corrcoef(logs, [each["b"] for each in drawn])[0, 1]) < 0.07
    alone = [draw({"a": ranges["a"]}, "random", 0, i)["a"] for i in range(10)]
    assert alone == [each["a"] for each in drawn[:10]], "other settings do not move it"
    assert [draw(ranges, "random", 1, i)["a"] for i in range(10)] != alone
    assert Trial.parse("trial-3-rung-1") == Trial(3, 1) and Trial.parse(Trial(12).name) == Trial(12)


# ---- going on


def test_called_again_nothing_is_run_and_nothing_changes(searched, text):
    _, folder = searched
    before = hard(folder), {path: path.stat().st_mtime_ns for path in folder.glob("search/*/*")}
    compare(plan_of(text, search=SEARCH, price={"hour": 1.0}), folder, device="cpu")
    assert before == (hard(folder), {path: path.stat().st_mtime_ns for path in folder.glob("search/*/*")})


def test_a_damaged_trial_is_run_again(searched, text, tmp_path):
    _, folder = searched
    copy = shutil.copytree(folder, tmp_path / "copy")
    path = copy / "search" / "GPT" / "trial-1.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"valid_loss": 0.1}))  # it would be chosen
    compare(plan_of(text, search=SEARCH, price={"hour": 1.0}), copy, device="cpu")
    assert json.loads(path.read_text())["valid_loss"] == record["valid_loss"] and hard(copy) == hard(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"train.optim.lr": [1e-4, 1e-2, "log"]}}, "another recipe or another range"),
        ({"budget": 0.5}, "another recipe or another range"),
        ({"seed": 1}, "another recipe or another range"),
    ],
)
def test_another_search_is_refused(searched, text, change, message):
    with pytest.raises(UsageError, match=message):
        compare(plan_of(text, search=SEARCH | change, price={"hour": 1.0}), searched[1], device="cpu")


def test_results_of_rows_that_were_not_searched_are_refused(searched, text, tmp_path):
    with pytest.raises(UsageError, match=r"row 'LSTM' was different \(recipe.train.optim.lr"):
        compare(plan_of(text, price={"hour": 1.0}), searched[1], device="cpu")


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from seqloom.comparison.run import JobsFailed, compare
from tests import forked
from tests.comparison.plans import plan_of
from tests.comparison.test_search import SEARCH
import pytest
with pytest.MonkeyPatch.context() as patch:
    forked.forked_jobs(patch)
    compare(plan_of(Path(sys.argv[1]), search=SEARCH, price={"hour": 1.0}), sys.argv[2], jobs=2, device="cpu")
"""


@pytest.mark.long
def test_killed_five_times_it_ends_with_the_same_table(searched, text, tmp_path):
    _, folder = searched
    out, root = tmp_path / "killed", Path(__file__).parents[2]
    call = [sys.executable, "-c", KILLED, str(text), str(out), str(root)]
    for done in (1, 2, 4, 5, 7):  # results of trials, then of rows
        process = subprocess.Popen(call, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while (
            process.poll() is None
            and len(list(out.glob("search/*/*.json")) + list(out.glob("results/*/*.json"))) < done
        ):
            time.sleep(0.02)
        assert process.poll() is None, "it is killed before it ends"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert subprocess.run(call, capture_output=True, check=False).returncode == 0
    assert hard(out) == hard(folder)
    assert [path.name for path in sorted(out.glob("search/*/*"))] == [
        path.name for path in sorted(folder.glob("search/*/*"))
    ]


# ---- bad input


def refused(text: Path, **changes) -> str:
    from seqloom.comparison.plan import check

    with pytest.raises(UsageError) as caught:
        check(build(PlanConfig, values(text, **changes), source="plan.toml"), "plan.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"settings": {}}, "search.settings"),
        ({"settings": {"train.optim.lr": []}}, "give [lowest, highest, scale] or a list of values"),
        ({"settings": {"train.optim.lr": [1e-2, 1e-4, "log"]}}, "the range from 0.01 to 0.0001 is reversed"),
        ({"settings": {"train.optim.lr": [1e-2, 1e-2, "log"]}}, "is empty"),
        ({"settings": {"train.optim.lr": [0, 1e-2, "log"]}}, "a logarithmic range has no 0"),
        ({"settings": {"train.optim.lr": [1e-3, 1e-3]}}, "a value is there twice"),
        ({"settings": {"train.optim.lr": ["a", 3, "log"]}}, "with two numbers"),
        ({"settings": {"model.num_layers": [1, 2.5, "whole"]}}, "whole numbers"),
        (SEARCH | {"trials": 1}, "search.trials"),
        (SEARCH | {"trials": 10**9}, "search.trials"),
        (SEARCH | {"budget": 0}, "search.budget"),
        (SEARCH | {"budget": 1.5}, "search.budget"),
        (SEARCH | {"method": "luck"}, "search.method"),
        (SEARCH | {"finalists": 1}, "finalists = 1: choose 2 to 3"),
        (SEARCH | {"finalists": 4}, "finalists = 4: choose 2 to 3"),
        (SEARCH | {"finalists": 2, "budget": 1.0}, "have the whole budget already"),
        (SEARCH | {"finalists": -1}, "search.finalists"),
        ({"settings": RATE, "method": "grid"}, "a grid has lists of values"),
        ({"settings": {"train.optim.lr": [1e-3, 1e-2]}, "method": "grid", "trials": 5}, "the grid has 2 points"),
        ({"settings": {f"a.b{i}": [1, 2, 3, 4] for i in range(6)}, "method": "grid"}, "4,096 points"),
        ({"settings": {"batches.length": [8, 16]}}, "held fixed by settings (batches.length=16)"),
        ({"settings": {"objective.rate": [0.1, 0.2]}}, "what the validation loss means"),
        ({"settings": {"budget.tokens": [100, 200]}}, "held fixed by the plan"),
        ({"settings": {"model.dim": [8, 16]}}, "held fixed by settings (model.dim=16)"),
    ],
)
def test_searches_that_make_no_sense(text, search, message):
    assert message in refused(text, search=search)


def test_everything_that_is_wrong_is_said_at_once(text):
    rows = [
        LSTM | {"search": {"train.optim.lr": [1e-5, 1e-3, "log"]}},
        GPT | {"search": {"model.dropout": [0.1]}},
        BERT | {"settings": [*BERT["settings"], "train.optim.lr=1e-3"]},
    ]
    said = refused(text, rows=rows, search=SEARCH)
    assert "1e-05 to 0.001 (log) is not within the plan's range, 0.0001 to 0.03 (log)" in said
    assert "model.dropout is not searched in this plan" in said
    assert "row 'BERT': train.optim.lr is searched, and held fixed by settings (train.optim.lr=1e-3)" in said
    assert "seeds: 1000000 is one of the trials'" in refused(text, seeds=[0, FIRST_SEED], search=SEARCH)
    assert "the plan has no [search]" in refused(text, rows=[LSTM | {"search": RATE}])
    sizes = {"settings": {"model.num_layers": [1, 2]}}
    assert "the plan solves for sizes" in refused(text, rows=[LSTM], parameters=1e4, search=sizes)


def test_values_that_a_row_does_not_take(text, tmp_path):
    settings = {"model.dropout": [0.1, 1.5], "model.ffn_dim": [8, 16], "train.optim.lr": [-1, 1, "linear"]}
    with pytest.raises(UsageError) as caught:
        compare(plan_of(text, rows=[LSTM, GPT], search={"settings": settings}), tmp_path / "out", device="cpu")
    said = str(caught.value)
    assert "no value of model.ffn_dim (8, 16) is possible here" in said and "search = {model.ffn_dim = false}" in said
    assert said.count("model.dropout") >= 2 and said.count("train.optim.lr") >= 2 and said.count("model.ffn_dim") >= 1


def test_a_row_may_narrow_a_range_or_leave_a_setting_out(text, tmp_path):
    settings = RATE | {"model.dropout": [0.0, 0.1]}
    rows = [
        LSTM | {"search": {"train": {"optim": {"lr": [1e-3, 1e-2, "log"]}}}},
        GPT | {"search": {"model.dropout": False}},
        NGRAM,
    ]
    plan = plan_of(text, rows=rows, seeds=1, pairs=0, search={"settings": settings, "trials": 2})
    found = compare(plan, tmp_path / "out", jobs=2, device="cpu")
    assert (
        "LSTM was searched in narrower ranges: train.optim.lr from 0.001 to 0.01 (log), not from 0.0001 to 0.03 (log)"
        in (" ".join(found.caveats))
    )
    assert "GPT was searched in narrower ranges: model.dropout was not searched" in " ".join(found.caveats)
    assert all(1e-3 <= each.result.settings["train.optim.lr"] <= 1e-2 for each in found.searches["LSTM"].trials)
    assert all(set(each.result.settings) == {"train.optim.lr"} for each in found.searches["GPT"].trials)


# ---- the page


def test_the_search_is_on_the_page(searched):
    found, folder = searched
    page = (folder / "report.html").read_text(encoding="utf-8")
    for word in ("Expected best of so many trials", "Validation loss against train.optim.lr", "search.csv"):
        assert word in page
    sentences = " ".join(methods_sentences(found))
    assert "Each trained model was tuned with 3 random trials at 0.25 of the budget, the same for all" in sentences
    assert "train.optim.lr from 0.0001 to 0.03 (log)" in sentences and "neither test data nor suites" in sentences


def test_quasirandom_trials_leave_no_gap():
    """Of 16 trials one falls into every sixteenth of a range, whatever other settings there are. Planted: random ones do not."""
    ranges = {"a": parse_range("a", [1, 16, "whole"]), "b": parse_range("b", [1e-4, 1.0, "log"])}
    for seed in range(5):
        drawn = [draw(ranges, "quasirandom", seed, i, ("a", "b"))["a"] for i in range(16)]
        assert sorted(drawn) == list(range(1, 17))
        assert drawn == [draw({"a": ranges["a"]}, "quasirandom", seed, i, ("a", "b"))["a"] for i in range(16)]
        assert sorted(draw(ranges, "random", seed, i)["a"] for i in range(16)) != list(range(1, 17))
