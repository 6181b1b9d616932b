"""Peak memory and tokens a second of GPT-2 (124M) with full attention and with a window, by the length of a text, on one GPU.

    python benchmarks/windows_gpu.py [--lengths 1024 4096 16384 65536] [--window 256] [--steps 4] [--out results.jsonl]
                                     [--svg picture.svg]

One text of so many tokens a batch (at least 16,384 tokens in all), forward, backward and optimizer step on random tokens, bf16
autocast over fp32 weights, fused AdamW; not compiled and not recorded, so that rows differ in attention alone; the median of some
steps after two. The output layer works in pieces, so that scores of the whole vocabulary are never in memory at once. A line of
JSON for each row as it is measured, and one with the kernel that windows take: "varlen" where PyTorch's own knows windows,
"banded" otherwise. Every length takes seconds; 64k tokens of full attention the most.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from seqloom.batch import Excerpt, ragged
from seqloom.blocks import kernels
from seqloom.models.gpt2 import Gpt2
from seqloom.objectives.next_token import NextToken
from seqloom.training.optim import OptimConfig, build_optimizer, step

TOKENS = 16_384  # of a batch, at least
VOCABULARY = 50_304


def measure(length: int, window: int | None, steps: int, device: torch.device, sizes: dict[str, Any]) -> dict[str, Any]:
    rows = max(1, TOKENS // length)
    torch.manual_seed(0)
    with device:
        model = Gpt2(Gpt2.Config(vocab_size=VOCABULARY, max_len=length, dropout=0.0, window=window, **sizes))
        learner = NextToken(model, NextToken.Config()).train()
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    ids = torch.randint(0, VOCABULARY, (rows * length + 1,), device=device)
    batch = ragged(ids[:-1], torch.full((rows,), length, device=device), length)
    example, seconds = Excerpt(batch, ids[1:]), []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2 + steps):
        synchronize(device)
        started = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = learner(example)
        loss.total.backward()
        step(optimizer, loss.count, clip=1.0)
        synchronize(device)
        seconds.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    found = {
        "attention": "full" if window is None else f"window {window}", "length": length, "sequences": rows,
        "tokens_per_second": rows * length / statistics.median(seconds[2:]), "peak_gib": peak,
        "loss": float(loss.total.detach()) / int(loss.count), "parameters": learner.size(),
    }  # fmt: skip
    del learner, model, optimizer, loss
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return found


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def picture(rows: list[dict[str, Any]]) -> str:
    from seqloom.charts import Curve, as_file, chart

    names = dict.fromkeys(row["attention"] for row in rows)
    curves = [
        Curve(name, [(row["length"], row["tokens_per_second"]) for row in rows if row["attention"] == name])
        for name in names
    ]
    return as_file(chart("tokens of a text", "tokens/s, training", curves, log_x=True, log_y=True, better="higher"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 16_384, 65_536])
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", dest="sizes", default="{}", help="sizes of the model as JSON, for a trial on a CPU")
    arguments = parser.parse_args()
    device, sizes = torch.device(arguments.device), json.loads(arguments.sizes)
    known = kernels.HAS_VARLEN and kernels.HAS_WINDOWS and device.type == "cuda"
    print(json.dumps({"torch": torch.__version__, "windows_by": "varlen" if known else "banded"}), flush=True)
    rows = []
    for length in arguments.lengths:
        for window in (arguments.window, None):
            rows.append(measure(length, window, arguments.steps, device, sizes))
            print(json.dumps(rows[-1]), flush=True)
        print(
            json.dumps({"length": length, "ratio": rows[-2]["tokens_per_second"] / rows[-1]["tokens_per_second"]}),
            flush=True,
        )
    if arguments.out is not None:
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if arguments.svg is not None:
        arguments.svg.write_text(picture(rows))


if __name__ == "__main__":
    main()
