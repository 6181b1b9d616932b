"""Training Transformer-XL on one GPU: ours against the published equations written plainly and compiled, in one run.

    python benchmarks/train_memory.py [ROW ...] [--steps 15] [--streams 60] [--out results.jsonl]

Random tokens by Zipf's law, segments of 150 after a memory of 150, bf16 autocast over fp32 weights, fused AdamW, dropout 0; the
median of 15 steps after 6 warm-ups; ours and the peer take turns twice. Ours is what `pretrain` runs: compiled and recorded as it
decides, the gradient measured and clipped, the memory carried. The peer computes both products of the attention in full, shifts
the second, masks and normalises, as the authors' code does, with torch's own adaptive softmax, and does not clip.

    standard   transformer-xl-standard: 16 layers of 410, 10 heads, V 267,735 with an adaptive softmax
    body       the same layers with V 8,192 and a plain softmax, where most of the time is attention
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from train_gpu import CUDA, Train, commit, measure

from seqloom.batch import Excerpt, ragged, to_device
from seqloom.blocks.ranks import default_cutoffs
from seqloom.blocks.relative import sinusoids
from seqloom.models.transformer_xl import TransformerXl
from seqloom.objectives.next_token import NextToken
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.loop import restore_carry
from seqloom.training.optim import OptimConfig, build_optimizer, step

DIM, LAYERS, HEADS, WIDTH, INNER, LENGTH = 410, 16, 10, 41, 2100, 150
VOCABULARIES = {"standard": 267_735, "body": 8_192}


def draw_tokens(row: str, streams: int) -> Iterator[Tensor]:
    """A few batches for ever. By Zipf's law, the frequent first: an adaptive softmax is made for that."""
    generator = torch.Generator(CUDA).manual_seed(0)
    places = [torch.rand(streams, LENGTH + 1, device=CUDA, generator=generator) for _ in range(4)]
    return cycle([(VOCABULARIES[row] ** each).long() - 1 for each in places])


class PlainLayer(nn.Module):
    """Post-norm, ReLU; queries, keys and values by one matrix without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.distance = (
            nn.Linear(DIM, 3 * HEADS * WIDTH, bias=False),
            nn.Linear(DIM, HEADS * WIDTH, bias=False),
        )
        self.out = nn.Linear(HEADS * WIDTH, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, INNER), nn.Linear(INNER, DIM)
        self.norm_1, self.norm_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def forward(self, x: Tensor, memory: Tensor, places: Tensor, u: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        n, length, _ = x.shape
        q, k, value = self.qkv(torch.cat((memory, x), 1)).view(n, -1, 3, HEADS, WIDTH).unbind(2)
        q, keys = q[:, -length:], k.shape[1]
        r = self.distance(places).view(-1, HEADS, WIDTH)
        by_content = torch.einsum("nihe,njhe->nhij", q + u, k)
        by_place = torch.einsum("nihe,jhe->nhij", q + v, r)
        moved = F.pad(by_place, (1, 0)).view(n, HEADS, keys + 1, length)[:, :, 1:].reshape(n, HEADS, length, keys)
        scores = ((by_content + moved) / WIDTH**0.5).masked_fill(hidden, float("-inf"))
        mixed = torch.einsum("nhij,njhe->nihe", scores.softmax(-1), value)
        x = self.norm_1(x + self.out(mixed.reshape(n, length, -1)))
        return self.norm_2(x + self.down(F.relu(self.up(x))))


class PlainXl(nn.Module):
    def __init__(self, v: int):
        super().__init__()
        self.token = nn.Embedding(v, DIM)
        self.layers = nn.ModuleList(PlainLayer() for _ in range(LAYERS))
        self.u, self.v = (nn.Parameter(torch.zeros(HEADS, WIDTH)) for _ in range(2))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """ids (n, L), memory (layers, n, M, D) → hidden states (n, L, D) and what was read by every layer."""
        length, kept = ids.shape[1], memory.shape[2]
        x = self.token(ids) * DIM**0.5
        distances = torch.arange(kept + length - 1, -1, -1, device=ids.device, dtype=torch.float32)
        places = sinusoids(distances, DIM).to(x.dtype)
        at = torch.arange(kept + length, device=ids.device)
        hidden = at[None] > at[kept:, None]
        read = []
        for layer, before in zip(self.layers, memory, strict=True):
            read.append(x.detach())
            x = layer(x, before, places, self.u, self.v, hidden)
        return x, torch.stack(read)[:, :, -kept:]


def peer(row: str, streams: int) -> Train:
    v = VOCABULARIES[row]
    model = PlainXl(v).to(CUDA)
    adaptive: Any = None
    if row == "standard":
        adaptive = nn.AdaptiveLogSoftmaxWithLoss(DIM, v, list(default_cutoffs(v)), div_value=1.0).to(CUDA)
    weights = [*model.parameters(), *(adaptive.parameters() if adaptive else ())]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    compiled, batches = torch.compile(model), draw_tokens(row, streams)
    memory = torch.zeros(LAYERS, streams, LENGTH, DIM, device=CUDA)

    def train() -> Tensor:
        nonlocal memory
        tokens = next(batches)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found, memory = compiled(tokens[:, :-1], memory)
            flat, targets = found.reshape(-1, DIM), tokens[:, 1:].reshape(-1)
            if adaptive is None:
                loss = F.cross_entropy(F.linear(flat, model.token.weight), targets)
            else:
                loss = adaptive(flat, targets).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


def ours(row: str, streams: int) -> Train:
    sizes: dict[str, Any] = TransformerXl.presets["standard"] | {"vocab_size": VOCABULARIES[row], "dropout": 0.0}
    softmax = {"softmax": "adaptive"} if row == "standard" else {}
    learner = NextToken(TransformerXl(TransformerXl.Config(**sizes)), NextToken.Config(**softmax)).to(CUDA).train()
    learner.backbone.init_weights()
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    recorded = worth_recording(learner, CUDA)
    differentiate = Gradient(learner, "bf16", CUDA, worth_compiling(learner, CUDA), recorded)
    flat = ragged(torch.zeros(streams * LENGTH, dtype=torch.long), torch.full((streams,), LENGTH), LENGTH)
    frame = to_device(flat, CUDA)
    tokens = itertools.islice(draw_tokens(row, streams), 4)
    examples = cycle(
        [Excerpt(frame._replace(ids=rows[:, :-1].reshape(-1)), rows[:, 1:].reshape(-1)) for rows in tokens]
    )
    carry = learner.start(streams)

    def train() -> Tensor:
        nonlocal carry
        loss = differentiate(next(examples), carry)
        _, broken = step(optimizer, loss.count, 0.25)
        carry = restore_carry(loss.carry, carry, broken)
        return loss.total / loss.count

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--streams", type=int, default=60)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    count = arguments.streams * LENGTH
    for row in arguments.rows or VOCABULARIES:
        found: dict[str, list[dict[str, float]]] = {"seqloom": [], "peer": []}
        for _ in range(arguments.turns):
            for name, make in (("seqloom", ours), ("peer", peer)):
                got = measure(lambda make=make, row=row: make(row, arguments.streams), arguments.steps)
                found[name].append(got)
                print(f"{row:9} {name:8} {count / got['seconds']:,.0f} tokens/s  {got}", flush=True)
        best = {name: min(each["seconds"] for each in results) for name, results in found.items()}
        print(f"{row:9} ratio {best['peer'] / best['seqloom']:.3f}x", flush=True)
        if arguments.out:
            record = {"row": row, "date": time.strftime("%Y-%m-%d"), "commit": commit(), "torch": torch.__version__}
            record |= {"machine": torch.cuda.get_device_name(), "tokens": count, **found}
            with arguments.out.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
