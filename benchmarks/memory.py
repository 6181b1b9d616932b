"""Evaluation with a memory against windows that are read anew for every token: seconds a token of the same model.

    python benchmarks/memory.py [--recipe transformer-xl-small] [--seen 800 3200] [--device cpu]

Every token sees as many tokens either way. With the memory a text of twice that length is read once, from start to end; the
windows move on by one token (`evaluate --max-len N --stride 1`), and a few of them are timed. Random weights and tokens.
"""

import argparse
import json
import time

import numpy as np
import torch

from seqloom.evaluate.perplexity import token_losses
from seqloom.evaluate.score import Texts
from seqloom.recipes.library import find_recipe

VOCAB = 8192
WINDOWS = 4  # that are timed, after one that is not


def seconds(work, device: torch.device) -> tuple[float, int]:
    """How long it takes, and how many tokens come out of it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    count = sum(len(where) for where, _ in work())
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began, count


@torch.no_grad()
def measure(recipe: str, seen: int, device: torch.device) -> dict[str, object]:
    torch.manual_seed(0)
    learner = find_recipe(recipe, settings=[f"model.eval_len={seen}"]).learner(VOCAB).to(device).eval()
    ids = np.random.default_rng(0).integers(0, VOCAB, 2 * seen)
    texts = Texts([ids], 0)
    (batch,), _ = token_losses(learner, texts, texts.offsets, device)
    seconds(token_losses(learner, Texts([ids[:200]], 0), np.array([0, 201]), device)[0][0], device)  # warm-up
    once, count = seconds(batch, device)
    windows, _ = token_losses(learner, texts, texts.offsets, device, stride=1, max_len=seen, batch_tokens=seen)
    each = [seconds(window, device) for window in windows[1 : 2 + WINDOWS]][1:]
    assert all(counted == 1 for _, counted in each)
    anew = sum(took for took, _ in each) / len(each)
    return {
        "recipe": recipe,
        "tokens_seen": seen,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "ms_a_token_with_memory": 1000 * once / count,
        "ms_a_token_with_windows": 1000 * anew,
        "times": anew * count / once,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="transformer-xl-small")
    parser.add_argument("--seen", type=int, nargs="+", default=[800, 3200])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    for seen in options.seen:
        print(json.dumps(measure(options.recipe, seen, torch.device(options.device))), flush=True)


if __name__ == "__main__":
    main()
