"""Captioners on one GPU: training against a plain torch loop of the same shape, compiled, and beam search against transformers.

    python benchmarks/pictures_gpu.py [--rows captioner show-attend-tell decode] [--steps 15] [--out results.jsonl]
                                      [--device cuda] [--tiny]

captioner         a Vision Transformer of 6 layers, 384 wide, and a decoder of 4 layers, V 10,000: 128 × 128 pixels in 64 patches;
                  256 captions of 16 tokens a step, against torch.nn's Transformer layers
show-attend-tell  a convolutional network and an LSTM of 512 with additive attention over 64 regions, against the same as a
                  loop over nn.LSTMCell
decode            captions of 64 pictures by beam 4, 16 tokens each (the end is banned), bf16, against generate of transformers'
                  VisionEncoderDecoderModel (ViT and GPT-2) of the captioner's shape

Training: forward, backward and optimizer step on random pixels and tokens, bf16 autocast over fp32 weights, fused AdamW, dropout
0; the median of 15 steps after 6 warm-ups; ours and the peer take turns twice. Ours is what `train` runs: compiled or recorded,
the gradient measured and clipped; the peer does not clip. --tiny: small sizes and few steps, to see that it runs.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from train_gpu import commit
from turn import alone

from seqloom.batch import Pair, ragged, to_device
from seqloom.batches.pictures import lay_images
from seqloom.decode.rules import BeamConfig
from seqloom.decode.search import Search
from seqloom.decode.step import Stepper
from seqloom.models.captioner import PatchCaptioner
from seqloom.models.show_attend_tell import ShowAttendTell
from seqloom.tasks.caption import Caption
from seqloom.training.gradient import Gradient, worth_compiling, worth_recording
from seqloom.training.optim import OptimConfig, build_optimizer, step

HEADS = 6
END, START = 0, 1
Job = Callable[[], Any]


class Shape(NamedTuple):
    """Of the models, and of a batch."""

    captions: int = 256
    length: int = 16
    side: int = 128
    patch: int = 16
    dim: int = 384
    encoder_layers: int = 6
    layers: int = 4
    lstm: int = 512
    words: int = 256  # width of the word vectors of the LSTM
    channels: tuple[int, ...] = (32, 64, 128, 256)
    vocabulary: int = 10_000


TINY = Shape(4, 4, 32, 8, 24, 1, 1, 16, 8, (4, 8), 50)


def pixels(shape: Shape, n: int, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, shape.side, shape.side, 3), generator=generator, dtype=torch.uint8).to(device)


def tokens(shape: Shape, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(100 + seed)
    return torch.randint(2, shape.vocabulary, (shape.captions, shape.length + 1), generator=generator).to(device)


def build(row: str, shape: Shape) -> Any:
    if row == "show-attend-tell":
        return ShowAttendTell(
            ShowAttendTell.Config(
                vocab_size=shape.vocabulary, embedding_dim=shape.words, dim=shape.lstm, side=shape.side, channels=shape.channels
            )
        )  # fmt: skip
    return PatchCaptioner(
        PatchCaptioner.Config(
            vocab_size=shape.vocabulary, dim=shape.dim, encoder_layers=shape.encoder_layers, num_layers=shape.layers,
            num_heads=HEADS, side=shape.side, patch=shape.patch, max_len=64,
        )
    )  # fmt: skip


def ours(row: str, shape: Shape, device: torch.device) -> Job:
    torch.manual_seed(0)
    model = build(row, shape)
    learner = Caption(model, Caption.Config(label_smoothing=0.0, tie=False, bias=True)).to(device).train()
    optimizer = build_optimizer(OptimConfig(lr=1e-4), learner)
    differentiate = Gradient(
        learner, "bf16" if device.type == "cuda" else "fp32", device, worth_compiling(learner, device),
        worth_recording(learner, device),
    )  # fmt: skip
    n, length = shape.captions, shape.length
    frame = to_device(ragged(torch.zeros(n * length, dtype=torch.long), torch.full((n,), length), length), device)
    regions = type(model).picture_size(build_config(row, shape)).regions
    examples = []
    for seed in range(4):
        rows, images = tokens(shape, seed, device), pixels(shape, n, seed, torch.device("cpu"))
        source = to_device(lay_images(images.numpy(), torch.full((n,), regions).numpy()), device)
        examples.append(Pair(source, frame._replace(ids=rows[:, :-1].reshape(-1)), rows[:, 1:].reshape(-1)))
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        loss = differentiate(examples[count % 4], None)
        step(optimizer, loss.count, clip=1.0)
        return loss.total / loss.count

    return train


def build_config(row: str, shape: Shape) -> Any:
    if row == "show-attend-tell":
        return ShowAttendTell.Config(side=shape.side, channels=shape.channels)
    return PatchCaptioner.Config(side=shape.side, patch=shape.patch, dim=shape.dim, num_heads=HEADS)


# ---- the same shapes in plain torch


class PlainCaptioner(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        dim, regions = shape.dim, (shape.side // shape.patch) ** 2
        options: dict[str, Any] = {
            "dim_feedforward": 4 * dim, "dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True,
        }  # fmt: skip
        self.patches = nn.Conv2d(3, dim, shape.patch, shape.patch)
        self.places = nn.Parameter(torch.randn(regions, dim) * 0.02)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(dim, HEADS, **options), shape.encoder_layers, nn.LayerNorm(dim), False
        )
        self.words, self.order = nn.Embedding(shape.vocabulary, dim), nn.Embedding(64, dim)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(dim, HEADS, **options), shape.layers, nn.LayerNorm(dim)
        )
        self.output = nn.Linear(dim, shape.vocabulary)

    def forward(self, images: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.patches(images.permute(0, 3, 1, 2).float() / 127.5 - 1).flatten(2).transpose(1, 2) + self.places
        memory, length = self.encoder(x), ids.shape[1]
        y = self.words(ids) + self.order.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length, ids.device)
        hidden = self.decoder(y, memory, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.output(hidden).flatten(0, 1), targets.flatten())


class PlainAttendTell(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        wide = [3, *shape.channels]
        parts: list[nn.Module] = []
        for a, b in pairwise(wide):
            parts += [nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(4 if b % 8 else 8, b), nn.ReLU()]
        self.cnn, regions = nn.Sequential(*parts), wide[-1]
        self.keep = nn.Conv2d(regions, regions, 3, 1, 1)
        self.places = nn.Parameter(torch.randn((shape.side >> len(shape.channels)) ** 2, regions) * 0.1)
        self.words = nn.Embedding(shape.vocabulary, shape.words)
        self.first = nn.Linear(regions, 2 * shape.lstm)
        self.query, self.key = nn.Linear(shape.lstm, shape.lstm), nn.Linear(regions, shape.lstm)
        self.score, self.gate = nn.Linear(shape.lstm, 1, bias=False), nn.Linear(shape.lstm, 1)
        self.cell = nn.LSTMCell(shape.words + regions, shape.lstm)
        self.readout = nn.Linear(shape.lstm + regions, shape.words)
        self.output = nn.Linear(shape.words, shape.vocabulary)

    def forward(self, images: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.cnn(images.permute(0, 3, 1, 2).float() / 127.5 - 1)
        x = (x + torch.relu(self.keep(x))).flatten(2).transpose(1, 2) + self.places
        h, c = torch.tanh(self.first(x.mean(1))).chunk(2, 1)
        keys, words, found = self.key(x), self.words(ids), []
        for t in range(ids.shape[1]):
            weights = self.score(torch.tanh(keys + self.query(h)[:, None])).softmax(1)
            seen = torch.sigmoid(self.gate(h)) * (weights * x).sum(1)
            h, c = self.cell(torch.cat((words[:, t], seen), 1), (h, c))
            found.append(torch.tanh(words[:, t] + self.readout(torch.cat((h, seen), 1))))
        return F.cross_entropy(self.output(torch.stack(found, 1)).flatten(0, 1), targets.flatten())


def peer(row: str, shape: Shape, device: torch.device) -> Job:
    torch.manual_seed(0)
    model: nn.Module = (
        (PlainAttendTell(shape) if row == "show-attend-tell" else PlainCaptioner(shape)).to(device).train()
    )
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled: Any = torch.compile(model) if on_gpu else model
    batches = [(pixels(shape, shape.captions, seed, device), tokens(shape, seed, device)) for seed in range(4)]
    count = 0

    def train() -> Tensor:
        nonlocal count
        count += 1
        images, rows = batches[count % 4]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=on_gpu):
            loss = compiled(images, rows[:, :-1], rows[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return train


def time_steps(make: Callable[[], Job], steps: int, device: torch.device) -> dict[str, float]:
    def wait() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    started = wait()
    train = make()
    for _ in range(6):
        loss = train()
    ready = wait()
    seconds = []
    with alone():
        for _ in range(steps):
            begin = wait()
            loss = train()
            seconds.append(wait() - begin)
    return {"seconds": statistics.median(seconds), "start": ready - started, "loss": float(loss)}


def compare_training(row: str, shape: Shape, steps: int, turns: int, device: torch.device) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    for _ in range(turns):
        for name, make in (("ours", ours), ("peer", peer)):
            torch._dynamo.reset()
            got = time_steps(lambda make=make: make(row, shape, device), steps, device)  # type: ignore[misc]
            found[name].append(got)
            rate = shape.captions / got["seconds"]
            print(
                f"{row:16} {name:5} {rate:10,.0f} captions/s  {1000 * got['seconds']:.2f} ms a step  start {got['start']:.0f} s  "
                f"loss {got['loss']:.3f}",
                flush=True,
            )
    best = {name: min(each["seconds"] for each in rows) for name, rows in found.items()}
    print(f"{row:16} ratio {best['peer'] / best['ours']:.3f}x", flush=True)
    return {"row": row, "ratio": best["peer"] / best["ours"], **found}


# ---- beam search


def decode_ours(shape: Shape, images: Tensor, beam: int, device: torch.device, dtype: torch.dtype) -> Job:
    torch.manual_seed(0)
    model = build("captioner", shape)
    learner = Caption(model, Caption.Config(tie=False, bias=False)).to(device, dtype).eval()
    search = Search(
        Stepper(model.decoder, learner.softmax),
        BeamConfig(beam=beam, max_new=shape.length, length_penalty=1.0),
        END,
        [END, START],
    )
    n, regions = len(images), (shape.side // shape.patch) ** 2
    values = images.cpu().numpy()

    def run() -> list[list[int]]:
        with torch.inference_mode():
            source = to_device(lay_images(values, torch.full((n,), regions).numpy()), device)
            context = model.encode(source)
        found = search.run([[START]] * n, context, [shape.length] * n)
        return [hypotheses[0].tokens for hypotheses in found]

    return run


def decode_peer(shape: Shape, images: Tensor, beam: int, device: torch.device, dtype: torch.dtype) -> Job:
    from transformers import GPT2Config, GPT2LMHeadModel, VisionEncoderDecoderModel, ViTConfig, ViTModel

    torch.manual_seed(0)
    see = ViTModel(
        ViTConfig(
            hidden_size=shape.dim, num_hidden_layers=shape.encoder_layers, num_attention_heads=HEADS,
            intermediate_size=4 * shape.dim, image_size=shape.side, patch_size=shape.patch, attn_implementation="sdpa",
        ),
        add_pooling_layer=False,
    )  # fmt: skip
    write = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=shape.vocabulary, n_positions=64, n_embd=shape.dim, n_layer=shape.layers, n_head=HEADS,
            add_cross_attention=True, bos_token_id=START, eos_token_id=END, attn_implementation="sdpa",
        )
    )  # fmt: skip
    model = VisionEncoderDecoderModel(encoder=see, decoder=write).to(device, dtype).eval()
    model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = START
    model.config.pad_token_id = model.generation_config.pad_token_id = END
    model.generation_config.eos_token_id = END

    def run() -> list[list[int]]:
        with torch.inference_mode():
            values = images.to(device).permute(0, 3, 1, 2).to(dtype) / 127.5 - 1
            found = model.generate(
                values, num_beams=beam, do_sample=False, max_new_tokens=shape.length, max_length=None,
                bad_words_ids=[[END], [START]], use_cache=True, length_penalty=1.0,
            )  # fmt: skip
        return found[:, 1:].tolist()

    return run


def compare_decoding(shape: Shape, n: int, beam: int, rounds: int, device: torch.device) -> dict[str, Any]:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    images = pixels(shape, n, 0, torch.device("cpu"))
    jobs = {
        "ours": decode_ours(shape, images, beam, device, dtype),
        "peer": decode_peer(shape, images, beam, device, dtype),
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 2):
        for name, job in jobs.items():
            begin = time.perf_counter()
            made = job()  # lists: the device has finished
            if number > 1:
                seconds[name].append(time.perf_counter() - begin)
            assert all(len(each) == shape.length for each in made), f"{name} wrote texts of another length"
    rates = {name: n / statistics.median(each) for name, each in seconds.items()}
    ratio = rates["ours"] / rates["peer"]
    print(
        f"decode beam {beam}, {n} pictures: ours {rates['ours']:,.1f}/s, transformers {rates['peer']:,.1f}/s, {ratio:.2f}x",
        flush=True,
    )
    return {"row": "decode", "pictures": n, "beam": beam, "ratio": ratio, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["decode", "captioner", "show-attend-tell"])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device, shape = torch.device(arguments.device), TINY if arguments.tiny else Shape()
    steps, turns = (2, 1) if arguments.tiny else (arguments.steps, arguments.turns)
    torch.set_float32_matmul_precision("high")
    found = []
    for row in arguments.rows:
        if row == "decode":
            for n in (2,) if arguments.tiny else (1, 64):
                found.append(compare_decoding(shape, n, 4, 1 if arguments.tiny else 5, device))
        else:
            found.append(compare_training(row, shape, steps, turns, device))
        if arguments.out:
            about = {"commit": commit(), "torch": torch.__version__, "shape": shape._asdict()}
            arguments.out.write_text("".join(json.dumps(about | each) + "\n" for each in found), encoding="utf-8")


if __name__ == "__main__":
    main()
