"""The loop: what it does with broken numbers, plateaus, budgets and memory; learning is shown on text with structure."""

import json
import math

import pytest
import torch

from seqloom.errors import NumbersError, OutOfMemory
from seqloom.objectives.next_token import NextToken
from seqloom.runs.training import pretrain
from seqloom.training import loop
from seqloom.training.loop import Fit
from seqloom.training.state import Budget
from tests.contract.properties import digest
from tests.training.material import prepared


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("loop") / "data")


def run(recipe, data, out, *settings, **options):
    small = ["model.dim=24", "train.log_every=2", "train.schedule.warmup=5", "valid.limit=500"]
    if recipe.startswith("gpt"):
        small += ["model.num_heads=3", "batches.budget=512", "batches.length=32"]
    else:
        small += ["batches.streams=8", "batches.length=32"]
    return pretrain(recipe, data, out, settings=[*small, *settings], overwrite=True, **options)


def metrics(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def spoil(monkeypatch, steps, value=float("nan")):
    """The loss of these forward passes becomes NaN, and with it the gradient and the carried state."""
    forward, calls = NextToken.forward, -1

    def spoilt(self, example, carry=None):
        nonlocal calls
        loss = forward(self, example, carry)
        if not self.training:
            return loss
        calls += 1
        if calls not in steps:
            return loss
        carried = torch.utils._pytree.tree_map(lambda t: t * value, loss.carry) if loss.carry is not None else None
        return loss._replace(total=loss.total * value, carry=carried)

    monkeypatch.setattr(NextToken, "forward", spoilt)


@pytest.mark.parametrize("recipe", ["lstm-tiny", "gpt2-tiny"])
def test_it_learns(recipe, data, tmp_path):
    run(recipe, data, tmp_path / "run", "budget={steps=250}", "train.optim.lr=1e-2")
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert lines[0]["loss"] == pytest.approx(math.log(42), rel=0.1)
    assert lines[-1]["loss"] < 2.2, "ten choices of each of four parts are 2.2 nats or less a word"


@pytest.mark.parametrize("recipe", ["lstm-tiny", "gpt2-tiny"])
def test_a_broken_step_is_skipped(recipe, data, tmp_path, monkeypatch):
    spoil(monkeypatch, {7, 8, 20})
    run(recipe, data, tmp_path / "run", "budget={steps=40}")
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert lines[-1]["skipped"] == 3
    assert all(math.isfinite(line["loss"]) for line in lines)
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_a_broken_step_between_two_lines_of_the_log_can_be_saved(data, tmp_path, monkeypatch):
    spoil(monkeypatch, {7})
    run("gpt2-tiny", data, tmp_path / "run", "budget={steps=20}", "train.save_every=8")
    assert [line for line in metrics(tmp_path / "run") if "loss" in line][-1]["skipped"] == 1


def test_a_validation_loss_that_is_no_number_stops_the_run(data, tmp_path, monkeypatch):
    monkeypatch.setattr(loop.Fit, "run_validation", lambda self, asked: {"loss": math.nan})
    with pytest.raises(NumbersError, match="validation loss is nan"):
        run("gpt2-tiny", data, tmp_path / "run", "budget={steps=20}", "train.eval_every=10")


def test_many_broken_steps_stop_the_run(data, tmp_path, monkeypatch):
    spoil(monkeypatch, set(range(12, 1000)))
    with pytest.raises(NumbersError, match=r"at step 2\d .*lr=") as stopped:
        run("gpt2-tiny", data, tmp_path / "run", "budget={steps=400}")
    assert stopped.value.exit_code == 7


def test_divergence_stops_the_run(data, tmp_path):
    with pytest.raises(NumbersError, match="risen from"):
        run("rnn-tiny", data, tmp_path / "run", "budget={steps=400}", "train.optim.lr=50", "train.optim.clip=0")


def test_planted_unguarded_step_is_noticed(data, tmp_path, monkeypatch):
    """An optimizer that steps on NaN never recovers."""
    spoil(monkeypatch, {7})

    def careless(optimizer, count, clip, *scaler):
        optimizer.grad_scale = optimizer.found_inf = None
        optimizer.step()
        optimizer.zero_grad()
        return torch.tensor(0.0), torch.tensor(0.0)

    monkeypatch.setattr(loop, "step", careless)
    with pytest.raises((NumbersError, ValueError)):
        run("gpt2-tiny", data, tmp_path / "run", "budget={steps=40}")


def test_early_stopping(data, tmp_path, monkeypatch):
    worse = iter(range(100))
    monkeypatch.setattr("seqloom.evaluate.evaluators.perplexity", lambda *a, **k: {"loss": float(next(worse))})
    run("gpt2-tiny", data, tmp_path / "run", "budget={steps=400}", "train.eval_every=5", "train.patience=3")
    result = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert result["step"] == 20 and result["best_step"] == 5


def test_plateau_lowers_the_rate(data, tmp_path, monkeypatch):
    same = iter([5.0] * 100)
    monkeypatch.setattr("seqloom.evaluate.evaluators.perplexity", lambda *a, **k: {"loss": next(same)})
    plateau = ["train.schedule.name=plateau", "train.schedule.patience=1", "train.schedule.warmup=0"]
    run("gpt2-tiny", data, tmp_path / "run", "budget={steps=30}", "train.eval_every=4", "train.optim.lr=1e-3", *plateau)
    rates = [line["lr"] for line in metrics(tmp_path / "run") if "lr" in line]
    assert rates[0] == 1e-3 and sorted(rates, reverse=True) == rates
    assert {1e-3, 5e-4, 2.5e-4} <= set(rates)


def test_the_best_weights_are_kept(data, tmp_path, monkeypatch):
    losses = iter([3.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr("seqloom.evaluate.evaluators.perplexity", lambda *a, **k: {"loss": next(losses)})
    seen = {}
    evaluate = Fit.evaluate

    def watched(fit, asked):
        seen[fit.state.step] = digest(fit.learner)
        return evaluate(fit, asked)

    monkeypatch.setattr(Fit, "evaluate", watched)
    best = run("gpt2-tiny", data, tmp_path / "run", "budget={steps=20}", "train.eval_every=5")
    assert digest(best.learner) == seen[10]


@pytest.mark.parametrize(
    ("budget", "steps"),
    [("{tokens=2000}", 8), ("{words=1000}", 4), ("{steps=3}", 3), ("{epochs=0.05}", 5), ("{minutes=0.02}", None)],
)
def test_budgets(budget, steps, data, tmp_path):
    run("lstm-tiny", data, tmp_path / "run", f"budget={budget}")
    result = json.loads((tmp_path / "run" / "metrics.json").read_text())
    if steps is None:
        assert 1.2 <= result["seconds"] < 5
    else:
        assert result["step"] == steps and result["tokens"] == 256 * steps


def test_accumulation_counts_tokens_not_batches(data, tmp_path):
    """Two half batches a step see the same text as one whole batch, and say the same loss at the start."""
    run("lstm-tiny", data, tmp_path / "whole", "budget={steps=2}", "batches.length=64")
    run("lstm-tiny", data, tmp_path / "halves", "budget={steps=2}", "train.accumulate=2")
    one, two = (metrics(tmp_path / name)[0] for name in ("whole", "halves"))
    assert one["tokens"] == two["tokens"]
    assert one["loss"] == pytest.approx(two["loss"], rel=0.02)


@pytest.mark.parametrize(
    "kind", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: 1")]
)
def test_out_of_memory_names_the_knobs(kind, data, tmp_path, monkeypatch):
    def full(self, example, carry=None):
        raise kind

    monkeypatch.setattr(NextToken, "forward", full)
    with pytest.raises(OutOfMemory, match=r"batches\.budget"):
        run("gpt2-tiny", data, tmp_path / "run", "budget={steps=3}")


def test_half_precision_on_the_cpu(data, tmp_path):
    run("gpt2-tiny", data, tmp_path / "run", "budget={steps=20}", "train.precision=bf16")
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_the_callers_generator_is_left_alone(data, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    run("gpt2-tiny", data, tmp_path / "run", "budget={steps=3}")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("budget", "pays"),
    [
        (Budget(tokens=5e7), True),
        (Budget(tokens=5e6), False),
        (Budget(minutes=30), True),
        (Budget(minutes=1), False),
        (Budget(steps=200), False),
        (Budget(tokens=5e7, flops=1e14), False),
    ],
)
def test_short_runs_are_not_compiled(budget, pays):
    assert budget.pays_for_compiling(10_000_000) == pays
