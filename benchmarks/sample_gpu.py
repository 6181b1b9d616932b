"""Greedy decoding from GPT-2 124M on one GPU: ours against transformers' generate with the same weights, in one run.

    python benchmarks/sample_gpu.py [--rounds 3] [--out results.jsonl]

Prompt of 64 tokens, 256 new ones, batch 1 and 64, fp32 on both sides; then the same in bf16, where the texts may differ.
The tokens must be equal in fp32: they are compared, and the first difference is printed.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import sample
from seqloom.decode.step import Stepper
from seqloom.models.gpt2 import Gpt2
from seqloom.objectives.next_token import NextToken

V, D, LAYERS, HEADS, CONTEXT, PROMPT, NEW = 50_257, 768, 12, 12, 1024, 64, 256
END = 0


def peer_model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=V, n_embd=D, n_layer=LAYERS, n_head=HEADS, n_positions=CONTEXT)
    config.bos_token_id = config.eos_token_id = config.pad_token_id = END
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).cuda().eval()
    with torch.no_grad():  # an untrained model of small weights says one token for ever; this one has opinions
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.mul_(3.0 if "wte" not in name else 1.0)
    return model


def our_model(peer: Any) -> NextToken:
    config = Gpt2.Config(vocab_size=V, dim=D, num_layers=LAYERS, num_heads=HEADS, max_len=CONTEXT, dropout=0)
    learner = NextToken(Gpt2(config), NextToken.Config()).cuda().eval()
    theirs = dict(peer.named_parameters())
    with torch.no_grad():
        stack = learner.backbone.stack  # type: ignore[union-attr]
        learner.backbone.table.weight.copy_(theirs["transformer.wte.weight"])
        learner.backbone.embedding.positions.weight.copy_(theirs["transformer.wpe.weight"])  # type: ignore[union-attr]
        stack.top.weight.copy_(theirs["transformer.ln_f.weight"])
        stack.top.bias.copy_(theirs["transformer.ln_f.bias"])
        for i, layer in enumerate(stack.layers):
            parts = {
                "mixer_norm": "ln_1", "mixer.qkv": "attn.c_attn", "mixer.out": "attn.c_proj",
                "ffn_norm": "ln_2", "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj",
            }  # fmt: skip
            for name, other in parts.items():
                module, weight = layer.get_submodule(name), theirs[f"transformer.h.{i}.{other}.weight"]
                module.weight.copy_(weight.T if weight.ndim == 2 else weight)
                module.bias.copy_(theirs[f"transformer.h.{i}.{other}.bias"])
    return learner


def ours(learner: NextToken, prompts: Tensor) -> Tensor:
    stepper = Stepper(learner.backbone, learner.softmax)
    made: list[list[int]] = [[] for _ in prompts]
    for one in sample(stepper, prompts.tolist(), SampleConfig(temperature=0, max_new=NEW), 0, END, [END]):
        made[one.sample].append(one.token)
    return torch.tensor(made)


def theirs(model: Any, prompts: Tensor) -> Tensor:
    mask = torch.ones_like(prompts)
    out = model.generate(prompts, attention_mask=mask, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW)
    return out[:, PROMPT:].cpu()


def timed(job: Callable[[], Tensor]) -> tuple[float, Tensor]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = job()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    peer = peer_model()
    learner = our_model(peer)
    for precision in (torch.float32, torch.bfloat16):
        peer, learner = peer.to(precision), learner.to(precision)
        for n in (1, 64):
            prompts = torch.randint(1, V, (n, PROMPT), generator=torch.Generator().manual_seed(n)).cuda()
            jobs = {"seqloom": partial(ours, learner, prompts), "transformers": partial(theirs, peer, prompts)}
            seconds: dict[str, list[float]] = {name: [] for name in jobs}
            texts: dict[str, Tensor] = {}
            for round_ in range(arguments.rounds + 1):
                for name, job in jobs.items():
                    taken, texts[name] = timed(job)
                    if round_:
                        seconds[name].append(taken)
            rates = {name: n * NEW / statistics.median(times) for name, times in seconds.items()}
            same = texts["seqloom"] == texts["transformers"]
            kind = str(precision).removeprefix("torch.")
            for name, rate in rates.items():
                print(f"{kind:9} batch {n:3}  {name:14} {rate:9,.0f} new tokens/s", flush=True)
            print(
                f"{kind:9} batch {n:3}  ratio {rates['seqloom'] / rates['transformers']:.2f}x; equal tokens "
                f"{int(same.sum()):,} of {same.numel():,}; {len(texts['seqloom'].unique())} different ones",
                flush=True,
            )
            if arguments.out:
                record = {"precision": kind, "batch": n, "rates": rates, "equal": float(same.float().mean())}
                record |= {"date": time.strftime("%Y-%m-%d"), "machine": torch.cuda.get_device_name()}
                with arguments.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
