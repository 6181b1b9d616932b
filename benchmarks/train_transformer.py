"""Training an encoder–decoder on one GPU: ours against transformers' of the same shape, compiled, in one run.

    python benchmarks/train_transformer.py [--model transformer|bart] [--steps 15] [--pairs 512] [--length 48] [--out FILE]

transformer is Transformer base (61M parameters, V 32,000) against Marian, bart is BART base (139M, V 50,265) by denoising.
Random tokens, bf16 autocast over fp32 weights, fused AdamW, dropout 0, no label smoothing; the median of 15 steps after 6
warm-ups; ours and the peer take turns twice. Ours is what `train` and `pretrain` run: compiled and recorded, the gradient
measured and clipped.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from train_gpu import CUDA, commit, measure

from seqloom.batch import Pair, ragged, to_device
from seqloom.models.bart import Bart
from seqloom.models.transformer import Transformer
from seqloom.objectives.denoising import Denoising
from seqloom.tasks.translate import Translate
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.optim import OptimConfig, build_optimizer, step

LAYERS = 6


class Shape(NamedTuple):
    v: int
    dim: int
    heads: int


SHAPES = {"transformer": Shape(32_000, 512, 8), "bart": Shape(50_265, 768, 12)}


def tokens(model: str, n: int, length: int) -> list[Tensor]:
    generator = torch.Generator(CUDA).manual_seed(0)
    shape = (n, 2 * length + 1)
    return [torch.randint(1, SHAPES[model].v, shape, device=CUDA, generator=generator) for _ in range(4)]


def build(model: str, length: int) -> Any:
    if model == "bart":
        return Denoising(Bart(Bart.Config(max_len=length, dropout=0.0)), Denoising.Config())
    config = Transformer.Config(vocab_size=SHAPES[model].v, max_len=length, dropout=0.0, activation="swish")
    return Translate(Transformer(config), Translate.Config(label_smoothing=0.0))


def ours(model: str, n: int, length: int) -> Callable[[], Tensor]:
    learner = build(model, length).to(CUDA)
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
        for rows in tokens(model, n, length)
    ]
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        loss = differentiate(examples[count % 4], None)
        step(optimizer, loss.count, clip=1.0)
        return loss.total / loss.count

    return train


def build_peer(model: str, length: int) -> Any:
    import transformers

    v, dim, heads = SHAPES[model]
    sizes: dict[str, Any] = {
        "vocab_size": v, "d_model": dim, "encoder_layers": LAYERS, "decoder_layers": LAYERS,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": 4 * dim,
        "decoder_ffn_dim": 4 * dim, "max_position_embeddings": length, "dropout": 0.0, "pad_token_id": 0,
        "decoder_start_token_id": 0, "eos_token_id": 0, "use_cache": False, "attn_implementation": "sdpa",
    }  # fmt: skip
    if model == "bart":
        return transformers.BartForConditionalGeneration(transformers.BartConfig(activation_function="gelu", **sizes))
    config = transformers.MarianConfig(activation_function="swish", scale_embedding=True, **sizes)
    return transformers.MarianMTModel(config)


def peer(name: str, n: int, length: int) -> Callable[[], Tensor]:
    model = build_peer(name, length).to(CUDA).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled, batches = torch.compile(model), tokens(name, n, length)
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
    parser.add_argument("--model", choices=SHAPES, default="transformer")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--pairs", type=int, default=512)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    model, n, length = arguments.model, arguments.pairs, arguments.length
    torch.set_float32_matmul_precision("high")
    found: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for _ in range(arguments.turns):
        for name, make in (("ours", ours), ("peer", peer)):
            got = measure(lambda make=make: make(model, n, length), arguments.steps)  # type: ignore[misc]
            found[name].append(got)
            print(f"{name:5} {n * length / got['seconds']:,.0f} target tokens/s  {got['gb']:.1f} GB  {got}", flush=True)
    best = {name: min(each["seconds"] for each in rows) for name, rows in found.items()}
    print(f"ratio {best['peer'] / best['ours']:.3f}x")
    if arguments.out:
        row = {"row": f"{model}-base", "commit": commit(), "torch": torch.__version__, **found}
        arguments.out.write_text(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
