"""The language-model shelf at one budget: every model once over english-novels and wikinews, bits per byte and cost.

    python benchmarks/shelf.py FILE... OUT [--minutes 8.5] [--rows lstm gpt ...] [--seeds 0 1 2] [--device auto] [--tokens N]

One tokenizer (byte-level BPE of 16,384), the splits that the files name, one pass, about 20M parameters each; LSTM and GPT
with several seeds. Works in parts: after --minutes the run in progress saves its state and the script ends with exit code
75; called again it goes on there. What is finished stays finished: a run's figures are in its own folder (shelf.json), so
that several processes may do different rows or seeds of one OUT at once; table.md is the table of all that is there.
"""

import argparse
import gc
import json
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from seqloom.batches.prepare import prepare
from seqloom.errors import Interrupted, SeqloomError
from seqloom.runs.load import load
from seqloom.runs.training import pretrain

STREAMS = ["batches.streams=64", "batches.length=128", "train.schedule.warmup=200"]
# about 20M parameters with 16,384 words; rates from the recipes, smaller where a model has diverged
ROWS: dict[str, tuple[str, list[str]]] = {
    "ngram": ("ngram-small", []),
    "nnlm": ("nnlm-small", [*STREAMS, "model.embedding_dim=128", "model.dim=1000", "train.optim.lr=1e-3"]),
    "rnn": ("rnn-small", [*STREAMS, "model.dim=1000", "train.optim.lr=5e-4"]),
    "irnn": ("irnn-small", [*STREAMS, "model.dim=1000", "train.optim.lr=3e-4"]),
    "gru": ("gru-small", [*STREAMS, "model.dim=760", "train.optim.lr=1e-3"]),
    "lstm": ("lstm-small", [*STREAMS, "model.dim=700"]),
    # in one pass nothing stops falling, so that nothing is averaged: the rate falls in its place
    "awd-lstm": ("awd-lstm-small", ["batches.streams=64", "batches.length=70", "train.schedule.name=cosine",
                                    "model.embedding_dim=350", "model.dim=950"]),
    "big-lstm": ("big-lstm-small", [*STREAMS, "model.dim=1400", "model.proj_dim=448"]),
    "gpt": ("gpt2-tiny", ["model.dim=448", "model.num_layers=5", "model.num_heads=7", "model.max_len=256",
                          "batches.length=256", "batches.budget=8192", "train.optim.lr=1e-3", "train.schedule.warmup=200",
                          "train.optim.weight_decay=0.1"]),
}  # fmt: skip
SEVERAL = ("lstm", "gpt")


def stop_after(minutes: float) -> None:
    """Asks this process to stop as a person would: training then saves its state."""
    timer = threading.Timer(60 * minutes, lambda: os.kill(os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()


def trained(recipe: str, data: Path, out: Path, settings: list[str], seed: int, device: str) -> Any:
    if (out / "card.md").exists():
        return load(out, device)
    return pretrain(
        recipe, data, out, settings=settings, seed=seed, device=device, resume=(out / "config.json").exists()
    )


def figures(out: Path) -> list[dict[str, Any]]:
    rows = [json.loads(path.read_text()) for path in out.glob("*/shelf.json")]
    return sorted(rows, key=lambda row: (list(ROWS).index(row["model"]), row["seed"]))


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| model | parameters | seeds | valid, bits/byte | test, bits/byte | tokens/s | FLOPs | peak MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["model"] for row in results):  # speed and memory: of the first seed, which runs alone
        rows = [row for row in results if row["model"] == name]

        def shown(key: str, rows: list[dict[str, Any]] = rows) -> str:
            values = [row[key] for row in rows]
            spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
            return f"{statistics.mean(values):.3f}{spread}"

        first = rows[0]
        lines.append(
            f"| {name} | {first['parameters']:,} | {len(rows)} | {shown('valid')} | {shown('test')} | "
            f"{first['tokens_per_second']:,.0f} | {first['flops']:.2e} | "
            f"{first['peak_memory_mb'] or 0:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--tokens", type=float, help="instead of one pass: for a trial")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    out, data = arguments.out, arguments.out / "data"
    out.mkdir(parents=True, exist_ok=True)
    stop_after(arguments.minutes)
    if not (data / "manifest.json").exists():
        prepare(arguments.sources, data, tokenizer="bpe", vocab_size=16384, split_field="split")
    budget = f"budget={{tokens={arguments.tokens}}}" if arguments.tokens else "budget={epochs=1}"
    # nothing is decided on the way: it is measured at the end
    common = [
        budget,
        "train.eval_every=1000000",
        "train.save_every=1000000",
        "valid.limit=20000",
        "train.compile=false",
    ]
    jobs = [(name, seed) for seed in arguments.seeds for name in arguments.rows if seed == 0 or name in SEVERAL]
    for name, seed in jobs:
        folder = out / f"{name}-{seed}"
        if (folder / "shelf.json").exists():
            continue
        recipe, settings = ROWS[name]
        started = time.monotonic()
        settings = [budget] if name == "ngram" else [*common, *settings]
        gc.collect()  # the peak of a row is its own
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        try:
            run = trained(recipe, data, folder, settings, seed, arguments.device)
            scores = {split: run.evaluate(data, split) for split in ("valid", "test")}
        except Interrupted as stop:
            print(stop, flush=True)
            sys.exit(75)
        except SeqloomError as error:
            print(f"{name} seed {seed}: {error}", flush=True)
            continue
        metrics = json.loads((run.folder / "metrics.json").read_text())
        row = {"model": name, "seed": seed, "recipe": recipe, "settings": settings, **metrics}
        row |= {split: found["bits_per_byte"] for split, found in scores.items()} | {
            "perplexity": scores["test"]["perplexity"]
        }
        (folder / "shelf.json").write_text(json.dumps(row))
        (out / "table.md").write_text(table(figures(out)))
        print(
            f"{name:10} seed {seed}  {row['parameters']:,} parameters  valid {row['valid']:.4f}  test {row['test']:.4f} "
            f"bits/byte  {row['tokens_per_second']:,.0f} tokens/s  {time.monotonic() - started:.0f} s in all",
            flush=True,
        )
        del run
    print(table(figures(out)))


if __name__ == "__main__":
    main()
