"""A comparison from its plan to its page: it goes on where it was killed, and ends with the same table."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.prepare import prepare
from seqloom.cli import run
from seqloom.comparison import plan as plan_module
from seqloom.comparison import resolve as resolve_module
from seqloom.comparison.engines.here import LocalEngine
from seqloom.comparison.folder import device_log_path, log_path
from seqloom.comparison.plan import PlanConfig, read_plan
from seqloom.comparison.run import Job, Jobs, JobsFailed, compare
from seqloom.comparison.table import Comparison
from seqloom.config import build, to_toml
from seqloom.errors import DataError, Interrupted, UsageError
from seqloom.runs.load import load_language_model
from seqloom.tasks.classify import Classify
from tests.comparison.plans import BERT, GPT, LSTM, NGRAM, plan_of, values, write_text
from tests.pages import check_page
from tests.tasks.labelled import examples, write

ASKED = {"name": "Recurrence or attention?", "rows": ["LSTM", "GPT"]}
WHOLE = {"price": {"hour": 3.6, "currency": "EUR"}, "milestones": True, "questions": [ASKED]}
SOFT = ("seconds", "energy_kwh", "price")  # what no two calls share


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("compare") / "text.txt")


@pytest.fixture(scope="module")
def finished(text):
    """Three rows and two seeds, two at a time."""
    return compare(plan_of(text, **WHOLE), text.parent / "finished", jobs=2, device="cpu"), text.parent / "finished"


def hard(folder: Path) -> dict:
    """comparison.json without what depends on the clock, and on where it lies."""
    found = json.loads((folder / "comparison.json").read_text())
    for costs in found["costs"].values():
        for name in SOFT:
            costs.pop(name, None)
    kept = (
        "costs",
        "metrics",
        "answers",
        "caveats",
        "held_fixed",
        "samples",
        "seeds",
        "milestones",
        "figures",
        "by_category",
        "kinds",
        "pictures",
    )
    return {key: found[key] for key in kept}


def test_the_table(finished):
    found, _ = finished
    assert found.rows == ["n-gram", "LSTM", "GPT"] and all(seeds == [0, 1] for seeds in found.seeds.values())
    metrics = {metric.name: metric for metric in found.metrics}
    assert set(metrics) == {"bits per byte", "bits per byte at 16 tokens of context", "pairs"}
    assert metrics["bits per byte"].values["LSTM"].shape == (2, 6), "every document of every seed"
    assert not any(metric.deterministic for metric in found.metrics), "the n-gram counts a part of the text"
    assert metrics["pairs"].values["LSTM"].shape == (2, 60), "every pair of every seed"
    for row in found.rows:
        assert metrics["pairs"].interval(row).value == pytest.approx(metrics["pairs"].values[row].mean())
        assert 0 < found.costs[row]["price"] <= 1.001 * found.costs[row]["seconds"] / 1000, (
            "two at a time share the price"
        )
    assert found.costs["LSTM"]["tokens"] == pytest.approx(3000, rel=0.05) == found.costs["GPT"]["tokens"]
    assert any("train.optim.lr" in line or "batches.kind differs" in line for line in found.caveats)
    for row, kinds in found.by_category["pairs"].items():
        assert set(kinds) == {"agreement", "order", "word"}
        assert np.mean(list(kinds.values())) == pytest.approx(metrics["pairs"].interval(row).value), "20 of each"
    assert [each.metric for each in found.answers] == list(metrics)
    assert "asked after there were results" not in " ".join(found.caveats)
    assert "budget: 3,000 tokens" in found.held and "batches.length = 16" in found.held


def test_all_rows_are_measured_at_the_same_context_too(finished):
    found, folder = finished
    own, common = found.metrics[:2]
    assert common.name == "bits per byte at 16 tokens of context" and common.values["GPT"].shape == (2, 6)
    np.testing.assert_array_equal(own.values["GPT"], common.values["GPT"])
    run = load_language_model(folder / "runs" / "LSTM" / "seed-1", "cpu")
    data = next((folder / "data").iterdir())
    alone = run.evaluate(data, max_len=16)["bits_per_byte"]
    assert common.values["LSTM"][1].mean() == pytest.approx(alone) != pytest.approx(own.values["LSTM"][1].mean())
    assert any("LSTM whole documents, GPT 16 tokens" in line for line in found.caveats)


def test_comparisons_can_share_the_device_too(monkeypatch, tmp_path):
    """Both note their jobs in the one file that the environment names."""
    assert device_log_path(tmp_path / "a") != device_log_path(tmp_path / "b")
    monkeypatch.setenv("SEQLOOM_DEVICE_LOG", str(tmp_path / "device.log"))
    assert device_log_path(tmp_path / "a") == device_log_path(tmp_path / "b") == tmp_path / "device.log"


def test_jobs_share_the_device(finished):
    """Two at a time: each begins and ends on the device, and is charged for its share of the time."""
    found, folder = finished
    events = [json.loads(line) for line in (folder / "logs" / "device.log").read_text().splitlines()]
    assert len({event["job"] for event in events if event["event"] == "begin"}) == 6
    metrics = [json.loads(path.read_text())["metrics"] for path in (folder / "results").glob("*/*.json")]
    assert all(0 < each["device_seconds"] <= each["seconds"] + 0.001 for each in metrics)
    assert any(each["device_seconds"] < 0.9 * each["seconds"] for each in metrics)
    assert len(found.energy) == 1 and "divided equally" in found.energy[0]
    assert "divided equally" in (folder / "report.html").read_text(encoding="utf-8")


def test_documents_add_up(finished):
    _, folder = finished
    for path in (folder / "results").glob("*/*.json"):
        items, found = np.load(path.with_suffix(".npz")), json.loads(path.read_text())["held_out"]
        assert "items" not in found and len(items["documents.bits"]) == found["documents"] == 6
        assert items["documents.bytes"].sum() == found["bytes"]
        ratio = items["documents.bits"].sum() / items["documents.bytes"].sum()
        assert ratio == pytest.approx(found["bits_per_byte"], rel=1e-6)


def test_results_of_an_earlier_version_are_collected(finished, text, tmp_path):
    """They have no documents: their bits per byte have seeds alone, as they had."""
    folder = shutil.copytree(finished[1], tmp_path / "old")
    for path in (folder / "results").glob("*/*.npz"):
        np.savez(path, **{name: values for name, values in np.load(path).items() if not name.startswith("documents")})
        result = json.loads(path.with_suffix(".json").read_text())  # nor did they have hashes
        kept = {name: value for name, value in result.items() if name not in ("items", "whole")}
        path.with_suffix(".json").write_text(json.dumps(kept))
    found = compare(plan_of(text, **WHOLE), folder, device="cpu")
    bits = found.metrics[0]
    assert bits.name == "bits per byte" and bits.values["LSTM"].shape == (2,) and bits.interval("LSTM").is_bounded
    assert any("measured by an earlier version" in line for line in found.caveats)


def test_the_page_and_the_files(finished):
    _, folder = finished
    page = (folder / "report.html").read_text(encoding="utf-8")
    check_page(page, frozenset(path.name for path in folder.iterdir()))
    words = ("n-gram", "LSTM", "GPT", "bits per byte", "pairs", "EUR", "held fixed", "seqloom compare", ASKED["name"])
    for word in words:
        assert word in page
    lines = (folder / "table.csv").read_text().splitlines()
    assert len(lines) == 4 and lines[0].startswith("row,seeds,parameters,tokens")
    pictures = sorted(path.name for path in folder.glob("*.svg"))
    assert pictures == sorted(json.loads((folder / "comparison.json").read_text())["pictures"])
    assert "pairs.svg" in pictures and "Bits-per-byte-against-computation.svg" in pictures
    assert all((folder / name).read_text().startswith("<svg xmlns=") for name in pictures)
    told = {name: (folder / name).read_text().count(">LSTM<") for name in pictures}
    assert told["Loss-against-seconds.svg"] == 1, "its line has no name but this"
    assert told["pairs.svg"] == told["pairs-by-kind.svg"] == 1, "rows are named once"


def test_milestones_are_runs(finished):
    found, folder = finished
    marks = sorted(int(path.name) for path in (folder / "runs/LSTM/seed-0/milestones").iterdir())
    assert marks == [*range(100, 1000, 100), *range(1000, marks[-1] + 1, 1000)]
    run = load_language_model(folder / "runs/LSTM/seed-0/milestones" / str(marks[0]), "cpu")
    assert run.score(["The small cat is old."])[0].log_probs
    assert [words for words, _ in found.milestones["pairs"]["LSTM"]] == marks


def test_called_again_nothing_is_done_twice(finished, text):
    _, folder = finished
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/*") if path.is_file()}
    table = hard(folder)
    compare(plan_of(text, **WHOLE), folder, device="cpu")
    assert {path: path.stat().st_mtime_ns for path in before} == before and hard(folder) == table


def test_taken_elsewhere_without_its_weights_it_goes_on(text, tmp_path, monkeypatch):
    """What is finished needs no weights; what is not, and has lost them, begins anew."""
    asked = '{"sentence_good": "The cat is old.", "sentence_bad": "The cat are old.", "UID": "a"}\n'
    (tmp_path / "blimp.jsonl").write_text(asked)
    given = plan_of(text, rows=[LSTM], seeds=2, pairs=5, suites={"blimp": str(tmp_path / "blimp.jsonl")})
    monkeypatch.chdir(tmp_path)
    whole = compare(given, "out", device="cpu")
    table = hard(tmp_path / "out")
    there = tmp_path / "there"
    shutil.copytree(tmp_path / "out", there, ignore=shutil.ignore_patterns("*.safetensors", "checkpoints"))
    for path in there.glob("results/LSTM/seed-1.*"):
        path.unlink()
    for name in ("card.md", "weights.json"):
        (there / "runs/LSTM/seed-1" / name).unlink()
    before = (there / "runs/LSTM/seed-0/card.md").stat().st_mtime_ns
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    (tmp_path / "blimp.jsonl").rename("there.jsonl")
    again = compare(given.model_copy(update={"suites": {"blimp": "there.jsonl"}}), "../there", device="cpu")
    assert again.rows == whole.rows and hard(there) == table
    assert (there / "runs/LSTM/seed-0/card.md").stat().st_mtime_ns == before


def test_where_nothing_succeeds_there_is_a_page_that_says_so(text, tmp_path):
    wild = GPT | {"name": "wild", "settings": [*GPT["settings"], "train.optim.lr=1e9", "train.optim.clip=0"]}
    with pytest.raises(JobsFailed):
        compare(plan_of(text, rows=[wild], seeds=1, pairs=0), tmp_path / "out", device="cpu")
    assert "wild, seed 0 failed" in (tmp_path / "out" / "report.html").read_text()


def test_a_changed_row_is_refused_and_a_new_one_is_not(finished, text, tmp_path):
    _, folder = finished
    changed = [LSTM | {"settings": ["model.dim=20", "batches.streams=4"]}]
    with pytest.raises(UsageError, match="row 'LSTM' was different"):
        compare(plan_of(text, rows=changed, milestones=True), folder, device="cpu")
    first = compare(plan_of(text, rows=[LSTM], seeds=1, pairs=0), tmp_path / "out", device="cpu")
    assert any("one seed: nothing can be concluded" in line for line in first.caveats)
    assert not first.metrics[0].interval("LSTM").is_bounded and first.metrics[0].leaders() == []
    asked = [{"name": "One way or both?", "rows": ["BERT", "LSTM"]}]
    more = compare(plan_of(text, rows=[LSTM, BERT], seeds=1, pairs=10, questions=asked), tmp_path / "out", device="cpu")
    assert more.rows == ["LSTM", "BERT"]
    assert "asked after there were results" in " ".join(more.caveats), "whoever has seen some asks otherwise"
    assert [(each.metric, each.p_adjusted) for each in more.answers] == [("pairs", 1.0)], "of one seed nothing is told"
    pictures = {path.name for path in (tmp_path / "out").glob("*.svg")}
    assert "Loss-against-seconds-BERT.svg" in pictures and "Loss-against-seconds.svg" not in pictures, "of rows before"
    bits, masked, pairs = more.metrics
    assert bits.missing == {"BERT": "it has no probability of the next token"} and set(masked.values) == {"BERT"}
    assert set(pairs.values) == {"LSTM", "BERT"}
    assert any("scores sentences by what it has learnt" in line for line in more.caveats)


def test_what_left_the_plan_does_not_come_back_as_something_else(text, tmp_path):
    """What is there decides, not the plan before this one."""
    bigger = LSTM | {"settings": ["model.dim=20", "batches.streams=4"]}
    both = compare(plan_of(text, rows=[LSTM, NGRAM], seeds=1, pairs=5), tmp_path / "out", device="cpu")
    compare(plan_of(text, rows=[NGRAM], seeds=1, pairs=5), tmp_path / "out", device="cpu")
    result = tmp_path / "out/results/LSTM/seed-0.json"
    for rows in ([bigger, NGRAM], [bigger | {"name": "LSTM?"}]):  # one folder for two names, too
        with pytest.raises(UsageError, match=r"was different \(recipe.model.dim = 16, now 20\)"):
            compare(plan_of(text, rows=rows, seeds=1, pairs=5), tmp_path / "out", device="cpu")
    compare(plan_of(text, rows=[NGRAM], seeds=1, pairs=0), tmp_path / "out", device="cpu")
    with pytest.raises(UsageError, match=r"suite 'pairs' was different \(content = 5 of each kind, now 6"):
        compare(plan_of(text, rows=[LSTM, NGRAM], seeds=1, pairs=6), tmp_path / "out", device="cpu")
    before = result.stat().st_mtime_ns
    again = compare(plan_of(text, rows=[LSTM, NGRAM], seeds=1, pairs=5), tmp_path / "out", device="cpu")
    assert again.rows == both.rows and result.stat().st_mtime_ns == before, "unchanged, it is still done"
    result.unlink()
    with pytest.raises(UsageError, match="row 'LSTM' was different"):  # its run is there
        compare(plan_of(text, rows=[bigger], seeds=1, pairs=5), tmp_path / "out", device="cpu")


def test_milestones_are_kept_in_training_or_never(finished, text):
    given = plan_of(text, price={"hour": 3.6, "currency": "EUR"}, milestones=False)
    with pytest.raises(UsageError, match=r"row 'LSTM' was different \(recipe.train.milestones = True, now False"):
        compare(given, finished[1], device="cpu")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"valid": 0.3}, "another text .valid = 0.1, now 0.3.: choose another --out"),
        ({"lowercase": True}, "lowercase = False, now True"),
        ({"split_field": "part"}, "split_field = None, now part"),
        ({"files": ["other.txt"]}, "the content of text.txt was different"),
        ({"files": ["changed.txt"]}, "the content of text.txt was different"),
        ({"vocab_size": 330, "test": 0.2}, "test = 0.1, now 0.2"),
    ],
)
def test_a_changed_text_is_refused(changes, words, finished, text, tmp_path, monkeypatch):
    """Before anything of it is prepared: what is there could not be told from it later."""
    monkeypatch.chdir(tmp_path)
    write_text(Path("other.txt"), 70)
    Path("changed.txt").write_text(text.read_text().replace("cat", "cow"))
    given = values(text, price={"hour": 3.6, "currency": "EUR"}, milestones=True)
    given["text"] |= changes
    there = sorted((finished[1] / "data").iterdir())
    with pytest.raises(UsageError, match=words):
        compare(build(PlanConfig, given), finished[1], device="cpu")
    assert sorted((finished[1] / "data").iterdir()) == there


def test_a_copy_of_the_text_is_the_same_text(finished, text, tmp_path):
    """It is known by what is in it, not by its name."""
    (tmp_path / "copy.txt").write_bytes(text.read_bytes())
    given = plan_of(tmp_path / "copy.txt", price={"hour": 3.6, "currency": "EUR"}, milestones=True)
    assert compare(given, finished[1], device="cpu").rows == ["n-gram", "LSTM", "GPT"]


def test_a_text_prepared_anew_is_refused(text, tmp_path):
    given = plan_of(text, text={"prepared": str(tmp_path / "data")}, rows=[NGRAM], seeds=1, pairs=0)
    prepare([text], tmp_path / "data", vocab_size=300, valid=0.1, test=0.1)
    compare(given, tmp_path / "out", device="cpu")
    prepare([text], tmp_path / "data", vocab_size=300, valid=0.2, test=0.1, overwrite=True)
    with pytest.raises(UsageError, match="row 'n-gram' was different"):
        compare(given, tmp_path / "out", device="cpu")


def test_another_number_of_pairs_is_refused(finished, text):
    given = plan_of(text, price={"hour": 3.6, "currency": "EUR"}, milestones=True, pairs=9)
    with pytest.raises(UsageError, match="suite 'pairs' was different"):
        compare(given, finished[1], device="cpu")
    assert sorted(path.name for path in finished[1].glob("pairs*.jsonl")) == ["pairs-20.jsonl"]


def test_a_job_that_fails_is_told_and_harms_no_other(text, tmp_path, real_jobs):
    wild = GPT | {"name": "wild", "settings": [*GPT["settings"], "train.optim.lr=1e9", "train.optim.clip=0"]}
    with pytest.raises(JobsFailed) as failed:
        compare(plan_of(text, rows=[wild, LSTM], seeds=1, pairs=0), tmp_path / "out", jobs=2, device="cpu")
    assert failed.value.exit_code == 7 and "wild, seed 0" in str(failed.value)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "wild, seed 0 failed" in page and "LSTM" in page


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_reason_is_told_once_with_its_exit_code(jobs, text, tmp_path, capfd):
    """Of what nobody has foreseen, too: such a model takes terabytes."""
    huge = LSTM | {"name": "huge", "settings": ["model.dim=1048576", "batches.streams=4"]}
    (tmp_path / "plan.toml").write_text(to_toml(values(text, rows=[huge, NGRAM], seeds=1, pairs=0)))
    call = ["compare", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert run([*call, "--jobs", str(jobs)]) == 6
    said = capfd.readouterr().err
    assert said.count("error:") == 1 and "Traceback" not in said, said
    assert "1 of 2 jobs failed, the first (huge, seed 0) with: out of memory: choose a" in said.splitlines()[-1]
    assert "huge, seed 0 failed with exit code 6: out of memory" in said, "at once, not in the end only"


def test_a_job_that_is_killed_has_a_reason(tmp_path):
    jobs, job = Jobs(tmp_path, LocalEngine()), Job("LSTM", "LSTM", 0)
    log = log_path(tmp_path, "LSTM", 0)
    log.write_text("LSTM: 3 parameters\n")
    assert "memory was short" in jobs.reason(job, -signal.SIGKILL)
    assert jobs.reason(job, -signal.SIGSEGV) == "it ended without a message (SIGSEGV)"
    log.write_text("failed: no such thing\na warning that comes later\n")
    assert jobs.reason(job, 3) == "no such thing"


def test_stopped_after_some_time_it_goes_on(text, tmp_path):
    given = plan_of(text, rows=[LSTM], seeds=1, pairs=0, budget={"tokens": 20_000})
    with pytest.raises(Interrupted, match="rerun the same command to resume"):
        compare(given, tmp_path / "out", minutes=0.0, device="cpu")
    assert compare(given, tmp_path / "out", device="cpu").rows == ["LSTM"]


def test_missing_files_are_named_before_anything_is_trained(text, tmp_path):
    task = {"task": "classify", "train": ["no.jsonl"], "test": ["no.jsonl"]}
    given = plan_of(text, suites={"blimp": "none.jsonl"}, tasks=[task])
    with pytest.raises(UsageError, match=r"suites.blimp: none.jsonl; the task 'classify': no.jsonl"):
        compare(given, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_an_unknown_device_is_refused_before_anything_is_written(text, tmp_path, capsys):
    (tmp_path / "plan.toml").write_text(to_toml(values(text)))
    call = ["compare", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]
    assert run([*call, "--device", "tpu"]) == 2
    assert "--device tpu: give auto, cpu, cuda or mps" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_another_folder_is_not_written_over(overwrite, text, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not empty"):
        compare(plan_of(text), tmp_path, overwrite=overwrite, device="cpu")
    assert (tmp_path / "thesis.txt").exists()


def test_transfer_to_a_task_and_two_tokenizers(text, tmp_path):
    for seed, name in enumerate(("train", "valid", "test")):
        write(tmp_path / f"{name}.jsonl", "classify", examples("classify", 12, seed))
    task = {"task": "classify", "name": "tone", "settings": ["budget={epochs=1}"]}
    task |= {name: [str(tmp_path / f"{name}.jsonl")] for name in ("train", "valid", "test")}
    letters = LSTM | {"name": "letters", "tokenizer": "char"}
    given = plan_of(text, rows=[NGRAM, LSTM, letters], seeds=1, pairs=0, tasks=[task])
    found = compare(given, tmp_path / "out", jobs=2, device="cpu")
    bits, tone = found.metrics
    assert set(bits.values) == {"n-gram", "LSTM", "letters"}, "every byte is paid for"
    assert set(tone.values) == {"LSTM", "letters"} and set(tone.missing) == {"n-gram"}
    assert any("tokenizers differ" in line for line in found.caveats)
    assert found.curves["LSTM"].meaning != found.curves["letters"].meaning
    assert (tmp_path / "out/tasks/tone/LSTM/seed-0/report.html").exists()


def task_files(folder: Path) -> None:
    for seed, name in enumerate(("train", "test")):
        write(folder / f"{name}.jsonl", "classify", examples("classify", 12, seed))


def test_the_documented_task_has_a_figure(text, tmp_path):
    """It names no validation: then the last weights are taken."""
    assert plan_module.__doc__ is not None
    shown = textwrap.dedent("\n".join(line for line in plan_module.__doc__.splitlines() if line.startswith("    ")))
    task_files(tmp_path)
    given = values(text, rows=[NGRAM, LSTM], seeds=1, pairs=0, tasks=tomllib.loads(shown)["tasks"])
    given["tasks"][0]["settings"] = ["budget={epochs=1}"]
    (tmp_path / "plan.toml").write_text(to_toml(given))
    _, found = compare(tmp_path / "plan.toml", tmp_path / "out", device="cpu").metrics
    assert found.name == "classify" and set(found.values) == {"LSTM"}
    assert found.missing == {"n-gram": "classify is not for the model ngram"}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.wacht=loss", "row 'LSTM': task 'classify': unknown key 'train.wacht'"),
        ("train.watch=score", "needs examples to validate on"),
    ],
)
def test_a_task_that_cannot_be_is_refused_before_anything_is_trained(setting, words, text, tmp_path):
    task_files(tmp_path)
    task = {"task": "classify", "train": [str(tmp_path / "train.jsonl")], "test": [str(tmp_path / "test.jsonl")]}
    given = plan_of(text, rows=[NGRAM, LSTM], seeds=1, pairs=0, tasks=[task | {"settings": [setting]}])
    with pytest.raises(UsageError, match=words):
        compare(given, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "runs").exists()


GOOD, BAD = '{"text": "good", "label": "a"}', '{"text": "bad", "label": "b"}'


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train": [GOOD, GOOD]}, r"train.jsonl:1: all 2 examples are of the class 'a'"),
        ({"test": [GOOD, GOOD.replace('"a"', '"c"')]}, r"test.jsonl:2: the label 'c' is not in the training files"),
        ({"valid": [BAD.replace('"b"', '"c"')]}, r"valid.jsonl:1: the label 'c' is not in the training files"),
        ({"train": [GOOD, BAD, '{"text": ']}, r"train.jsonl:3: "),
        ({"test": ["good\ta"]}, r"test.jsonl:1: "),
        ({"suite": ['{"sentence_good": "The cat is."}']}, r"suite.jsonl:1: "),
        ({"suite": []}, r"suite.jsonl: no pair of sentences"),
    ],
)
def test_files_of_tasks_and_suites_are_read_before_anything_is_trained(files, words, text, tmp_path):
    right = {name: [GOOD, BAD] for name in ("train", "valid", "test")}
    right["suite"] = ['{"sentence_good": "The cat is.", "sentence_bad": "The cat are."}']
    paths = {name: tmp_path / f"{name}.jsonl" for name in right}
    for name, lines in (right | files).items():
        paths[name].write_text("\n".join(lines) + "\n")
    task = {"task": "classify"} | {name: [str(paths[name])] for name in ("train", "valid", "test")}
    suites = {"blimp": str(paths["suite"])}
    given = plan_of(text, rows=[NGRAM, LSTM], seeds=1, pairs=0, tasks=[task], suites=suites)
    with pytest.raises(DataError, match=words):
        compare(given, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "runs").exists()


def test_the_files_of_a_task_are_read_once(text, tmp_path, monkeypatch):
    """Rows of one tokenizer share them; whether a task is for a row's model is asked of every row."""
    read = []
    whole = Classify.read
    monkeypatch.setattr(Classify, "read", lambda files, **how: read.append(files) or whole(files, **how))
    task_files(tmp_path)
    task = {"task": "classify", "train": [str(tmp_path / "train.jsonl")], "test": [str(tmp_path / "test.jsonl")]}
    given = plan_of(text, rows=[GPT, LSTM, BERT], seeds=1, pairs=0, tasks=[task | {"settings": ["task.lm=0.5"]}])
    with pytest.raises(UsageError, match=r"^row 'BERT': 'task.lm': only a model that reads from left to right"):
        compare(given, tmp_path / "out", device="cpu")
    assert len(read) == 2 and not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("part", "words"), [("train", "data/bpe-300: no"), ("test", "data/bpe-300, its test split: no")]
)
def test_text_without_pairs_of_sentences_is_refused_before_other_rows_are_trained(part, words, text, tmp_path):
    documents = text.read_text().splitlines()
    rows = [{"text": line, "part": ("train", "valid", "test")[i % 3]} for i, line in enumerate(documents)]
    for row in rows:
        if row["part"] == part:
            row["text"] = row["text"].partition(". ")[0] + "."
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = BERT | {"settings": [*BERT["settings"], "model.pooler=true", 'objective={name="next-sentence"}']}
    source = {"files": [str(tmp_path / "text.jsonl")], "vocab_size": 300, "split_field": "part"}
    given = plan_of(text, text=source, rows=[NGRAM, pairs], seeds=1, pairs=0, budget={"tokens": 200})
    with pytest.raises(DataError, match=rf"^row 'BERT': .*{words} document has two sentences"):
        compare(given, tmp_path / "out", device="cpu")
    assert not (tmp_path / "out" / "runs").exists()


def test_a_mistake_in_a_task_does_not_pass_for_a_result(text, tmp_path, monkeypatch):
    """One that is made once the plan was checked: jobs meet it."""
    monkeypatch.setattr(resolve_module, "check_task", lambda *_: None)
    task_files(tmp_path)
    task = {"task": "classify", "train": [str(tmp_path / "train.jsonl")], "test": [str(tmp_path / "test.jsonl")]}
    given = plan_of(text, rows=[BERT], seeds=1, pairs=0, tasks=[task | {"settings": ["task.lm=0.5"]}])
    with pytest.raises(JobsFailed, match="only a model that reads from left to right") as failed:
        compare(given, tmp_path / "out", jobs=2, device="cpu")
    assert failed.value.exit_code == 2 and not (tmp_path / "out/results").exists()
    run = (tmp_path / "out/runs/BERT/seed-0/card.md").stat().st_mtime_ns

    def corrected(settings: list[str]) -> Comparison:
        given = plan_of(text, rows=[BERT], seeds=1, pairs=0, tasks=[task | {"settings": settings}])
        return compare(given, tmp_path / "out", device="cpu")

    assert set(corrected(["budget={epochs=1}"]).metrics[-1].values) == {"BERT"}
    assert (tmp_path / "out/runs/BERT/seed-0/card.md").stat().st_mtime_ns == run, "it is not trained again for that"
    (tmp_path / "out/results/BERT/seed-0.json").unlink()  # as if the transfer had been stopped
    with pytest.raises(UsageError, match=r"task 'classify' was different \(settings = "):
        corrected(["budget={epochs=2}"])


def test_at_the_command_line(finished, text, tmp_path, capsys):
    assert run(["compare", "classroom", "--toml"]) == 0
    (tmp_path / "plan.toml").write_text(capsys.readouterr().out)
    assert len(read_plan(tmp_path / "plan.toml").rows) == 8
    assert run(["compare", "clasroom", "--out", str(tmp_path / "out")]) == 2
    assert run(["compare", "classroom"]) == 2
    assert run(["compare", "classroom", "--out", str(tmp_path / "out"), "--on", "mars"]) == 2
    given = values(text, price={"hour": 3.6, "currency": "EUR"}, milestones=True)
    (tmp_path / "plan.toml").write_text(to_toml(given))
    capsys.readouterr()
    call = ["compare", str(tmp_path / "plan.toml"), "--out", str(finished[1]), "--device", "cpu"]
    assert run(call) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("n-gram ")
    assert run([*call, "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["plan"]["rows"]] == ["n-gram", "LSTM", "GPT"]


def killed_often(text: Path, folder: Path, rows: list[dict], kills: int, seed: int) -> None:
    """Starts the program again and again, and kills it, its jobs left to themselves, at random moments."""
    rng = random.Random(seed)
    (folder / "plan.toml").write_text(to_toml(values(text, rows=rows, budget={"tokens": 6000 * len(rows)})))
    call = [sys.executable, "-m", "seqloom", "compare", "plan.toml", "--out", "out", "--jobs", "2", "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    for _ in range(kills):
        process = subprocess.Popen(call, cwd=folder, env=environment, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(3.0, 9.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.returncode in (-signal.SIGKILL, 0)
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def equal_after_kills(text: Path, tmp_path: Path, rows: list[dict], kills: int, seed: int) -> None:
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
    killed_often(text, tmp_path / "killed", rows, kills, seed)
    killed_often(text, tmp_path / "whole", rows, 0, seed)
    assert hard(tmp_path / "killed" / "out") == hard(tmp_path / "whole" / "out")


@pytest.mark.long
def test_killed_once_the_table_is_the_same(text, tmp_path):
    equal_after_kills(text, tmp_path, [LSTM], 1, seed=1)


@pytest.mark.long
def test_killed_five_times_the_table_is_the_same(text, tmp_path):
    equal_after_kills(text, tmp_path, [LSTM, GPT], 5, seed=2)


def test_a_text_that_holds_nothing_out_is_refused(text, tmp_path):
    prepare([text], tmp_path / "data", vocab_size=300, valid=0, test=0)
    given = plan_of(text, text={"prepared": str(tmp_path / "data")}, rows=[LSTM], seeds=1)
    with pytest.raises(DataError, match="no held-out text"):
        compare(given, tmp_path / "out", device="cpu")
