"""Peak memory and tokens a second of GPT-2, GPT-2 with a window, Reformer and Transformer-XL by the length of a text, on one GPU.

    python benchmarks/long_gpu.py [--lengths 1024 4096 16384 65536] [--rows gpt2 window reformer transformer-xl] [--steps 2]
                                  [--seconds 85] [--out results.jsonl] [--svg picture.svg]

All have 12 layers of width 768. One text of so many tokens a batch (at least 16,384 tokens in all), forward, backward and
optimizer step on random tokens, bf16 autocast over fp32 weights, fused AdamW, neither compiled nor recorded; the median of some
steps after one. Reformer: chunks of 64, 2 rounds, m = 2 L / buckets, reversible, feed-forward in pieces of 16,384 tokens.
Transformer-XL reads a long text in segments of 512 with a memory of 512, a step each: its memory does not grow with the text. A
line of JSON for each row as it is measured; one that does not fit into memory, or into the time that is left, says so.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from seqloom.batch import Excerpt, ragged
from seqloom.models.gpt2 import Gpt2
from seqloom.models.reformer import Reformer
from seqloom.models.transformer_xl import TransformerXl
from seqloom.objectives.next_token import NextToken
from seqloom.training.optim import OptimConfig, build_optimizer, step

TOKENS, VOCABULARY, SEGMENT = 16_384, 50_304, 512


def build(row: str, length: int, sizes: dict[str, Any]) -> Any:
    shared = {"vocab_size": VOCABULARY, "dropout": 0.0} | {"dim": 768, "num_layers": 12, "num_heads": 12} | sizes
    if row == "reformer":
        rows = 1 << (length.bit_length() - 1) // 2
        half = max(2, 1 << ((2 * length // 64).bit_length() - 1) // 2)
        own = {"axial": (rows, length // rows), "max_len": length, "chunk": 64, "rounds": 2, "ffn_chunk": TOKENS}
        return Reformer(Reformer.Config(**shared, **own, buckets=(half, half)))
    if row == "transformer-xl":
        return TransformerXl(TransformerXl.Config(**shared, mem_len=SEGMENT, norm="pre"))
    return Gpt2(Gpt2.Config(**shared, max_len=length, window=256 if row == "window" else None))


def one_step(learner: NextToken, optimizer: Any, ids: torch.Tensor, rows: int, length: int) -> float:
    """All tokens once: one batch, or segments one after the other with a carried memory."""
    device, carry, loss = ids.device, learner.start(rows), None
    text, targets = ids[:-1].view(rows, length), ids[1:].view(rows, length)
    part = min(SEGMENT, length) if learner.backbone.carries else length
    for begin in range(0, length, part):
        some = slice(begin, begin + part)
        batch = ragged(text[:, some].flatten(), torch.full((rows,), part, device=device), part)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = learner(Excerpt(batch, targets[:, some].flatten()), carry)
        loss.total.backward()
        carry = loss.carry
        step(optimizer, loss.count, clip=1.0)
    assert loss is not None
    return float(loss.total.detach()) / int(loss.count)  # waits for the device


def measure(row: str, length: int, steps: int, device: torch.device, sizes: dict[str, Any]) -> dict[str, Any]:
    rows = max(1, TOKENS // length)
    torch.manual_seed(0)
    with device:
        model = build(row, length, sizes)
        learner = NextToken(model, NextToken.Config(tie=row != "reformer")).to(device).train()
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    ids = torch.randint(0, VOCABULARY, (rows * length + 1,), device=device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds, loss = [], 0.0
    for number in range(1 + steps):
        torch.manual_seed(number)
        started = time.perf_counter()
        loss = one_step(learner, optimizer, ids, rows, length)
        seconds.append(time.perf_counter() - started)
    return {
        "row": row, "length": length, "sequences": rows, "tokens_per_second": rows * length / statistics.median(seconds[1:]),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None, "loss": loss,
        "parameters": learner.size(),
    }  # fmt: skip


def attempt(row: str, length: int, settings: argparse.Namespace, device: torch.device, until: float) -> dict[str, Any]:
    named = {"row": row, "length": length}
    if time.monotonic() > until:
        return named | {"skipped": "no time left"}
    try:
        return measure(row, length, settings.steps, device, json.loads(settings.sizes))
    except torch.OutOfMemoryError:
        return named | {"skipped": "out of memory"}
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()


def picture(rows: list[dict[str, Any]]) -> str:
    from seqloom.charts import Curve, as_file, chart

    found = [row for row in rows if row.get("peak_gib") is not None]
    names = dict.fromkeys(row["row"] for row in found)
    curves = [Curve(name, [(row["length"], row["peak_gib"]) for row in found if row["row"] == name]) for name in names]
    return as_file(chart("tokens of a text", "peak memory, GiB", curves, log_x=True, log_y=True, better="lower"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 4096, 16_384, 65_536])
    parser.add_argument("--rows", nargs="*", default=["window", "reformer", "transformer-xl", "gpt2"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=85.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", dest="sizes", default="{}", help="sizes of the models as JSON, for a trial on a CPU")
    settings = parser.parse_args()
    device, until, found = torch.device(settings.device), time.monotonic() + settings.seconds, []
    print(json.dumps({"torch": torch.__version__, "device": settings.device}), flush=True)
    for length in settings.lengths:
        for row in settings.rows:
            found.append(attempt(row, length, settings, device, until))
            print(json.dumps(found[-1]), flush=True)
    if settings.out is not None:
        settings.out.write_text("".join(json.dumps(row) + "\n" for row in found))
    if settings.svg is not None:
        settings.svg.write_text(picture(found))


if __name__ == "__main__":
    main()
