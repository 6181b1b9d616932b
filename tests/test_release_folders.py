"""What people made with release 0.1 still loads, evaluates, predicts, exports and resumes, with the numbers of the release."""

import hashlib
import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.release import RELEASE, copy_release, differences, expected, tool

made = tool("make_release_folders")
EXPECTED = expected()


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(copy_release(tmp_path))
    return tmp_path


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", made.COMMANDS)
def test_a_folder_of_the_release_is_used_as_then(name, monkeypatch, tmp_path):
    """On the kept folders themselves: using them writes nothing."""
    before = files(RELEASE)
    monkeypatch.chdir(RELEASE)
    found = made.answer(made.COMMANDS[name], tmp_path / "out")
    assert not differences(EXPECTED[name], found)
    assert files(RELEASE) == before


@pytest.mark.parametrize("name", made.TRAIN)
def test_a_run_of_the_release_is_resumed_and_ends_as_then(name, place):
    """It was killed after its checkpoint: the steps that are left give the figures and the losses of the release."""
    run = Path(name)
    losses = logged(run)
    made.cut_short(run)
    made.call([*made.TRAIN[name], "--out", name, "--device", "cpu", "--resume"])
    assert not differences(EXPECTED[f"{name} trained"], json.loads((run / "metrics.json").read_text()))
    assert not differences(losses, logged(run))
    assert json.loads((run / "config.json").read_text())["format"] == 1  # as it was begun
    for command in (key for key in made.COMMANDS if key.startswith(f"{name} evaluated")):
        assert not differences(EXPECTED[command], made.answer(made.COMMANDS[command], place / "out"))


def logged(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "lr" in line]


def test_training_goes_on_from_a_run_of_the_release(place):
    """To a longer budget, by --from: a new run with weights that the release has trained."""
    longer = ["--set", "budget={steps=2}"]
    made.call([*made.TRAIN["gpt2"], *longer, "--from", "gpt2", "--out", "longer", "--device", "cpu"])
    first = logged(Path("longer"))[0]
    assert abs(first - EXPECTED["gpt2 evaluated"]["loss"]) < 0.2  # untrained: 4.787 (V = 120)


def test_a_comparison_of_the_release_goes_on_and_finds_the_same(place):
    """One row was finished, and stays; the other was killed within its training."""
    finished = place / "comparison/results/lstm-tiny/seed-0.json"
    before, runs = finished.read_bytes(), files(place / "comparison/runs/lstm-tiny")
    made.call(["compare", "plan.toml", "--out", "comparison"])
    assert finished.read_bytes() == before
    after = files(place / "comparison/runs/lstm-tiny")
    assert {name: after[name] for name in runs} == runs
    assert not differences(
        comparable(EXPECTED["compared"]), comparable(json.loads(Path("comparison/comparison.json").read_text()))
    )


def comparable(record):
    """Figures that the release had, and costs. Sentences may be worded anew; places and times differ."""
    costs = {
        name: {key: row[key] for key in ("parameters", "tokens", "words", "flops")}
        for name, row in record["costs"].items()
    }
    figures = [
        {key: value for key, value in figure.items() if not isinstance(value, str)}
        for figure in record["figures"]
        if figure["name"] in {each["name"] for each in EXPECTED["compared"]["figures"]}
    ]
    return {"seeds": record["seeds"], "costs": costs, "figures": figures, "samples": record["samples"]}


def test_planted_changes_of_numbers_are_noticed(place):
    """One weight that is off by a hundredth, a loss that is off in its sixth place, a figure that is gone."""
    name = "lstm evaluated"
    found = made.answer(made.COMMANDS[name], place / "out")
    assert not differences(EXPECTED[name], found)
    assert differences(EXPECTED[name], found | {"loss": found["loss"] * (1 + 3e-6)})
    assert differences(EXPECTED[name], {key: value for key, value in found.items() if key != "loss"})
    weights, listed = Path("lstm/backbone.safetensors"), Path("lstm/weights.json")
    tensors = load_file(weights)
    first = next(iter(tensors))
    tensors[first].reshape(-1)[0] += 0.01
    save_file(tensors, weights)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    listed.write_text(json.dumps(json.loads(listed.read_text()) | {weights.name: digest}))
    assert differences(EXPECTED["lstm scores"], made.answer(made.COMMANDS["lstm scores"], place / "out"))
