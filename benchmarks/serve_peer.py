"""Continuous batching of GPT-2 124M on one GPU: ours against transformers' own, same weights, 64 streams and one, in one run.

    python benchmarks/serve_peer.py [--seconds 6] [--bf16] [--small --device cpu]

Both sides are driven in one process, without HTTP, which leaves the servers' web frameworks out of it: ours by the engine that
`seqloom serve` has (threads, texts that join and leave, tokens made into pieces), theirs by ContinuousBatchingManager, which
`transformers serve --continuous-batching` has. Each stream asks for another text as soon as it has one: prompts of 16 to 64
tokens, 64 to 192 new ones, greedy. A line of JSON for each measurement; about a minute. Over HTTP, where the extra `serve` is
installed: `python benchmarks/serve.py RUN --device cuda`.
"""

import argparse
import json
import queue
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

import sample_gpu

from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import Row
from seqloom.decode.step import Stepper
from seqloom.serve.engine import Engine, StopStrings, Writing

WARM = 3.0


class Tokens:
    """A tokenizer that has nothing to do: pieces cost the same on both sides."""

    end_id, byte_exact = sample_gpu.END, True

    def decode(self, ids: list[int], specials: bool = False) -> str:
        return " ".join(map(str, ids))

    def decode_one(self, token: int) -> str:
        return str(token)


def question(rng: random.Random) -> tuple[list[int], int]:
    return [rng.randrange(1, sample_gpu.V) for _ in range(rng.randint(16, 64))], rng.randint(64, 192)


def measure_ours(learner: Any, streams: int, seconds: float) -> float:
    stepper = Stepper(learner.backbone, learner.softmax)
    run = SimpleNamespace(
        folder=Path("gpt2"),
        tokenizer=Tokens(),
        learner=learner,
        begin=lambda prompt, n: (stepper, [], [sample_gpu.END]),
    )
    engine, rng, made = Engine(run, rows=streams, waiting=1000), random.Random(0), [0]
    is_open = True

    def ask() -> None:
        prompt, size = question(rng)
        row = Row([sample_gpu.END, *prompt], SampleConfig(max_new=size, temperature=0))
        engine.submit(Writing(row, emit, StopStrings(())))

    def emit(piece: Any) -> None:
        assert not piece.error, piece.error
        made[0] += 1
        if piece.end and is_open:
            ask()

    for _ in range(streams):
        ask()
    engine.start()
    time.sleep(WARM)
    began, before = time.monotonic(), made[0]
    time.sleep(seconds)
    speed = (made[0] - before) / (time.monotonic() - began)
    is_open = False
    engine.close()
    engine.join(30)
    return speed


def measure_theirs(model: Any, streams: int, seconds: float) -> float:
    from transformers import GenerationConfig

    config = GenerationConfig(do_sample=False, max_new_tokens=192, eos_token_id=-1, pad_token_id=sample_gpu.END)
    manager, rng = model.init_continuous_batching(generation_config=config), random.Random(0)
    manager.start()
    made = began = before = 0.0
    try:
        for _ in range(streams):
            prompt, size = question(rng)
            manager.add_request(prompt, max_new_tokens=size)
        start = time.monotonic()
        while True:
            try:
                found = manager.get_result(timeout=1.0)
            except queue.Empty:
                found = None
            now = time.monotonic()
            if not began and now > start + WARM:
                began, before = now, made
            if began and now > began + seconds:
                return (made - before) / (now - began)
            if found is None or not found.is_finished():
                assert manager.is_running(), "their manager has stopped"
                continue
            assert not found.error, found.error
            made += len(found.generated_tokens)
            prompt, size = question(rng)
            manager.add_request(prompt, max_new_tokens=size)
    finally:
        manager.stop(block=True)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--seconds", type=float, default=6)
    given.add_argument("--bf16", action="store_true", help="both in bf16; fp32 unless given")
    given.add_argument("--small", action="store_true", help="a few layers, to try the script")
    given.add_argument("--device", default="cuda")
    options = given.parse_args()
    if options.small:
        sample_gpu.D, sample_gpu.LAYERS, sample_gpu.HEADS, sample_gpu.V = 64, 2, 2, 1000
    if options.device == "cpu":
        torch.Tensor.cuda = torch.nn.Module.cuda = lambda self: self  # type: ignore[assignment,method-assign]
    peer = sample_gpu.peer_model()
    learner: Any = sample_gpu.our_model(peer)
    if options.bf16:
        peer, learner = peer.bfloat16(), learner.bfloat16()
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    about = {"device": name, "dtype": "bf16" if options.bf16 else "fp32", "torch": torch.__version__}
    for streams in (64, 1):
        found: dict[str, float | None] = {}
        for side, measure, model in (("ours", measure_ours, learner), ("transformers", measure_theirs, peer)):
            try:
                found[side] = round(measure(model, streams, options.seconds), 1)
            except Exception as error:
                found[side] = None
                print(
                    json.dumps({"side": side, "streams": streams, "failed": f"{type(error).__name__}: {error}"}),
                    flush=True,
                )
        ratio = round(found["ours"] / found["transformers"], 2) if all(found.values()) else None
        print(json.dumps(about | {"streams": streams, "tokens_per_second": found, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    main()
