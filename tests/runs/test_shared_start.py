"""A longer run that goes on from the start of a shorter one ends with the same bits as if it had been run alone."""

import json

import pytest

from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import build_recipe
from seqloom.runs import shared_start, training
from seqloom.runs.shared_start import can_share, identity
from seqloom.runs.training import pretrain
from seqloom.training.loop import Fit
from tests.training.material import prepared
from tests.training.test_resume import fingerprint

TRAPEZOID = [
    "train.schedule.name=trapezoid",
    "train.schedule.warmup=5",
    "train.schedule.fall=0.25",
    "train.schedule.floor=0",
]
SMALL = {
    "lstm": ["model.dim=16", "batches.streams=4", "batches.length=16"],
    "gpt2": ["model.dim=16", "model.num_heads=2", "model.num_layers=1", "batches.budget=64", "batches.length=16"],
    "bert": ["model.dim=16", "model.num_heads=2", "model.num_layers=1", "batches.budget=256", "batches.length=64"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("shared") / "data", 600)


def run(name, data, out, tokens, shared=None, schedule=TRAPEZOID):
    often = ["train.eval_every=7", "train.save_every=9", "train.log_every=2", "train.optim.lr=1e-2"]
    short = ["batches.short=0"] if name == "bert" else []
    settings = [*SMALL[name], *schedule, *often, *short, f"budget={{tokens={tokens}}}"]
    return pretrain(f"{name}-tiny", data, out, settings=settings, shared=shared, device="cpu")


def steps_taken(monkeypatch):
    taken, one_step = [], Fit.one_step

    def counted(fit, items):
        taken.append(fit.state.step)
        one_step(fit, items)

    monkeypatch.setattr(Fit, "one_step", counted)
    return taken


def share(name, data, folder, monkeypatch, schedule=TRAPEZOID):
    """Three budgets that share their starts, and the last alone: the steps that the last took, and what both ended with."""
    for tokens in (1000, 2000):
        run(name, data, folder / f"{tokens}", tokens, folder / "shared", schedule)
    taken = steps_taken(monkeypatch)
    run(name, data, folder / "4000", 4000, folder / "shared", schedule)
    steps = list(taken)
    run(name, data, folder / "alone", 4000, None, schedule)
    return steps, fingerprint(folder / "4000"), fingerprint(folder / "alone")


@pytest.mark.parametrize("name", SMALL)
def test_the_same_bits_with_fewer_steps(name, data, tmp_path, monkeypatch):
    steps, shared, alone = share(name, data, tmp_path, monkeypatch)
    last = alone["state"]["step"]
    assert steps[-1] == last - 1 and len(steps) < 0.75 * last, "it began where the second began to fall"
    assert shared["metrics"] == alone["metrics"]
    assert shared == alone


def test_planted_a_rate_that_is_not_constant_is_noticed(data, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "can_share", lambda recipe, learner: True)
    _, shared, alone = share(
        "lstm", data, tmp_path, monkeypatch, ["train.schedule.name=linear", "train.schedule.fall=0.25"]
    )
    assert shared["tensors"] != alone["tensors"]


def test_what_depends_on_the_budget_is_not_shared():
    def shares(recipe, *settings):
        found = find_recipe(recipe, [*TRAPEZOID, *settings])
        return can_share(found, found.learner(50))

    assert shares("lstm-tiny") and shares("gpt2-tiny") and shares("bert-tiny", "batches.short=0")
    assert not shares("bert-tiny", "batches.short=32"), "short passages end with a share of the budget"
    assert not shares("lstm-tiny", "train.schedule.name=cosine")
    for setting in ("train.milestones=true", "train.average_last=2", "train.patience=3"):
        assert not shares("lstm-tiny", setting), setting


def test_only_the_budget_may_differ(data, tmp_path):
    run("lstm", data, tmp_path / "a", 500)
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    other = json.loads(json.dumps(config))
    other["recipe"]["budget"]["tokens"] = 9999.0
    assert identity(config) == identity(other)
    for section, key, value in (("recipe", "name", "x"), ("data", "fingerprint", "x")):
        assert identity(config) != identity(config | {section: config[section] | {key: value}})
    assert identity(config) != identity(config | {"seed": 1})


def test_a_kill_while_a_start_is_taken_loses_nothing(data, tmp_path, monkeypatch):
    """The copy ends before its manifest is there: the start is taken again."""
    run("lstm", data, tmp_path / "1000", 1000, tmp_path / "shared")
    copy = shared_start.shutil.copy2

    def fragile(source, target):
        if source.name == "manifest.json":
            raise RuntimeError("power cut")
        return copy(source, target)

    monkeypatch.setattr(shared_start.shutil, "copy2", fragile)
    with pytest.raises(RuntimeError):
        run("lstm", data, tmp_path / "4000", 4000, tmp_path / "shared")
    monkeypatch.setattr(shared_start.shutil, "copy2", copy)
    settings = json.loads((tmp_path / "4000" / "config.json").read_text())["recipe"]
    pretrain(
        build_recipe(settings, ""),
        data,
        tmp_path / "4000",
        shared=tmp_path / "shared",
        resume=True,
        device="cpu",
    )
    run("lstm", data, tmp_path / "alone", 4000)
    assert fingerprint(tmp_path / "4000") == fingerprint(tmp_path / "alone")
