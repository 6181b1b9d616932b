"""The model card of a run, written by the program: what it is, what it read, what it cost, what it scores."""

from pathlib import Path
from typing import Any

from seqloom.config import to_toml
from seqloom.files import write_bytes
from seqloom.progress import clock, human

# scores of tasks that tell something about texts, and what they are called
SCORES = {
    "accuracy": "accuracy", "f1": "F1", "exact_match": "exact match", "mcc": "MCC", "pearson": "Pearson",
    "spearman": "Spearman",
}  # fmt: skip


def write_card(folder: Path, config: dict[str, Any], result: dict[str, Any], manifest: dict[str, Any]) -> None:
    write_bytes(folder / "card.md", card(config, result, manifest).encode())


def cost_line(result: dict[str, Any]) -> str:
    share = "" if result["mfu"] is None else f", {result['mfu']:.1%} of the device's peak"
    return f"{result['flops']:.3g} (matrix products; {human(result['flops_per_second'])}FLOP/s{share})"


def card(config: dict[str, Any], result: dict[str, Any], manifest: dict[str, Any]) -> str:
    recipe = config["recipe"]
    learns = recipe["objective"] or recipe["task"]
    counted = learns["name"] == "counts"
    kind = "objective" if recipe["objective"] else "task"
    rows = [
        ("parameters", f"{result['parameters']:,}{' (n-grams, each with its count)' if counted else ''}"),
        ("steps", "none: it was counted" if counted else f"{result['step']:,}"),
        ("tokens read", f"{result['tokens']:,} ({result['epochs']:.2f} epochs)"),
        ("words read", f"{result['words']:,} (by the corpus' ratio of words to tokens)"),
        ("training time", f"{clock(result['seconds'])} at {human(result['tokens_per_second'])} tokens/s"),
        ("floating-point operations", cost_line(result)),
        ("peak memory", "unknown" if result["peak_memory_mb"] is None else f"{result['peak_memory_mb']:,.0f} MB"),
        ("energy", f"{result['energy_kwh']:.2g} kWh ({result['energy_method']})"),
        ("CO2", f"{result['co2_kg']:.2g} kg ({result['co2_country']}, 2023, Ember)"),
        ("steps skipped for broken numbers", f"{result['skipped']:,}"),
    ]
    scored = [split for split in ("valid", "test") if "score" in result.get(f"{split}_scores", {})]
    unit = "" if scored else " nats a token"  # else of what a task tells: an example, a word, a squared error
    if result["train_loss"] is not None:
        rows.append(("training loss", f"{result['train_loss']:.4f}{unit}, smoothed"))
    if result["valid_loss"] is not None:
        step = "" if counted else f", at step {result['best_step']:,}"
        name = "validation loss of the weights that were kept" if scored else "best validation loss"
        rows.append((name, f"{result['valid_loss']:.4f}{unit}{step}"))
    rows += [(split, told(result[f"{split}_scores"], recipe["task"])) for split in scored]
    for split in ("valid", "test"):
        scores = result.get(f"{split}_scores", {})
        if "bleu" in scores:
            shown = f"BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f} ({scores['bleu_signature']})"
            rows.append((f"translation of {split}", shown))
        if "retrieval_accuracy" in scores:
            there, back = scores["retrieval_accuracy"], scores["retrieval_accuracy_back"]
            rows.append((f"translations of {split} found", f"{there:.1%} from the source, {back:.1%} from the target"))
    splits = [
        f"| {name} | {part['documents']:,} | {part['words']:,} | {part['tokens']:,} | {part['bytes']:,} |"
        for name, part in manifest["splits"].items()
    ]
    return "\n".join(
        [
            f"# {recipe['name']}",
            "",
            f"A {recipe['model']['name']} model trained with the {kind} {learns['name']}, seed {config['seed']}.",
            "One seed: differences to another run may be noise.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows),
            "",
            "## Data",
            "",
            "| split | documents | words | tokens | bytes |",
            "|---|---|---|---|---|",
            *splits,
            "",
            *languages(manifest, result),
            f"Sources: {', '.join(source['name'] for source in manifest['sources'])}.",
            f"Tokenizer: {manifest['options'].get('tokenizer', '?')}, {manifest['vocab_size']:,} entries.",
            f"Fingerprint of the data: `{manifest['fingerprint']}`.",
            "",
            *made_by(config),
        ]
    )


def told(scores: dict[str, Any], task: dict[str, Any]) -> str:
    """What a task that tells something about texts is worth, beside always telling the most frequent."""
    shown = ", ".join(f"{name} {scores[key]:.4f}" for key, name in SCORES.items() if key in scores)
    classes = len(task.get("labels") or scores.get("per_class", ()))
    beside = [f"{classes:,} classes"] if classes else []
    if "majority" in scores:
        beside.append(f"always the most frequent: accuracy {scores['majority']:.4f}")
    return shown + (f" ({'; '.join(beside)})" if beside else "")


def languages(manifest: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """What several languages have, and how much of what is read is theirs."""
    if "languages" not in manifest:
        return []
    losses = result["valid"].get("languages", {})
    rows = [
        f"| {each['name']} | {each['tokens']:,} | {each['share']:.2%} | {each['passes']:.2f} | "
        + (f"{losses[each['name']]:.4f} |" if each["name"] in losses else "– |")
        for each in manifest["languages"]
    ]
    return [
        "| language | training tokens | share of what is read | times an epoch | last validation loss |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def made_by(config: dict[str, Any]) -> list[str]:
    """The lines that end every card: the recipe, and the versions of what ran it."""
    versions = config["versions"]
    return [
        "## Recipe",
        "",
        "```toml",
        to_toml(config["recipe"]).rstrip(),
        "```",
        "",
        f"seqloom {versions['seqloom']} ({versions['git'] or 'no checkout'}), torch {versions['torch']}, "
        f"Python {versions['python']}.",
        "",
    ]
