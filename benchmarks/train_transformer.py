"""Training Transformer base on one GPU: ours against transformers' Marian of the same shape, compiled, in one run.

    python benchmarks/train_transformer.py [--steps 15] [--pairs 512] [--length 48] [--out results.jsonl]

Random tokens, 61M parameters, V 32,000, bf16 autocast over fp32 weights, fused AdamW, dropout 0, no label smoothing; the
median of 15 steps after 6 warm-ups; ours and the peer take turns twice. Ours is what `train` runs: compiled and recorded,
the gradient measured and clipped.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from train_gpu import CUDA, commit, measure

from seqloom.batch import Pair, ragged, to_device
from seqloom.models.transformer import Transformer
from seqloom.tasks.translate import Translate
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.optim import OptimConfig, build_optimizer, step

V, D, LAYERS, HEADS = 32_000, 512, 6, 8


def tokens(n: int, length: int) -> list[Tensor]:
    generator = torch.Generator(CUDA).manual_seed(0)
    return [torch.randint(1, V, (n, 2 * length + 1), device=CUDA, generator=generator) for _ in range(4)]


def ours(n: int, length: int) -> Callable[[], Tensor]:
    config = Transformer.Config(vocab_size=V, max_len=length, dropout=0.0, activation="swish")
    learner = Translate(Transformer(config), Translate.Config(label_smoothing=0.0)).to(CUDA)
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    recorded = worth_recording(learner, CUDA)
    differentiate = Gradient(learner, "bf16", CUDA, worth_compiling(learner, CUDA), recorded)
    frame = to_device(ragged(torch.zeros(n * length, dtype=torch.long), torch.full((n,), length), length), CUDA)
    examples = [
        Pair(
            frame._replace(ids=rows[:, :length].reshape(-1)),
            frame._replace(ids=rows[:, length:-1].reshape(-1)),
            rows[:, length + 1 :].reshape(-1),
        )
        for rows in tokens(n, length)
    ]
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        loss = differentiate(examples[count % 4], None)
        step(optimizer, loss.count, clip=1.0)
        return loss.total / loss.count

    return train


def peer(n: int, length: int) -> Callable[[], Tensor]:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=V, d_model=D, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=4 * D, decoder_ffn_dim=4 * D, max_position_embeddings=length,
        dropout=0.0, activation_function="swish", scale_embedding=True, pad_token_id=0, decoder_start_token_id=0,
        eos_token_id=0, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    model: Any = MarianMTModel(config).to(CUDA).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled, batches = torch.compile(model), tokens(n, length)
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        rows = batches[count % 4]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            parts = (rows[:, :length], rows[:, length:-1], rows[:, length + 1 :])
            source, read, wanted = (part.contiguous() for part in parts)
            loss = compiled(input_ids=source, decoder_input_ids=read, labels=wanted).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    n, length = arguments.pairs, arguments.length
    torch.set_float32_matmul_precision("high")
    found: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for _ in range(arguments.turns):
        for name, make in (("ours", ours), ("peer", peer)):
            got = measure(lambda make=make: make(n, length), arguments.steps)  # type: ignore[misc]
            found[name].append(got)
            print(f"{name:5} {n * length / got['seconds']:,.0f} target tokens/s  {got['gb']:.1f} GB  {got}", flush=True)
    best = {name: min(each["seconds"] for each in rows) for name, rows in found.items()}
    print(f"ratio {best['peer'] / best['ours']:.3f}x")
    if arguments.out:
        row = {"row": "transformer-base", "commit": commit(), "torch": torch.__version__, **found}
        arguments.out.write_text(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
