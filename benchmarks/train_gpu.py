"""Training on one GPU: ours against the peers of the same shape, in one run.

    python benchmarks/train_gpu.py [ROW ...] [--steps 15] [--out results.jsonl]

Forward, backward and optimizer step on random tokens, bf16 autocast over fp32 weights, fused AdamW, dropout 0 (awd rows
have their recipe's); the median of 15 steps after 6 warm-ups; ours and the peer take turns twice. Ours is what `pretrain`
runs: the learner compiled or recorded as a CUDA graph, the step that measures and clips the gradient, the carried state; the
peers do not clip.

    gpt2        GPT-2 124M, V 50,304, 32 × 1024, against nanoGPT's published model shape, compiled
    lstm-650    LSTM 650 × 2, V 10k, 128 × 70, against torch.nn.LSTM, Linear and cross_entropy
    lstm-1150   LSTM 1150 × 3, V 33k, 80 × 70
    lstm-2048   LSTM 2048 × 2, V 32k, 256 × 128
    lstm-gates  lstm-650 with every gate of every step returned, against the same peer, which returns none
    gru-gates   the same for a GRU, against torch.nn.GRU
    own-cell    lstm-650 with the LayerNorm-LSTM of examples/ as a user's cell, against torch.nn.LSTM
    awd-ptb     recipe awd-lstm-ptb (400 – 1150 – 1150 – 400, V 10k, 20 × 70) with all its dropout, AR, TAR and SGD, against
                three torch.nn.LSTM of that shape without weight drop, tied, SGD
    awd-wt2     recipe awd-lstm-wt2, V 33,278, 80 × 70
"""

import argparse
import gc
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from turn import alone

from seqloom.batch import IGNORE, Excerpt, Loss, detach, ragged, to_device
from seqloom.models.gpt2 import Gpt2
from seqloom.models.gru import Gru
from seqloom.models.lstm import Lstm
from seqloom.models.own_cell import OwnCell
from seqloom.objectives.next_token import NextToken
from seqloom.plugins import open_plugin
from seqloom.recipes.library import find_recipe
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.loop import restore_carry
from seqloom.training.optim import OptimConfig, build_optimizer, step

CUDA = torch.device("cuda")
LSTMS = {
    "lstm-650": (650, 2, 10_000, 128, 70),
    "lstm-1150": (1150, 3, 33_000, 80, 70),
    "lstm-2048": (2048, 2, 32_000, 256, 128),
}
LSTMS |= dict.fromkeys(("lstm-gates", "gru-gates", "own-cell"), LSTMS["lstm-650"])
AWDS = {"awd-ptb": (1150, 3, 10_000, 20, 70), "awd-wt2": (1150, 3, 33_278, 80, 70)}
GPT2 = (768, 12, 50_304, 32, 1024)

Train = Callable[[], Any]


def tokens_of(v: int, n: int, length: int) -> Iterator[Tensor]:
    """A few batches of random tokens on the device, for ever."""
    generator = torch.Generator(CUDA).manual_seed(0)
    batches = [torch.randint(0, v, (n, length + 1), device=CUDA, generator=generator) for _ in range(4)]
    while True:
        yield from batches


class PlainBlock(nn.Module):
    """nanoGPT's published block: pre-norm, one matrix for queries, keys and values, GELU, biases."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.projection = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        n, length, dim = x.shape
        q, k, v = (
            part.view(n, length, self.heads, -1).transpose(1, 2)
            for part in self.attention(self.norm_1(x)).split(dim, 2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(n, length, dim))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGpt(nn.Module):
    def __init__(self, dim: int, layers: int, v: int, length: int):
        super().__init__()
        self.token, self.position = nn.Embedding(v, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(PlainBlock(dim, dim // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, v, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.reshape(-1))


def peer_gpt2() -> Train:
    dim, layers, v, n, length = GPT2
    model = PlainGpt(dim, layers, v, length).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled, batches = torch.compile(model), tokens_of(v, n, length)

    def train() -> Tensor:
        tokens = next(batches)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


class PlainLstm(nn.Module):
    def __init__(self, kind: Any, dim: int, layers: int, v: int):
        super().__init__()
        self.token, self.lstm, self.head = nn.Embedding(v, dim), kind(dim, dim, layers), nn.Linear(dim, v)

    def forward(self, ids: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = self.lstm(self.token(ids), state)
        scores = self.head(hidden)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.reshape(-1)), state


def peer_lstm(row: str) -> Train:
    dim, layers, v, n, length = LSTMS[row]
    model = PlainLstm(nn.GRU if row == "gru-gates" else nn.LSTM, dim, layers, v).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = tokens_of(v, n, length)
    state: Any = None

    def train() -> Tensor:
        nonlocal state
        tokens = next(batches).T
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss, after = model(tokens[:-1], tokens[1:], state)
        loss.backward()
        state = after.detach() if isinstance(after, Tensor) else tuple(part.detach() for part in after)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


class PlainAwd(nn.Module):
    """The shape of AWD-LSTM without any dropout or penalty."""

    def __init__(self, width: int, dim: int, v: int):
        super().__init__()
        self.token = nn.Embedding(v, width)
        self.layers = nn.ModuleList([nn.LSTM(width, dim), nn.LSTM(dim, dim), nn.LSTM(dim, width)])
        self.head = nn.Linear(width, v)
        self.head.weight = self.token.weight

    def forward(self, ids: Tensor, targets: Tensor, states: Any) -> tuple[Tensor, Any]:
        x, after = self.token(ids), []
        for layer, state in zip(self.layers, states or [None] * 3, strict=True):
            x, state = layer(x, state)
            after.append(state)
        scores = self.head(x)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), targets.reshape(-1)), after


def peer_awd(row: str) -> Train:
    dim, _, v, n, length = AWDS[row]
    model = PlainAwd(400, dim, v).to(CUDA)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1.2e-6, fused=True)
    batches = tokens_of(v, n, length)
    states: Any = None

    def train() -> Tensor:
        nonlocal states
        tokens = next(batches).T
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss, after = model(tokens[:-1], tokens[1:], states)
        loss.backward()
        states = [tuple(part.detach() for part in state) for state in after]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


class WithGates(NextToken):
    """Language modelling that hands out every gate of every layer and step."""

    def forward(self, example: Excerpt, carry: Any = None) -> Loss:
        output = self.backbone(example.batch, state=carry, maps=True)
        total = self.softmax(output.hidden, example.targets)
        gates = {str(i): part for i, part in enumerate(output.maps)}
        return Loss(total, (example.targets != IGNORE).sum(), gates, detach(output.state))


def ours(row: str) -> Train:
    optim = OptimConfig(lr=1e-4)
    if row == "gpt2":
        dim, layers, v, n, length = GPT2
        model: Any = Gpt2(
            Gpt2.Config(vocab_size=v, dim=dim, num_layers=layers, num_heads=dim // 64, max_len=length, dropout=0)
        )
        learner: Any = NextToken(model, NextToken.Config()).to(CUDA)
    elif row in AWDS:
        dim, _, v, n, length = AWDS[row]
        recipe = find_recipe(f"awd-lstm-{row.removeprefix('awd-')}")
        learner, optim = recipe.learner(v).to(CUDA).train(), recipe.train.optim
    else:
        dim, layers, v, n, length = LSTMS[row]
        sizes = {"vocab_size": v, "dim": dim, "num_layers": layers}
        if row == "own-cell":
            plugin = open_plugin(Path(__file__).parent.parent / "examples" / "layernorm_lstm.py")
            model = OwnCell(OwnCell.Config(cell="LayerNormLstm", **sizes), plugin)
        else:
            model = Gru(Gru.Config(**sizes)) if row == "gru-gates" else Lstm(Lstm.Config(**sizes))
        kind = WithGates if row.endswith("gates") else NextToken
        learner = kind(model, NextToken.Config(tie=False, bias=True)).to(CUDA)
    optimizer = build_optimizer(optim, learner)
    recorded = worth_recording(learner, CUDA)
    differentiate = Gradient(learner, "bf16", CUDA, worth_compiling(learner, CUDA), recorded)
    frame = to_device(ragged(torch.zeros(n * length, dtype=torch.long), torch.full((n,), length), length), CUDA)
    tokens = [next(batches) for batches in [tokens_of(v, n, length)] for _ in range(4)]
    examples = cycle(
        [Excerpt(frame._replace(ids=rows[:, :-1].reshape(-1)), rows[:, 1:].reshape(-1)) for rows in tokens]
    )
    carry = learner.start(n)

    def train() -> Tensor:
        nonlocal carry
        loss = differentiate(next(examples), carry)
        _, broken = step(optimizer, loss.count, optim.clip)
        carry = None if carry is None else restore_carry(loss.carry, carry, broken)
        return loss.total / loss.count

    return train


def measure(make: Callable[[], Train], steps: int) -> dict[str, float]:
    torch.compiler.reset()  # what was compiled for another model must not make the shapes of this one variable
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    train = make()
    first = float(train())
    for _ in range(5):
        train()
    seconds = []
    with alone():
        for _ in range(steps):
            torch.cuda.synchronize()
            start = time.perf_counter()
            last = train()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    return {
        "seconds": statistics.median(seconds),
        "gb": (torch.cuda.max_memory_allocated() - before) / 1e9,
        "first_loss": first,
        "last_loss": float(last),
    }


def commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    shapes, peers = {"gpt2": GPT2, **LSTMS, **AWDS}, {"gpt2": lambda row: peer_gpt2(), **dict.fromkeys(AWDS, peer_awd)}
    for row in arguments.rows or shapes:
        shape = shapes[row]
        count = shape[3] * shape[4]
        found: dict[str, list[dict[str, float]]] = {"seqloom": [], "peer": []}
        for _ in range(arguments.turns):
            found["seqloom"].append(measure(lambda row=row: ours(row), arguments.steps))
            found["peer"].append(measure(lambda row=row: peers.get(row, peer_lstm)(row), arguments.steps))
        best = {name: min(result["seconds"] for result in results) for name, results in found.items()}
        for name, results in found.items():
            print(
                f"{row:10} {name:8} {count / best[name]:11,.0f} tokens/s  {results[-1]['gb']:6.2f} GB  "
                f"loss {results[-1]['first_loss']:.3f} → {results[-1]['last_loss']:.3f}  turns "
                + " ".join(f"{count / r['seconds']:,.0f}" for r in results),
                flush=True,
            )
        print(f"{row:10} ratio    {best['peer'] / best['seqloom']:11.3f}x", flush=True)
        if arguments.out:
            record = {"row": row, "date": time.strftime("%Y-%m-%d"), "commit": commit(), "torch": torch.__version__}
            record |= {"machine": torch.cuda.get_device_name(), "tokens": count, **found}
            with arguments.out.open("a") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
