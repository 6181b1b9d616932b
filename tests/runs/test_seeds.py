"""Several seeds of one training: folders, resuming, and what is concluded."""

import json

import pytest

from seqloom.cli import run as main
from seqloom.metrics.intervals import student
from tests.tasks.labelled import examples, write

SMALL = ["--tokenizer", "word", "--set", "model.dim=16", "--set", "budget={epochs=1}", "--device", "cpu"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    for seed, (split, count) in enumerate({"train": 32, "valid": 20, "test": 20}.items()):
        write(folder / f"{split}.jsonl", "classify", examples("classify", count, seed))
    return folder


def call(place, out, *more):
    files = [f"--{split}={place / split}.jsonl" for split in ("train", "valid", "test")]
    return main(["train", "lstm-tiny", "--task", "classify", *files, "--out", str(out), *SMALL, *more])


def test_several_seeds(place, tmp_path, capsys):
    assert call(place, tmp_path / "out", "--seeds", "3") == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 and printed[1].startswith("test: accuracy 0.") and "over 3 seeds" in printed[1]
    record = json.loads((tmp_path / "out/seeds.json").read_text())
    metrics = [json.loads((tmp_path / f"out/seed-{i}/metrics.json").read_text()) for i in range(3)]
    values = [each["test_scores"]["accuracy"] for each in metrics]
    assert record["test"]["accuracy"]["values"] == values
    mean, low, high = student(values)
    assert record["test"]["accuracy"] == {"value": mean, "low": low, "high": high, "values": values}
    assert {"accuracy", "f1", "mcc"} <= record["valid"].keys() and record["runs"] == ["seed-0", "seed-1", "seed-2"]
    weights = {(tmp_path / f"out/seed-{i}/backbone.safetensors").read_bytes() for i in range(3)}
    assert len(weights) == 3
    configs = [json.loads((tmp_path / f"out/seed-{i}/config.json").read_text())["seed"] for i in range(3)]
    assert configs == [0, 1, 2]


def test_what_is_finished_is_not_done_again(place, tmp_path, capsys):
    assert call(place, tmp_path / "out", "--seeds", "1", "--seed", "4") == 0
    assert "nothing can be concluded" in capsys.readouterr().out
    made = [tmp_path / "out/seed-4" / name for name in ("metrics.json", "card.md", "head.safetensors", "report.html")]
    before = [path.stat().st_mtime_ns for path in made]
    assert call(place, tmp_path / "out", "--seeds", "2", "--seed", "4") == 2  # nothing is lost silently
    assert "--resume" in capsys.readouterr().err
    assert call(place, tmp_path / "out", "--seeds", "2", "--seed", "4", "--resume") == 0
    assert [path.stat().st_mtime_ns for path in made] == before and (tmp_path / "out/seed-5/card.md").exists()
    assert json.loads((tmp_path / "out/seeds.json").read_text())["seeds"] == [4, 5]


def test_a_killed_one_goes_on(place, tmp_path):
    from seqloom.training.loop import Fit

    original, steps = Fit.one_step, []

    def killed(self, items):
        steps.append(self.folder.name)
        if len(steps) == 2:
            raise KeyboardInterrupt
        original(self, items)

    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fit, "one_step", killed)
        assert call(place, out, "--seeds", "2") == 75
    assert steps == ["seed-0", "seed-1"] and not (out / "seeds.json").exists()
    assert call(place, out, "--seeds", "2", "--resume") == 0 == call(place, tmp_path / "whole", "--seeds", "2")
    assert (out / "seeds.json").read_text() == (tmp_path / "whole/seeds.json").read_text()


def test_a_single_run_names_its_report(place, tmp_path, capsys):
    assert call(place, tmp_path / "out") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"report: {tmp_path / 'out/report.html'}" and (tmp_path / "out/report.html").exists()


def test_wrong_calls(place, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.json").write_text("{}")
    assert call(place, tmp_path / "run", "--seeds", "2", "--overwrite") == 2
    assert "is a run, which cannot contain several others" in capsys.readouterr().err
    assert call(place, tmp_path / "none", "--seeds", "0") == 2
    wrong = ["--task", "translate", "--train", "a", "b", "--out", str(tmp_path / "new"), "--seeds", "2"]
    assert main(["train", "transformer-tiny", *wrong]) == 2
    assert "--seeds" in capsys.readouterr().err and not (tmp_path / "new").exists()
