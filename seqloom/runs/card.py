"""The model card of a run: what it is, what it was trained on, what it cost, what it scores."""

from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from seqloom.config import Config, to_toml
from seqloom.files import write_bytes
from seqloom.progress import clock, human
from seqloom.recipes.schema import Recipe, called
from seqloom.text.words import WHITESPACE

# scores of tasks with labelled texts, and what they are called
SCORES = {
    "accuracy": "accuracy", "f1": "F1", "exact_match": "exact match", "mcc": "MCC", "pearson": "Pearson",
    "spearman": "Spearman",
}  # fmt: skip

Number = int | float


class Part(Config):
    """Of a larger record what a card shows."""

    model_config = ConfigDict(extra="ignore")


class OtherRun(Part):
    run: str
    weights: dict[str, str]


class RunDescription(Part):
    """Of config.json."""

    recipe: Recipe
    seed: int
    versions: dict[str, str | None]
    beside: tuple[OtherRun, ...] = ()  # whose features it reads


class SplitScores(Part):
    """Of a task on one split; those of translation are apart."""

    score: Number | None = None
    accuracy: Number | None = None
    f1: Number | None = None
    exact_match: Number | None = None
    mcc: Number | None = None
    pearson: Number | None = None
    spearman: Number | None = None
    majority: Number | None = None
    per_class: dict[str, Any] | None = None
    bleu: Number | None = None
    chrf: Number | None = None
    cider: Number | None = None  # of captions
    pointing: Number | None = None
    pointing_chance: Number | None = None
    bleu_signature: str | None = None
    retrieval_accuracy: Number | None = None
    retrieval_accuracy_back: Number | None = None
    tasks: dict[str, "SplitScores"] = {}  # noqa: RUF012 (never changed)  # the others of several


class Evaluation(Part):
    languages: dict[str, Number] | None = None  # the last validation loss of each


class RunResult(Part):
    """Of metrics.json."""

    parameters: Number
    step: Number
    tokens: Number
    epochs: Number
    words: Number
    seconds: Number
    tokens_per_second: Number
    flops: Number
    flops_per_second: Number
    mfu: Number | None
    peak_memory_mb: Number | None
    energy_kwh: Number
    energy_method: str
    co2_kg: Number
    co2_country: str
    skipped: Number
    beside_flops: Number | None = None  # of the features of other runs, which were computed once
    train_loss: Number | None
    valid_loss: Number | None
    best_step: Number | None
    valid: Evaluation | None = None
    valid_scores: SplitScores = SplitScores()
    test_scores: SplitScores = SplitScores()

    def scores(self) -> dict[str, SplitScores]:
        return {"valid": self.valid_scores, "test": self.test_scores}


class SplitSize(Part):
    documents: Number
    words: Number
    tokens: Number
    bytes: Number


class Source(Part):
    name: str


class Language(Part):
    name: str
    tokens: Number
    share: Number
    passes: Number


class DataDescription(Part):
    """Of a manifest."""

    splits: dict[str, SplitSize]
    sources: tuple[Source, ...]
    options: dict[str, Any]
    vocab_size: int
    fingerprint: str
    languages: tuple[Language, ...] = ()


class Card(Part):
    config: RunDescription
    result: RunResult
    data: DataDescription


def write_card(folder: Path, card: Card) -> None:
    write_bytes(folder / "card.md", card_text(card).encode())


def card_text(card: Card) -> str:
    recipe, data = card.config.recipe, card.data
    rows = [*cost_rows(card.result, recipe.count_based), *beside_rows(card), *score_rows(card.result, recipe)]
    splits = [
        f"| {name} | {part.documents:,} | {part.words:,} | {part.tokens:,} | {part.bytes:,} |"
        for name, part in data.splits.items()
    ]
    kind = "objective" if recipe.objective else "task"
    return "\n".join(
        [
            f"# {recipe.name}",
            "",
            f"A {recipe.model['name']} model trained with the {kind} {learnt(recipe)}, seed {card.config.seed}.",
            "One seed: differences from another run may be noise.",
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
            *language_lines(data, card.result),
            f"Sources: {', '.join(source.name for source in data.sources)}.",
            f"Tokenizer: {data.options.get('tokenizer', '?')}, {data.vocab_size:,} entries.",
            *([f"Tokenizer of the sources: {two}."] if (two := data.options.get("source_tokenizer")) else []),
            f"Rule for counting words: {data.options.get('word_rule', WHITESPACE)}.",
            f"Fingerprint of the data: `{data.fingerprint}`.",
            "",
            *made_by(card.config),
        ]
    )


def learnt(recipe: Recipe) -> str:
    """What it learns; of several tasks all."""
    names = [f"{called(section)} (weight {section.get('weight', 1.0):g})" for section in recipe.tasks]
    return recipe.learns + ("" if len(names) < 2 else f" as {names[0]}, on one body with {', '.join(names[1:])}")


def cost_rows(result: RunResult, count_based: bool) -> list[tuple[str, str]]:
    share = "" if result.mfu is None else f", {result.mfu:.1%} of the device's peak"
    flops = f"{result.flops:.3g} (matrix products; {human(result.flops_per_second)}FLOP/s{share})"
    return [
        ("parameters", f"{result.parameters:,}{' (n-grams, each with its count)' if count_based else ''}"),
        ("steps", "none: the model is count-based" if count_based else f"{result.step:,}"),
        ("tokens read", f"{result.tokens:,} ({result.epochs:.2f} epochs)"),
        ("words read", f"{result.words:,} (by the corpus's ratio of words to tokens)"),
        ("training time", f"{clock(result.seconds)} at {human(result.tokens_per_second)} tokens/s"),
        ("floating-point operations", flops),
        ("peak memory", "unknown" if result.peak_memory_mb is None else f"{result.peak_memory_mb:,.0f} MB"),
        ("energy", f"{result.energy_kwh:.2g} kWh ({result.energy_method})"),
        ("CO2", f"{result.co2_kg:.2g} kg ({result.co2_country}, 2023, Ember)"),
        ("steps skipped (loss or gradient not finite)", f"{result.skipped:,}"),
    ]


def beside_rows(card: Card) -> list[tuple[str, str]]:
    """The runs that it stands on, which are not in it."""
    runs = [f"{each.run} (weights {each.weights.get('backbone.safetensors', '?')[:12]})" for each in card.config.beside]
    if not runs:
        return []
    flops = "" if card.result.beside_flops is None else f"; {card.result.beside_flops:.3g} operations, once"
    return [("reads features of other runs, which it needs", ", ".join(runs) + flops)]


def score_rows(result: RunResult, recipe: Recipe) -> list[tuple[str, str]]:
    scored = {split: scores for split, scores in result.scores().items() if scores.score is not None}
    unit = "" if scored else " nats per token"  # tasks have other units: an example, a word, a squared error
    rows = []
    if result.train_loss is not None:
        rows.append(("training loss", f"{result.train_loss:.4f}{unit}, smoothed"))
    if result.valid_loss is not None:
        step = "" if recipe.count_based else f", at step {result.best_step:,}"
        name = "validation loss of the weights that were kept" if scored else "best validation loss"
        rows.append((name, f"{result.valid_loss:.4f}{unit}{step}"))
    for split, scores in scored.items():
        rows.append((split, task_scores(scores, recipe.task)))
        rows += [(f"{split} of {name}", task_scores(each, None)) for name, each in scores.tasks.items()]
    for split, scores in result.scores().items():
        rows += translation_rows(split, scores)
    return rows


def task_scores(scores: SplitScores, task: dict[str, Any] | None) -> str:
    """The scores of a task, beside those of always predicting the most frequent class. task: its section, if that is known."""
    values = {name: getattr(scores, key) for key, name in SCORES.items()}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if value is not None)
    classes = len((task or {}).get("labels") or scores.per_class or ())
    beside = [f"{classes:,} classes"] if classes else []
    if scores.majority is not None:
        beside.append(f"always the most frequent: accuracy {scores.majority:.4f}")
    return shown + (f" ({'; '.join(beside)})" if beside else "")


def translation_rows(split: str, scores: SplitScores) -> list[tuple[str, str]]:
    rows = []
    if scores.cider is not None:
        shown = f"CIDEr-D {scores.cider:.3f}, exact match {scores.exact_match or 0:.1%}"
        shown += "" if scores.bleu is None else f", BLEU {scores.bleu:.2f} ({scores.bleu_signature})"
        if scores.pointing is not None:
            shown += (
                f"; attention points at what a word names {scores.pointing:.1%} (chance {scores.pointing_chance:.1%})"
            )
        rows.append((f"captions of {split}", shown))
    elif scores.bleu is not None:
        shown = f"BLEU {scores.bleu:.2f}, chrF {scores.chrf:.2f} ({scores.bleu_signature})"
        rows.append((f"translation of {split}", shown))
    if scores.retrieval_accuracy is not None:
        there, back = scores.retrieval_accuracy, scores.retrieval_accuracy_back
        rows.append((f"translations of {split} found", f"{there:.1%} from the source, {back:.1%} from the target"))
    return rows


def language_lines(data: DataDescription, result: RunResult) -> list[str]:
    """The sizes of several languages, and their shares of what is read."""
    if not data.languages:
        return []
    losses = (result.valid and result.valid.languages) or {}
    rows = [
        f"| {each.name} | {each.tokens:,} | {each.share:.2%} | {each.passes:.2f} | "
        + (f"{losses[each.name]:.4f} |" if each.name in losses else "– |")
        for each in data.languages
    ]
    return [
        "| language | training tokens | share of what is read | times an epoch | last validation loss |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def made_by(config: RunDescription) -> list[str]:
    """The lines that end every card: the recipe, and the versions of what ran it."""
    versions = config.versions
    return [
        "## Recipe",
        "",
        "```toml",
        to_toml(config.recipe.plain()).rstrip(),
        "```",
        "",
        f"seqloom {versions['seqloom']} ({versions['git'] or 'no checkout'}), torch {versions['torch']}, "
        f"Python {versions['python']}.",
        "",
    ]
