"""Several processes that train one model: the same bits as one, and nobody waits for somebody who is gone."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from seqloom.errors import OtherRankFailed, UsageError
from seqloom.training.launch import free_port, without_option
from seqloom.training.ranks import Ranks, Several, Sums, TreeSum, check_parts
from tests.tasks.labelled import examples, write
from tests.training.material import prepared, write_pairs

ENCODER = [
    "model.dim=16", "model.num_heads=2", "model.num_layers=1", "batches.budget=256", "batches.length=64",
    "train.accumulate=4",
]  # fmt: skip
SMALL = {
    "gpt2-tiny": [
        "model.dim=16", "model.num_heads=2", "model.num_layers=1", "model.dropout=0.1", "batches.budget=64", "batches.length=16",
        "train.accumulate=4",
    ],
    "lstm-tiny": ["model.dim=16", "model.dropout=0.1", "batches.streams=8", "batches.length=16", "train.parts=4"],
    "bert-tiny": ENCODER,
    "electra-tiny": ENCODER,
    "bart-tiny": ENCODER,
    "awd-lstm-tiny": ["model.dim=16", "model.embedding_dim=16", "batches.streams=8", "batches.length=16", "train.parts=4"],
}  # fmt: skip
OFTEN = ["train.eval_every=5", "train.save_every=4", "train.log_every=2", "train.schedule.warmup=2"]
SPLITS = {"train": 300, "valid": 60, "test": 50}
NO_TIMES = ("seconds", "joules", "tokens_per_second", "device_seconds")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("ranks") / "data", 600)


def call(name, data, out, *more, steps=12, settings=()):
    given = [*SMALL[name], *OFTEN, *settings, f"budget={{steps={steps}}}"]
    options = [part for setting in given for part in ("--set", setting)]
    return ["pretrain", name, "--data", str(data), "--out", str(out), "--device", "cpu", *options, *more]


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])} | more


def start(*arguments, **more):
    command = [sys.executable, "-m", "seqloom", *arguments]
    return subprocess.Popen(
        command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(*arguments, code=0, **more):
    process = start(*arguments, **more)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == code, said
    return said


def fingerprint(out):
    """Weights, the whole state of the last checkpoint, and the log, but for times."""
    files = sorted([*out.glob("*.safetensors"), *out.glob("checkpoints/step-*/*.safetensors")])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    log = [{key: value for key, value in line.items() if key not in NO_TIMES} for line in lines]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}, log


def worlds_agree(name, data, folder, worlds, tmp=""):
    found = []
    for world in worlds:
        out = folder / f"{name}-{world}{tmp}"
        run(*call(name, data, out, "--deterministic", "--ranks", str(world)))
        found.append(fingerprint(out))
    for each in found[1:]:
        assert each[1] == found[0][1]
        assert each == found[0]


@pytest.mark.parametrize("name", ["lstm-tiny", "gpt2-tiny"])
def test_the_same_bits_on_one_and_two(name, data, tmp_path):
    worlds_agree(name, data, tmp_path, (1, 2))


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_the_same_bits_on_one_two_three_and_four(name, data, tmp_path):
    worlds_agree(name, data, tmp_path, (1, 2, 3, 4))


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_nearly_the_same_without_a_tree(name, world, data, tmp_path):
    from safetensors.torch import load_file

    found = []
    for ranks in (1, world):
        slowly = ["train.schedule.warmup=100"]  # rates as recipes have them after so few steps
        run(*call(name, data, tmp_path / f"{ranks}", "--ranks", str(ranks), settings=slowly))
        found.append(load_file(tmp_path / f"{ranks}" / "checkpoints" / "step-12" / "model.safetensors"))
    for key, value in found[0].items():
        if value.is_floating_point():
            assert (value - found[1][key]).abs().max() <= 1e-6, key


@pytest.mark.long
@pytest.mark.parametrize("name", ["lstm-tiny", "bert-tiny"])
def test_any_number_of_ranks_goes_on_with_a_checkpoint(name, data, tmp_path):
    """2, 1, 3, 4 ranks, stopped by SIGTERM and by kill -9 of all or one of them."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(*call(name, data, whole, "--deterministic", steps=400))
    arguments = call(name, data, broken, "--deterministic", steps=400)
    process = start(*arguments, "--ranks", "2")
    wait_for_step(broken, 20)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75 and "continue it with --resume" in said
    process = start(*arguments, "--resume")
    wait_for_step(broken, 80)
    process.kill()
    process.communicate(timeout=60)
    process = start(*arguments, "--resume", "--ranks", "3")
    wait_for_step(broken, 160)
    victim = children(process.pid)[2]
    os.kill(victim, signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 137, said
    run(*arguments, "--resume", "--ranks", "4")
    assert fingerprint(whole) == fingerprint(broken)


def wait_for_step(out, step):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        saved = [int(path.name[5:]) for path in (out / "checkpoints").glob("step-*") if path.name[5:].isdecimal()]
        if max(saved, default=0) >= step:
            return
        time.sleep(0.05)
    raise AssertionError(f"step {step} is not reached")


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["translate", "classify", "tag"])
def test_tasks_are_trained_and_scored_by_ranks(kind, tmp_path):
    """Validation, the choice of the best weights and the scores at the end are shared: the same bits as of one process."""
    if kind == "translate":
        files = [write_pairs(tmp_path, many, seed, name) for seed, (name, many) in enumerate(SPLITS.items())]
        recipe, settings = (
            "transformer-tiny",
            ["train.watch=bleu", "batches.budget=256", "batches.length=64", "model.dim=16", "model.num_heads=2"],
        )
    else:
        files = [[tmp_path / f"{name}.{'conll' if kind == 'tag' else 'jsonl'}"] for name in SPLITS]
        for seed, (path, many) in enumerate(zip(files, SPLITS.values(), strict=True)):
            write(path[0], kind, examples(kind, many, seed))
        recipe, settings = "bert-tiny", ["model.dim=16", "model.num_heads=2", "batches.examples=4"]
        settings += ["task.calibrate=true"] if kind == "classify" else []
    given = ["train.accumulate=4", "train.eval_every=5", "train.save_every=4", "budget={steps=12}", *settings]
    arguments = ["train", recipe, "--task", kind, "--tokenizer", "word", "--deterministic", "--device", "cpu"]
    for name, paths in zip(SPLITS, files, strict=True):
        arguments += [f"--{name}", *map(str, paths)]
    arguments += [part for setting in given for part in ("--set", setting)]
    found = []
    for world in (1, 2, 3):
        out = tmp_path / f"out-{world}"
        run(*arguments, "--out", str(out), "--ranks", str(world))
        metrics = json.loads((out / "metrics.json").read_text())
        scores = [
            {key: value for key, value in metrics[f"{split}_scores"].items() if key != "seconds"}
            for split in ("valid", "test")
        ]
        found.append((*fingerprint(out), metrics["valid"], *scores))
    assert found[0] == found[1] == found[2]


@pytest.mark.long
def test_ranks_end_with_their_launcher(data, tmp_path):
    process = start(*call("gpt2-tiny", data, tmp_path / "out", "--ranks", "2", steps=100_000))
    wait_for_step(tmp_path / "out", 8)
    ranks = children(process.pid)
    process.kill()
    process.communicate(timeout=30)
    until = time.monotonic() + 60
    while any(Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < until:
        time.sleep(0.2)
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


def test_what_cannot_be_is_said_once(data, tmp_path):
    """By the first rank alone, before anything is written, in one line."""
    arguments = call("gpt2-tiny", data, tmp_path / "out", "--ranks", "2", settings=["train.accumulate=1"])
    said = run(*arguments, code=2)
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert (
        "2 ranks, but 1 part a step: --set train.accumulate=2" in line
        and not (tmp_path / "out" / "weights.json").exists()
    )


@pytest.mark.long
def test_a_folder_that_is_taken_is_said_once(data, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    said = run(*call("gpt2-tiny", data, tmp_path / "out", "--ranks", "2"), code=2)
    assert said.count("error") == 1 and "not empty" in said


OTHER_VERSION = "import platform\nplatform.python_version = lambda: '2.7.18'\n"


@pytest.mark.long
@pytest.mark.parametrize("other", ["seed", "recipe", "text", "version", "folder"])
def test_ranks_that_were_called_differently_are_refused(other, data, tmp_path):
    port = free_port()
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    arguments = call("gpt2-tiny", data, tmp_path / "out")
    changed, more = list(arguments), {}
    if other == "text":
        changed[changed.index(str(data))] = str(prepared(tmp_path / "other", 300))
    elif other == "version":
        (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION)
        more["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    elif other == "folder":  # of the same name on another machine, where a run was started as well
        changed[changed.index(str(tmp_path / "out"))] = str(tmp_path / "elsewhere")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "config.json").write_text("{}")
    else:
        changed += ["--seed", "1"] if other == "seed" else ["--set", "train.optim.lr=0.5"]
    first = start(*arguments, RANK="0", LOCAL_RANK="0", **shared)
    second = start(*changed, RANK="1", LOCAL_RANK="1", **shared | more)
    said = [process.communicate(timeout=120)[0] for process in (first, second)]
    assert first.returncode == second.returncode == 2, said
    problem = (
        "is another folder there" if other == "folder" else "it has another recipe, text, seed or version than rank 0"
    )
    (line,) = [line for line in said[0].splitlines() if "error" in line]
    assert "rank 1: " in line and problem in line and "error" not in said[1]


@pytest.mark.long
def test_a_failure_of_the_first_rank_alone_ends_all(data, tmp_path):
    """Its disk, on which no other rank writes: all end, with its exit code and one sentence."""
    out = tmp_path / "out"
    process = start(*call("gpt2-tiny", data, out, "--ranks", "3", steps=100_000))
    wait_for_step(out, 8)
    ranks = children(process.pid)
    (out / "checkpoints").rename(tmp_path / "taken")
    (out / "checkpoints").write_text("no folder")
    began = time.monotonic()
    said, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 60 and process.returncode == 5, said
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert "checkpoints" in line


@pytest.mark.long
def test_torchrun_and_its_restarts(data, tmp_path):
    """Two agents on one machine; a rank is killed three times, and comes back by itself."""
    run(*call("lstm-tiny", data, tmp_path / "whole", "--deterministic", steps=300))
    arguments = call("lstm-tiny", data, tmp_path / "out", "--deterministic", "--resume", steps=300)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3"]
    command += ["--master-port", str(free_port()), "-m", "seqloom", *arguments]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for step in (20, 80, 140):
        wait_for_step(tmp_path / "out", step)
        os.kill(children(process.pid)[-1], signal.SIGKILL)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said[-3000:]
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "out")


# ---- pieces


def test_a_tree_does_not_depend_on_who_adds_which_block():
    torch.manual_seed(0)
    parts = [torch.randn(50) * 10**k for k in range(8)]

    def added(some):
        tree = TreeSum()
        for part in some:
            tree.add([part.clone()])
        return tree.total()[0]

    whole = added(parts)
    assert torch.equal(whole, added([added(parts[:4]), added(parts[4:])]))
    assert torch.equal(whole, added([added(parts[i : i + 2]) for i in range(0, 8, 2)]))
    assert not torch.equal(whole, torch.stack(parts).sum(0)), "another order has other bits"


def test_a_parameter_that_no_part_uses_has_no_gradient():
    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    sums = Sums([used, unused], ordered=True)
    for part in range(2):
        (used.sum() * (part + 1)).backward()
        sums.add(part, torch.tensor(1.0), torch.tensor(3))
    total, count = sums.result()
    assert (total, count) == (2.0, 6) and used.grad.tolist() == [3.0, 3.0] and unused.grad is None


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 8])
def test_every_part_belongs_to_one_rank(world, ordered):
    ranks = [Ranks(ordered) for _ in range(world)]
    for number, each in enumerate(ranks):
        each.rank, each.world = number, world
    owned = [each.own(8) for each in ranks]
    assert [part for own in owned for part in own] == list(range(8)) and all(owned)
    if ordered:  # each is a branch of the tree over all parts
        assert all(len(own) & (len(own) - 1) == 0 and own.start % len(own) == 0 for own in owned)


def test_numbers_that_do_not_fit():
    two = Ranks(ordered=True)
    two.world = 2
    with pytest.raises(UsageError, match=r"2 ranks, but 1 part a step: --set train.parts=2"):
        check_parts(two, 1, True)
    with pytest.raises(UsageError, match="not 6"):
        check_parts(two, 6, False)
    check_parts(Ranks(ordered=True), 6, False)


def test_the_options_of_ranks_are_those_of_the_command():
    assert without_option(["pretrain", "x", "--ranks", "2", "--resume"], "--ranks") == ["pretrain", "x", "--resume"]
    assert without_option(["pretrain", "--ranks=2", "x"], "--ranks") == ["pretrain", "x"]


def test_a_rank_that_is_gone_is_said(monkeypatch):
    def gone(*given, **options):
        raise RuntimeError("[gloo] Connection closed by peer")

    alone = Several.__new__(Several)
    alone.rank, alone.world, alone.on_host = 1, 2, True
    monkeypatch.setattr(torch.distributed, "all_reduce", gone)
    with pytest.raises(OtherRankFailed, match="another rank has left"):
        alone.sum_numbers(1.0)


@pytest.mark.parametrize("fault", ["dropout masks shared by ranks", "losses averaged", "a rank skips alone"])
def test_planted_faults_change_what_is_learnt(fault, data, tmp_path, monkeypatch):
    """In one process with several parts: what a fault would do to a rank."""
    from seqloom.runs.training import pretrain
    from seqloom.training import loop

    settings = [*SMALL["gpt2-tiny"], *OFTEN, "budget={steps=6}"]
    pretrain("gpt2-tiny", data, tmp_path / "right", settings=settings, device="cpu", deterministic=True)
    if fault == "dropout masks shared by ranks":
        monkeypatch.setattr(loop, "derive_seed", lambda seed, step, *part: step)
    elif fault == "losses averaged":
        monkeypatch.setattr(Sums, "result", lambda sums, result=Sums.result: (result(sums)[0], torch.tensor(1)))
    else:
        add = Sums.add
        monkeypatch.setattr(Sums, "add", lambda sums, part, total, count: part == 3 or add(sums, part, total, count))
    pretrain("gpt2-tiny", data, tmp_path / "wrong", settings=settings, device="cpu", deterministic=True)
    assert fingerprint(tmp_path / "right") != fingerprint(tmp_path / "wrong")
