"""GPT-2 of transformers, trained as the GPT-2 row of a comparison was: its sizes, batches, optimizer, schedule and budget.

    python benchmarks/lineage/peer.py OUT/one-pass/runs/GPT-2/seed-0 PEER-OUT [--device auto]

The run folder says everything: recipe, data and seed. The first weights are those that transformers draws, with the run's seed.
What comes out is read as a run of ours, and measured by the same function as the row itself; both figures are printed.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from seqloom.batch import IGNORE, to_device
from seqloom.batches.loader import Cursor, Loader
from seqloom.convert.decoders import GPT2
from seqloom.convert.read import read_model
from seqloom.recipes.schema import build_recipe
from seqloom.runs.corpus import Corpus
from seqloom.runs.dataset import build_learner
from seqloom.runs.language_model import Run
from seqloom.runs.load import load_language_model
from seqloom.training.precision import choose_device
from seqloom.training.schedule import rate_factor


def padded(example: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, L) inputs and targets: sequences as rows, filled up at their ends with what is not learnt from."""
    batch = example.batch
    n, longest = batch.num_sequences, batch.max_len
    ids = batch.ids.new_zeros(n, longest)
    targets = batch.ids.new_full((n, longest), IGNORE)
    column = torch.arange(len(batch.owner)) - batch.offsets[:-1].long()[batch.owner]
    ids[batch.owner, column], targets[batch.owner, column] = batch.ids, example.targets
    return ids, targets


def train(ours: Run, out: Path, device: torch.device) -> None:
    recipe, seed = build_recipe(ours.config["recipe"], "row"), ours.config["seed"]
    text = Corpus.open(recipe, ours.config["data"]["folder"])
    budget, sizes, optim = recipe.budget.resolve(text), recipe.model_config_of(text.vocab_size), recipe.train.optim
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=text.vocab_size, n_embd=sizes.dim, n_layer=sizes.num_layers, n_head=sizes.num_heads, n_positions=sizes.max_len,
        resid_pdrop=sizes.dropout, embd_pdrop=sizes.dropout, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model: Any = GPT2LMHeadModel(config).to(device).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, ours {ours.learner.size():,}", flush=True)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=optim.eps)
    loader = Loader(text.batches(budget.tokens / text.num_tokens), build_learner(text, seed), seed, workers=2)
    read = step = 0
    for item in loader.items(Cursor()):
        for group in optimizer.param_groups:
            group["lr"] = optim.lr * rate_factor(recipe.train.schedule, step, read / budget.tokens, 0)
        ids, targets = to_device(padded(item.example), device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            scores = model(input_ids=ids).logits
        loss = F.cross_entropy(scores.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), optim.clip or float("inf"))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        read, step = read + sum(sizes.tokens for sizes in item.sizes), step + 1
        if step % 200 == 0:
            print(f"step {step}  {read:,} tokens  loss {float(loss.detach()):.4f}", flush=True)
        if read >= budget.tokens:
            break
    model.save_pretrained(out)


def read_peer(ours: Run, folder: Path) -> Any:
    """Our learner with their weights."""
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    found, _ = read_model(GPT2, config, shapes, str(folder)).take(tensors)
    recipe = build_recipe(ours.config["recipe"], "row")
    learner = build_learner(Corpus.open(recipe, ours.config["data"]["folder"]), 0)
    known = learner.state_dict()
    named = {f"backbone.{name}" if f"backbone.{name}" in known else name: tensor for name, tensor in found.items()}
    missing, unexpected = learner.load_state_dict(named, strict=False)
    left = [name for name in missing if name != "softmax.tied"]
    assert not unexpected and all("softmax" in name for name in left), (missing, unexpected)
    return learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    ours = load_language_model(arguments.run, str(device))
    if not (arguments.out / "config.json").exists():
        train(ours, arguments.out, device)
    theirs = Run(arguments.run, ours.config, read_peer(ours, arguments.out).to(device).eval(), ours.tokenizer, device)
    data = ours.config["data"]["folder"]
    found = {name: run.evaluate(data)["bits_per_byte"] for name, run in (("ours", ours), ("transformers", theirs))}
    print(json.dumps(found | {"seed": ours.config["seed"]}), flush=True)


if __name__ == "__main__":
    main()
