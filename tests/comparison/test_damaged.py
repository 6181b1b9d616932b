"""Damaged files of a comparison: measured or written anew and said, or refused in one line; never an internal error."""

import json
import random
import shutil

import pytest

from seqloom.comparison.run import compare
from seqloom.errors import SeqloomError
from tests.comparison.plans import NGRAM, plan_of, write_text
from tests.mutation import damaged, mutated_json

FILES = {
    "results/n-gram/seed-0.json": mutated_json,
    "results/n-gram/seed-0.npz": damaged,
    "plan.json": mutated_json,
    "comparison.json": mutated_json,
    "logs/n-gram-0.log": damaged,
    "runs/n-gram/seed-0/metrics.json": mutated_json,
    "runs/n-gram/seed-0/metrics.jsonl": damaged,
    "runs/n-gram/seed-0/config.json": mutated_json,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("damaged")
    plan = plan_of(write_text(place / "text.txt"), rows=[NGRAM], seeds=1, pairs=5)
    compare(plan, place / "out", device="cpu")
    return plan, place / "out"


def outcome(plan, out):
    """The exit code, and what is said about it."""
    try:
        compare(plan, out, device="cpu")
    except SeqloomError as error:
        return error.exit_code, str(error)
    return 0, ""


@pytest.mark.parametrize("count", [3, pytest.param(2000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", FILES)
def test_mutated_files_of_a_comparison(name, count, finished, tmp_path):
    plan, good = finished
    original = (good / name).read_bytes() if (good / name).exists() else b"a line\n"
    for i in range(count):
        out = shutil.copytree(good, tmp_path / "out")
        (out / name).write_bytes(FILES[name](original or b"a line\n", random.Random(f"{name} {i}")))
        code, said = outcome(plan, out)
        # of a run's config.json another recipe may have become, which is refused as such
        assert code in (0, 4, *((2,) if name.endswith("config.json") else ())), (i, said)
        assert "\n" not in said and "should not happen" not in said, (i, said)
        assert (out / "runs/n-gram/seed-0/backbone.safetensors").exists(), "the run is lost"
        shutil.rmtree(out)


def test_a_damaged_result_is_measured_anew(finished, tmp_path, capsys):
    plan, good = finished
    for name in ("results/n-gram/seed-0.json", "results/n-gram/seed-0.npz", "plan.json"):
        out = shutil.copytree(good, tmp_path / name.replace("/", "-"))
        (out / name).write_bytes(b"{")
        found = compare(plan, out, device="cpu")
        assert found.metrics
        assert "is damaged" in capsys.readouterr().err
        assert len((out / name).read_bytes()) > 1


def test_a_damaged_plan_is_warned_about_once(finished, tmp_path, capsys):
    plan, good = finished
    out = shutil.copytree(good, tmp_path / "out")
    (out / "plan.json").write_text('{"tasks": 3}')
    compare(plan, out, device="cpu")
    assert capsys.readouterr().err.count("plan.json is damaged") == 1


@pytest.mark.parametrize("key", ["metrics", "definition", "milestones"])
def test_a_result_that_lacks_something_is_measured_again(key, finished, tmp_path, capsys):
    """Results of earlier versions have no hashes that would notice it."""
    plan, good = finished
    out = shutil.copytree(good, tmp_path / "out")
    path = out / "results/n-gram/seed-0.json"
    kept = {name: value for name, value in json.loads(path.read_text()).items() if name not in (key, "items", "whole")}
    path.write_text(json.dumps(kept))
    compare(plan, out, device="cpu")
    assert f"'{key}' is missing" in capsys.readouterr().err and key in json.loads(path.read_text())


def test_a_damaged_config_of_a_run_is_one_line(finished, tmp_path):
    plan, good = finished
    out = shutil.copytree(good, tmp_path / "out")
    config = out / "runs/n-gram/seed-0/config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"tokenizer": 3}))
    code, said = outcome(plan, out)
    assert code == 4 and "'tokenizer' = 3" in said and "\n" not in said
