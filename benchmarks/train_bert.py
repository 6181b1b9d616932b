"""Training BERT base by masked tokens on one GPU: ours against transformers of the same shape, compiled, in one run.

    python benchmarks/train_bert.py [ROW ...] [--steps 15] [--turns 2] [--out results.jsonl]

    256x128     full batches of 256 × 128 tokens
    64x512      full batches of 64 × 512
    ragged      64 documents of log-normal length (median about 100, at most 512): ours in one row, filled up to the next
                multiple of 1,024 tokens; the peer pads each batch to its longest, rounded up to a multiple of 64 as its
                collators offer, so that two shapes are compiled (with dynamic shapes that did not end within 100 s). Real
                tokens a second

Random tokens, V 30,522, 15% hidden, bf16 autocast over fp32 weights, fused AdamW, dropout 0; the median of 15 steps after 6
warm-ups; ours and the peer take turns. Ours is what `pretrain` runs: compiled and recorded, the gradient measured and clipped.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from train_gpu import CUDA, commit, measure

from seqloom.batch import IGNORE, ragged, to_device
from seqloom.models.bert import Bert
from seqloom.objectives.masked import Masked, MaskedLM
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.optim import OptimConfig, build_optimizer, step

V = 30_522
SHAPES = {"256x128": (256, 128), "64x512": (64, 512), "ragged": (64, 512)}


def lengths_of(row: str) -> list[Tensor]:
    n, length = SHAPES[row]
    if row != "ragged":
        return [torch.full((n,), length)] * 4
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, generator=generator).mul(0.8).add(4.6).exp().long().clamp(8, length) for _ in range(4)]


def real_tokens(row: str) -> float:
    return sum(int(lengths.sum()) for lengths in lengths_of(row)) / 4


def ours(row: str) -> Callable[[], Tensor]:
    n, length = SHAPES[row]
    learner = MaskedLM(
        Bert(Bert.Config(vocab_size=V, max_len=length, dropout=0.0, pooler=False)), MaskedLM.Config()
    ).to(CUDA)
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    differentiate = Gradient(learner, "bf16", CUDA, worth_compiling(learner, CUDA), worth_recording(learner, CUDA))
    most = max(int(lengths.sum()) for lengths in lengths_of(row))
    most = n * length if row != "ragged" else -(-most // 1024) * 1024
    generator = torch.Generator().manual_seed(1)
    examples = []
    for lengths in lengths_of(row):
        real = int(lengths.sum())
        filler = [min(length, most - real - i) for i in range(0, most - real, length)]
        sizes = torch.cat((lengths, torch.tensor(filler, dtype=torch.long)))
        sizes = (
            torch.cat((sizes, torch.zeros(n + most // length + 1 - len(sizes), dtype=torch.long)))
            if row == "ragged"
            else sizes
        )
        batch = ragged(torch.randint(5, V, (most,), generator=generator), sizes, length)
        where = torch.randperm(real, generator=generator)[: round(0.15 * real)].sort().values
        targets = batch.ids[where]
        spare = round(0.15 * most) + 8 - len(where)
        where, targets = (
            torch.cat((where, where.new_zeros(spare))),
            torch.cat((targets, targets.new_full((spare,), IGNORE))),
        )
        labels = torch.full((len(sizes),), IGNORE)
        text = torch.arange(most) < real
        example = Masked(batch, where, targets, labels, real=text, text=text)
        examples.append(to_device(example, CUDA))
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        loss = differentiate(examples[count % 4], None)
        step(optimizer, loss.count, clip=1.0)
        return loss.total / loss.count

    return train


def peer(row: str) -> Callable[[], Tensor]:
    from transformers import BertConfig, BertForMaskedLM

    n, length = SHAPES[row]
    options = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attn_implementation": "sdpa"}
    model: Any = BertForMaskedLM(BertConfig(vocab_size=V, max_position_embeddings=length, **options)).to(CUDA).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model, dynamic=False)
    generator = torch.Generator().manual_seed(1)
    batches = []
    for lengths in lengths_of(row):
        longest = -(-int(lengths.max()) // 64) * 64
        ids = torch.randint(5, V, (n, longest), generator=generator)
        mask = torch.arange(longest) < lengths[:, None]
        hidden = (torch.rand(n, longest, generator=generator) < 0.15) & mask
        batches.append([part.to(CUDA) for part in (ids, mask.long(), ids.where(hidden, -100))])
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        ids, mask, labels = batches[count % 4]
        given = {} if row != "ragged" else {"attention_mask": mask}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(input_ids=ids, labels=labels, **given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for row in arguments.rows or SHAPES:
        found: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
        for _ in range(arguments.turns):
            for name, make in (("ours", ours), ("peer", peer)):
                got = measure(lambda make=make, row=row: make(row), arguments.steps)  # type: ignore[misc]
                found[name].append(got)
                print(
                    f"{row:8} {name:5} {real_tokens(row) / got['seconds']:,.0f} tokens/s  {got['gb']:.1f} GB",
                    flush=True,
                )
        best = {name: min(each["seconds"] for each in some) for name, some in found.items()}
        print(f"{row:8} ratio {best['peer'] / best['ours']:.3f}x", flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps({"row": row, "commit": commit(), "torch": torch.__version__, **found}) + "\n")


if __name__ == "__main__":
    main()
