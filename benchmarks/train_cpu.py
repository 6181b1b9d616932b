"""Training a 6 × 256 GPT-2 on the CPU: ours against transformers' eager model of the same shape, in one run.

    python benchmarks/train_cpu.py [--rounds 12] [--json]

4 heads, 8,192 tokens of vocabulary, 32 sequences of 128, dropout 0, fp32, the same fused AdamW; forward, backward and
step. The two take turns, so that a busy machine slows both; the figure is the median of the rounds. Memory is the peak
of each in a process of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

V, D, LAYERS, HEADS, N, L = 8192, 256, 6, 4, 32, 128


def ours() -> Callable[[], None]:
    from seqloom.batch import Excerpt, ragged
    from seqloom.models.gpt2 import Gpt2
    from seqloom.objectives.next_token import NextToken
    from seqloom.training.optim import OptimConfig, build_optimizer, step

    config = Gpt2.Config(vocab_size=V, dim=D, num_layers=LAYERS, num_heads=HEADS, max_len=L, dropout=0.0)
    learner = NextToken(Gpt2(config), NextToken.Config())
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    lengths = torch.full((N,), L)

    def train() -> None:
        tokens = torch.randint(0, V, (N, L + 1))
        batch = ragged(tokens[:, :-1].reshape(-1), lengths, L)
        loss = learner(Excerpt(batch, tokens[:, 1:].reshape(-1)))
        loss.total.backward()
        step(optimizer, loss.count, clip=1.0)

    return train


def peer() -> Callable[[], None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=V, n_embd=D, n_layer=LAYERS, n_head=HEADS, n_positions=L, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    config.use_cache = False
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def train() -> None:
        tokens = torch.randint(0, V, (N, L))
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train


def resident(field: str) -> float:
    """MB of this process now (VmRSS) or at its peak (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


JOBS = {"seqloom": ours, "transformers": peer}


def peak_memory(name: str) -> float:
    """MB that training needs on top of the imports, in a fresh process."""
    command = [sys.executable, __file__, "--memory-of", name]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", choices=JOBS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.memory_of:
        train = JOBS[arguments.memory_of]()
        before = resident("VmRSS")
        for _ in range(3):
            train()
        print(resident("VmHWM") - before)
        return
    jobs = {name: make() for name, make in JOBS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for round_ in range(arguments.rounds + 2):
        for name, train in jobs.items():
            start = time.perf_counter()
            train()
            if round_ >= 2:  # two to warm up
                seconds[name].append(time.perf_counter() - start)
    rates = {name: N * L / statistics.median(times) for name, times in seconds.items()}
    memory = {name: peak_memory(name) for name in JOBS}
    if arguments.json:
        print(json.dumps({"tokens_per_second": rates, "peak_mb": memory}))
    for name in JOBS:
        print(f"{name:14} {rates[name]:9,.0f} tokens/s   {memory[name]:7.0f} MB", file=sys.stderr)
    print(f"ratio          {rates['seqloom'] / rates['transformers']:.2f}x", file=sys.stderr)


if __name__ == "__main__":
    main()
