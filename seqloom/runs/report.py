"""Self-contained HTML pages about runs: curves, tables, translations. No script, no font, no link outside."""

import math
from collections.abc import Sequence
from pathlib import Path

from seqloom.charts import COLOURS, Curve, chart, escaped, matrix, page, table
from seqloom.files import read_json, write_bytes
from seqloom.runs.translator import Translator
from seqloom.text.pairs import read_pairs
from seqloom.training.find_rate import Found
from seqloom.training.log import read_log


def rate_page(recipe: str, found: Found, command: str) -> str:
    """The curve of a learning-rate range test."""
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
        chart("rate, logarithm to base 10", "loss, nats a token", curves, colour),
        f"<h2>Go on</h2><pre>{escaped(command)}</pre>",
    ]
    return page(f"Learning rate of {recipe}", parts)


SHOWN = 5  # translations with their alignments
LONGEST_SHOWN = 24  # tokens of a source whose alignment is drawn


def write_translation_report(run: Translator, files: Sequence[Path]) -> Path:
    """report.html in the run folder: scores, curves, BLEU by the length of the source, translations and where they look."""
    metrics = read_json(run.folder / "metrics.json")
    lines = read_log(run.folder)
    name = run.config["recipe"]["name"]
    curves = [
        Curve("training (smoothed targets)", [(line["step"], line["loss"]) for line in lines if "loss" in line]),
        Curve("validation", [(line["step"], line["valid"]) for line in lines if "valid" in line]),
    ]
    colour = {curve.name: COLOURS[i] for i, curve in enumerate(curves)}
    parts = [f"<h1>{escaped(name)}</h1>"]
    for split in ("valid", "test"):
        scores = metrics.get(f"{split}_scores")
        if scores is None:
            continue
        rows = [[f"{split}", f"{scores['bleu']:.2f}", f"{scores['chrf']:.2f}", f"{scores['lines']:,}"]]
        parts.append(f"<h2>Translation of {split}</h2>")
        parts.append(table(["", "BLEU", "chrF", "lines"], rows, {split: COLOURS[0]}))
        parts.append(f'<p class="note">{escaped(scores["bleu_signature"])}; {escaped(scores["chrf_signature"])}</p>')
        middle = [((part["shortest"] + part["longest"]) / 2, part["bleu"]) for part in scores["by_length"]]
        parts.append(chart("words of the source", "BLEU", [Curve(split, middle)], {split: COLOURS[0]}))
    parts.append(
        "<h2>Loss</h2>" + table(["", "last"], [[c.name, f"{c.points[-1][1]:.4f}"] for c in curves if c.points], colour)
    )
    parts.append(chart("step", "nats a token", [curve for curve in curves if curve.points], colour))
    parts.append("<h2>Translations</h2>")
    pairs = [pair for pair in read_pairs(files) if 0 < len(run.tokenizer.encode(pair.source)) <= LONGEST_SHOWN][:SHOWN]
    aligned = run.learner.backbone.aligned
    found = run.translate([pair.source for pair in pairs], align=aligned, show=False)
    for pair, (best, *_) in zip(pairs, found, strict=True):
        parts.append(f"<pre>{escaped(pair.source)}\n{escaped(best.text)}\n(reference) {escaped(pair.target)}</pre>")
        if best.alignment is not None:
            tokens = [run.tokenizer.decode([i]) for i in best.tokens]
            places = [*(run.tokenizer.decode([i]) for i in run.tokenizer.encode(pair.source)), "end"]
            parts.append(matrix(tokens, places, best.alignment.tolist(), "where each token looks"))
    path = run.folder / "report.html"
    write_bytes(path, page(name, parts).encode())
    return path
