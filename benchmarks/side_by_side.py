"""Two versions of seqloom side by side: the speed rows of both, in turn, on one machine.

    mkdir old && git archive COMMIT seqloom benchmarks examples | tar x -C old
    python benchmarks/side_by_side.py old . [--rows gpt2 bert ...] [--turns 5] [--out results.jsonl]

Each version runs in a process of its own and builds a row (weights, compilation, recording, warm-up) once; then the two
take turns of about half a second, the first one changing from turn to turn, so that a slow minute hits both. The figure is
the median of the turns of each; the ratio has the smallest and the largest of the pairs beside it. Without a GPU the
rows of the CPU run.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = tuple[Callable[[], Any], float]  # what is timed, and how many tokens (or sentences) one call handles


def train_row(row: str) -> Work:
    bench = importlib.import_module("train_gpu")
    shape = {"gpt2": bench.GPT2, **bench.LSTMS, **bench.AWDS}[row]
    return bench.ours(row), shape[3] * shape[4]


def bert_row(row: str) -> Work:
    bench = importlib.import_module("train_bert")
    return bench.ours(row), bench.real_tokens(row)


def transformer_row(row: str) -> Work:
    return importlib.import_module("train_transformer").ours(512, 48), 512 * 48


def finetune_row(row: str) -> Work:
    bench = importlib.import_module("finetune_speed")
    return bench.warmed(bench.ours(row)), bench.SIZE


def sample_row(row: str) -> Work:
    import torch

    bench = importlib.import_module("sample_gpu")
    kind, size = row.split("-")
    n, precision = int(size), {"fp32": torch.float32, "bf16": torch.bfloat16}[kind]
    learner = bench.our_model(bench.peer_model()).to(precision)
    stepper = bench.Stepper(learner.backbone, learner.softmax)
    prompts = torch.randint(1, bench.V, (n, bench.PROMPT), generator=torch.Generator().manual_seed(n)).cuda()
    return lambda: bench.ours(stepper, prompts), n * bench.NEW


def beam_row(row: str) -> Work:
    import torch

    bench = importlib.import_module("beam")
    beam, n = (int(part) for part in row.split("-"))
    model = bench.reference(torch.device("cuda"), torch.float32)
    generator = torch.Generator().manual_seed(n)
    sizes = torch.randint(16, 49, (n,), generator=generator).tolist()
    sources = [[*torch.randint(1, bench.PAD, (size - 1,), generator=generator).tolist(), bench.END] for size in sizes]
    return bench.ours(model, sources, beam), n * bench.NEW


def train_cpu_row(row: str) -> Work:
    bench = importlib.import_module("train_cpu")
    return bench.ours(), bench.N * bench.L


def sample_cpu_row(row: str) -> Work:
    bench = importlib.import_module("sample_cpu")
    return bench.ours(int(row)), int(row) * bench.NEW


TRAINED = "gpt2 lstm-650 lstm-1150 lstm-2048 lstm-gates gru-gates own-cell awd-ptb awd-wt2"
GPU_ROWS: dict[str, tuple[Callable[[str], Work], str]] = {
    **{row: (train_row, row) for row in TRAINED.split()},
    **{f"bert-{row}": (bert_row, row) for row in ("256x128", "64x512", "ragged")},
    "transformer": (transformer_row, ""),
    **{f"finetune-{row}": (finetune_row, row) for row in ("base", "mini")},
    **{f"sample-{row}": (sample_row, row) for row in ("fp32-1", "fp32-64", "bf16-1", "bf16-64")},
    **{f"beam-{row}": (beam_row, row) for row in ("4-1", "4-64", "1-1", "1-64")},
}
CPU_ROWS: dict[str, tuple[Callable[[str], Work], str]] = {
    "cpu-train": (train_cpu_row, ""),
    **{f"cpu-sample-{n}": (sample_cpu_row, n) for n in ("1", "16")},
}


def timed(work: Callable[[], Any], calls: int, wait: Callable[[], None]) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        work()
    wait()
    return time.perf_counter() - start


def serve() -> None:
    """One version, in its own process: builds and times what it is told on its input, one line of JSON each."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the code prints is not an answer
    sys.path.remove(str(Path(__file__).resolve().parent))  # the benchmarks are those of the version, too
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    torch.set_float32_matmul_precision("high")
    work: Callable[[], Any]
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "row" in order:
                torch.compiler.reset()
                torch.manual_seed(0)
                make, row = (GPU_ROWS | CPU_ROWS)[order["row"]]
                work, count = make(row)
                timed(work, 6 if make in (train_row, bert_row, transformer_row) else 2, wait)
                answer: dict[str, Any] = {"count": count, "seconds": timed(work, 1, wait)}
            else:
                answer = {"seconds": timed(work, order["calls"], wait)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")


class Version:
    def __init__(self, tree: Path):
        paths = [tree.resolve(), tree.resolve() / "benchmarks", *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=tree, text=True)

    def send(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process has ended"}

    def ask(self, **order: Any) -> dict[str, Any]:
        self.send(**order)
        return self.answer()


def compare(row: str, versions: list[Version], turns: int) -> dict[str, Any]:
    for version in versions:  # both compile at the same time; neither is timed yet
        version.send(row=row)
    built = [version.answer() for version in versions]
    broken = {name: each["error"] for name, each in zip(("old", "new"), built, strict=True) if "error" in each}
    if broken:
        return {"row": row, "errors": broken}
    calls = max(1, round(0.5 / min(each["seconds"] for each in built)))
    rates: list[list[float]] = [[], []]
    for turn in range(turns):
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            rates[i].append(built[i]["count"] * calls / versions[i].ask(calls=calls)["seconds"])
    pairs = sorted(new / old for old, new in zip(*rates, strict=True))
    old, new = map(statistics.median, rates)
    return {"row": row, "old": old, "new": new, "ratio": new / old, "pairs": pairs, "turns": rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--rows", nargs="+", choices=sorted(GPU_ROWS | CPU_ROWS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve()
    if len(options.trees) != 2:
        parser.error("two folders are needed, the older version and the newer one")
    import torch

    versions = [Version(tree) for tree in options.trees]
    for row in options.rows or (GPU_ROWS if torch.cuda.is_available() else CPU_ROWS):
        found = compare(row, versions, options.turns)
        if "errors" in found:
            print(f"{row:16} {found['errors']}", flush=True)
        else:
            low, high = found["pairs"][0], found["pairs"][-1]
            both = f"{found['old']:12,.0f} → {found['new']:12,.0f} a second"
            print(f"{row:16} {both}  {found['ratio']:.3f}x ({low:.3f} to {high:.3f})", flush=True)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
