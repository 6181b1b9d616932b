"""What statistics of attention heads cost beside a plain pass over the same texts.

OMP_NUM_THREADS=1 python benchmarks/inside/statistics_cost.py [--device cuda] [--dim 256] [--layers 6]

On a CPU it is the time of the processor that counts, so that other work on the machine changes little.
"""

import argparse
import statistics
import time
from typing import Any

import torch

from seqloom.analyse.attention import measure_heads, spread
from seqloom.batch import ragged
from seqloom.models import model_class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bert")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    cls: Any = model_class(options.model)
    sizes = {"vocab_size": 8000, "dim": options.dim, "num_layers": options.layers, "num_heads": options.dim // 64}
    model = cls(cls.Config(**sizes, max_len=options.length)).to(options.device).eval()
    lengths = torch.randint(options.length // 2, options.length + 1, (options.texts,))
    batch = ragged(torch.randint(8000, (int(lengths.sum()),)), lengths)
    batch = type(batch)(*(each.to(options.device) if isinstance(each, torch.Tensor) else each for each in batch))
    rows = spread(lengths.numpy(), lengths.numpy() - 2, 1).to(options.device)
    marks = torch.zeros(8000, dtype=torch.bool, device=options.device)

    def plain() -> None:
        with torch.no_grad():
            model(batch)

    def measured() -> None:
        measure_heads(model, batch, rows, (1, 1), marks)

    def whole() -> None:
        with torch.no_grad():
            model(batch, maps=True)

    clock = time.perf_counter if options.device == "cuda" else time.process_time
    times: dict[str, list[float]] = {"plain": [], "statistics": [], "whole maps": []}
    for repeat in range(options.repeats + 2):
        for name, call in (("plain", plain), ("statistics", measured), ("whole maps", whole)):
            begun = clock()
            call()
            if options.device == "cuda":
                torch.cuda.synchronize()
            if repeat >= 2:
                times[name].append(clock() - begun)
    base = statistics.median(times["plain"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"{name:12} {1000 * middle:8.1f} ms  {100 * (middle / base - 1):+6.1f}%")


if __name__ == "__main__":
    main()
