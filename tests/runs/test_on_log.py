"""on_log=: a user's function is called with every line of metrics.jsonl, and nothing that it does changes a bit of the run."""

import json

import pytest
import torch

import seqloom
from seqloom.training.log import MetricsLog, read_log
from tests.runs.test_training import QUICK, SIZES
from tests.tasks.labelled import examples, write
from tests.training.material import prepared

SETTINGS = ["budget={steps=6}", "train.log_every=1", "valid.limit=200", "model.dropout=0.1"]
CLOCKS = ("seconds", "joules", "tokens_per_second")  # what the machine measures


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("on_log") / "data", 120)


def trained(data, out, **options):
    seqloom.pretrain("gpt-tiny", data, out, settings=[*SIZES["gpt"], *SETTINGS], device="cpu", **options)
    return bits(out)


def bits(out):
    """Everything that a run has learnt and logged, but for what the machine measures."""
    lines = [{key: value for key, value in line.items() if key not in CLOCKS} for line in read_log(out)]
    return (out / "backbone.safetensors").read_bytes(), (out / "head.safetensors").read_bytes(), lines


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    return trained(data, tmp_path_factory.mktemp("alone") / "run")


def test_every_line_is_given_once_as_it_is_written(data, tmp_path, alone):
    seen = []
    assert trained(data, tmp_path / "run", on_log=seen.append) == alone
    assert seen == read_log(tmp_path / "run") and [line["step"] for line in seen if "loss" in line] == list(range(1, 7))


def raises(line):
    raise RuntimeError("the tracker is down")


def leaves(line):
    raise SystemExit(3)


def draws(line):
    torch.manual_seed(3)
    torch.rand(5)


def empties(line):
    line.clear()


@pytest.mark.parametrize("planted", [raises, leaves, draws, empties])
def test_nothing_that_it_does_changes_a_bit(data, tmp_path, alone, planted, capsys):
    calls = []

    def on_log(line):
        calls.append(1)
        planted(line)

    assert trained(data, tmp_path / "run", on_log=on_log) == alone
    warnings = [line for line in capsys.readouterr().err.splitlines() if "on_log failed" in line]
    assert len(warnings) == (planted in (raises, leaves)) and len(calls) == len(alone[2]) > 6


def test_a_log_that_lets_errors_through_is_noticed(data, tmp_path, monkeypatch):
    monkeypatch.setattr(MetricsLog, "call_outside", lambda self, on_log, line: on_log(json.loads(line)))
    with pytest.raises(RuntimeError, match="the tracker is down"):
        trained(data, tmp_path / "run", on_log=raises)


def test_its_time_is_not_the_runs(tmp_path, monkeypatch):
    from seqloom.training import log

    now = [100.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    written = MetricsLog(tmp_path / "metrics.jsonl", 0, lambda line: now.__setitem__(0, now[0] + 7))
    written.write({"step": 1, "loss": 2.0})
    written.write({"step": 2, "loss": 2.0})
    written.close()
    assert written.seconds_outside == 14


def test_tasks_and_counting_have_it(data, tmp_path):
    for seed, split in enumerate(("train", "valid")):
        write(tmp_path / f"{split}.jsonl", "classify", examples("classify", 24, seed))
    files = tmp_path / "train.jsonl", tmp_path / "valid.jsonl"
    seqloom.pretrain("gpt-tiny", data, tmp_path / "lm", settings=[*SIZES["gpt"], "budget={steps=1}"], device="cpu")
    seen = {"finetune": [], "train": [], "count": []}
    seqloom.finetune(
        tmp_path / "lm", "classify", *files, tmp_path / "tuned", settings=QUICK, device="cpu",
        on_log=seen["finetune"].append,
    )  # fmt: skip
    seqloom.train(
        "gpt-tiny", "classify", files[0], tmp_path / "trained", valid=files[1], settings=[*SIZES["gpt"], *QUICK],
        device="cpu", tokenizer="char", on_log=seen["train"].append,
    )  # fmt: skip
    seqloom.pretrain("ngram-tiny", data, tmp_path / "counted", device="cpu", on_log=seen["count"].append)
    for name, folder in (("finetune", "tuned"), ("train", "trained"), ("count", "counted")):
        assert seen[name] and seen[name] == read_log(tmp_path / folder), name
