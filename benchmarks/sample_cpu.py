"""Sampling from a 6 × 256 GPT-2 on the CPU: ours against transformers' generate, in one run, with the same weights' shape.

    python benchmarks/sample_cpu.py [--rounds 5]

4 heads, 8,192 tokens of vocabulary, prompt of 32 tokens, 128 new ones, greedy, batch 1 and 16, fp32. The two take turns;
the figure is the median of the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

V, D, LAYERS, HEADS, PROMPT, NEW = 8192, 256, 6, 4, 32, 128


def ours(n: int) -> Callable[[], None]:
    from seqloom.decode.rules import SampleConfig
    from seqloom.decode.sample import sample
    from seqloom.decode.step import Stepper
    from seqloom.models.gpt2 import Gpt2
    from seqloom.objectives.next_token import NextToken

    config = Gpt2.Config(vocab_size=V, dim=D, num_layers=LAYERS, num_heads=HEADS, max_len=256, dropout=0.0)
    learner = NextToken(Gpt2(config), NextToken.Config()).eval()
    stepper = Stepper(learner.backbone, learner.softmax)
    prompts = torch.randint(1, V, (n, PROMPT)).tolist()

    def run() -> None:
        # token 0 ends a text and is banned: every sample has its full length, as on the other side
        made = list(sample(stepper, prompts, SampleConfig(temperature=0, max_new=NEW), 0, 0, [0]))
        assert len(made) == n * NEW

    return run


def peer(n: int) -> Callable[[], None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=V, n_embd=D, n_layer=LAYERS, n_head=HEADS, n_positions=256)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = 0
    model = GPT2LMHeadModel(config).eval()
    prompts = torch.randint(1, V, (n, PROMPT))
    mask = torch.ones_like(prompts)

    def run() -> None:
        out = model.generate(
            prompts, attention_mask=mask, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW, use_cache=True
        )
        assert out.shape == (n, PROMPT + NEW)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    for n in (1, 16):
        jobs = {"seqloom": ours(n), "transformers": peer(n)}
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for round_ in range(rounds + 1):
            for name, job in jobs.items():
                start = time.perf_counter()
                job()
                if round_:
                    seconds[name].append(time.perf_counter() - start)
        rates = {name: n * NEW / statistics.median(times) for name, times in seconds.items()}
        for name, rate in rates.items():
            print(f"batch {n:3}  {name:14} {rate:9,.0f} new tokens/s")
        print(f"batch {n:3}  ratio          {rates['seqloom'] / rates['transformers']:.2f}x")


if __name__ == "__main__":
    main()
