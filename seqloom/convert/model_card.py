"""README.md of an exported folder: a card as model hubs read it. A header in YAML says licence, language, scores and cost to
programs; below it stands the card of the run, for people."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import UsageError, printable
from seqloom.files import read_json
from seqloom.progress import human

# what a hub calls the work of a model, by the architecture of its config.json
PIPELINES = {
    "ForMaskedLM": "fill-mask", "ForPreTraining": "fill-mask", "LMHeadModel": "text-generation", "ForCausalLM": "text-generation",
    "ForSequenceClassification": "text-classification", "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering", "ForMultipleChoice": "multiple-choice", "MTModel": "translation",
}  # fmt: skip
SCORES = (
    "loss",
    "perplexity",
    "bits_per_byte",
    "accuracy",
    "f1",
    "exact_match",
    "mcc",
    "pearson",
    "spearman",
    "bleu",
    "chrf",
)


class CardOptions(NamedTuple):
    """What a run folder does not know about itself."""

    license: str | None = None
    languages: tuple[str, ...] = ()

    def check(self) -> None:
        for name in self.languages:
            if not (name.isascii() and name.replace("-", "").isalpha() and 2 <= len(name) <= 12):
                raise UsageError(f"--language {name}: give a language code such as en, de or zh")


def model_card(run: Path, their_config: dict[str, Any], options: CardOptions) -> str:
    """their_config: the exported config.json."""
    mark = record(run / "milestone.json")
    whole = run.parent.parent if mark else run
    metrics = {} if mark else record(run / "metrics.json")
    pipeline = pipeline_of(their_config)
    title = f"{whole.resolve().name}" + (f", after {mark['words']:,} words" if mark else "")
    header: dict[str, Any] = {
        "license": options.license or "unknown",
        "library_name": "transformers",
        "tags": ["seqloom", str(their_config["model_type"])],
    }
    if options.languages:
        header["language"] = list(options.languages)
    if pipeline is not None:
        header["pipeline_tag"] = pipeline
    results = results_of(metrics)
    if results and pipeline is not None:
        task = {"type": pipeline}
        header["model-index"] = [{"name": title, "results": [{"task": task, **result} for result in results]}]
        header["metrics"] = sorted({metric["type"] for result in results for metric in result["metrics"]})
    emissions = emissions_of(metrics, pipeline)
    if emissions:
        header["co2_eq_emissions"] = emissions
    lines = [*yaml_lines(header), "", *usage(title, their_config)]
    if mark:
        lines += [f"The weights of `{whole.resolve().name}` after {mark['words']:,} words: {cost_line(mark)}.", ""]
    return "\n".join([*lines, body(whole)]).rstrip() + "\n"


def record(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is none: models that were imported have no scores."""
    found = read_json(path) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def pipeline_of(config: dict[str, Any]) -> str | None:
    (architecture,) = config["architectures"]
    return next((found for ending, found in PIPELINES.items() if architecture.endswith(ending)), None)


def results_of(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """One entry for each split that was scored."""
    splits = {split: dict(metrics.get(f"{split}_scores") or {}) for split in ("valid", "test")}
    if isinstance(metrics.get("valid_loss"), float):
        splits["valid"].setdefault("loss", metrics["valid_loss"])
    found = []
    for split, scores in splits.items():
        values = [
            {"type": name, "value": scores[name], "name": name.replace("_", " ")}
            for name in SCORES
            if isinstance(scores.get(name), int | float)
        ]
        if values:
            dataset = {"name": f"own text, {split} split", "type": "own", "split": split}
            found.append({"dataset": dataset, "metrics": values})
    return found


def emissions_of(metrics: dict[str, Any], pipeline: str | None) -> dict[str, Any]:
    """Grams, as hubs count them."""
    if not isinstance(metrics.get("co2_kg"), int | float):
        return {}
    learnt = "pre-training" if pipeline in ("fill-mask", "text-generation") else "fine-tuning"
    return {
        "emissions": round(metrics["co2_kg"] * 1000, 6),
        "source": f"seqloom, {metrics.get('energy_kwh', 0):g} kWh, {metrics.get('energy_method', 'estimated')}",
        "training_type": learnt,
        "geographical_location": str(metrics.get("co2_country", "world")),
    }


def cost_line(mark: dict[str, Any]) -> str:
    return f"{mark['tokens']:,} tokens, {mark['step']:,} steps, {human(mark['flops'])} FLOPs, {mark['seconds']:,.0f} seconds"


def usage(title: str, config: dict[str, Any]) -> list[str]:
    (architecture,) = config["architectures"]
    return [
        f"# {printable(title)}",
        "",
        "```python",
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")',
        f'model = {architecture}.from_pretrained("THIS_FOLDER")',
        "```",
        "",
    ]


def body(run: Path) -> str:
    """The card of a run, below the title of this one."""
    path = run / "card.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return "\n".join(lines[1:] if lines and lines[0].startswith("# ") else lines).lstrip("\n")


def yaml_lines(values: dict[str, Any]) -> list[str]:
    """A header in YAML. A value is written as JSON, which is YAML, too, whatever its text holds."""

    def safe(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: safe(item) for key, item in value.items()}
        if isinstance(value, list):
            return [safe(item) for item in value]
        return printable(value) if isinstance(value, str) else value

    found = ["---"]
    for key, value in safe(values).items():
        if isinstance(value, list):
            found += [f"{key}:", *(f"- {json.dumps(item, ensure_ascii=False)}" for item in value)]
        else:
            found.append(f"{key}: {json.dumps(value, ensure_ascii=False)}")
    return [*found, "---"]
