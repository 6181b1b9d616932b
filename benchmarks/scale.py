"""What published sizes need on several GPUs, computed and not measured: memory, and what adding up gradients costs.

    python benchmarks/scale.py [TOKENS_PER_SECOND_OF_GPT2_SMALL]

Operations of a step go with 6 × parameters × tokens; a step has 32,768 tokens on each GPU. Gradients are added up in fp32 after
the last backward pass, so that nothing overlaps: 2 (N - 1) / N × 4 bytes a parameter pass through the slowest link of a ring.
Links are taken at 400 GB/s (NVLink), at three quarters of 8 × 400 Gb/s, and at 100 Gb/s.
"""

import sys

from seqloom.recipes.library import find_recipe
from seqloom.weights import shapes_only

SIZES = [
    "gpt2-small",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "bert-base",
    "bert-large",
    "albert-xlarge",
    "electra-large",
]
VOCABULARY = {"gpt2": 50257, "bert": 30522, "electra": 30522}
MEASURED = 515_382.0  # tokens a second, GPT-2 of 124M, one H200 (docs/results/2026-11-15-speed.md)
REFERENCE = 124.4e6
TOKENS = 32_768
LINKS = {
    "8 GPUs, NVLink": (8, 400e9),
    "64 GPUs, 8 × 400 Gb/s a node": (64, 300e9),
    "64 GPUs, 100 Gb/s a node": (64, 12.5e9),
}


def main() -> None:
    speed = float(sys.argv[1]) if len(sys.argv) > 1 else MEASURED
    print("| size | parameters | weights, gradients, Adam | a step | " + " | ".join(LINKS) + " |")
    print("|---|---|---|---|" + "---|" * len(LINKS))
    for name in SIZES:
        with shapes_only():
            learner = find_recipe(name).learner(VOCABULARY[name.split("-")[0]])
        parameters = sum(parameter.numel() for parameter in learner.parameters())
        step = TOKENS / speed * parameters / REFERENCE
        cells = [f"{parameters / 1e6:,.0f}M", f"{16 * parameters / 1e9:.1f} GB", f"{step * 1000:.0f} ms"]
        for gpus, rate in LINKS.values():
            added = 2 * (gpus - 1) / gpus * 4 * parameters / rate
            cells.append(f"+{added * 1000:.0f} ms, {step / (step + added):.0%}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
