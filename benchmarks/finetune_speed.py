"""Fine-tuning on sentences of unequal lengths on one GPU: ours against the inner loop of transformers' Trainer, in one run.

    python benchmarks/finetune_speed.py [ROW ...] [--steps 40] [--turns 2] [--out results.jsonl]

    base        BERT base (110M), 32 sentences a batch
    mini        256 × 4 (Turc et al.'s mini), 32 sentences a batch: what waits for its host

Sentences have the lengths of movie reviews (log-normal, median 19, at most 66 tokens), two classes, random tokens of 30,522,
bf16 autocast over fp32 weights, fused AdamW, dropout 0.1, gradients clipped at 1; sixteen batches, again and again. Ours, as
`finetune` runs it: one row of tokens filled up to a multiple of 256, compiled and recorded. The peer does in a step what Trainer
does with its defaults: batches padded to their longest, the model as it is, forward, backward, clip, AdamW, a linear rate;
--compile compiles it (dynamic shapes), which Trainer leaves to the user. Sentences a second.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from train_gpu import CUDA, commit, measure

from seqloom.batch import to_device
from seqloom.batches.labelled import Row, batch_of
from seqloom.models.bert import Bert
from seqloom.tasks.classify import Classify
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.optim import OptimConfig, build_optimizer, step

V, SIZE, BATCHES = 30_522, 32, 16
SHAPES = {"base": {}, "mini": {"dim": 256, "num_layers": 4, "num_heads": 4}}


def sentences() -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(2.95, 0.5, (BATCHES, SIZE))), 4, 66).astype(int)
    return [[rng.integers(5, V, length) for length in batch] for batch in lengths]


def labels() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, (BATCHES, SIZE))


def ours(row: str) -> Callable[[], Tensor]:
    torch.manual_seed(0)
    backbone = Bert(Bert.Config(vocab_size=V, **SHAPES[row]))
    learner = Classify(backbone, Classify.Config(labels=("0", "1"))).to(CUDA).train()
    optimizer = build_optimizer(OptimConfig(lr=2e-5), learner)
    differentiate = Gradient(learner, "bf16", CUDA, worth_compiling(learner, CUDA), worth_recording(learner, CUDA))
    examples = [
        batch_of(
            [[Row(ids, None, np.ones(len(ids), bool), np.int64(label))] for ids, label in zip(*both, strict=True)], 72
        )
        for both in zip(sentences(), labels(), strict=True)
    ]
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        loss = differentiate(to_device(examples[count % BATCHES], CUDA), None)
        step(optimizer, loss.count, clip=1.0)
        return loss.total / loss.count

    return train


def peer(row: str, compiled: bool) -> Callable[[], Tensor]:
    from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

    sizes = SHAPES[row]
    dim = sizes.get("dim", 768)
    config = BertConfig(
        vocab_size=V, hidden_size=dim, num_hidden_layers=sizes.get("num_layers", 12), intermediate_size=4 * dim,
        num_attention_heads=sizes.get("num_heads", 12), attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    plain: Any = BertForSequenceClassification(config).to(CUDA).train()
    model = torch.compile(plain, dynamic=True) if compiled else plain
    optimizer = torch.optim.AdamW(plain.parameters(), lr=2e-5, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, 100_000)
    batches = []
    for texts, classes in zip(sentences(), labels(), strict=True):
        longest = max(map(len, texts))
        ids = torch.zeros(SIZE, longest, dtype=torch.long)
        mask = torch.zeros(SIZE, longest, dtype=torch.long)
        for i, text in enumerate(texts):
            ids[i, : len(text)], mask[i, : len(text)] = torch.from_numpy(text), 1
        batches.append((ids, mask, torch.from_numpy(classes)))
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        ids, mask, classes = to_device(batches[count % BATCHES], CUDA)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids, attention_mask=mask, labels=classes).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


def warmed(train: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Every shape has been seen twice, and what is recorded is recorded."""
    for _ in range(2 * BATCHES):
        train()
    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    for row in arguments.rows or SHAPES:
        best = {}
        for _ in range(arguments.turns):
            makers = {"seqloom": lambda row=row: ours(row), "peer": lambda row=row: peer(row, arguments.compile)}
            for name, make in makers.items():
                found = measure(lambda make=make: warmed(make()), arguments.steps)  # type: ignore[misc]
                best[name] = min(best.get(name, found), found, key=lambda each: each["seconds"])
                print(
                    f"{row:6} {name:8} {SIZE / found['seconds']:10,.0f} sentences/s  {found['gb']:.2f} GB", flush=True
                )
        ratio = best["peer"]["seconds"] / best["seqloom"]["seconds"]
        print(f"{row:6} ratio    {ratio:10.3f}x", flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as stream:
                stream.write(json.dumps({"row": row, "commit": commit(), "ratio": ratio, **best}) + "\n")


if __name__ == "__main__":
    main()
