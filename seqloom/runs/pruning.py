"""prune: a run with fewer attention heads, which are really gone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.analyse.heads import Parts, best_heads, importance, keep_heads, loss_of, parts_of
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
    if not 1 <= keep < max(counts):
        raise UsageError(
            f"--keep {keep}: every layer of {run.folder} has {max(counts)} heads: keep 1 to {max(counts) - 1}"
        )
    examples, unit = measured_examples(run, texts, file)
    parts = Parts(run.learner, modules, examples, run.device, unit)
    before, size = loss_of(parts), run.learner.size()
    kept = best_heads(importance(parts), keep)
    width = backbone.stack.layers[0].mixer.head_dim
    keep_heads(backbone, kept)
    after = loss_of(parts)
    recipe = run.config["recipe"]
    model = recipe["model"] | {"num_heads": keep, "head_dim": width}
    config = run.config | {"recipe": recipe | {"model": model}}
    config["pruned"] = {
        "folder": str(run.folder),
        "heads": {str(i + 1): [h + 1 for h in heads] for i, heads in kept.items()},
    }
    with sole_owner(out):
        clear(out, overwrite=False)
        write_json(out / "config.json", config)
        run.tokenizer.save(out / "tokenizer.json")
        export({name: tensor.detach() for name, tensor in unique(run.learner).items()}, out)
        write_bytes(out / "card.md", card(config, before, after, unit).encode())
    return {
        "kept": kept,
        "loss_before": before,
        "loss_after": after,
        "unit": unit,
        "size_before": size,
        "size_after": run.learner.size(),
    }


def card(config: dict[str, Any], before: float, after: float, unit: str) -> str:
    kept = config["pruned"]["heads"]
    lines = [f"- layer {layer}: heads {', '.join(map(str, heads))}" for layer, heads in kept.items()]
    words = f"# {config['recipe']['name']}, pruned\n\nHeads that are left of {config['pruned']['folder']}:\n\n"
    return words + "\n".join(lines) + f"\n\nLoss {before:.4f} before and {after:.4f} after, {unit}.\n"
