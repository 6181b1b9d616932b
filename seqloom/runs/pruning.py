"""prune: a run with fewer attention heads or layers, which are really gone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.analyse.heads import (
    Parts,
    best_heads,
    importance,
    keep_heads,
    keep_layers,
    loss_of,
    parts_of,
    without_layers,
)
from seqloom.blocks.stack import count_heads
from seqloom.errors import UsageError
from seqloom.files import sole_owner, write_bytes, write_json
from seqloom.runs.folder import clear, export
from seqloom.runs.measured_examples import measured_examples
from seqloom.weights import unique


def prune_heads(run: Any, keep: int, out: Path, texts: Sequence[str] = (), file: Path | None = None) -> dict[str, Any]:
    """Keeps the `keep` most important heads of every layer of a loaded run and writes it as a run of its own. As many in every
    layer: then the sizes of the model say it all. The run itself is changed, too. Returns what it costs."""
    backbone = run.learner.backbone
    modules = parts_of(run.learner)
    counts = set(count_heads(backbone))
    if list(modules) != ["model"] or not all(hasattr(layer.mixer, "keep_heads") for layer in backbone.stack.layers):
        raise UsageError(
            f"{run.folder}: heads of encoder–decoders and of relative attention can be gated, but not removed"
        )
    if max(counts) == 1:
        raise UsageError(f"{run.folder} has one head in every layer: there is nothing to remove")
    if not 1 <= keep < max(counts):
        raise UsageError(
            f"--keep {keep}: every layer of {run.folder} has {max(counts)} heads: keep 1 to {max(counts) - 1}"
        )
    parts = measured_parts(run, modules, texts, file)
    before, size = loss_of(parts), run.learner.size()
    kept = best_heads(importance(parts).heads, keep)
    width = backbone.stack.layers[0].mixer.head_dim
    keep_heads(backbone, kept)
    left = {f"layer {i + 1}: heads": [h + 1 for h in heads] for i, heads in kept.items()}
    costs = write_pruned(run, out, parts, {"num_heads": keep, "head_dim": width}, left, before)
    return {"kept": kept, **costs, "size_before": size}


def prune_layers(run: Any, keep: int, out: Path, texts: Sequence[str] = (), file: Path | None = None) -> dict[str, Any]:
    """The same for whole layers: keeps the `keep` layers without which the loss grows most."""
    stack = getattr(run.learner.backbone, "stack", None)
    modules = parts_of(run.learner)
    alike = stack is not None and stack.repeat == 1 and not run.config["recipe"]["model"].get("global_every")
    if list(modules) != ["model"] or not alike:
        raise UsageError(
            f"{run.folder}: layers of encoder–decoders, those that share their weights and those that take turns with windows "
            f"can be gated, but not removed"
        )
    depth = len(stack.layers)  # type: ignore[union-attr]
    if depth == 1:
        raise UsageError(f"{run.folder} has one layer: there is nothing to remove")
    if not 1 <= keep < depth:
        raise UsageError(f"--keep-layers {keep}: {run.folder} has {depth} layers: keep 1 to {depth - 1}")
    parts = measured_parts(run, modules, texts, file)
    before, size = loss_of(parts), run.learner.size()
    losses = [loss_of(parts, without_layers(parts, [("model", layer)])) for layer in range(depth)]
    kept = sorted(sorted(range(depth), key=lambda layer: -losses[layer])[:keep])
    keep_layers(run.learner.backbone, kept)
    costs = write_pruned(run, out, parts, {"num_layers": keep}, {"layers": [layer + 1 for layer in kept]}, before)
    return {"kept": kept, **costs, "size_before": size}


def measured_parts(run: Any, modules: Any, texts: Sequence[str], file: Path | None) -> Parts:
    examples, unit = measured_examples(run, texts, file)
    return Parts(run.learner, modules, examples, run.device, unit)


def write_pruned(
    run: Any, out: Path, parts: Parts, sizes: dict[str, int], left: dict[str, list[int]], before: float
) -> dict[str, Any]:
    """A run of its own. sizes: of the model, as they are now; left: what is left of it, in words and numbers from 1."""
    after = loss_of(parts)
    recipe = run.config["recipe"]
    config = run.config | {"recipe": recipe | {"model": recipe["model"] | sizes}}
    config["pruned"] = {"folder": str(run.folder), "left": left}
    with sole_owner(out):
        clear(out, overwrite=False)
        write_json(out / "config.json", config)
        run.tokenizer.save(out / "tokenizer.json")
        export({name: tensor.detach() for name, tensor in unique(run.learner).items()}, out)
        write_bytes(out / "card.md", card(config, before, after, parts.unit).encode())
    return {"loss_before": before, "loss_after": after, "unit": parts.unit, "size_after": run.learner.size()}


def card(config: dict[str, Any], before: float, after: float, unit: str) -> str:
    left = config["pruned"]["left"]
    lines = [f"- {name} {', '.join(map(str, numbers))}" for name, numbers in left.items()]
    words = f"# {config['recipe']['name']}, pruned\n\nWhat is left of {config['pruned']['folder']}:\n\n"
    return words + "\n".join(lines) + f"\n\nLoss {before:.4f} before and {after:.4f} after, {unit}.\n"
