"""The copy task 0w0w (Kitaev et al., 2020, table 2) in small: trained with full attention or hashes, evaluated with others.

    python benchmarks/copy_task.py [--steps 500] [--seeds 1] [--out results.jsonl]

One layer, causal order, a vector for each place (one row of axial ones: of several, one layer cannot find the same column in
another row at the borders of rows). Accuracy is the share of tokens of the second half that are the likeliest next token. The
same weights are asked with full attention (one bucket, as many tokens as there are) and with 1, 2, 4 and 8 rounds.
A line of JSON for each.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from seqloom.batch import IGNORE, Excerpt, ragged
from seqloom.blocks.lsh import LshAttention
from seqloom.models.reformer import Reformer
from seqloom.objectives.next_token import NextToken
from seqloom.randomness import derive_seed
from seqloom.text.synthetic import copy_texts
from seqloom.training.optim import OptimConfig, build_optimizer, step


def excerpt(rows: Any, half: int) -> Excerpt:
    """Texts, and the targets of their second halves alone."""
    ids = torch.from_numpy(rows)
    targets = torch.cat((ids[:, 1:], torch.full((len(rows), 1), IGNORE)), 1)
    targets[:, : half - 1] = IGNORE
    return Excerpt(ragged(ids.flatten(), torch.full((len(rows),), ids.shape[1]), ids.shape[1]), targets.flatten())


def use(model: Reformer, rounds: int | None, settings: argparse.Namespace, length: int) -> None:
    """Has the layers look with so many rounds, in training and evaluation; None: at everything."""
    for module in model.modules():
        if isinstance(module, LshAttention):
            module.buckets = (1,) if rounds is None else (settings.buckets,)
            module.chunk = length if rounds is None else settings.chunk
            module.rounds = module.eval_rounds = rounds or 1
            module.fixed = module.draw(module.rounds, 0)


@torch.no_grad()
def accuracy(learner: NextToken, example: Excerpt) -> float:
    hidden = learner.eval().backbone(example.batch).hidden
    known = example.targets != IGNORE
    guessed = (hidden[known] @ learner.softmax.weight.T).argmax(-1)
    return float((guessed == example.targets[known]).float().mean())


def train(rounds: int | None, seed: int, settings: argparse.Namespace) -> tuple[NextToken, float]:
    half = settings.length + 1
    torch.manual_seed(seed)
    model = Reformer(
        Reformer.Config(
            vocab_size=settings.symbols + 1, dim=settings.dim, num_layers=1, num_heads=4, max_len=2 * half,
            axial=(1, 2 * half), axial_dims=(1, settings.dim - 1), buckets=(settings.buckets,), chunk=settings.chunk, dropout=0.0,
        )
    )  # fmt: skip
    use(model, rounds, settings, 2 * half)
    learner = NextToken(model, NextToken.Config(tie=False)).train()
    optimizer = build_optimizer(OptimConfig(lr=settings.rate), learner)
    last = 0.0
    for number in range(settings.steps):
        rows = copy_texts(settings.batch, settings.length, settings.symbols, derive_seed(seed, number))
        torch.manual_seed(derive_seed(seed, number))
        loss = learner(excerpt(rows, half))
        loss.total.backward()
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * min(1.0, (number + 1) / 100, 2 * (1 - number / settings.steps))
        step(optimizer, loss.count, clip=1.0)
        last = float(loss.total.detach() / loss.count)
        if number % 100 == 99 and settings.show:
            print(rounds, number + 1, round(last, 3), flush=True)
    return learner, last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {
        "steps": 500, "seeds": 1, "length": 31, "symbols": 31, "dim": 64, "batch": 32, "buckets": 16, "chunk": 4,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--trained", nargs="*", default=["full", "1", "2", "4"], help="full, or numbers of rounds")
    parser.add_argument("--show", action="store_true", help="print the loss on the way")
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    half, lines = settings.length + 1, []
    held_out = excerpt(copy_texts(500, settings.length, settings.symbols, 10**6), half)
    for seed in range(settings.seeds):
        for trained in settings.trained:
            began = time.monotonic()
            learner, loss = train(None if trained == "full" else int(trained), seed, settings)
            found: dict[str, Any] = {"trained": trained, "seed": seed, "loss": round(loss, 4)}
            for rounds in (None, 8, 4, 2, 1):
                use(learner.backbone, rounds, settings, 2 * half)  # type: ignore[arg-type]
                found["full" if rounds is None else f"rounds {rounds}"] = round(accuracy(learner, held_out), 4)
            found["seconds"] = round(time.monotonic() - began, 1)
            lines.append(json.dumps(found))
            print(lines[-1], flush=True)
    if settings.out is not None:
        settings.out.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
