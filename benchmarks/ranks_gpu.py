"""Ranks on one GPU: what torchrun costs one of them, whether two of them find the same, and a sharded one.

    python benchmarks/ranks_gpu.py OUT [--device cuda|cpu] [--steps 60] [--only speed|weights]

It makes its own text, of random words, and takes about a minute.

Timed, one after the other, with GPT-2 of 124M parameters in bf16, 16 × 1024 tokens a step, steps recorded as CUDA graphs: plain,
under torchrun, plain, under torchrun, and if a minute is not over sharded under torchrun (not recorded, because shards come and
go). The speed is that of the last two thirds of the steps, by metrics.jsonl.

Then, side by side, a small GPT-2 in fp32 with two parts a step: one rank, two ranks on the one GPU, the same two with
--deterministic, and one sharded rank; their weights are compared after 12 steps. OUT/ranks.json has all figures. On the CPU
everything is small, and shows only that it runs.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from seqloom.batches.prepare import prepare
from seqloom.training.launch import free_port

LARGE = {
    "cuda": ("gpt2-small", 50_000, ["batches.budget=16384", "batches.length=1024", "train.precision=bf16"]),
    "cpu": ("gpt2-tiny", 500, ["batches.budget=256", "batches.length=64"]),
}
SMALL = ["model.dim=128", "model.num_heads=2", "model.num_layers=2", "batches.budget=1024", "batches.length=128"]
SMALL += ["train.accumulate=2", "train.precision=fp32", "train.schedule.warmup=100", "train.eval_every=6"]
STEPS = 12  # of the small model
MOST = 60.0  # seconds after which nothing further is timed


def write_text(path: Path, words: int) -> None:
    """Every word at least once, then words by Zipf's law, in documents of 1,500."""
    rng = random.Random(0)
    weights = [1 / (rank + 1) for rank in range(words)]
    drawn = [f"w{i}" for i in range(words)] + [f"w{i}" for i in rng.choices(range(words), weights, k=6 * words)]
    lines = [" ".join(drawn[i : i + 1500]) for i in range(0, len(drawn), 1500)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class Runs:
    def __init__(self, out: Path, device: str):
        self.out, self.device = out, device

    def start(self, name: str, recipe: str, data: str, settings: list[str], how: str, *more: str) -> Any:
        """how: plain, torchrun (one rank), or a number of ranks that seqloom starts itself."""
        options = [part for setting in settings for part in ("--set", setting)]
        call = ["-m", "seqloom", "pretrain", recipe, "--data", str(self.out / data), "--out", str(self.out / name)]
        call += ["--device", self.device, "--overwrite", *options, *more]
        if how == "torchrun":
            port = str(free_port())
            call = ["-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", port, *call]
        elif how != "plain":
            call += ["--ranks", how]
        environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ}
        log = open(self.out / f"{name}.log", "w")  # noqa: SIM115 - closed with the process
        return subprocess.Popen([sys.executable, *call], env=environment, stdout=log, stderr=subprocess.STDOUT)

    def finish(self, name: str, process: Any) -> None:
        if process.wait(timeout=300):
            raise SystemExit(f"{name} has failed:\n" + (self.out / f"{name}.log").read_text()[-3000:])

    def speed(self, name: str, steps: int) -> float:
        """Tokens a second between a third of the steps and the end."""
        lines = [json.loads(line) for line in (self.out / name / "metrics.jsonl").read_text().splitlines()]
        first, *_, last = [line for line in lines if "loss" in line and line["step"] >= steps // 3]
        return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        return load_file(self.out / name / "checkpoints" / f"step-{STEPS}" / "model.safetensors")

    def difference(self, name: str, other: str) -> float:
        a, b = self.weights(name), self.weights(other)
        return max(float((a[key].double() - b[key].double()).abs().max()) for key in a)


def measure_speed(runs: Runs, steps: int, began: float) -> dict[str, Any]:
    recipe, _, settings = LARGE[runs.device]
    settings = [
        *settings,
        f"budget={{steps={steps}}}",
        f"train.log_every={steps // 9}",
        f"train.save_every={steps * 2}",
    ]
    settings += [f"train.eval_every={steps * 2}", "valid.limit=4096", "train.compile=false"]
    found: dict[str, list[float]] = {"plain": [], "torchrun": [], "sharded": []}
    for number, how in enumerate(("plain", "torchrun", "plain", "torchrun", "sharded")):
        name, sharded = f"{how}-{number}", ["train.shard=true"] if how == "sharded" else []
        if sharded and time.monotonic() - began > MOST:
            break
        runs.finish(
            name, runs.start(name, recipe, "data", [*settings, *sharded], "plain" if how == "plain" else "torchrun")
        )
        found[how].append(round(runs.speed(name, steps), 1))
        shutil.rmtree(runs.out / name)  # gigabytes
        print(f"{how:>9}  {found[how][-1]:12,.0f} tokens/s", flush=True)
    plain, under = (sum(found[how]) / len(found[how]) for how in ("plain", "torchrun"))
    sharded_share = round(found["sharded"][0] / plain, 4) if found["sharded"] else None
    shares = {"torchrun_over_plain": round(under / plain, 4), "sharded_over_plain": sharded_share}
    return {"model": recipe, "tokens_per_second": found} | shares


def compare_weights(runs: Runs) -> dict[str, Any]:
    settings = [*SMALL, f"budget={{steps={STEPS}}}"]
    calls: dict[str, tuple[list[str], str, list[str]]] = {
        "one": (settings, "plain", []),
        "two": (settings, "2", []),
        "one-deterministic": (settings, "plain", ["--deterministic"]),
        "two-deterministic": (settings, "2", ["--deterministic"]),
        "one-sharded": ([*settings, "train.shard=true"], "torchrun", []),
    }
    started = {
        name: runs.start(name, "gpt2-tiny", "small", given, how, *more) for name, (given, how, more) in calls.items()
    }
    for name, process in started.items():
        runs.finish(name, process)
    found = {
        "two_ranks_against_one": runs.difference("two", "one"),
        "the_same_with_deterministic": runs.difference("two-deterministic", "one-deterministic"),
        "one_sharded_rank_against_one": runs.difference("one-sharded", "one"),
    }
    for name, value in found.items():
        print(f"{name:>32}: largest difference of a weight after {STEPS} steps {value:.2e}", flush=True)
    said = (runs.out / "two.log").read_text()
    return found | {"reason": next((line for line in said.splitlines() if "gloo" in line), "")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=60, help="of each timed run")
    parser.add_argument(
        "--only", choices=("speed", "weights"), help="one half of it; weights may run beside other work"
    )
    given = parser.parse_args()
    began = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    texts = {"data": LARGE[given.device][1], "small": 300}
    if given.only == "weights":
        del texts["data"]
    for name, words in texts.items():
        write_text(given.out / f"{name}.txt", words)
        prepare(
            [given.out / f"{name}.txt"], given.out / name, tokenizer="word", min_count=1, valid=0.02, vocab_size=words + 10,
            keep_leaks=True, keep_duplicates=True, documents="line", overwrite=True,
        )  # fmt: skip
    runs = Runs(given.out, given.device)
    device = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    found: dict[str, Any] = {"device": device, "torch": torch.__version__, "steps": given.steps}
    if given.only != "weights":
        found["speed"] = measure_speed(runs, given.steps, began)
    if given.only != "speed":
        found["weights"] = compare_weights(runs)
    for name in ("one", "two", "one-deterministic", "two-deterministic", "one-sharded", "data", "small"):
        shutil.rmtree(given.out / name, ignore_errors=True)
    found["seconds"] = round(time.monotonic() - began, 1)
    (given.out / "ranks.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
