"""Encoders at one budget: what they learn by, compared on english-novels and wikinews, and on minimal pairs.

    python benchmarks/encoders.py FILE... OUT [--blimp FOLDER] [--minutes 8.5] [--rows bert electra ...] [--tokens 48e6]
    python benchmarks/encoders.py OUT --data TRANSFER/data      on the text of transfer.py, which can take over these models

One tokenizer (WordPiece of 16,384), the splits that the files name, equal tokens, 8 to 12M parameters: BERT with and without
the next sentence, a left-to-right model of the same size, RoBERTa's way, ALBERT, ELECTRA. Works in parts, as shelf.py does:
after --minutes the run in progress saves its state and the script ends with exit code 75; called again it goes on there.
Masked perplexities are comparable among rows that hide the same tokens (all masked rows here, not ELECTRA's generator).
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from shelf import stop_after, trained

from seqloom.batches.prepare import prepare
from seqloom.errors import Interrupted, SeqloomError

BODY = ["model.dim=256", "model.num_layers=6", "model.num_heads=4", "model.max_len=128"]
STEPS = ["batches.budget=16384", "batches.length=128", "train.optim.lr=1e-3", "train.schedule.name=linear",
         "train.schedule.floor=0", "train.schedule.warmup=300", "train.optim.weight_decay=0.01",
         "train.eval_every=1000000", "train.save_every=1000000", "valid.limit=50000"]  # fmt: skip
# long passages keep masked models on the plateau of single words for thousands of steps (docs/results/2026-11-15-encoders.md)
SHORT = ["batches.short=32", "batches.short_share=0.5"]
ROWS: dict[str, tuple[str, list[str]]] = {
    "bert": ("bert-tiny", [*BODY, *SHORT]),
    "bert, no next sentence": ("bert-tiny", [*BODY, *SHORT, 'objective={name="masked"}', "model.pooler=false"]),
    "left to right": ("gpt2-tiny", BODY),
    "roberta": ("roberta-tiny", [*BODY, *SHORT]),
    "albert": ("albert-tiny", ["model.dim=768", "model.embedding_dim=128", "model.num_layers=6", "model.num_heads=12",
                               "model.max_len=128", *SHORT, "train.optim.lr=3e-4"]),
    "electra": ("electra-tiny", [*BODY, *SHORT, "model.embedding_dim=256", "train.optim.lr=5e-4"]),
}  # fmt: skip


def folder_of(out: Path, row: str, seed: int) -> Path:
    return out / f"{row.replace(' ', '-').replace(',', '')}-{seed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, help="a prepared folder, instead of files")
    parser.add_argument("--blimp", type=Path)
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--tokens", type=float, default=48e6)
    parser.add_argument("--vocab-size", type=int, default=16384)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="extra", action="append", default=[])
    arguments = parser.parse_args()
    out, data = arguments.out, arguments.data or arguments.out / "data"
    out.mkdir(parents=True, exist_ok=True)
    stop_after(arguments.minutes)
    if not (data / "manifest.json").exists():
        prepare(arguments.sources, data, tokenizer="wordpiece", vocab_size=arguments.vocab_size, split_field="split")
    common = [f"budget={{tokens={arguments.tokens}}}", *STEPS]
    for name in arguments.rows:
        folder = folder_of(out, name, arguments.seed)
        if (folder / "encoders.json").exists():
            continue
        recipe, settings = ROWS[name]
        started = time.monotonic()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        try:
            chosen = [*common, *settings, *arguments.extra]
            run: Any = trained(recipe, data, folder, chosen, arguments.seed, arguments.device)
            scores = {split: run.evaluate(data, split) for split in ("valid", "test")}
        except Interrupted as stop:
            print(stop, flush=True)
            sys.exit(75)
        except SeqloomError as error:
            print(f"{name}: {error}", flush=True)
            continue
        metrics = json.loads((folder / "metrics.json").read_text())
        row = {"model": name, "recipe": recipe, "settings": settings, "scores": scores, **metrics}
        if arguments.blimp is not None:
            begun = time.monotonic()
            row["blimp"] = run.evaluate_suite("blimp", arguments.blimp)
            row["blimp"]["seconds"] = time.monotonic() - begun
        (folder / "encoders.json").write_text(json.dumps(row))
        test = scores["test"]
        told = {key: value for key, value in test.items() if isinstance(value, float)}
        shown = {key: round(told[key], 4) for key in told if key.endswith(("perplexity", "accuracy", "per_byte"))}
        found = (
            "" if "blimp" not in row else f"  BLiMP {row['blimp']['accuracy']:.4f} in {row['blimp']['seconds']:.0f} s"
        )
        print(
            f"{name:24} {row['parameters']:,} parameters  {shown}  {row['tokens_per_second']:,.0f} tokens/s  "
            f"{row['flops']:.2e} FLOPs  {row['peak_memory_mb'] or 0:,.0f} MB{found}  {time.monotonic() - started:.0f} s in all",
            flush=True,
        )
        del run


if __name__ == "__main__":
    main()
