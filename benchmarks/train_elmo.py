"""Training ELMo beside two torch.nn.LSTM of that shape, in one run.

    python benchmarks/train_elmo.py DATA OUT [--device cuda] [--steps 240]

Ours is `pretrain elmo-small` on prepared text, as people run it: words by their characters, batches read from disk, the
gradient measured and clipped; the speed of the last two thirds of the steps, by metrics.jsonl. The peer is a loop over random
tokens on the device: a table of word vectors, one torch.nn.LSTM of two projected layers for each direction, one output layer
for both, the same number of tokens a step; it reads no characters, no files, and does not clip. Both take turns twice.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from seqloom.batches.store import Store
from seqloom.runs.training import pretrain

DIM, WIDTH, LAYERS, N, LENGTH = 1024, 256, 2, 64, 128


def ours(data: Path, out: Path, device: str, steps: int) -> float:
    settings = [
        f"budget={{steps={steps}}}",
        "train.eval_every=1000000",
        "train.save_every=1000000",
        "train.log_every=20",
    ]
    pretrain("elmo-small", data, out, settings=[*settings, "model.dropout=0"], device=device, overwrite=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "loss" in row and steps // 3 <= row["step"] < steps]
    return (rows[-1]["tokens"] - rows[0]["tokens"]) / (rows[-1]["seconds"] - rows[0]["seconds"])


class Peer(nn.Module):
    def __init__(self, v: int):
        super().__init__()
        self.table = nn.Embedding(v, WIDTH)
        self.ahead, self.back = (nn.LSTM(WIDTH, DIM, LAYERS, batch_first=True, proj_size=WIDTH) for _ in range(2))
        self.out = nn.Linear(WIDTH, v)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        ahead, back = self.ahead(x)[0][:, :-1], self.back(x.flip(1))[0][:, :-1]
        logits = (self.out(ahead).flatten(0, 1), self.out(back).flatten(0, 1))
        wanted = (ids[:, 1:].flatten(), ids.flip(1)[:, 1:].flatten())
        return F.cross_entropy(logits[0], wanted[0]) + F.cross_entropy(logits[1], wanted[1])


def peer(v: int, device: str, steps: int) -> float:
    model = Peer(v).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batches = torch.randint(v, (8, N, LENGTH + 1), device=device)
    began = 0.0
    for i in range(steps):
        if i == steps // 3:
            wait(device)
            began = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = model(batches[i % 8])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    wait(device)
    return (steps - steps // 3) * N * LENGTH / (time.perf_counter() - began)


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=240)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    v = Store.open(options.data).tokenizer.vocab_size
    found: dict[str, list[float]] = {"seqloom": [], "peer": []}
    for _ in range(2):
        found["seqloom"].append(ours(options.data, options.out, options.device, options.steps))
        found["peer"].append(peer(v, options.device, options.steps))
        print(json.dumps(found), flush=True)
    print(json.dumps({"tokens_per_second": found, "ratio": max(found["seqloom"]) / max(found["peer"])}))


if __name__ == "__main__":
    main()
