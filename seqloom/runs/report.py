"""Self-contained HTML pages about runs: curves, tables, translations."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqloom.charts import COLOURS, Curve, chart, escaped, matrix, page, table
from seqloom.errors import ModelError
from seqloom.files import read_record, write_bytes
from seqloom.runs.translator import Translator
from seqloom.text.pairs import read_pairs
from seqloom.training.find_rate import Found
from seqloom.training.log import read_log


def rate_page(recipe: str, found: Found, command: str) -> str:
    """The page of a learning-rate range test."""
    loss, marks = "loss while the rate rises", {"suggested": found.suggestion, "steepest fall": found.steepest}
    low, high = min(found.losses), max(found.losses)
    curves = [Curve(loss, [(math.log10(rate), value) for rate, value in zip(found.rates, found.losses, strict=True)])]
    curves += [
        Curve(name, [(math.log10(rate), low), (math.log10(rate), high)], dash="4 4") for name, rate in marks.items()
    ]
    colour = {curve.name: COLOURS[i] for i, curve in enumerate(curves)}
    rows = [[name, f"{rate:.2g}"] for name, rate in marks.items()]
    parts = [
        f"<h1>A learning rate for {escaped(recipe)}</h1>",
        table(["", "rate"], rows, colour),
        chart("learning rate, logarithm to base 10", "loss, nats per token", curves, colour),
        f"<h2>Next</h2><pre>{escaped(command)}</pre>",
    ]
    return page(f"Learning rate of {recipe}", parts)


SHOWN = 5  # translations with their alignments
LONGEST_SHOWN = 24  # tokens of a source whose alignment is drawn


def write_translation_report(run: Translator, files: Sequence[Path]) -> Path:
    """report.html in the run folder: scores, curves, BLEU by the length of the source, translations and their alignments."""
    parts = [f"<h1>{escaped(run.config['recipe']['name'])}</h1>", *score_parts(run.folder), *loss_parts(run.folder)]
    parts += translation_parts(run, files)
    path = run.folder / "report.html"
    write_bytes(path, page(run.config["recipe"]["name"], parts).encode())
    return path


def score_parts(folder: Path) -> list[str]:
    """A table and a chart for each split that was scored."""
    path, remedy = folder / "metrics.json", "remove it and card.md, and --resume the run"
    metrics = read_record(path, remedy)
    try:
        scored = {split: metrics[f"{split}_scores"] for split in ("valid", "test") if metrics.get(f"{split}_scores")}
        return [part for split, scores in scored.items() for part in split_parts(split, scores)]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} is damaged ({type(error).__name__}: {str(error)[:200]}): {remedy}") from error


def split_parts(split: str, scores: Mapping[str, Any]) -> list[str]:
    rows = [[f"{split}", f"{scores['bleu']:.2f}", f"{scores['chrf']:.2f}", f"{scores['lines']:,}"]]
    middle = [((part["shortest"] + part["longest"]) / 2, part["bleu"]) for part in scores["by_length"]]
    return [
        f"<h2>Translation of {split}</h2>",
        table(["", "BLEU", "chrF", "lines"], rows, {split: COLOURS[0]}),
        f'<p class="note">{escaped(scores["bleu_signature"])}; {escaped(scores["chrf_signature"])}</p>',
        chart("words of the source", "BLEU", [Curve(split, middle)], {split: COLOURS[0]}),
    ]


def loss_parts(folder: Path) -> list[str]:
    lines = read_log(folder)
    curves = [
        Curve("training (smoothed targets)", [(line["step"], line["loss"]) for line in lines if "loss" in line]),
        Curve("validation", [(line["step"], line["valid"]) for line in lines if "valid" in line]),
    ]
    colour = {curve.name: COLOURS[i] for i, curve in enumerate(curves)}
    known = [curve for curve in curves if curve.points]
    rows = [[curve.name, f"{curve.points[-1][1]:.4f}"] for curve in known]
    return ["<h2>Loss</h2>" + table(["", "last"], rows, colour), chart("step", "nats per token", known, colour)]


def translation_parts(run: Translator, files: Sequence[Path]) -> list[str]:
    parts = ["<h2>Translations</h2>"]
    pairs = [pair for pair in read_pairs(files) if 0 < len(run.tokenizer.encode(pair.source)) <= LONGEST_SHOWN][:SHOWN]
    aligned = run.learner.backbone.aligned
    found = run.translate([pair.source for pair in pairs], align=aligned, show=False)
    for pair, (best, *_) in zip(pairs, found, strict=True):
        parts.append(f"<pre>{escaped(pair.source)}\n{escaped(best.text)}\n(reference) {escaped(pair.target)}</pre>")
        if best.alignment is not None:
            tokens = [run.tokenizer.decode([i]) for i in best.tokens]
            places = [*(run.tokenizer.decode([i]) for i in run.tokenizer.encode(pair.source)), "end"]
            parts.append(matrix(tokens, places, best.alignment.tolist(), "attention of each token"))
    return parts
